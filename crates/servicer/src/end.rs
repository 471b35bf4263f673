//! How a driver ends.

use std::fmt;
use std::io;

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The application returned `Break`.
    Stopped,
    /// A shutdown was requested, and the application had drained.
    Drained,
    /// A shutdown was requested, and its deadline passed before the application had drained.
    DeadlinePassed,
    /// The system's wait failed.
    Failed(io::ErrorKind),
    /// The machine or the application panicked, with this message.
    Panicked(String),
    /// The thread blocks and did not end in time. It was left running.
    Stuck,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped by the application"),
            Self::Drained => f.write_str("shut down in order"),
            Self::DeadlinePassed => f.write_str("shut down at the deadline"),
            Self::Failed(kind) => write!(f, "failed to wait: {kind}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Stuck => f.write_str("still running after the deadline"),
        }
    }
}
