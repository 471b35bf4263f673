//! Probes of a path, and their echoes.
//!
//! Inside the probe flow of a path, sealed end to end:
//!
//! | message | body |
//! |---|---|
//! | probe 0x84 | path 1, number 4, clock of the probing end 8, sampling key 4, sampling shift 1, any number of bytes of 0 |
//! | echo 0x85 | path 1, number 4, transit 8, arrived 4, data arrived 3 × 4, count 1 (≤ 4, and 0x80 if the answering end is overloaded), count × (sample 4, age 4) |
//! | padding 0x87 | path 1, any number of bytes of 0 |
//!
//! A path without data carries padding of the data's size, which is counted as data. The echo is
//! sent over the answering end's own path and as an unreliable message of the session; the first to
//! arrive counts. It describes the forward direction alone.

use wire::{Instant, Writer};

use crate::flow_key::FlowId;
use crate::flow_message::flow_code;
use crate::message::{DecodeError, of_type, whole};
use crate::splitmix;

/// A probe of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// The probing end's path.
    pub path: u8,
    /// Sequence number of the probe on the path.
    pub number: u32,
    /// The probing end's clock, in nanoseconds from any epoch.
    pub clock: u64,
    /// Selects data packets. The receiver reports their arrival times.
    pub sampling: Sampling,
}

/// A rule that selects data packets: the receiver reports their arrival times.
///
/// It is sealed end to end, so relays cannot recognize those packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Random key.
    pub key: u32,
    /// One of 2^`shift` packets is sampled; at most 31.
    pub shift: u8,
}

impl Sampling {
    /// Returns the id of a packet in reports, if the rule selects it.
    #[must_use]
    pub fn id(self, FlowId(flow): FlowId, number: u64) -> Option<u32> {
        let seed = splitmix::first(u64::from(self.key) ^ flow.rotate_left(32));
        let hash = splitmix::first(seed ^ number);
        let (high, low) = (hash >> 32, hash & u64::from(u32::MAX));
        let is_named = high.trailing_zeros() >= u32::from(self.shift.min(SHIFT_MAX));
        is_named.then(|| u32::try_from(low).unwrap_or(0))
    }
}

/// Data that arrived over a path: padding and the packets of flows, including copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataReport {
    /// Packets so far by [`size_class`]; wraps.
    pub arrived: [u32; SIZE_CLASSES],
    /// Sampled packets since the last report.
    pub samples: [DataSample; SAMPLES_MAX],
    /// Number of entries in `samples`; the others are zero.
    pub sampled: u8,
    /// Whether the answering end is overloaded, so that missing packets may be its own fault.
    pub is_overloaded: bool,
}

/// One sampled packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSample {
    /// Id by [`Sampling::id`].
    pub id: u32,
    /// Time from its arrival to the report, in microseconds.
    pub age: u32,
}

/// Returns the size class of a payload of `len` bytes.
#[must_use]
pub const fn size_class(len: usize) -> usize {
    if len <= SMALL_MAX {
        0
    } else if len <= MEDIUM_MAX {
        1
    } else {
        2
    }
}

/// The echo of a [`PathProbe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEcho {
    /// The probing end's path.
    pub path: u8,
    /// Sequence number of the probe.
    pub number: u32,
    /// The answering end's clock less that of the probe, in nanoseconds; wraps. The clocks differ
    /// by an unknown constant.
    pub transit: u64,
    /// Number of probes that arrived over paths of this number, with this one; wraps.
    pub arrived: u32,
    /// Data that arrived over the path.
    pub data: DataReport,
}

/// Padding of the data's length on a path that carries none; not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPadding {
    /// The sending end's path.
    pub path: u8,
}

impl PathPadding {
    /// Appends the message to `out`, with `len` bytes, at least 2.
    pub fn encode(self, len: usize, out: &mut Vec<u8>) {
        let end = out.len().saturating_add(len.max(2));
        out.push(flow_code::PATH_PADDING);
        out.push(self.path);
        out.resize(end, 0);
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    /// [`DecodeError`] for another type, or for a byte that is not 0.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(flow_code::PATH_PADDING, bytes)?;
        let path = reader.u8()?;
        let padding = bytes.get(2..).unwrap_or_default();
        let is_zero = padding.iter().all(|byte| *byte == 0);
        is_zero
            .then_some(Self { path })
            .ok_or(DecodeError::BadValue)
    }
}

impl PathProbe {
    /// Minimum length in bytes.
    pub const LEN: usize = 19;

    /// Appends the message to `out`, with `len` bytes, at least [`LEN`](Self::LEN).
    pub fn encode_padded(self, len: usize, out: &mut Vec<u8>) {
        let end = out.len().saturating_add(len.max(Self::LEN));
        self.encode(out);
        out.resize(end, 0);
    }

    /// Appends the message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(flow_code::PATH_PROBE);
        writer.u8(self.path);
        writer.u32(self.number);
        writer.u64(self.clock);
        writer.u32(self.sampling.key);
        writer.u8(self.sampling.shift);
    }

    /// Returns the echo. `now` is the clock of this end, where `arrived` probes and `data` arrived.
    #[must_use]
    pub const fn answer(self, now: Instant, arrived: u32, data: DataReport) -> PathEcho {
        PathEcho {
            path: self.path,
            number: self.number,
            transit: now.as_nanos().wrapping_sub(self.clock),
            arrived,
            data,
        }
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(flow_code::PATH_PROBE, bytes)?;
        let (path, number, clock) = (reader.u8()?, reader.u32()?, reader.u64()?);
        let (key, shift) = (reader.u32()?, reader.u8()?);
        if shift > SHIFT_MAX {
            return Err(DecodeError::BadValue);
        }
        let padding = bytes.get(Self::LEN..).unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Trailing);
        }
        let sampling = Sampling { key, shift };
        Ok(Self {
            path,
            number,
            clock,
            sampling,
        })
    }
}

