//! Errors of opening and sealing tokens.

use core::fmt;

use wire::InstanceId;

use super::{TOKEN_LEN_MAX, TOKEN_LEN_MIN};
use crate::NoEntropy;

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// Invalid length in bytes.
    Length(usize),
    /// Not version 1.
    Version(u8),
    /// Sealed under a key with another id.
    UnknownKey(u32),
    /// It expired more than the clock skew ago.
    Expired,
    /// Its lifetime is over the maximum, or it expires before its issue.
    Lifetime,
    /// The AEAD rejected it: changed, sealed under another key, or for another game.
    Forged,
    /// It opened, but its content is malformed.
    Malformed,
    /// It was issued in the future, by more than the clock skew.
    NotYetIssued,
    /// It is for another instance.
    OtherServer(InstanceId),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(
                f,
                "token of {len} bytes, where {TOKEN_LEN_MIN} to {TOKEN_LEN_MAX} are allowed"
            ),
            Self::Version(version) => write!(f, "token version {version}, where 1 is known"),
            Self::UnknownKey(id) => write!(f, "token is sealed under key {id}, which is not held"),
            Self::Expired => f.write_str("token has expired"),
            Self::Lifetime => f.write_str("token lifetime is not within 300 seconds"),
            Self::Forged => f.write_str("token was changed or belongs to another key or game"),
            Self::Malformed => f.write_str("token opened, but its contents break the format"),
            Self::NotYetIssued => f.write_str("token was issued in the future"),
            Self::OtherServer(id) => write!(f, "token is good for server instance {id}"),
        }
    }
}

impl core::error::Error for TokenError {}

/// Why no token was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealTokenError {
    /// The lifetime is zero or over [`LIFETIME_MAX`](super::LIFETIME_MAX).
    Lifetime,
    /// The source of randomness failed.
    NoEntropy,
}

impl From<NoEntropy> for SealTokenError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

impl fmt::Display for SealTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lifetime => f.write_str("token lifetime is not within 300 seconds"),
            Self::NoEntropy => NoEntropy.fmt(f),
        }
    }
}

impl core::error::Error for SealTokenError {}
