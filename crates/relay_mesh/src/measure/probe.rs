//! Encoding of probes and their answers.

use wire::{Reader, Writer};

use crate::message::{DecodeError, code};

/// A probe of a neighbour, which answers at once with an [`Echo`] of the same bytes.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 1 | 0x80 |
/// | 1 | 4 | id, drawn at random |
/// | 5 | 8 | nanoseconds of the prober's own clock; opaque to others |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Random, so that nobody can answer before the probe arrives.
    pub id: u32,
    /// Send time, by the prober's monotonic clock.
    pub sent_nanos: u64,
}

/// The answer to a [`Probe`]: the same fields with type 0x81, so it is no longer than the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo(pub Probe);

impl Probe {
    /// Length of a probe and of an echo, in bytes.
    pub const LEN: usize = 13;

    /// Appends the message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        self.write(code::PROBE, out);
    }

    /// Decodes a whole message, including the type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::read(code::PROBE, bytes)
    }

    fn write(self, kind: u8, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(kind);
        writer.u32(self.id);
        writer.u64(self.sent_nanos);
    }

    fn read(kind: u8, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let found = reader.u8()?;
        if found != kind {
            return Err(DecodeError::UnknownType(found));
        }
        let probe = Self {
            id: reader.u32()?,
            sent_nanos: reader.u64()?,
        };
        if reader.is_empty() {
            Ok(probe)
        } else {
            Err(DecodeError::Trailing)
        }
    }
}

impl Echo {
    /// Appends the message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        self.0.write(code::ECHO, out);
    }

    /// Decodes a whole message, including the type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Probe::read(code::ECHO, bytes).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_frozen() {
        let probe = Probe {
            id: 0x0102_0304,
            sent_nanos: 0x0506_0708_090a_0b0c,
        };
        let mut out = Vec::new();
        probe.encode(&mut out);
        assert_eq!(out, [0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(out.len(), Probe::LEN);
        assert_eq!(Probe::decode(&out), Ok(probe));
        assert_eq!(Echo::decode(&out), Err(DecodeError::UnknownType(0x80)));
        out.clear();
        Echo(probe).encode(&mut out);
        assert_eq!(out[0], 0x81);
        assert_eq!(Echo::decode(&out), Ok(Echo(probe)));
    }

    proptest! {
        #[test]
        fn only_whole_probes_are_read(bytes: Vec<u8>) {
            if let Ok(probe) = Probe::decode(&bytes) {
                let mut out = Vec::new();
                probe.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
