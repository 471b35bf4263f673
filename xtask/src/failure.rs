//! Why a command did not succeed.

use std::io;
use std::path::PathBuf;

/// Ends a command with exit status 1 and one sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("could not start `{line}`: {source}")]
    Start {
        /// The command line.
        line: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with another status than 0.
    #[error("`{line}` ended with {status}")]
    Status {
        /// The command line.
        line: String,
        /// Its exit status, as the system words it.
        status: std::process::ExitStatus,
    },
    /// A program's output was not what its format promises.
    #[error("`{line}` wrote something unreadable: {source}")]
    Unreadable {
        /// The command line.
        line: String,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A check found faults and has printed them.
    #[error("{check}: {count} finding(s)")]
    Findings {
        /// Which check.
        check: &'static str,
        /// How many.
        count: usize,
    },
    /// A check failed for a reason of its own.
    #[error("{0}")]
    Check(String),
}
