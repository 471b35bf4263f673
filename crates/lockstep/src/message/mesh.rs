//! Datagrams between mesh peers.

use core::ops::Range;

use wire::{Generator, MatchId, Reader, Seat, Writer};

use super::{
    DecodeError, HASHES_MAX, MESH_ASK, MESH_COMMITTED, MESH_DECISION, MESH_FORWARD, MESH_HELLO,
    MESH_LEAVE, MESH_PLAY, MESH_STATEMENT, VERSION,
};
use crate::bundle::{self, Shape};
use crate::message::require;
use crate::tick::Tick;

/// Most seats of a mesh: one bit each in a set of seats.
pub const MESH_SEATS_MAX: u16 = 16;

/// Longest input delay, in ticks: a second at 60 Hz.
pub const MESH_DELAY_MAX: u8 = 60;

/// A datagram from one peer of a mesh to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshMessage<'a> {
    /// Before the first tick: the parameters of the match, and its start.
    Hello(Hello),
    /// Each tick: own inputs, and an acknowledgement of the receiver's.
    Play(Play<'a>),
    /// Each tick, in a match with commitments.
    Committed(Commitment<'a>, Play<'a>),
    /// The sender leaves.
    Leave,
    /// The members that the sender suspects.
    Statement(Statement),
    /// The next members, as all of them stated.
    Decision(Decision),
    /// The sender lacks the last inputs of a removed peer.
    Ask {
        /// The removed peer.
        seat: u8,
        /// First tick that the sender lacks.
        first: Tick,
    },
    /// The last inputs of a removed peer.
    Forward {
        /// The removed peer.
        seat: u8,
        /// Tick of the first bundle.
        first: Tick,
        /// Its inputs, one bundle per tick.
        bundles: SeatBundles<'a>,
    },
}

/// A set of seats: bit `n` is seat `n`.
pub type Seats = u16;

/// What must agree before ticks begin.
///
/// | field | bytes |
/// |---|---|
/// | kind, version | 1 each |
/// | seats of the match, own seat | 1 each |
/// | input width in bits | 2 |
/// | tick period in nanoseconds | 4 |
/// | hash interval in ticks | 1 |
/// | 1 where inputs are committed to before they are shown, else 0 | 1 |
/// | match id | 16 |
/// | content: what the application wants to be the same | 8 |
/// | sender's input delay when ticks begin, 0 to 60 | 1 |
/// | seats with a received hello, own included | 2 |
/// | sender's clock in microseconds | 4 |
/// | newest clock of the receiver that arrived | 4 |
/// | microseconds since it arrived; all ones if none did | 4 |
/// | microseconds until tick 0, signed; lowest number if that is not known | 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Must be equal on all peers.
    pub parameters: MatchParameters,
    /// The sender's seat.
    pub seat: u8,
    /// First ticks, in which the sender has no input: its input delay, at most [`MESH_DELAY_MAX`].
    pub delay: u8,
    /// Seats from which the sender received a hello, and its own.
    pub received: Seats,
    /// The sender's clock, in microseconds; wraps.
    pub sent: u32,
    /// The newest `sent` of the receiver.
    pub echo: u32,
    /// Microseconds since that arrived; `None` if none did.
    pub held: Option<u32>,
    /// Microseconds until tick 0, negative if it has begun; `None` if unknown.
    pub starts_in: Option<i32>,
}

/// Parameters that must be equal on all peers of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchParameters {
    /// Seats of the match.
    pub seats: u8,
    /// Bits of one input.
    pub width: u16,
    /// Length of a tick, in nanoseconds.
    pub period_nanos: u32,
    /// Ticks from one state hash to the next.
    pub hash_interval: u8,
    /// Whether the match has commitments.
    pub commits: bool,
    /// The match.
    pub match_id: MatchId,
    /// Hash of anything else that must be equal.
    pub content: u64,
}

