//! Errors of commands.

use std::io;
use std::path::PathBuf;

/// An error which ends a command with exit status 1 and a one-sentence message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("could not start `{line}`: {source}")]
    Start {
        /// The command line.
        line: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program ended with a status other than 0.
    #[error("`{line}` ended with {status}")]
    Status {
        /// The command line.
        line: String,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// A program's output could not be parsed.
    #[error("`{line}` wrote something unreadable: {source}")]
    Unreadable {
        /// The command line.
        line: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A check found faults and has printed them.
    #[error("{check}: {count} finding(s)")]
    Findings {
        /// Name of the check.
        check: &'static str,
        /// Number of faults.
        count: usize,
    },
    /// Any other failure of a check.
    #[error("{0}")]
    Check(String),
}
