//! Datagrams from clients.

use core::ops::Range;

use wire::Reader;

use super::bisect::{Answer, decode_answer};
use super::{
    ANSWER, DecodeError, LEAVE, READY, REPORT, REPORT_LOADED, SNAPSHOT_REQUEST, VERSION, require,
};
use crate::bits::{BitReader, BitWriter, Malformed};
use crate::delta;
use crate::event::LeaveReason;
use crate::input::Width;
use crate::tick::Tick;

/// Most inputs in a report: those a client may have unacknowledged.
pub const INPUTS_MAX: u32 = 64;

/// A datagram from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up<'a> {
    /// It has the welcome and waits for turns.
    Ready {
        /// First tick that it lacks: 0, unless it reconnects.
        next: Tick,
    },
    /// Acknowledgement, inputs and state hashes.
    Report(Report<'a>),
    /// It leaves.
    Leave(LeaveReason),
    /// Answer to a question about a desync.
    Answer(Answer<'a>),
    /// A spectator relay requests a snapshot for its children.
    SnapshotAsk,
}

/// What a client says each tick.
///
/// | field | bits | meaning |
/// |---|---|---|
/// | next | 16 | low half of the first tick it lacks; all before it arrived |
/// | gap | 1 | a later bundle is there, and redundancy will not bring the missing one any more |
/// | lag | gamma | turns that arrived and were not simulated yet |
/// | hash count | gamma | at most 16 |
/// | – hash back | gamma | hash steps from the newest step before `next` back to the first hash |
/// | – hashes | 32 each | of consecutive hash steps |
/// | input count | gamma | at most 64 |
/// | – ahead | gamma | ticks from `next` to the first input |
/// | – fresh | 1 | the first input is coded against the neutral one, not its predecessor |
/// | – inputs | | run of unchanged ones (gamma), change ([`delta`]), run, ... to the last |
///
/// In front of it stands, in kind `0x09`, the id of the transfer that brought the last snapshot.
/// Padded with zero bits to a whole byte. A hash step is every `hash_interval`-th tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Transfer of the client's last loaded snapshot; hashes are of the state derived from it.
    pub loaded: Option<u8>,
    /// Low half of the first tick that the client lacks.
    pub next_low: u16,
    /// Whether a tick is missing that redundancy no longer covers.
    pub is_gap: bool,
    /// Turns pending in the client's simulation.
    pub lag: u32,
    /// State hashes, if any.
    pub hashes: HashRun<'a>,
    /// Inputs, if any.
    pub inputs: Option<InputRun<'a>>,
}

/// Inputs of consecutive ticks, still packed but checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRun<'a> {
    /// Ticks from the report's `next` to the first input.
    pub ahead: u32,
    /// Number of inputs, 1 to [`INPUTS_MAX`].
    pub count: u32,
    /// Whether the first is coded against the neutral input.
    pub is_fresh: bool,
    reader: BitReader<'a>,
    width: Width,
}

impl InputRun<'_> {
    /// Unpacks the inputs. `input` holds the one before the first; it becomes each in turn, and
    /// `on_input` is called with its index and its bits.
    ///
    /// Work is at most `count` inputs, whatever the bytes.
    pub fn unpack(&self, input: &mut [u8], on_input: impl FnMut(u32, &[u8])) {
        self.unpack_from(0, input, on_input);
    }

    /// As [`unpack`](Self::unpack), but skips the first `skipped`.
    pub(crate) fn unpack_from(
        &self,
        skipped: u32,
        input: &mut [u8],
        mut on_input: impl FnMut(u32, &[u8]),
    ) {
        let mut reader = self.reader;
        let walked = walk(&mut reader, self.count, |unchanged, changed, reader| {
            for index in unchanged.start.max(skipped)..unchanged.end {
                on_input(index, input);
            }
            if let Some(index) = changed {
                delta::apply(reader, self.width, input)?;
                if index >= skipped {
                    on_input(index, input);
                }
            }
            Ok(())
        });
        debug_assert!(walked.is_ok(), "`decode_up` walked the same bits");
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportHead {
    pub(crate) loaded: Option<u8>,
    pub(crate) next_low: u16,
    pub(crate) is_gap: bool,
    pub(crate) lag: u32,
    pub(crate) hashes: HashSlice,
    pub(crate) ahead: u32,
    pub(crate) is_fresh: bool,
}

/// Appends a report with `inputs`, the first of which is coded against `before`.
pub(crate) fn write_report<'i>(
    out: &mut Vec<u8>,
    head: &ReportHead,
    width: Width,
    before: &'i [u8],
    inputs: impl ExactSizeIterator<Item = &'i [u8]>,
) {
    match head.loaded {
        None => out.push(REPORT),
        Some(id) => out.extend_from_slice(&[REPORT_LOADED, id]),
    }
    let mut writer = BitWriter::new(out);
    writer.bits(head.next_low.into(), 16);
    writer.bit(head.is_gap);
    writer.gamma(head.lag);
    head.hashes.write(&mut writer);
    let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    debug_assert!(count <= INPUTS_MAX, "the history holds no more");
    writer.gamma(count);
    if count > 0 {
        writer.gamma(head.ahead);
        writer.bit(head.is_fresh);
        write_inputs(&mut writer, width, before, inputs);
    }
}

