//! Where two participants first differ.

use core::fmt;

/// What first differed, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Unknown: an answer did not arrive in time, or the tick is no longer kept.
    Unknown,
    /// The played inputs: the log of closed ticks differs.
    Inputs,
    /// The states, after the same inputs.
    State,
}

impl Cause {
    /// Returns its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Inputs => 1,
            Self::State => 2,
        }
    }

    /// Returns the value with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Unknown),
            1 => Some(Self::Inputs),
            2 => Some(Self::State),
            _ => None,
        }
    }
}

/// A section of a state, as begun by [`StateHasher::section`](crate::StateHasher::section).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its index, from 0; below [`SECTIONS_MAX`](crate::checksum::SECTIONS_MAX).
    pub index: u8,
    /// Its name: the server's own if it simulates, else as a player reported it.
    pub name: SectionName,
}

/// Name of a section in datagrams: at most 32 printable ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SectionName {
    /// The characters; zero past `len`.
    bytes: [u8; Self::LEN_MAX],
    /// At most [`SectionName::LEN_MAX`].
    len: u8,
}

impl SectionName {
    /// Most bytes.
    pub const LEN_MAX: usize = 32;

    /// Takes the first `len` bytes of `name`, at most [`LEN_MAX`](Self::LEN_MAX); characters other
    /// than printable ASCII become `?`.
    pub(crate) fn shortened(name: &str, len: usize) -> Self {
        let mut short = Self::EMPTY;
        for (kept, byte) in short.bytes.iter_mut().zip(name.bytes()).take(len) {
            *kept = if is_printable(byte) { byte } else { b'?' };
            short.len = short.len.saturating_add(1);
        }
        short
    }

    /// Decodes a name; `None` if it is too long or not printable ASCII.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut name = Self::EMPTY;
        name.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        name.len = u8::try_from(bytes.len()).ok()?;
        bytes.iter().copied().all(is_printable).then_some(name)
    }

    /// Returns it as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    const EMPTY: Self = Self {
        bytes: [0; Self::LEN_MAX],
        len: 0,
    };
}

impl fmt::Debug for SectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for SectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_made_printable() {
        let name = |text, len| SectionName::shortened(text, len).as_str().to_owned();
        assert_eq!(name("units", 32), "units");
        assert_eq!(name("units", 3), "uni");
        assert_eq!(name("a\nb", 32), "a?b");
        assert_eq!(name("é", 32), "??");
        assert_eq!(name(&"x".repeat(40), 99), "x".repeat(32));
    }

    #[test]
    fn names_of_a_datagram_are_checked() {
        let read = |bytes: &[u8]| SectionName::from_bytes(bytes).map(|name| name.to_string());
        assert_eq!(read(b"").as_deref(), Some(""));
        assert_eq!(read(b"units ~").as_deref(), Some("units ~"));
        assert_eq!(read(&[b'x'; 32]), Some("x".repeat(32)));
        assert_eq!(read(&[b'x'; 33]), None);
        for byte in [0, 0x1b, 0x1f, 0x7f, 0x80, 0xff] {
            assert_eq!(read(&[b'a', byte]), None, "{byte:#x}");
        }
    }

    #[test]
    fn a_cause_has_one_code() {
        for code in 0..=u8::MAX {
            let cause = Cause::from_code(code);
            assert!(cause.is_none_or(|cause| cause.code() == code));
            assert_eq!(cause.is_some(), code < 3);
        }
    }
}
