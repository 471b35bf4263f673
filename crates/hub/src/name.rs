//! Names of services, topics and counters.

use core::fmt;
use core::str::FromStr;

use wire::{Reader, Writer};

use crate::record::DecodeError;

/// 1 to 32 of the characters `a-z`, `0-9`, `.`, `_` and `-`.
///
/// Encoding: one length byte, then the characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Padded with zeros.
    bytes: [u8; Self::LEN_MAX],
    /// Length, at least 1.
    len: u8,
}

impl Name {
    /// Longest name, bytes.
    pub const LEN_MAX: usize = 32;

    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// [`NameError`] if the length or a character is invalid.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }

    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        // A name is always ASCII, so this never falls back.
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn from_bytes(text: &[u8]) -> Result<Self, NameError> {
        let mut bytes = [0; Self::LEN_MAX];
        let len = u8::try_from(text.len()).map_err(|_| NameError::Length(text.len()))?;
        let Some(target) = bytes.get_mut(..text.len()).filter(|_| len > 0) else {
            return Err(NameError::Length(text.len()));
        };
        target.copy_from_slice(text);
        if text.iter().all(|byte| is_allowed(*byte)) {
            Ok(Self { bytes, len })
        } else {
            Err(NameError::Character)
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.len);
        out.bytes(self.as_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.u8()?;
        Self::from_bytes(reader.bytes(usize::from(len))?).map_err(|_| DecodeError::Name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// Why a text is not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Its length in bytes; 1 to 32 are allowed.
    Length(usize),
    /// A character is not allowed.
    Character,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "name has {len} bytes where 1 to 32 are allowed"),
            Self::Character => f.write_str("name holds a character outside a-z 0-9 . _ -"),
        }
    }
}

impl core::error::Error for NameError {}

const fn is_allowed(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_1_to_32_characters() {
        assert_eq!(Name::new(""), Err(NameError::Length(0)));
        assert_eq!(Name::new(&"a".repeat(33)), Err(NameError::Length(33)));
        assert_eq!(Name::new(&"a".repeat(300)), Err(NameError::Length(300)));
        assert_eq!(Name::new(&"a".repeat(32)).unwrap().as_str().len(), 32);
        assert_eq!(Name::new("Shop"), Err(NameError::Character));
        assert_eq!(
            Name::new("match-maker.2").unwrap().to_string(),
            "match-maker.2"
        );
    }
}
