//! Datagrams from the server.

use core::num::NonZeroU8;
use core::ops::RangeInclusive;

use wire::{MatchId, Reader, Seat, Writer};

use super::bisect::{Question, decode_question};
use super::{
    BYE, DecodeError, EARLY, QUESTION, SNAPSHOT_ASK, STRETCHED, TURNS, TURNS_ASKING, VERSION,
    WELCOME, require,
};
use crate::bits::{BitReader, BitWriter, Malformed};
use crate::bundle::{self, Shape};
use crate::delta;
use crate::event::CloseReason;
use crate::input::Width;
use crate::tick::{InputDelay, Repair};

/// A datagram from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down<'a> {
    /// Parameters of the match; repeated until the client is ready.
    Welcome(Welcome),
    /// Closed ticks.
    Turns(Turns<'a>),
    /// Closed ticks, and inputs of open ticks.
    Early(EarlyInputs<'a>, Turns<'a>),
    /// The client is out of the match.
    Bye(CloseReason),
    /// Requests the client's state as a snapshot for a joining player.
    SnapshotAsk {
        /// Id of the transfer to use; a new one each time.
        id: u8,
    },
    /// A question about a desync, or its result.
    Question(Question),
}

/// Tick lengths, in nanoseconds: 1,000 to 1 ticks per second.
///
/// Shorter ones would let a server make a client wake and report as often as it likes.
pub const PERIOD_NANOS: RangeInclusive<u32> = 1_000_000..=1_000_000_000;

/// Most extra tick length, in thousandths: twice as long.
pub const STRETCH_MAX: u16 = 1_000;

/// What a client must know of its match.
///
/// | field | bytes |
/// |---|---|
/// | kind, version, mode (0 clock, 1 wait-all, 2 quorum) | 1 each |
/// | seat count, own seat (`0xffff` for a spectator), input width in bits | 2 each |
/// | tick period in nanoseconds, 1,000,000 to 1,000,000,000 | 4 |
/// | input delay in ticks, least and most, 1 to 60 | 1 each |
/// | ticks in each datagram, 1 to 8 | 1 |
/// | hash interval in ticks, 1 to 255 | 1 |
/// | match id | 16 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// When ticks close.
    pub mode: Mode,
    /// Seats and input width; both within their types' ranges.
    pub shape: Shape,
    /// The receiver's seat, below the seat count; `None` for a spectator.
    pub seat: Option<Seat>,
    /// Length of a tick, in nanoseconds; [`PERIOD_NANOS`].
    pub period_nanos: u32,
    /// Ticks between the newest tick that a client can have received and the tick its input is for.
    pub input_delay: InputDelay,
    /// Ticks in each datagram, that is copies of each bundle; 1 to 8.
    pub repair: u8,
    /// Ticks between state hashes.
    pub hash_interval: NonZeroU8,
    /// The match.
    pub match_id: MatchId,
}

const NO_SEAT: u16 = u16::MAX;

/// When ticks close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the clock.
    Clock,
    /// When all inputs have arrived.
    WaitAll,
    /// When enough inputs have arrived.
    Quorum,
}

/// Closed ticks, with what the receiver alone is told.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | low half of the tick after the newest input of the receiver that arrived | 2 |
/// | slack of that input in quarter ticks, signed; -128 where there is none | 1 |
/// | low half of the first bundle's tick | 2 |
/// | kind `0x83` only: low half of the first hash step that is asked for | 2 |
/// | bundles, one after the other, to the end | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns<'a> {
    /// Extra tick length, in thousandths of that in the welcome: at most [`STRETCH_MAX`]. Sent as a
    /// prefix if it is not 0.
    pub stretch: u16,
    /// Low half of the tick after the newest input that arrived.
    pub next_input_low: u16,
    /// How long before its tick's close the newest input arrived, in quarter ticks.
    pub slack: i8,
    /// Low half of the first bundle's tick.
    pub first_low: u16,
    /// Low half of the first missing hash step, if any.
    pub wanted_low: Option<u16>,
    /// The bundles.
    pub bundles: Bundles<'a>,
}

/// Whole, well-formed bundles of consecutive ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundles<'a> {
    bytes: &'a [u8],
    shape: Shape,
    /// Lengths of the first ones, to avoid parsing them again; 0 past the last.
    lens: [u16; LENS],
}

/// Bundles with kept lengths: more than most datagrams have.
const LENS: usize = 12;

impl<'a> Bundles<'a> {
    /// Accepts `bytes` that consist of whole, well-formed bundles.
    pub(super) fn check(bytes: &'a [u8], shape: Shape) -> Result<Self, DecodeError> {
        Self::check_knowing(bytes, shape, |_| None)
    }

