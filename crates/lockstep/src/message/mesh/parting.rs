//! Who leaves a mesh, and up to which tick their inputs count.

use wire::{Reader, Writer};

use super::{MESH_SEATS_MAX, Seats};
use crate::bundle::Shape;
use crate::message::{DecodeError, MESH_DECISION, MESH_STATEMENT};
use crate::tick::Tick;

/// Whom a peer plays on without, and how far it holds their inputs.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | the sender's members, those of them it suspects, those who said that they go | 2 each |
/// | for each seat that is no member, or suspected: first tick that the sender lacks | 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Who plays, as last decided.
    pub members: Seats,
    /// Whom the sender plays on without.
    pub suspects: Seats,
    /// Who said that it goes.
    pub gone: Seats,
    /// By seat: first tick that the sender lacks, of those who are not to stay; else 0.
    pub held: Ticks,
}

/// Who stays, and up to which tick the others' inputs count.
///
/// | field | bytes |
/// |---|---|
/// | kind | 1 |
/// | members before, members from now on, those who said that they go | 2 each |
/// | for each seat that is no member any more: first tick without it | 4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who played before.
    pub members: Seats,
    /// Who stays.
    pub next: Seats,
    /// Who said that it goes.
    pub gone: Seats,
    /// By seat: first tick without it; 0 for those who stay.
    pub cuts: Ticks,
}

/// A tick for each seat.
pub type Ticks = [Tick; MESH_SEATS_MAX as usize];

pub(in crate::message) fn decode_statement(
    reader: &mut Reader<'_>,
    shape: Shape,
) -> Result<Statement, DecodeError> {
    let members = reader.u16()?;
    let suspects = reader.u16()?;
    let gone = reader.u16()?;
    let is_sound = suspects & !members == 0 && suspects != members && is_within(members, shape);
    if !is_sound || !is_within(gone, shape) {
        return Err(DecodeError::Malformed);
    }
    Ok(Statement {
        members,
        suspects,
        gone,
        held: decode_ticks(reader, shape, members & !suspects)?,
    })
}

pub(in crate::message) fn decode_decision(
    reader: &mut Reader<'_>,
    shape: Shape,
) -> Result<Decision, DecodeError> {
    let members = reader.u16()?;
    let next = reader.u16()?;
    let gone = reader.u16()?;
    let is_sound = next & !members == 0 && next != members && next != 0;
    if !is_sound || !is_within(members, shape) || !is_within(gone, shape) {
        return Err(DecodeError::Malformed);
    }
    Ok(Decision {
        members,
        next,
        gone,
        cuts: decode_ticks(reader, shape, next)?,
    })
}

/// Takes a tick for each seat that is not in `staying`.
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

/// Appends what stands behind the kind of a statement.
pub(in crate::message) fn write_statement_body(
    out: &mut Vec<u8>,
    statement: &Statement,
    seats: u16,
) {
    let mut writer = Writer::new(out);
    writer.u16(statement.members);
    writer.u16(statement.suspects);
    writer.u16(statement.gone);
    let staying = statement.members & !statement.suspects;
    write_ticks(&mut writer, &statement.held, seats, staying);
}

/// Appends a decision for a match of `seats`.
pub(crate) fn write_decision(out: &mut Vec<u8>, decision: &Decision, seats: u16) {
    Writer::new(out).u8(MESH_DECISION);
    write_decision_body(out, decision, seats);
}

/// Appends what stands behind the kind of a decision.
pub(in crate::message) fn write_decision_body(out: &mut Vec<u8>, decision: &Decision, seats: u16) {
    let mut writer = Writer::new(out);
    writer.u16(decision.members);
    writer.u16(decision.next);
    writer.u16(decision.gone);
    write_ticks(&mut writer, &decision.cuts, seats, decision.next);
}

fn write_ticks(writer: &mut Writer<'_>, ticks: &Ticks, seats: u16, staying: Seats) {
    for (tick, seat) in ticks.iter().zip(0..seats) {
        if staying & bit(seat) == 0 {
            writer.u32(tick.0);
        }
    }
}