/// Returns how many of the newest `inputs` surely fit a report of `len_max` bytes, the first of
/// them coded against `neutral`; at least 1 if there are any.
pub(crate) fn fitting_inputs<'i>(
    len_max: usize,
    width: Width,
    neutral: &[u8],
    inputs: impl DoubleEndedIterator<Item = &'i [u8]>,
) -> usize {
    let bytes = len_max.saturating_sub(REPORT_HEAD_LEN_MAX);
    let mut room = u64::try_from(bytes).unwrap_or(0).saturating_mul(8);
    let mut inputs = inputs.rev().peekable();
    let mut count = 0_usize;
    while let Some(input) = inputs.next() {
        // As the first, against the neutral one; then against its predecessor.
        let first = input_len(width, neutral, input);
        if first > room && count > 0 {
            break;
        }
        count = count.saturating_add(1);
        let Some(before) = inputs.peek() else {
            break;
        };
        let Some(left) = room.checked_sub(input_len(width, before, input)) else {
            break;
        };
        room = left;
    }
    count
}

/// Most bits of an input after `before`, its part of a run included.
fn input_len(width: Width, before: &[u8], input: &[u8]) -> u64 {
    if before == input {
        // A run of n takes at most 1 + 2n bits; the change after it pays for the 1.
        2
    } else {
        u64::from(delta::len(width, before, input)).saturating_add(1)
    }
}

/// Longest report without its inputs, in bytes: two for kind and transfer, two for next, one for
/// the gap, up to 63 bits each for lag, hashes back and ahead, 64 bytes of hashes, two counts, the
/// last run and the padding.
const REPORT_HEAD_LEN_MAX: usize = 2 + 3 + 3 * 8 + 64 + 6;

fn write_inputs<'i>(
    writer: &mut BitWriter<'_>,
    width: Width,
    mut before: &'i [u8],
    inputs: impl Iterator<Item = &'i [u8]>,
) {
    let mut run = 0_u32;
    for input in inputs {
        if input == before {
            run = run.saturating_add(1);
        } else {
            writer.gamma(run);
            run = 0;
            delta::write(writer, width, before, input);
        }
        before = input;
    }
    if run > 0 {
        writer.gamma(run);
    }
}

pub(crate) fn write_ready(out: &mut Vec<u8>, next: Tick) {
    out.extend_from_slice(&[READY, VERSION]);
    out.extend_from_slice(&next.0.to_be_bytes());
}

pub(crate) fn write_snapshot_request(out: &mut Vec<u8>) {
    out.push(SNAPSHOT_REQUEST);
}

/// Appends a leave; a reason that only servers give is replaced.
pub(crate) fn write_leave(out: &mut Vec<u8>, reason: LeaveReason) {
    debug_assert!(reason.is_players(), "`leave` takes no other");
    out.extend_from_slice(&[LEAVE, reason.code()]);
}

/// Low half of `next` and gap of a spectator's report; else `None`.
pub(crate) const fn decode_bare_report(datagram: &[u8]) -> Option<(u16, bool)> {
    // After the gap follow three numbers of one bit each, all 0, and the padding.
    match *datagram {
        [REPORT, high, low, 0x70] => Some((u16::from_be_bytes([high, low]), false)),
        [REPORT, high, low, 0xf0] => Some((u16::from_be_bytes([high, low]), true)),
        _ => None,
    }
}

