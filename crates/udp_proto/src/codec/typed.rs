//! Codecs and message types.

use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message type with its id and version.
pub trait Typed: Serialize + DeserializeOwned {
    /// Its id on the wire, unique in the application.
    const ID: u16;
    /// Increment with each change of its fields or their order.
    const VERSION: u16;
}

/// Encodes and decodes values.
pub trait Codec {
    /// Identifies the codec in a [`Catalogue`](super::Catalogue).
    const CODE: u8;

    /// Appends `value` to `out`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if the codec cannot represent it; the content of `out` is then invalid.
    fn encode<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Decodes a value from all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`].
    fn decode<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> Result<T, DecodeError>;
}

/// Limits of decoding one message.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of its values in bytes; 1 MiB. Each value, also a nested one, counts with its size in
    /// memory, at least 1; text and bytes also with their length. So this bounds the work too. The
    /// first value in a list or set counts four times. A map counts each key and value three times
    /// plus 4 bytes, and the first of each eleven times plus 32 bytes, for the spare room of its
    /// nodes. Growing containers may briefly hold three times as much, and a set of small numbers
    /// four times. The links of a `LinkedList` are not counted: one of bytes holds 24 times its
    /// count, so do not use it for a peer's messages.
    pub memory_max: usize,
    /// Nesting depth; 128. It bounds the stack.
    pub depth_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_max: 1 << 20,
            depth_max: 128,
        }
    }
}

/// Why a value was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The codec cannot represent it, for example a list of unknown length.
    Unsupported,
    /// Its type is not registered.
    Unregistered(u16),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the codec has no form for the value"),
            Self::Unregistered(id) => write!(f, "message type {id} is not registered"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// Why bytes were not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They are truncated or do not match the type.
    Malformed,
    /// Trailing bytes.
    Trailing,
    /// The value exceeds [`Limits::memory_max`] or the codec's own limit.
    TooLarge,
    /// The value exceeds [`Limits::depth_max`].
    TooDeep,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the bytes are no value of the type",
            Self::Trailing => "bytes are left over behind the value",
            Self::TooLarge => "the value takes more memory than the limit",
            Self::TooDeep => "the value goes deeper than the limit",
        })
    }
}

impl core::error::Error for DecodeError {}
