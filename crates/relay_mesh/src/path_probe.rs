//! What asks over one path whether it carries, and the answer.
//!
//! Inside the probe flow of a path, sealed end to end:
//!
//! | message | body |
//! |---|---|
//! | probe 0x84 | path 1, number 4, clock of the asking end 8 |
//! | echo 0x85 | path 1, number 4, transit 8, arrived 4 |
//!
//! The echo goes back over the answering end's own path and as an unreliable message of the
//! session, and the first one counts. What it says is of the way there alone, so that the end, the
//! delay or the loss of one direction is not taken for that of the other.

#![warn(clippy::arithmetic_side_effects)]

use wire::{Instant, Reader, Writer};

use crate::flow_message::flow_code;
use crate::message::DecodeError;

/// Asks over one path whether it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// Which path of the asking end.
    pub path: u8,
    /// Number of the probe on the path.
    pub number: u32,
    /// The asking end's clock, in nanoseconds since any moment.
    pub clock: u64,
}

/// The answer to a [`PathProbe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEcho {
    /// Which path of the asking end.
    pub path: u8,
    /// Number of the probe that is answered.
    pub number: u32,
    /// The answering end's clock less that of the probe, in nanoseconds; wraps. The clocks differ
    /// by an unknown constant.
    pub transit: u64,
    /// How many probes have come over paths of this number so far, this one included; wraps.
    pub arrived: u32,
}

impl PathProbe {
    /// Length in bytes.
    pub const LEN: usize = 14;

    /// Appends the message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(flow_code::PATH_PROBE);
        writer.u8(self.path);
        writer.u32(self.number);
        writer.u64(self.clock);
    }

    /// Returns the answer to give when the own clock shows `now` and `arrived` probes have come.
    #[must_use]
    pub const fn answer(self, now: Instant, arrived: u32) -> PathEcho {
        PathEcho {
            path: self.path,
            number: self.number,
            transit: now.as_nanos().wrapping_sub(self.clock),
            arrived,
        }
    }

    /// Reads a whole message, type byte included.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(flow_code::PATH_PROBE, bytes)?;
        let probe = Self {
            path: reader.u8()?,
            number: reader.u32()?,
            clock: reader.u64()?,
        };
        whole(&reader, probe)
    }
}

impl PathEcho {
    /// Length in bytes.
    pub const LEN: usize = 18;

    /// Appends the message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(flow_code::PATH_ECHO);
        writer.u8(self.path);
        writer.u32(self.number);
        writer.u64(self.transit);
        writer.u32(self.arrived);
    }

    /// Reads a whole message, type byte included.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(flow_code::PATH_ECHO, bytes)?;
        let echo = Self {
            path: reader.u8()?,
            number: reader.u32()?,
            transit: reader.u64()?,
            arrived: reader.u32()?,
        };
        whole(&reader, echo)
    }
}

fn of_type(kind: u8, bytes: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let found = reader.u8()?;
    if found == kind {
        Ok(reader)
    } else {
        Err(DecodeError::UnknownType(found))
    }
}

fn whole<T>(reader: &Reader<'_>, message: T) -> Result<T, DecodeError> {
    if reader.is_empty() {
        Ok(message)
    } else {
        Err(DecodeError::Trailing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_frozen() {
        let probe = PathProbe {
            path: 7,
            number: 0x0102_0304,
            clock: 5,
        };
        let mut out = Vec::new();
        probe.encode(&mut out);
        assert_eq!(out, [0x84, 7, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(out.len(), PathProbe::LEN);
        let echo = probe.answer(Instant::from_nanos(3), 0x0506);
        assert_eq!(echo.transit, u64::MAX - 1);
        out.clear();
        echo.encode(&mut out);
        assert_eq!(out[..6], [0x85, 7, 1, 2, 3, 4]);
        assert_eq!(out[14..], [0, 0, 5, 6]);
        assert_eq!(out.len(), PathEcho::LEN);
        assert_eq!(PathEcho::decode(&out), Ok(echo));
        assert_eq!(PathProbe::decode(&out), Err(DecodeError::UnknownType(0x85)));
    }

    proptest! {
        #[test]
        fn only_whole_messages_are_read(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut out = Vec::new();
            if let Ok(probe) = PathProbe::decode(&bytes) {
                probe.encode(&mut out);
                prop_assert_eq!(&out, &bytes);
            }
            out.clear();
            if let Ok(echo) = PathEcho::decode(&bytes) {
                echo.encode(&mut out);
                prop_assert_eq!(&out, &bytes);
            }
        }
    }
}