    /// As [`check`](Self::check), but skips parsing of known bundles: `known(index)` may return a
    /// valid one. Bytes that begin with it are the same bundle, since no bundle is a prefix of
    /// another.
    fn check_knowing<'k>(
        bytes: &'a [u8],
        shape: Shape,
        known: impl Fn(u32) -> Option<&'k [u8]>,
    ) -> Result<Self, DecodeError> {
        let (mut rest, mut lens) = (bytes, [0; LENS]);
        let mut slots = lens.iter_mut();
        let mut index = 0_u32;
        while !rest.is_empty() {
            let len = match known(index) {
                Some(known) if !known.is_empty() && rest.starts_with(known) => known.len(),
                Some(_) | None => bundle::check(rest, shape)?,
            };
            rest = rest.get(len..).ok_or(DecodeError::Malformed)?;
            index = index.saturating_add(1);
            if let Some(slot) = slots.next() {
                *slot = u16::try_from(len).unwrap_or(0);
            }
        }
        Ok(Self { bytes, shape, lens })
    }

    /// Returns the bundles, one per tick.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self {
            mut bytes,
            shape,
            lens,
        } = *self;
        let mut lens = lens.into_iter();
        core::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let len = match lens.next() {
                Some(len @ 1..) => len.into(),
                Some(0) | None => bundle::check(bytes, shape).ok()?,
            };
            let (bundle, rest) = bytes.split_at_checked(len)?;
            bytes = rest;
            Some(bundle)
        })
    }
}

/// Decodes a datagram from the server.
///
/// Allocates nothing; work is linear in the length of `datagram`. Without a `shape`, before the
/// welcome, turns are refused as malformed.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_down(datagram: &[u8], shape: Option<Shape>) -> Result<Down<'_>, DecodeError> {
    decode_down_knowing(datagram, shape, |_, _| None)
}

/// As [`decode_down`]; `known(first_low, index)` may return the valid bundle `index` ticks after
/// the one with this low half.
pub(crate) fn decode_down_knowing<'a, 'k>(
    datagram: &'a [u8],
    shape: Option<Shape>,
    known: impl Fn(u16, u32) -> Option<&'k [u8]>,
) -> Result<Down<'a>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8()?;
    match kind {
        WELCOME => decode_welcome(reader).map(Down::Welcome),
        TURNS | TURNS_ASKING => {
            let shape = shape.ok_or(DecodeError::Malformed)?;
            decode_turns(reader, kind, shape, known).map(Down::Turns)
        }
        STRETCHED => {
            let stretch = reader.u16()?;
            let rest = reader.take_rest();
            let is_sound = (1..=STRETCH_MAX).contains(&stretch)
                && matches!(rest.first(), Some(&(TURNS | TURNS_ASKING | EARLY)));
            require(is_sound)?;
            let mut down = decode_down_knowing(rest, shape, known)?;
            if let Down::Turns(turns) | Down::Early(_, turns) = &mut down {
                turns.stretch = stretch;
            }
            Ok(down)
        }
        EARLY => {
            let shape = shape.ok_or(DecodeError::Malformed)?;
            let first_low = reader.u16()?;
            let (early, rest) = decode_early(first_low, reader.take_rest(), shape)?;
            let mut reader = Reader::new(rest);
            match reader.u8()? {
                kind @ (TURNS | TURNS_ASKING) => {
                    decode_turns(reader, kind, shape, known).map(|turns| Down::Early(early, turns))
                }
                _ => Err(DecodeError::Malformed),
            }
        }
        BYE => {
            let reason = CloseReason::from_code(reader.u8()?).ok_or(DecodeError::Malformed)?;
            require(reader.is_empty()).map(|()| Down::Bye(reason))
        }
        SNAPSHOT_ASK => {
            let id = reader.u8()?;
            require(reader.is_empty()).map(|()| Down::SnapshotAsk { id })
        }
        QUESTION => decode_question(reader).map(Down::Question),
        unknown => Err(DecodeError::UnknownKind(unknown)),
    }
}

fn decode_welcome(mut reader: Reader<'_>) -> Result<Welcome, DecodeError> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let mode = match reader.u8()? {
        0 => Mode::Clock,
        1 => Mode::WaitAll,
        2 => Mode::Quorum,
        _ => return Err(DecodeError::Malformed),
    };
    let seats = reader.u16()?;
    let seat = Some(reader.u16()?).filter(|seat| *seat != NO_SEAT);
    let width = Width::new(reader.u16()?).ok_or(DecodeError::Malformed)?;
    let period_nanos = reader.u32()?;
    let [delay_min, delay_max] = reader.array()?;
    let input_delay = InputDelay::adaptive(delay_min, delay_max).ok_or(DecodeError::Malformed)?;
    let repair = reader.u8()?;
    let hash_interval = NonZeroU8::new(reader.u8()?).ok_or(DecodeError::Malformed)?;
    let match_id = MatchId(reader.array()?);
    let is_playable =
        seats > 0 && PERIOD_NANOS.contains(&period_nanos) && Repair::new(repair).is_some();
    require(reader.is_empty() && seat.is_none_or(|seat| seat < seats) && is_playable)?;
    Ok(Welcome {
        mode,
        shape: Shape { seats, width },
        seat: seat.map(Seat),
        period_nanos,
        input_delay,
        repair,
        hash_interval,
        match_id,
    })
}

