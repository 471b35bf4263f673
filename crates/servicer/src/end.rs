//! The end of a driver.

use std::fmt;
use std::io;

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The application broke off.
    Stopped,
    /// A shutdown was asked for, and the application had nothing left to do.
    Drained,
    /// A shutdown was asked for, and its deadline came first.
    DeadlinePassed,
    /// The system refused to wait.
    Failed(io::ErrorKind),
    /// The machine or the application panicked, with this message.
    Panicked(String),
    /// The thread did not end in time and was left behind; something in it blocks.
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