/// The bytes of a [`Play`] after its kind, the usual datagram; `None` for other kinds.
pub(crate) const fn play_bytes(datagram: &[u8]) -> Option<&[u8]> {
    match datagram {
        [MESH_PLAY, bytes @ ..] => Some(bytes),
        _ => None,
    }
}

/// Decodes a [`Play`] after its kind. `known(first_low, index)` may return the valid bundle `index`
/// ticks after the one with this low half.
pub(crate) fn decode_known_play<'a, 'k>(
    bytes: &'a [u8],
    shape: Shape,
    known: impl Fn(u16, u32) -> Option<&'k [u8]>,
) -> Result<Play<'a>, DecodeError> {
    let one_seat = Shape {
        seats: 1,
        width: shape.width,
    };
    decode_play(Reader::new(bytes), one_seat, known)
}

/// Decodes a datagram of a match of `shape`, which has at most [`MESH_SEATS_MAX`] seats.
///
/// Allocates nothing; work is linear in the length of `datagram`. Accepts only the canonical
/// encoding.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found.
pub fn decode_mesh(datagram: &[u8], shape: Shape) -> Result<MeshMessage<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let one_seat = Shape {
        seats: 1,
        width: shape.width,
    };
    let kind = reader.u8()?;
    let message = match kind {
        MESH_PLAY => return decode_play(reader, one_seat, |_, _| None).map(MeshMessage::Play),
        MESH_COMMITTED => {
            let (commitment, play) = decode_committed(reader, one_seat)?;
            return Ok(MeshMessage::Committed(commitment, play));
        }
        MESH_HELLO => MeshMessage::Hello(decode_hello(&mut reader)?),
        MESH_LEAVE => MeshMessage::Leave,
        MESH_STATEMENT => MeshMessage::Statement(decode_statement(&mut reader, shape)?),
        MESH_DECISION => MeshMessage::Decision(decode_decision(&mut reader, shape)?),
        MESH_ASK => MeshMessage::Ask {
            seat: decode_seat(&mut reader, shape)?,
            first: Tick(reader.u32()?),
        },
        MESH_FORWARD => MeshMessage::Forward {
            seat: decode_seat(&mut reader, shape)?,
            first: Tick(reader.u32()?),
            bundles: SeatBundles::check(reader.take_rest(), one_seat)?,
        },
        unknown => return Err(DecodeError::UnknownKind(unknown)),
    };
    require(reader.is_empty()).map(|()| message)
}

fn decode_seat(reader: &mut Reader<'_>, shape: Shape) -> Result<u8, DecodeError> {
    let seat = reader.u8()?;
    require(u16::from(seat) < shape.seats).map(|()| seat)
}

fn decode_hello(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let seats = reader.u8()?;
    let seat = reader.u8()?;
    let parameters = MatchParameters {
        seats,
        width: reader.u16()?,
        period_nanos: reader.u32()?,
        hash_interval: reader.u8()?,
        commits: match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Malformed),
        },
        match_id: MatchId(reader.array()?),
        content: reader.u64()?,
    };
    let delay = reader.u8()?;
    let received = reader.u16()?;
    let sent = reader.u32()?;
    let echo = reader.u32()?;
    let held = reader.u32()?;
    let starts_in = reader.u32()?.cast_signed();
    let is_echo_there = held != u32::MAX;
    require(seat < seats && delay <= MESH_DELAY_MAX && (is_echo_there || echo == 0))?;
    Ok(Hello {
        parameters,
        seat,
        delay,
        received,
        sent,
        echo,
        held: is_echo_there.then_some(held),
        starts_in: (starts_in != i32::MIN).then_some(starts_in),
    })
}

pub(crate) fn write_hello(out: &mut Vec<u8>, hello: &Hello) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_HELLO);
    writer.u8(VERSION);
    writer.u8(hello.parameters.seats);
    writer.u8(hello.seat);
    writer.u16(hello.parameters.width);
    writer.u32(hello.parameters.period_nanos);
    writer.u8(hello.parameters.hash_interval);
    writer.u8(hello.parameters.commits.into());
    writer.bytes(&hello.parameters.match_id.0);
    writer.u64(hello.parameters.content);
    writer.u8(hello.delay);
    writer.u16(hello.received);
    writer.u32(hello.sent);
    writer.u32(hello.held.map_or(0, |_| hello.echo));
    writer.u32(hello.held.unwrap_or(u32::MAX));
    writer.u32(hello.starts_in.unwrap_or(i32::MIN).cast_unsigned());
}

