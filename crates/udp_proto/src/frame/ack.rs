//! ACK: which packets arrived.

use core::time::Duration;

use wire::{Reader, Writer};

use super::{FrameError, read_varint, varint_len, write_varint};
use crate::packet::{Form, TruncatedNumber};

/// Body of an ACK.
///
/// | size | field | |
/// |---|---|---|
/// | 2 or 4 | largest | by the type: 0x02 short, 0x03 long |
/// | 2 | delay | units of 16 microseconds, 0xFFFF for none |
/// | 1..2 | run | varint, at most 1,023 |
/// | 1 | length of bits | at most 128 |
/// | 0..128 | bits | the last byte is not zero |
///
/// `largest` and the `run` packets below it arrived. The one below those, the gap, did not. Bit
/// `k`, lowest first, is set where the packet `k + 1` below the gap arrived. Without bits nothing
/// is said about the gap and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckFrame<'a> {
    /// Low bytes of the largest packet number that arrived; nearest to the number after the
    /// largest that the other side knows to be acknowledged.
    pub largest: TruncatedNumber,
    /// Time from the arrival of `largest` to this frame, in [`Self::DELAY_UNIT`], or
    /// [`Self::DELAY_NONE`].
    pub delay: u16,
    /// How many packets directly below `largest` arrived; at most [`Self::RUN_MAX`].
    pub run: u16,
    /// Bits from below the gap downwards; at most [`Self::BITS_LEN_MAX`] bytes, the last not 0.
    pub bits: &'a [u8],
}

impl<'a> AckFrame<'a> {
    /// Unit of the delay.
    pub const DELAY_UNIT: Duration = Duration::from_micros(16);
    /// Delay that says nothing.
    pub const DELAY_NONE: u16 = u16::MAX;
    /// Longest run.
    pub const RUN_MAX: u16 = 1_023;
    /// Most bytes of bits.
    pub const BITS_LEN_MAX: usize = 128;
    /// Longest frame, its type byte included.
    pub const LEN_MAX: usize = 138;

    /// Returns the delay as a field; [`Self::DELAY_NONE`] above 1.048 s.
    #[must_use]
    pub fn delay_field(delay: Duration) -> u16 {
        let units = delay.as_micros().checked_div(16).unwrap_or_default();
        u16::try_from(units).unwrap_or(Self::DELAY_NONE)
    }

    /// Returns the delay, where the frame has one.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        match self.delay {
            Self::DELAY_NONE => None,
            units => Some(Self::DELAY_UNIT.saturating_mul(units as u32)),
        }
    }

    /// Returns whether the packet `below` under the largest is reported as arrived.
    #[must_use]
    pub fn reports(&self, below: u64) -> bool {
        let run = u64::from(self.run);
        if below <= run {
            return true;
        }
        let Some(index) = below.checked_sub(run.saturating_add(2)) else {
            return false;
        };
        usize::try_from(index >> 3)
            .ok()
            .and_then(|byte| self.bits.get(byte))
            .is_some_and(|byte| byte >> (index & 7) & 1 == 1)
    }

    /// Returns how far below the largest the lowest reported packet lies; at most 2,048.
    #[must_use]
    pub fn lowest_below(&self) -> u64 {
        let run = u64::from(self.run);
        let Some((last, whole)) = self.bits.split_last() else {
            return run;
        };
        let Some(highest_bit) = last.checked_ilog2() else {
            return run;
        };
        let index = u64::try_from(whole.len())
            .unwrap_or(u64::MAX)
            .saturating_mul(8)
            .saturating_add(highest_bit.into());
        run.saturating_add(2).saturating_add(index)
    }

    /// Returns how many bytes [`super::Frame::encode`] appends.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        // Type, delay and the length of the bits.
        self.bits
            .len()
            .saturating_add(self.largest.form().byte_len())
            .saturating_add(varint_len(self.run))
            .saturating_add(4)
    }

    #[inline]
    pub(super) fn decode(kind: u8, reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let form = if kind == TYPE_SHORT {
            Form::Two
        } else {
            Form::Four
        };
        let largest = TruncatedNumber::decode(form, reader)?;
        let delay = reader.u16()?;
        let run = read_varint(reader)?;
        let len = usize::from(reader.u8()?);
        if run > Self::RUN_MAX || len > Self::BITS_LEN_MAX {
            return Err(FrameError::TooLong);
        }
        let bits = reader.bytes(len)?;
        if bits.last() == Some(&0) {
            return Err(FrameError::NotMinimal);
        }
        Ok(Self {
            largest,
            delay,
            run,
            bits,
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(match self.largest.form() {
            Form::Two => TYPE_SHORT,
            Form::Four => TYPE_LONG,
        });
        self.largest.encode(writer);
        writer.u16(self.delay);
        write_varint(writer, self.run);
        debug_assert!(self.bits.len() <= Self::BITS_LEN_MAX, "bits are too long");
        writer.u8(u8::try_from(self.bits.len()).unwrap_or_default());
        writer.bytes(self.bits);
    }
}

/// Type with a largest number of 2 bytes.
pub(super) const TYPE_SHORT: u8 = 0x02;
/// Type with a largest number of 4 bytes.
pub(super) const TYPE_LONG: u8 = 0x03;
