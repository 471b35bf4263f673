//! What a codec and a type of message are.

use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type of message: what its id is, and which version of it this program speaks.
pub trait Typed: Serialize + DeserializeOwned {
    /// Its id on the wire; no other type of the application has it.
    const ID: u16;
    /// Raised with each change of its fields or their order.
    const VERSION: u16;
}

/// Writes and reads values.
pub trait Codec {
    /// Tells it apart in a [`Catalogue`](super::Catalogue).
    const CODE: u8;

    /// Appends `value` to `out`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] where the codec has no form for it; what `out` holds then is not to be used.
    fn encode<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a value that takes all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`]; nothing is kept.
    fn decode<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> Result<T, DecodeError>;
}

/// What decoding one message may take, whatever its bytes claim.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of its values, bytes; 1 MiB. Each value counts with its size in memory, at least 1,
    /// and so does each one inside it; text and bytes also with their length. So this bounds the
    /// work, too. The first value in a list or set counts four times. A map counts each key and value
    /// three times and 4 bytes, and the first of each eleven times and 32 bytes: its nodes have room
    /// to spare. What grows may hold three times as much as all this for a moment, and a set of short
    /// numbers four times. What a `LinkedList` links its values with is not counted: one of bytes holds 24
    /// times what they count. For what a peer sends, take another list.
    pub memory_max: usize,
    /// Values inside values; 128. It bounds the stack.
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

/// Why a value was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The codec has no form for it, such as for a list of unknown length.
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

/// Why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too soon, or hold what the type does not have.
    Malformed,
    /// Some are left over.
    Trailing,
    /// The value takes more than [`Limits::memory_max`], or the codec's own limit.
    TooLarge,
    /// The value goes deeper than [`Limits::depth_max`].
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