pub(crate) fn write_mesh_leave(out: &mut Vec<u8>) {
    out.push(MESH_LEAVE);
}

pub(crate) fn write_ask(out: &mut Vec<u8>, seat: u8, first: Tick) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_ASK);
    writer.u8(seat);
    writer.u32(first.0);
}

pub(crate) fn write_forward_head(out: &mut Vec<u8>, seat: u8, first: Tick) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_FORWARD);
    writer.u8(seat);
    writer.u32(first.0);
}

/// The peers that a member suspects, and how far it holds their inputs.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | the sender's members, those of them it suspects, those that announced their leave | 2 each |
/// | for each seat that is no member, or suspected: first tick that the sender lacks | 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The members, as last decided.
    pub members: Seats,
    /// The members that the sender suspects.
    pub suspects: Seats,
    /// Members that announced their leave.
    pub leaving: Seats,
    /// By seat: first tick that the sender lacks, for seats that are not to stay; else 0.
    pub held: Ticks,
}

/// The next members, and up to which tick the others' inputs count.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | members before, members from now on, those that announced their leave | 2 each |
/// | for each seat that is no longer a member: first tick without it | 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The previous members.
    pub members: Seats,
    /// The next members.
    pub next: Seats,
    /// Members that announced their leave.
    pub leaving: Seats,
    /// By seat: first tick without it; 0 for members.
    pub cuts: Ticks,
}

/// A tick per seat.
pub type Ticks = [Tick; MESH_SEATS_MAX as usize];

pub(super) fn decode_statement(
    reader: &mut Reader<'_>,
    shape: Shape,
) -> Result<Statement, DecodeError> {
    let members = reader.u16()?;
    let suspects = reader.u16()?;
    let leaving = reader.u16()?;
    let is_sound = suspects & !members == 0 && suspects != members && is_within(members, shape);
    require(is_sound && is_within(leaving, shape))?;
    Ok(Statement {
        members,
        suspects,
        leaving,
        held: decode_ticks(reader, shape, members & !suspects)?,
    })
}

pub(super) fn decode_decision(
    reader: &mut Reader<'_>,
    shape: Shape,
) -> Result<Decision, DecodeError> {
    let members = reader.u16()?;
    let next = reader.u16()?;
    let leaving = reader.u16()?;
    let is_sound = next & !members == 0 && next != members && next != 0;
    require(is_sound && is_within(members, shape) && is_within(leaving, shape))?;
    Ok(Decision {
        members,
        next,
        leaving,
        cuts: decode_ticks(reader, shape, next)?,
    })
}

fn decode_ticks(
    reader: &mut Reader<'_>,
    shape: Shape,
    staying: Seats,
) -> Result<Ticks, DecodeError> {
    let mut ticks = Ticks::default();
    for (tick, seat) in ticks.iter_mut().zip(0..shape.seats) {
        if staying & bit(seat) == 0 {
            *tick = Tick(reader.u32()?);
        }
    }
    Ok(ticks)
}

/// Returns the set of one seat; empty past the last possible seat.
#[must_use]
pub fn bit(seat: u16) -> Seats {
    1_u16.checked_shl(seat.into()).unwrap_or(0)
}

pub(crate) fn seats_in(seats: Seats) -> impl Iterator<Item = Seat> {
    (0..MESH_SEATS_MAX)
        .filter(move |seat| seats & bit(*seat) != 0)
        .map(Seat)
}

pub(crate) fn take_lowest(seats: &mut Seats) -> Option<u16> {
    let lowest = u16::try_from(seats.trailing_zeros()).ok()?;
    *seats &= !bit(lowest);
    (lowest < MESH_SEATS_MAX).then_some(lowest)
}

