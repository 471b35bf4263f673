//! Messages between neighbours about signed configuration.

use wire::{Reader, Writer};

use super::chain::BUNDLE_LEN_MAX;
use super::chain::HeldVersion;
use crate::message::{DecodeError, code};

/// A message about configuration; reliable channel.
///
/// | type | message | body |
/// |---|---|---|
/// | 0x30 | version, at the start of a session and after each change | version 8, tag of the admin keys 8 |
/// | 0x31 | request for one piece | version 8, offset 4 |
/// | 0x32 | piece | version 8, length of the bundle 4 (≤ 1,048,576), offset 4, 1 to 8,192 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigMessage<'a> {
    /// The version that the sender holds; unproven until the bundle is verified.
    Version(HeldVersion),
    /// Requests the piece at an offset.
    Request {
        /// Version of the bundle.
        version: u64,
        /// Offset of the piece, in bytes.
        offset: u32,
    },
    /// A piece of a bundle.
    Piece(Piece<'a>),
}

/// A piece of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Version of the bundle.
    pub version: u64,
    /// Length of the whole bundle, in bytes.
    pub len: u32,
    /// Offset of the piece, in bytes.
    pub offset: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> ConfigMessage<'a> {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match *self {
            Self::Version(held) => {
                writer.u8(code::CONFIG_VERSION);
                writer.u64(held.version);
                writer.u64(held.keys);
            }
            Self::Request { version, offset } => {
                writer.u8(code::CONFIG_REQUEST);
                writer.u64(version);
                writer.u32(offset);
            }
            Self::Piece(piece) => {
                writer.u8(code::CONFIG);
                writer.u64(piece.version);
                writer.u32(piece.len);
                writer.u32(piece.offset);
                writer.bytes(piece.bytes);
            }
        }
    }

    /// Decodes a whole message.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            code::CONFIG_VERSION => Self::Version(HeldVersion {
                version: reader.u64()?,
                keys: reader.u64()?,
            }),
            code::CONFIG_REQUEST => Self::Request {
                version: reader.u64()?,
                offset: reader.u32()?,
            },
            code::CONFIG => Self::Piece(Piece::decode(&mut reader)?),
            other => return Err(DecodeError::UnknownType(other)),
        };
        if reader.is_empty() {
            Ok(message)
        } else {
            Err(DecodeError::Trailing)
        }
    }
}

impl<'a> Piece<'a> {
    /// Longest piece, in bytes.
    pub const LEN_MAX: usize = 8_192;

    /// Returns the piece of `bundle` at `offset`; `None` past its end.
    #[must_use]
    pub fn cut(version: u64, bundle: &'a [u8], offset: u32) -> Option<Self> {
        let rest = bundle.get(usize::try_from(offset).ok()?..)?;
        let bytes = rest.get(..Self::LEN_MAX).unwrap_or(rest);
        (!bytes.is_empty()).then_some(Self {
            version,
            len: u32::try_from(bundle.len()).ok()?,
            offset,
            bytes,
        })
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let version = reader.u64()?;
        let len = reader.u32()?;
        let offset = reader.u32()?;
        let bytes = reader.take_rest();
        let max = BUNDLE_LEN_MAX;
        let found = usize::try_from(len).unwrap_or(usize::MAX);
        if found > max {
            return Err(DecodeError::OverLimit { found, max });
        }
        let max = Self::LEN_MAX;
        let found = bytes.len();
        if found > max {
            return Err(DecodeError::OverLimit { found, max });
        }
        let end = u32::try_from(found)
            .ok()
            .and_then(|count| offset.checked_add(count));
        if found == 0 || end.is_none_or(|end| end > len) {
            return Err(DecodeError::BadValue);
        }
        Ok(Self {
            version,
            len,
            offset,
            bytes,
        })
    }
}
