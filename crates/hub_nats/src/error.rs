//! Why a log on NATS is not usable.

use core::fmt;

use crate::version::Version;

/// Why a connection or a take-over failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsError {
    /// A value of the configuration is invalid.
    Config(String),
    /// No server could be reached, or none accepted the connection.
    Unreachable(String),
    /// The server is too old.
    Version {
        /// Its version, as it states it.
        found: String,
        /// The least version that has what is needed.
        needed: Version,
    },
    /// The server has JetStream disabled.
    NoJetStream,
    /// A stream of this name exists, and would lose mail.
    Stream(String),
    /// Another hub writes to the log.
    Fenced(String),
    /// The server answered with an error, or not in time.
    Request(String),
}

impl NatsError {
    pub(crate) fn config(text: &str) -> Self {
        Self::Config(text.to_owned())
    }

    pub(crate) fn request(what: &str, error: impl fmt::Display) -> Self {
        Self::Request(format!("{what}: {error}"))
    }
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) | Self::Stream(text) | Self::Fenced(text) | Self::Request(text) => {
                f.write_str(text)
            }
            Self::Unreachable(text) => write!(f, "NATS cannot be reached: {text}"),
            Self::Version { found, needed } => write!(
                f,
                "the NATS server has version {found}; at least {needed} is needed"
            ),
            Self::NoJetStream => f.write_str(
                "the NATS server has JetStream disabled; enable it in its configuration",
            ),
        }
    }
}

impl core::error::Error for NatsError {}
