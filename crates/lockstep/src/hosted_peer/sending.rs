//! What the other players are told, beside what a server and its clients say.

use wire::Instant;

use super::{HostedPeer, State};
use crate::input::Input;
use crate::message::{
    FORWARD_HEAD_LEN, Presence, Seats, bit, write_hosted_ask, write_hosted_decision,
    write_hosted_forward_head, write_hosted_leave, write_hosted_statement, write_presence,
};
use crate::tick::{PeerId, Tick};

/// To whom something is due. At most one datagram of each kind to each player between two drains.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) presence: Seats,
    pub(super) statement: Seats,
    pub(super) decision: Seats,
    pub(super) leave: Seats,
    pub(super) forward: Seats,
    pub(super) ask: Seats,
}

impl Due {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Takes the lowest of `seats`.
fn take(seats: &mut Seats) -> Option<u16> {
    let lowest = u16::try_from(seats.trailing_zeros()).ok()?;
    *seats &= !bit(lowest);
    (lowest < 16).then_some(lowest)
}

impl<I: Input> HostedPeer<I> {
    /// Writes the next datagram of ours and returns who shall get it.
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        let start = buf.len();
        let seat = self.write(now, buf)?;
        let len = u64::try_from(buf.len().saturating_sub(start)).unwrap_or(u64::MAX);
        self.stats.datagrams_sent = self.stats.datagrams_sent.saturating_add(1);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(len);
        Some(self.link(seat)?.peer)
    }

    fn write(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<u16> {
        let (seats, epoch) = (self.shape.seats, self.view.epoch());
        while let Some(seat) = take(&mut self.due.statement) {
            if let Some(statement) = self.view.statement(&self.held_ends()) {
                write_hosted_statement(buf, epoch, &statement, seats);
                return Some(seat);
            }
        }
        while let Some(seat) = take(&mut self.due.decision) {
            if let Some(decision) = self.view.last() {
                write_hosted_decision(buf, epoch, decision, seats);
                return Some(seat);
            }
        }
        if let Some(seat) = take(&mut self.due.ask) {
            write_hosted_ask(buf, Tick(self.client.ticks_confirmed()));
            return Some(seat);
        }
        while let Some(seat) = take(&mut self.due.forward) {
            if self.write_forward(seat, buf) {
                return Some(seat);
            }
        }
        if let Some(seat) = take(&mut self.due.leave) {
            write_hosted_leave(buf);
            return Some(seat);
        }
        let seat = take(&mut self.due.presence)?;
        let presence = Presence {
            epoch,
            members: self.view.members(),
            is_doubtful: self.is_in_doubt(now),
        };
        write_presence(buf, presence);
        Some(seat)
    }

    /// Whether we do not hear the host, or as the host too few others.
    fn is_in_doubt(&self, now: Instant) -> bool {
        match self.state {
            State::Playing if self.is_host() => self.is_standing(now),
            State::Playing => self.is_doubtful,
            State::Ousted { .. } => true,
            State::Electing { .. }
            | State::Taking { .. }
            | State::Leaving { .. }
            | State::Ending { .. }
            | State::Closed => false,
        }
    }

    /// Answers what the player of `to` asked for last: as much as a datagram takes.
    fn write_forward(&mut self, to: u16, buf: &mut Vec<u8>) -> bool {
        let Some(first) = self.link_mut(to).and_then(|link| link.asked.take()) else {
            return false;
        };
        let start = buf.len();
        write_hosted_forward_head(buf, first);
        let len_max = usize::from(self.config.server.datagram_len_max);
        let len_max = len_max.saturating_sub(FORWARD_HEAD_LEN);
        if self.client.write_closed(first, len_max, buf) == 0 {
            buf.truncate(start);
            return false;
        }
        self.stats.forwards_sent = self.stats.forwards_sent.saturating_add(1);
        true
    }
}
