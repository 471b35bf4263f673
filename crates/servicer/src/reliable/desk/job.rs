//! A record in progress to any number of members.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use wire::{ConnectionId, Instant, Outbound};

use super::Desk;
use crate::reliable::dest::Dest;
use crate::reliable::event::{LeaveCause, MemberId};
use crate::reliable::letter::{Closing, Letter};

/// A record in progress to any number of members.
#[derive(Debug)]
pub(super) struct Job {
    kind: Kind,
    /// Payload after the header, shared by all recipients.
    payload: Bytes,
    targets: Targets,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Welcome,
    Message,
    Close(Closing, LeaveCause),
}

#[derive(Debug)]
enum Targets {
    /// The connection that has just opened.
    Opened(Option<ConnectionId>),
    One(Option<MemberId>),
    Many {
        members: Arc<[MemberId]>,
        next: usize,
    },
    /// Connections after the bound, up to the last that was open when the job was added.
    Range(Bound<ConnectionId>, ConnectionId),
}

impl Job {
    /// Creates the job of a message. `last` is the newest connection. Returns `None` if there is no
    /// recipient.
    pub(super) fn message(dest: Dest, payload: Bytes, last: Option<ConnectionId>) -> Option<Self> {
        let targets = match dest {
            Dest::One(member) => Targets::One(Some(member)),
            Dest::Many(members) => Targets::Many { members, next: 0 },
            Dest::All => Targets::Range(Bound::Unbounded, last?),
        };
        Some(Self {
            kind: Kind::Message,
            payload,
            targets,
        })
    }

    pub(super) const fn welcome(connection: ConnectionId, payload: Bytes) -> Self {
        Self {
            kind: Kind::Welcome,
            payload,
            targets: Targets::Opened(Some(connection)),
        }
    }

    pub(super) const fn close(
        member: MemberId,
        (closing, cause): (Closing, LeaveCause),
        payload: Bytes,
    ) -> Self {
        Self {
            kind: Kind::Close(closing, cause),
            payload,
            targets: Targets::One(Some(member)),
        }
    }

    /// Returns the next connection to write to.
    pub(super) fn next(&mut self, desk: &Desk) -> Option<ConnectionId> {
        match &mut self.targets {
            Targets::Opened(connection) => connection.take(),
            Targets::One(member) => desk.connections.get(&member.take()?).copied(),
            Targets::Many { members, next } => {
                let rest = members.get(*next..)?;
                let (passed, found) = rest
                    .iter()
                    .enumerate()
                    .find_map(|(place, member)| Some((place, *desk.connections.get(member)?)))?;
                *next = next.saturating_add(passed).saturating_add(1);
                Some(found)
            }
            Targets::Range(from, last) => {
                let (id, _) = desk.members.range((*from, Bound::Unbounded)).next()?;
                *from = Bound::Excluded(*id);
                (*id <= *last).then_some(*id)
            }
        }
    }

    /// Writes the record to one connection.
    pub(super) fn write(
        &self,
        desk: &mut Desk,
        now: Instant,
        id: ConnectionId,
        buf: &mut Vec<u8>,
    ) -> Option<Outbound> {
        let payload = &self.payload;
        match self.kind {
            Kind::Welcome => desk.write((now, id), Letter::Accepted(payload), buf),
            Kind::Message => desk.write((now, id), Letter::Message(payload), buf),
            Kind::Close(closing, cause) => {
                desk.write_last((now, id), (closing, cause), payload, buf)
            }
        }
    }
}