fn decode_turns<'a, 'k>(
    mut reader: Reader<'a>,
    kind: u8,
    shape: Shape,
    known: impl Fn(u16, u32) -> Option<&'k [u8]>,
) -> Result<Turns<'a>, DecodeError> {
    let next_input_low = reader.u16()?;
    let [slack] = reader.array()?;
    let first_low = reader.u16()?;
    let wanted_low = if kind == TURNS_ASKING {
        Some(reader.u16()?)
    } else {
        None
    };
    let known = |index| known(first_low, index);
    Ok(Turns {
        stretch: 0,
        next_input_low,
        slack: slack.cast_signed(),
        first_low,
        wanted_low,
        bundles: Bundles::check_knowing(reader.take_rest(), shape, known)?,
    })
}

pub(crate) fn write_welcome(out: &mut Vec<u8>, welcome: &Welcome) {
    let mut writer = Writer::new(out);
    writer.u8(WELCOME);
    writer.u8(VERSION);
    writer.u8(match welcome.mode {
        Mode::Clock => 0,
        Mode::WaitAll => 1,
        Mode::Quorum => 2,
    });
    writer.u16(welcome.shape.seats);
    writer.u16(welcome.seat.map_or(NO_SEAT, |seat| seat.0));
    writer.u16(welcome.shape.width.get());
    writer.u32(welcome.period_nanos);
    writer.u8(welcome.input_delay.min());
    writer.u8(welcome.input_delay.max());
    writer.u8(welcome.repair);
    writer.u8(welcome.hash_interval.get());
    writer.bytes(&welcome.match_id.0);
}

pub(crate) fn write_stretch(out: &mut Vec<u8>, per_mille: u16) {
    if per_mille > 0 {
        let mut writer = Writer::new(out);
        writer.u8(STRETCHED);
        writer.u16(per_mille);
    }
}

pub(crate) fn write_early_head(out: &mut Vec<u8>, first_low: u16) {
    let mut writer = Writer::new(out);
    writer.u8(EARLY);
    writer.u16(first_low);
}

pub(crate) fn write_turns_head(
    out: &mut Vec<u8>,
    next_input_low: u16,
    slack: i8,
    first_low: u16,
    wanted_low: Option<u16>,
) {
    let mut writer = Writer::new(out);
    writer.u8(if wanted_low.is_some() {
        TURNS_ASKING
    } else {
        TURNS
    });
    writer.u16(next_input_low);
    writer.u8(slack.cast_unsigned());
    writer.u16(first_low);
    if let Some(wanted) = wanted_low {
        writer.u16(wanted);
    }
}

pub(crate) fn write_snapshot_ask(out: &mut Vec<u8>, id: u8) {
    out.extend_from_slice(&[SNAPSHOT_ASK, id]);
}

pub(crate) fn write_bye(out: &mut Vec<u8>, reason: CloseReason) {
    out.extend_from_slice(&[BYE, reason.code()]);
}

/// Ticks after the next one to close for which inputs are accepted.
pub(crate) const INPUT_AHEAD_MAX: u32 = 64;

/// Inputs of some seats for ticks that are not closed; precedes turns, for clients that predict.
///
/// | field | bits |
/// |---|---|
/// | kind `0x85` | 8 |
/// | low half of the first tick that is not closed | 16 |
/// | run | Elias gamma: seats of which nothing is said; ends it where it reaches the last seat |
/// | – ahead | gamma: ticks from that first one, or from the one after the seat's last input here; 63 at most from the first |
/// | – changed | 1: the input is not the neutral one, or the seat's last input here |
/// | – change, where it is not | [`delta`] |
/// | – more | 1: another input of this seat, from `ahead` on |
/// | ... run, inputs, run, inputs to the last seat | |
///
/// Padded with zero bits to a whole byte. A message of kind `0x82` or `0x83` follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyInputs<'a> {
    /// Low half of the first tick that was not closed.
    pub first_low: u16,
    reader: BitReader<'a>,
    shape: Shape,
}