pub(crate) fn pick_seat(generator: &mut Generator, seats: Seats) -> Option<Seat> {
    let pick = generator.below(seats.count_ones().into());
    seats_in(seats).nth(usize::try_from(pick).unwrap_or(0))
}

fn is_within(seats: Seats, shape: Shape) -> bool {
    let all = 1_u32
        .checked_shl(shape.seats.into())
        .unwrap_or(0)
        .wrapping_sub(1);
    u32::from(seats) & !all == 0
}

pub(crate) fn write_statement(out: &mut Vec<u8>, statement: &Statement, seats: u16) {
    Writer::new(out).u8(MESH_STATEMENT);
    write_statement_body(out, statement, seats);
}

pub(super) fn write_statement_body(out: &mut Vec<u8>, statement: &Statement, seats: u16) {
    let mut writer = Writer::new(out);
    writer.u16(statement.members);
    writer.u16(statement.suspects);
    writer.u16(statement.leaving);
    let staying = statement.members & !statement.suspects;
    write_ticks(&mut writer, &statement.held, seats, staying);
}

pub(crate) fn write_decision(out: &mut Vec<u8>, decision: &Decision, seats: u16) {
    Writer::new(out).u8(MESH_DECISION);
    write_decision_body(out, decision, seats);
}

pub(super) fn write_decision_body(out: &mut Vec<u8>, decision: &Decision, seats: u16) {
    let mut writer = Writer::new(out);
    writer.u16(decision.members);
    writer.u16(decision.next);
    writer.u16(decision.leaving);
    write_ticks(&mut writer, &decision.cuts, seats, decision.next);
}

fn write_ticks(writer: &mut Writer<'_>, ticks: &Ticks, seats: u16, staying: Seats) {
    for (tick, seat) in ticks.iter().zip(0..seats) {
        if staying & bit(seat) == 0 {
            writer.u32(tick.0);
        }
    }
}

/// What a peer says each tick.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | flags: bit 7 gap, bit 6 a hash is asked for, bit 5 zero, bits 4 to 0 number of hashes | 1 |
/// | low half of the first tick of the receiver that the sender lacks | 2 |
/// | sender's place in its ticks: low 16 bits of the next boundary, 8 bits of fraction | 3 |
/// | receiver's place less the sender's at arrival, smoothed, in 1/32 tick, signed | 2 |
/// | where a hash is asked for: low half of its step | 2 |
/// | where there are hashes: low half of the first one's step | 2 |
/// | hashes of consecutive steps | 4 each |
/// | low half of the first bundle's tick | 2 |
/// | bundles of one seat, one after the other, to the end | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Play<'a> {
    /// The header.
    pub head: PlayHead,
    /// State hashes, if any.
    pub hashes: SeatHashes<'a>,
    /// The sender's inputs.
    pub bundles: SeatBundles<'a>,
}

/// The header of a [`Play`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayHead {
    /// Whether a tick of the receiver is missing that redundancy no longer covers.
    pub is_gap: bool,
    /// Low half of the receiver's first tick that the sender lacks.
    pub next_low: u16,
    /// The sender's clock position: low 16 bits of a tick, 8 bits of fraction.
    pub clock: u32,
    /// The receiver's position minus the sender's on arrival, in 1/32 tick; [`LEAD_UNKNOWN`] before
    /// the first datagram.
    pub lead: i16,
    /// Low half of the first state hash that the sender requests.
    pub wanted_low: Option<u16>,
    /// Low half of the first bundle's tick.
    pub first_low: u16,
}

/// A [`PlayHead::lead`] without a value.
pub const LEAD_UNKNOWN: i16 = i16::MIN;

/// State hashes of consecutive steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatHashes<'a> {
    /// Low half of the first one's step.
    pub first_low: u16,
    /// 4 bytes each, at most [`HASHES_MAX`] of them.
    bytes: &'a [u8],
}

