//! Measurement of one neighbour: probe schedule, answers, and link quality.
//!
//! Probes are unreliable messages of the session with the neighbour. Each has an unpredictable ID,
//! so that it cannot be answered in advance.
//!
//! A probe is *overdue* after the 95th percentile of the last 30 s plus the largest of 2 × jitter,
//! p95 / 8 and 30 ms, clamped to 50 ms to 1 s (1 s before the first answer). An overdue probe
//! counts as lost unless its answer still arrives. Based on this, a link is:
//!
//! - suspect: if one probe is overdue and nothing has arrived since it was sent. Probes are then
//!   sent every 50 ms.
//! - dead: if 3 probes in a row are overdue and nothing arrived meanwhile. On a link in use with
//!   100 ms of RTT and 3 ms of jitter, that is at most 220 + 133 + 50 + 133 = 536 ms after the
//!   failure.
//! - back: after 3 answers on a dead link.
//! - degraded: if in 3 windows of 200 ms in a row the best answer was 25 ms over the median, or all
//!   probes of the window were lost; or if 3 of the newest 20 probes were lost (that is one window
//!   in 1,000 at a true loss of 1 %, one in 13 at 5 %, 6 in 10 at 15 %).

mod prober;
mod window;

use wire::Writer;

#[cfg(doc)]
use crate::cost::Loss;
use crate::cost::{Cost, LossCode};
use crate::message::{DecodeError, code, of_type, whole};

pub use self::prober::{Health, ProbeRate, Prober};
pub use self::window::{Summary, Window};

/// One end's view of a link, as used in link records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// Median round trip plus jitter; unroutable if the link is new or dead.
    pub delay: Cost,
    /// Share of lost probes, [beyond chance](Loss::from_probes).
    pub loss: LossCode,
}

impl LinkReport {
    /// The link is unusable.
    pub const DOWN: Self = Self {
        delay: Cost::UNROUTABLE,
        loss: LossCode::ALL,
    };

    /// One of the ends closed the link because it selected other links. Published as
    /// [`DOWN`](Self::DOWN). No measurement equals it.
    pub const PARTED: Self = Self {
        delay: Cost::ZERO,
        loss: LossCode::ALL,
    };

    /// Returns whether the link is usable.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.delay.is_routable() && self.loss.0 < LossCode::ALL.0
    }

    /// Returns the signed report `self` updated with an unsigned one, which can worsen it only so
    /// far that a route over three relays stays routable.
    #[must_use]
    pub(crate) fn raised_to(self, unsigned: Self) -> Self {
        Self {
            delay: unsigned.delay.min(self.delay.max(UNSIGNED_DELAY_MAX)),
            loss: unsigned.loss.min(self.loss.max(UNSIGNED_LOSS_MAX)),
        }
    }

    /// Returns the worse of both ends' views, for each value separately.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            delay: self.delay.max(other.delay),
            loss: self.loss.max(other.loss),
        }
    }
}

/// A probe of a neighbour, which answers at once with an [`Echo`] of the same bytes.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 1 | 0x80 |
/// | 1 | 4 | id, drawn at random |
/// | 5 | 8 | nanoseconds of the prober's clock; opaque to others |
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
        let mut reader = of_type(kind, bytes)?;
        let probe = Self {
            id: reader.u32()?,
            sent_nanos: reader.u64()?,
        };
        whole(&reader, probe)
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
    /// [`DecodeError`] for another type or length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Probe::read(code::ECHO, bytes).map(Self)
    }
}

/// Maximum delay that an unsigned delta can report if the record has less. With the price of
/// [`UNSIGNED_LOSS_MAX`] it is 797 ms, so four such links stay below the limit of 3,276 ms.
const UNSIGNED_DELAY_MAX: Cost = Cost::from_millis(400);
/// The same for loss: 18 %, at a default price of 397 ms.
const UNSIGNED_LOSS_MAX: LossCode = LossCode(180);

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
