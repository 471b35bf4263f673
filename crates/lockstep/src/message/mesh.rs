//! Datagrams between mesh peers.

mod play;
use wire::{MatchId, Reader, Writer};

use crate::bundle::Shape;
use crate::message::{
    DecodeError, MESH_ASK, MESH_COMMITTED, MESH_DECISION, MESH_FORWARD, MESH_HELLO, MESH_LEAVE,
    MESH_PLAY, MESH_STATEMENT, VERSION,
};
use crate::tick::Tick;
use play::{decode_committed, decode_play};

pub use play::{
    COMMITTED_HEAD_LEN, COMMITTED_SALT_LEN, Commitment, LEAD_UNKNOWN, LaneBundles, LaneHashes,
    PLAY_HEAD_LEN_MAX, Play, PlayHead, QUIET,
};
pub(crate) use play::{write_committed_head, write_play_head};

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
        bundles: LaneBundles<'a>,
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
    let lane = Shape {
        seats: 1,
        width: shape.width,
    };
    decode_play(Reader::new(bytes), lane, known)
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
    let lane = Shape {
        seats: 1,
        width: shape.width,
    };
    let kind = reader.u8()?;
    let message = match kind {
        MESH_PLAY => return decode_play(reader, lane, |_, _| None).map(MeshMessage::Play),
        MESH_COMMITTED => {
            let (commitment, play) = decode_committed(reader, lane)?;
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
            bundles: LaneBundles::check(reader.take_rest(), lane)?,
        },
        unknown => return Err(DecodeError::UnknownKind(unknown)),
    };
    if reader.is_empty() {
        Ok(message)
    } else {
        Err(DecodeError::Malformed)
    }
}

fn decode_seat(reader: &mut Reader<'_>, shape: Shape) -> Result<u8, DecodeError> {
    let seat = reader.u8()?;
    if u16::from(seat) < shape.seats {
        Ok(seat)
    } else {
        Err(DecodeError::Malformed)
    }
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
    if seat >= seats || delay > MESH_DELAY_MAX || (!is_echo_there && echo != 0) {
        return Err(DecodeError::Malformed);
    }
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

/// Appends a hello.
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

/// Appends a leave.
pub(crate) fn write_mesh_leave(out: &mut Vec<u8>) {
    out.push(MESH_LEAVE);
}

/// Appends a request for the inputs of `seat` from `first` on.
pub(crate) fn write_ask(out: &mut Vec<u8>, seat: u8, first: Tick) {
    let mut writer = Writer::new(out);
    writer.u8(MESH_ASK);
    writer.u8(seat);
    writer.u32(first.0);
}

/// Appends the header of its answer.
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
    if !is_sound || !is_within(leaving, shape) {
        return Err(DecodeError::Malformed);
    }
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
    if !is_sound || !is_within(members, shape) || !is_within(leaving, shape) {
        return Err(DecodeError::Malformed);
    }
    Ok(Decision {
        members,
        next,
        leaving,
        cuts: decode_ticks(reader, shape, next)?,
    })
}

/// Decodes a tick for each seat that is not in `staying`.
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

fn is_within(seats: Seats, shape: Shape) -> bool {
    let all = 1_u32
        .checked_shl(shape.seats.into())
        .unwrap_or(0)
        .wrapping_sub(1);
    u32::from(seats) & !all == 0
}

/// Appends a statement for a match of `seats`.
pub(crate) fn write_statement(out: &mut Vec<u8>, statement: &Statement, seats: u16) {
    Writer::new(out).u8(MESH_STATEMENT);
    write_statement_body(out, statement, seats);
}

/// Appends a statement after its kind.
pub(super) fn write_statement_body(out: &mut Vec<u8>, statement: &Statement, seats: u16) {
    let mut writer = Writer::new(out);
    writer.u16(statement.members);
    writer.u16(statement.suspects);
    writer.u16(statement.leaving);
    let staying = statement.members & !statement.suspects;
    write_ticks(&mut writer, &statement.held, seats, staying);
}

/// Appends a decision for a match of `seats`.
pub(crate) fn write_decision(out: &mut Vec<u8>, decision: &Decision, seats: u16) {
    Writer::new(out).u8(MESH_DECISION);
    write_decision_body(out, decision, seats);
}

/// Appends a decision after its kind.
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

#[cfg(test)]
mod tests;