impl<'a> SeatHashes<'a> {
    /// Returns whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the hashes, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|hash| u32::from_be_bytes(*hash))
    }
}

/// Whole, well-formed bundles of one seat and consecutive ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatBundles<'a> {
    bytes: &'a [u8],
    shape: Shape,
    count: u32,
    last_len: usize,
}

impl<'a> SeatBundles<'a> {
    /// Checks the bundles that `bytes` are.
    fn check(bytes: &'a [u8], shape: Shape) -> Result<Self, DecodeError> {
        Self::check_knowing(bytes, shape, |_| None)
    }

    /// As `Bundles::check_knowing`: bytes that begin with a known bundle are not parsed.
    fn check_knowing<'k>(
        bytes: &'a [u8],
        shape: Shape,
        known: impl Fn(u32) -> Option<&'k [u8]>,
    ) -> Result<Self, DecodeError> {
        let (mut rest, mut count, mut last_len) = (bytes, 0_u32, 0);
        loop {
            let quiet = rest.iter().take_while(|byte| **byte == QUIET).count();
            if quiet > 0 {
                last_len = 1;
                rest = rest.get(quiet..).ok_or(DecodeError::Malformed)?;
                count = count.saturating_add(u32::try_from(quiet).unwrap_or(u32::MAX));
            }
            if rest.is_empty() {
                break;
            }
            last_len = match known(count) {
                Some(known) if !known.is_empty() && rest.starts_with(known) => known.len(),
                Some(_) | None => bundle::check(rest, shape)?,
            };
            rest = rest.get(last_len..).ok_or(DecodeError::Malformed)?;
            count = count.saturating_add(1);
        }
        Ok(Self {
            bytes,
            shape,
            count,
            last_len,
        })
    }

    /// Returns the number of bundles.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the last one; empty if there is none.
    pub fn last(&self) -> &'a [u8] {
        let start = self.bytes.len().saturating_sub(self.last_len);
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Returns the bundles, one per tick.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self {
            mut bytes, shape, ..
        } = *self;
        core::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let len = seat_bundle_len(bytes, shape).ok()?;
            let (bundle, rest) = bytes.split_at_checked(len)?;
            bytes = rest;
            Some(bundle)
        })
    }
}

/// A bundle of one unchanged seat: no extension, a run of one.
pub const QUIET: u8 = 0b0010_0000;

fn seat_bundle_len(bytes: &[u8], shape: Shape) -> Result<usize, DecodeError> {
    if bytes.first() == Some(&QUIET) {
        return Ok(1);
    }
    Ok(bundle::check(bytes, shape)?)
}

/// `known` is as in [`decode_known_play`].
fn decode_play<'a, 'k>(
    mut reader: Reader<'a>,
    shape: Shape,
    known: impl Fn(u16, u32) -> Option<&'k [u8]>,
) -> Result<Play<'a>, DecodeError> {
    let [
        flags,
        next_high,
        next_low,
        clock_a,
        clock_b,
        clock_c,
        lead_high,
        lead_low,
    ] = reader.array()?;
    let count = u32::from(flags & FLAGS_HASHES);
    require(flags & FLAG_ZERO == 0 && count <= HASHES_MAX)?;
    let wanted_low = if flags & FLAG_ASKS == 0 {
        None
    } else {
        Some(reader.u16()?)
    };
    let mut hashes = SeatHashes::default();
    if count > 0 {
        hashes.first_low = reader.u16()?;
        let len = usize::from(flags & FLAGS_HASHES).saturating_mul(4);
        hashes.bytes = reader.bytes(len)?;
    }
    let head = PlayHead {
        is_gap: flags & FLAG_GAP != 0,
        next_low: u16::from_be_bytes([next_high, next_low]),
        clock: u32::from_be_bytes([0, clock_a, clock_b, clock_c]),
        lead: i16::from_be_bytes([lead_high, lead_low]),
        wanted_low,
        first_low: reader.u16()?,
    };
    let known = |index| known(head.first_low, index);
    Ok(Play {
        head,
        hashes,
        bundles: SeatBundles::check_knowing(reader.take_rest(), shape, known)?,
    })
}