/// Decodes a datagram from a client with inputs of `width` bits.
///
/// Allocates nothing; work is bounded by the length of `datagram` and by [`INPUTS_MAX`]. Accepts
/// only the canonical encoding.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_up(datagram: &[u8], width: Width) -> Result<Up<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8()?;
    match kind {
        READY => {
            let version = reader.u8()?;
            if version != VERSION {
                return Err(DecodeError::Version(version));
            }
            let next = Tick(reader.u32()?);
            require(reader.is_empty()).map(|()| Up::Ready { next })
        }
        REPORT => decode_report(reader.rest(), width, None).map(Up::Report),
        REPORT_LOADED => {
            let id = reader.u8()?;
            decode_report(reader.rest(), width, Some(id)).map(Up::Report)
        }
        LEAVE => {
            let reason = LeaveReason::from_code(reader.u8()?)
                .filter(|reason| reason.is_players())
                .ok_or(DecodeError::Malformed)?;
            require(reader.is_empty()).map(|()| Up::Leave(reason))
        }
        ANSWER => decode_answer(reader).map(Up::Answer),
        SNAPSHOT_REQUEST => require(reader.is_empty()).map(|()| Up::SnapshotAsk),
        unknown => Err(DecodeError::UnknownKind(unknown)),
    }
}

fn decode_report(
    bytes: &[u8],
    width: Width,
    loaded: Option<u8>,
) -> Result<Report<'_>, DecodeError> {
    let mut reader = BitReader::new(bytes);
    let next_low = u16::try_from(reader.bits(16)?).map_err(|_| DecodeError::Malformed)?;
    let is_gap = reader.bit()?;
    let lag = reader.gamma(u32::MAX)?;
    let hashes = HashRun::take(&mut reader)?;
    let count = reader.gamma(INPUTS_MAX)?;
    let inputs = if count > 0 {
        let ahead = reader.gamma(u32::MAX)?;
        let is_fresh = reader.bit()?;
        let run = InputRun {
            ahead,
            count,
            is_fresh,
            reader,
            width,
        };
        walk(&mut reader, count, |_, changed, reader| {
            changed.map_or(Ok(()), |_| delta::check(reader, width))
        })?;
        Some(run)
    } else {
        None
    };
    reader.align()?;
    require(reader.is_empty())?;
    Ok(Report {
        loaded,
        next_low,
        is_gap,
        lag,
        hashes,
        inputs,
    })
}

/// Calls `on_run(unchanged, changed, reader)` for the runs of `count` inputs.
fn walk<'a>(
    reader: &mut BitReader<'a>,
    count: u32,
    mut on_run: impl FnMut(Range<u32>, Option<u32>, &mut BitReader<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut index = 0_u32;
    while index < count {
        let run = reader.gamma(count.saturating_sub(index))?;
        let end = index.saturating_add(run);
        on_run(index..end, (end < count).then_some(end), reader)?;
        index = end.saturating_add(1);
    }
    Ok(())
}

/// Most state hashes in a report.
pub const HASHES_MAX: u32 = 16;

/// State hashes of consecutive hash steps, still packed but checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRun<'a> {
    /// Steps from the newest step before the report's `next` back to the first hash.
    pub back: u32,
    /// Number of hashes, at most [`HASHES_MAX`].
    pub count: u32,
    reader: BitReader<'a>,
}

impl<'a> HashRun<'a> {
    /// None.
    pub const NONE: Self = Self {
        back: 0,
        count: 0,
        reader: BitReader::new(&[]),
    };

    pub(super) fn take(reader: &mut BitReader<'a>) -> Result<Self, Malformed> {
        let count = reader.gamma(HASHES_MAX)?;
        if count == 0 {
            return Ok(Self::NONE);
        }
        let back = reader.gamma(u32::MAX)?;
        let run = Self {
            back,
            count,
            reader: *reader,
        };
        for _ in 0..count {
            reader.bits(32)?;
        }
        Ok(run)
    }

    /// Returns the hashes, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut reader = self.reader;
        (0..self.count).map_while(move |_| u32::try_from(reader.bits(32).ok()?).ok())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HashSlice {
    /// Steps from the newest step before the report's `next` back to the first hash.
    pub(crate) back: u32,
    /// Valid entries of `values`, at most [`HASHES_MAX`].
    pub(crate) count: u32,
    pub(crate) values: [u32; 16],
}

impl HashSlice {
    pub(super) fn write(&self, writer: &mut BitWriter<'_>) {
        writer.gamma(self.count);
        if self.count > 0 {
            writer.gamma(self.back);
            for (hash, _) in self.values.iter().zip(0..self.count) {
                writer.bits((*hash).into(), 32);
            }
        }
    }
}

#[cfg(test)]
mod tests;