impl PathEcho {
    /// Maximum length in bytes.
    pub const LEN_MAX: usize = 63;

    /// Appends the message to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(flow_code::PATH_ECHO);
        writer.u8(self.path);
        writer.u32(self.number);
        writer.u64(self.transit);
        writer.u32(self.arrived);
        for arrived in self.data.arrived {
            writer.u32(arrived);
        }
        let sampled = usize::from(self.data.sampled).min(SAMPLES_MAX);
        let flag = u8::from(self.data.is_overloaded).saturating_mul(OVERLOADED);
        writer.u8(u8::try_from(sampled).unwrap_or(0) | flag);
        for sample in self.data.samples.iter().take(sampled) {
            writer.u32(sample.id);
            writer.u32(sample.age);
        }
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(flow_code::PATH_ECHO, bytes)?;
        let mut echo = Self {
            path: reader.u8()?,
            number: reader.u32()?,
            transit: reader.u64()?,
            arrived: reader.u32()?,
            data: DataReport::default(),
        };
        for arrived in &mut echo.data.arrived {
            *arrived = reader.u32()?;
        }
        let count = reader.u8()?;
        echo.data.is_overloaded = count & OVERLOADED != 0;
        echo.data.sampled = count & !OVERLOADED;
        let found = usize::from(echo.data.sampled);
        if found > SAMPLES_MAX {
            let max = SAMPLES_MAX;
            return Err(DecodeError::OverLimit { found, max });
        }
        for sample in echo.data.samples.iter_mut().take(found) {
            (sample.id, sample.age) = (reader.u32()?, reader.u32()?);
        }
        whole(&reader, echo)
    }
}

/// Number of classes of [`size_class`].
pub const SIZE_CLASSES: usize = 3;
/// Maximum number of sampled packets per report.
pub const SAMPLES_MAX: usize = 4;
/// Longest payload of the first class, in bytes: state updates of most games.
const SMALL_MAX: usize = 256;
/// Longest payload of the second class, in bytes: any path with IPv6's minimum MTU carries it.
pub(crate) const MEDIUM_MAX: usize = 1_000;
/// Flag in the count of samples: the answering end is overloaded.
const OVERLOADED: u8 = 0x80;
/// Largest [`Sampling::shift`].
const SHIFT_MAX: u8 = 31;

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
            sampling: Sampling {
                key: 0x0A0B_0C0D,
                shift: 3,
            },
        };
        let mut out = Vec::new();
        probe.encode(&mut out);
        let expected = [
            0x84, 7, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5, 10, 11, 12, 13, 3,
        ];
        assert_eq!(out, expected);
        assert_eq!(out.len(), PathProbe::LEN);
        let mut data = DataReport {
            arrived: [6, 7, 8],
            sampled: 1,
            ..DataReport::default()
        };
        data.samples[0] = DataSample { id: 9, age: 10 };
        let echo = probe.answer(Instant::from_nanos(3), 0x0506, data);
        assert_eq!(echo.transit, u64::MAX - 1);
        out.clear();
        echo.encode(&mut out);
        assert_eq!(out[..6], [0x85, 7, 1, 2, 3, 4]);
        let counts = [0, 0, 5, 6, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8];
        assert_eq!(out[14..30], counts);
        assert_eq!(out[30..], [1, 0, 0, 0, 9, 0, 0, 0, 10]);
        assert_eq!(PathEcho::decode(&out), Ok(echo));
        assert_eq!(PathProbe::decode(&out), Err(DecodeError::UnknownType(0x85)));
        let mut late = echo;
        late.data.is_overloaded = true;
        out.clear();
        late.encode(&mut out);
        assert_eq!(out[30], 0x81);
        assert_eq!(PathEcho::decode(&out), Ok(late));
        out.clear();
        probe.encode_padded(21, &mut out);
        assert_eq!(out[..19], expected);
        assert_eq!(out[19..], [0, 0]);
        assert_eq!(PathProbe::decode(&out), Ok(probe));
        out[20] = 1;
        assert_eq!(PathProbe::decode(&out), Err(DecodeError::Trailing));
        out.clear();
        PathPadding { path: 7 }.encode(5, &mut out);
        assert_eq!(out, [0x87, 7, 0, 0, 0]);
        assert_eq!(PathPadding::decode(&out), Ok(PathPadding { path: 7 }));
        out[4] = 1;
        assert_eq!(PathPadding::decode(&out), Err(DecodeError::BadValue));
    }

    #[test]
    fn a_rule_names_one_of_so_many_packets() {
        for (shift, expected) in [(0, 4_096), (4, 256), (8, 16)] {
            let sampling = Sampling { key: 77, shift };
            let named = (0..4_096).filter_map(|number| sampling.id(FlowId(5), number));
            let named = named.count();
            assert!(
                named.abs_diff(expected) <= 8 + expected / 4,
                "{shift}: {named}"
            );
        }
    }

    proptest! {
        #[test]
        fn only_whole_messages_are_read(bytes in prop::collection::vec(any::<u8>(), 0..72)) {
            let mut out = Vec::new();
            if let Ok(probe) = PathProbe::decode(&bytes) {
                probe.encode_padded(bytes.len(), &mut out);
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