pub(crate) fn write_play_head(
    out: &mut Vec<u8>,
    head: &PlayHead,
    steps: &Range<u32>,
    hashes: impl Iterator<Item = u32>,
) {
    debug_assert!(steps.len() <= 16, "as many as the flags can count");
    let count = u8::try_from(steps.len()).unwrap_or(0) & FLAGS_HASHES;
    let gap = if head.is_gap { FLAG_GAP } else { 0 };
    let asks = head.wanted_low.map_or(0, |_| FLAG_ASKS);
    let [next_high, next_low] = head.next_low.to_be_bytes();
    let [_, clock_a, clock_b, clock_c] = head.clock.to_be_bytes();
    let [lead_high, lead_low] = head.lead.to_be_bytes();
    out.extend_from_slice(&[
        MESH_PLAY,
        count | gap | asks,
        next_high,
        next_low,
        clock_a,
        clock_b,
        clock_c,
        lead_high,
        lead_low,
    ]);
    if let Some(wanted) = head.wanted_low {
        out.extend_from_slice(&wanted.to_be_bytes());
    }
    if count > 0 {
        out.extend_from_slice(&Tick(steps.start).low().to_be_bytes());
        for hash in hashes {
            out.extend_from_slice(&hash.to_be_bytes());
        }
    }
    out.extend_from_slice(&head.first_low.to_be_bytes());
}

/// Longest header of a [`Play`]: all flags, 16 hashes.
pub const PLAY_HEAD_LEN_MAX: usize = 9 + 2 + 2 + 64 + 2;

const FLAG_GAP: u8 = 0x80;
const FLAG_ASKS: u8 = 0x40;
const FLAG_ZERO: u8 = 0x20;
const FLAGS_HASHES: u8 = 0x1f;

/// What the sender commits to, in front of a [`Play`] with the inputs that it shows.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | low half of the first tick that the head is not over | 2 |
/// | head: commits to all inputs before that tick | 16 |
/// | number of salts, as many as there are bundles in the play | 2 |
/// | salts of the bundles' ticks, in order | 8 each |
/// | a datagram of play | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commitment<'a> {
    /// Low half of the first tick that the head does not cover.
    pub end_low: u16,
    /// Commits to all inputs before that tick.
    pub head: [u8; 16],
    salts: &'a [[u8; COMMITTED_SALT_LEN]],
}

impl<'a> Commitment<'a> {
    /// Returns the salts of the bundles' ticks, in order.
    pub fn salts(&self) -> impl Iterator<Item = [u8; COMMITTED_SALT_LEN]> + use<'a> {
        self.salts.iter().copied()
    }
}

/// Bytes of one salt.
pub const COMMITTED_SALT_LEN: usize = 8;

/// Bytes in front of the salts.
pub const COMMITTED_HEAD_LEN: usize = 1 + 2 + 16 + 2;

fn decode_committed(
    mut reader: Reader<'_>,
    shape: Shape,
) -> Result<(Commitment<'_>, Play<'_>), DecodeError> {
    let end_low = reader.u16()?;
    let head = reader.array()?;
    let count = usize::from(reader.u16()?);
    let salts = reader.bytes(count.saturating_mul(COMMITTED_SALT_LEN))?;
    let commitment = Commitment {
        end_low,
        head,
        salts: salts.as_chunks().0,
    };
    require(reader.u8()? == MESH_PLAY)?;
    let play = decode_play(reader, shape, |_, _| None)?;
    require(usize::try_from(play.bundles.len()) == Ok(count)).map(|()| (commitment, play))
}

pub(crate) fn write_committed_head(out: &mut Vec<u8>, end_low: u16, head: &[u8; 16], count: u16) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_COMMITTED);
    writer.u16(end_low);
    writer.bytes(head);
    writer.u16(count);
}

#[cfg(test)]
mod tests;
