//! Datagrams between the players of a hosted match, in addition to those of servers and clients.

use wire::{Reader, Writer};

use super::down::Bundles;
use super::mesh::{
    Decision, MESH_SEATS_MAX, Seats, Statement, decode_decision, decode_statement,
    write_decision_body, write_statement_body,
};
use super::{
    DecodeError, HOSTED_ASK, HOSTED_DECISION, HOSTED_FORWARD, HOSTED_LEAVE, HOSTED_PRESENCE,
    HOSTED_STATEMENT, VERSION, require,
};
use crate::bundle::Shape;
use crate::tick::Tick;

/// Header of a [`HostedMessage::Forward`], in bytes.
pub const FORWARD_HEAD_LEN: usize = 5;

/// A datagram between players of a hosted match, in addition to those of servers and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostedMessage<'a> {
    /// The sender is present.
    Presence(Presence),
    /// The sender leaves.
    Leave,
    /// The members that the sender suspects. If the host is one of them, also how many closed ticks
    /// it holds, and that it accepts no more from this host.
    Statement {
        /// Number of views before the sender's.
        epoch: u8,
        /// The statement.
        statement: Statement,
    },
    /// The next members, as all of them stated; the lowest seat hosts if the host is out.
    Decision {
        /// Number of views before the new one.
        epoch: u8,
        /// The decision.
        decision: Decision,
    },
    /// The sender is to host, and lacks closed ticks.
    Ask {
        /// First tick that it lacks.
        first: Tick,
    },
    /// Answer to `Ask`: closed ticks.
    Forward {
        /// Tick of the first bundle.
        first: Tick,
        /// Bundles of all seats, one per tick.
        bundles: Bundles<'a>,
    },
}

/// Sent four times per [`host_timeout`](crate::HostedConfig::host_timeout).
///
/// | field | bytes |
/// |---|---|
/// | kind, version | 1 each |
/// | views before the sender's, at most 15 | 1 |
/// | the sender's members | 2 |
/// | host suspected: 0 or 1 | 1 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Number of views before the sender's.
    pub epoch: u8,
    /// The sender's members.
    pub members: Seats,
    /// Whether the sender did not receive the host recently or, as the host, too few of the others.
    pub host_suspected: bool,
}

/// Decodes a datagram of a hosted match of `shape`, which has at most [`MESH_SEATS_MAX`] seats.
///
/// Allocates nothing; work is linear in the length of `datagram`. Accepts only the canonical
/// encoding.
///
/// # Errors
///
/// [`DecodeError`], for the first fault found; unknown kinds belong to a server or a client.
pub fn decode_hosted(datagram: &[u8], shape: Shape) -> Result<HostedMessage<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let message = match reader.u8()? {
        HOSTED_PRESENCE => HostedMessage::Presence(decode_presence(&mut reader, shape)?),
        HOSTED_LEAVE => HostedMessage::Leave,
        HOSTED_STATEMENT => HostedMessage::Statement {
            epoch: decode_epoch(&mut reader)?,
            statement: decode_statement(&mut reader, shape)?,
        },
        HOSTED_DECISION => HostedMessage::Decision {
            epoch: decode_epoch(&mut reader)?,
            decision: decode_decision(&mut reader, shape)?,
        },
        HOSTED_ASK => HostedMessage::Ask {
            first: Tick(reader.u32()?),
        },
        HOSTED_FORWARD => HostedMessage::Forward {
            first: Tick(reader.u32()?),
            bundles: Bundles::check(reader.take_rest(), shape)?,
        },
        unknown => return Err(DecodeError::UnknownKind(unknown)),
    };
    require(reader.is_empty()).map(|()| message)
}

fn decode_presence(reader: &mut Reader<'_>, shape: Shape) -> Result<Presence, DecodeError> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let epoch = decode_epoch(reader)?;
    let members = reader.u16()?;
    let doubt = reader.u8()?;
    let past = 16_u32.saturating_sub(shape.seats.into());
    let is_within = members.leading_zeros() >= past;
    require(members != 0 && doubt <= 1 && is_within)?;
    Ok(Presence {
        epoch,
        members,
        host_suspected: doubt == 1,
    })
}

/// Each view has fewer members than the one before.
fn decode_epoch(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    let epoch = reader.u8()?;
    require(u16::from(epoch) < MESH_SEATS_MAX).map(|()| epoch)
}

pub(crate) fn write_presence(out: &mut Vec<u8>, presence: Presence) {
    let mut writer = Writer::new(out);
    writer.u8(HOSTED_PRESENCE);
    writer.u8(VERSION);
    writer.u8(presence.epoch);
    writer.u16(presence.members);
    writer.u8(presence.host_suspected.into());
}

pub(crate) fn write_hosted_leave(out: &mut Vec<u8>) {
    out.push(HOSTED_LEAVE);
}

pub(crate) fn write_hosted_statement(
    out: &mut Vec<u8>,
    epoch: u8,
    statement: &Statement,
    seats: u16,
) {
    out.extend_from_slice(&[HOSTED_STATEMENT, epoch]);
    write_statement_body(out, statement, seats);
}

pub(crate) fn write_hosted_decision(out: &mut Vec<u8>, epoch: u8, decision: &Decision, seats: u16) {
    out.extend_from_slice(&[HOSTED_DECISION, epoch]);
    write_decision_body(out, decision, seats);
}

pub(crate) fn write_hosted_ask(out: &mut Vec<u8>, first: Tick) {
    let mut writer = Writer::new(out);
    writer.u8(HOSTED_ASK);
    writer.u32(first.0);
}

pub(crate) fn write_hosted_forward_head(out: &mut Vec<u8>, first: Tick) {
    let mut writer = Writer::new(out);
    writer.u8(HOSTED_FORWARD);
    writer.u32(first.0);
}

#[cfg(test)]
mod tests;