impl EarlyInputs<'_> {
    /// Unpacks the inputs: calls `on_input` with seat, ticks from the first, and bits of each.
    /// `input`, as long as `neutral`, is a work buffer.
    ///
    /// Work is linear in the length of the datagram, and at most 64 inputs per seat.
    pub fn unpack(
        &self,
        input: &mut [u8],
        neutral: &[u8],
        mut on_input: impl FnMut(Seat, u32, &[u8]),
    ) {
        let mut reader = self.reader;
        let mut last = None;
        let walked = walk(
            &mut reader,
            self.shape,
            |seat, ahead, is_changed, reader| {
                if last != Some(seat) {
                    last = Some(seat);
                    for (byte, neutral) in input.iter_mut().zip(neutral) {
                        *byte = *neutral;
                    }
                }
                if is_changed {
                    delta::apply(reader, self.shape.width, input)?;
                }
                on_input(seat, ahead, input);
                Ok(())
            },
        );
        debug_assert!(walked.is_ok(), "`decode` walked the same bits");
    }
}

/// Decodes early inputs after their kind; also returns the bytes of the following message.
fn decode_early(
    first_low: u16,
    bytes: &[u8],
    shape: Shape,
) -> Result<(EarlyInputs<'_>, &[u8]), DecodeError> {
    let mut reader = BitReader::new(bytes);
    let early = EarlyInputs {
        first_low,
        reader,
        shape,
    };
    walk(&mut reader, shape, |_, _, is_changed, reader| {
        if is_changed {
            delta::check(reader, shape.width)?;
        }
        Ok(())
    })?;
    reader.align()?;
    let rest = bytes
        .get(reader.byte_position()..)
        .ok_or(DecodeError::Truncated)?;
    Ok((early, rest))
}

/// Calls `on_input(seat, ahead, is_changed, reader)` for each input.
fn walk<'a>(
    reader: &mut BitReader<'a>,
    shape: Shape,
    mut on_input: impl FnMut(Seat, u32, bool, &mut BitReader<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut seat = 0_u16;
    loop {
        let left = shape.seats.saturating_sub(seat);
        let run = u16::try_from(reader.gamma(left.into())?).map_err(|_| Malformed)?;
        seat = seat.saturating_add(run);
        if seat >= shape.seats {
            return Ok(());
        }
        let mut ahead = 0_u32;
        loop {
            // Read no more than the rest of the 64 ticks.
            let most = INPUT_AHEAD_MAX
                .checked_sub(ahead)
                .and_then(|left| left.checked_sub(1))
                .ok_or(Malformed)?;
            ahead = ahead.saturating_add(reader.gamma(most)?);
            let is_changed = reader.bit()?;
            on_input(Seat(seat), ahead, is_changed, reader)?;
            ahead = ahead.saturating_add(1);
            if !reader.bit()? {
                break;
            }
        }
        seat = seat.saturating_add(1);
        if seat == shape.seats {
            return Ok(());
        }
    }
}

/// Encodes [`EarlyInputs`], seat by seat in order.
#[derive(Debug)]
pub(crate) struct EarlyWriter<'a> {
    bits: BitWriter<'a>,
    shape: Shape,
    seat: u16,
    /// The seat being written, and the number of ticks to the one after its last input.
    open: Option<(Seat, u32)>,
}

impl<'a> EarlyWriter<'a> {
    pub(crate) const fn new(bits: BitWriter<'a>, shape: Shape) -> Self {
        Self {
            bits,
            shape,
            seat: 0,
            open: None,
        }
    }

    /// Most bytes that one more input takes, including the end of the message.
    pub(crate) fn input_len_max(shape: Shape) -> usize {
        // The bit that ends the previous seat, a run, ahead, two flags, and the last run.
        const FRAME: u32 = 1 + 31 + 13 + 2 + 33;
        let bits = delta::len_max(shape.width).saturating_add(FRAME);
        usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
    }

    /// Adds an input of `seat`, `ahead` ticks from the first; `before` is the seat's previous one
    /// here, or the neutral one. Call it in order of seats and ticks.
    pub(crate) fn input(&mut self, seat: Seat, ahead: u32, before: &[u8], input: &[u8]) {
        let from = match self.open {
            Some((open, next)) if open == seat => {
                self.bits.bit(true);
                next
            }
            Some(_) | None => {
                self.close_seat();
                self.bits.gamma(seat.0.saturating_sub(self.seat).into());
                self.seat = seat.0.saturating_add(1);
                0
            }
        };
        self.bits.gamma(ahead.saturating_sub(from));
        self.bits.bit(before != input);
        if before != input {
            delta::write(&mut self.bits, self.shape.width, before, input);
        }
        self.open = Some((seat, ahead.saturating_add(1)));
    }

    pub(crate) const fn out_len(&self) -> usize {
        self.bits.out_len()
    }

    pub(crate) fn finish(mut self) {
        self.close_seat();
        let left = self.shape.seats.saturating_sub(self.seat);
        if left > 0 {
            self.bits.gamma(left.into());
        }
    }

    fn close_seat(&mut self) {
        if self.open.take().is_some() {
            self.bits.bit(false);
        }
    }
}

#[cfg(test)]
mod tests;
