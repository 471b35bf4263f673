//! What other peers are told.

use wire::{Instant, Seat};

use super::clock::low_place;
use super::{MeshPeer, State};
use crate::input::Input;
use crate::message::{
    PlayHead, Seats, bit, write_ask, write_decision, write_forward_head, write_hello,
    write_mesh_leave, write_play_head, write_statement,
};
use crate::repair::Closed;
use crate::tick::{PeerId, Tick};

/// To whom something is due. At most one datagram of each kind to each peer between two drains.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) hello: Seats,
    pub(super) play: Seats,
    pub(super) statement: Seats,
    pub(super) decision: Seats,
    pub(super) leave: Seats,
    pub(super) forward: Seats,
    /// To whom, for whose inputs.
    pub(super) ask: Option<(u16, Seat)>,
}

impl Due {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn is_empty(&self) -> bool {
        let all =
            self.hello | self.play | self.statement | self.decision | self.leave | self.forward;
        all == 0 && self.ask.is_none()
    }
}

/// Takes the lowest of `seats`.
fn take(seats: &mut Seats) -> Option<u16> {
    let lowest = u16::try_from(seats.trailing_zeros()).ok()?;
    *seats &= !bit(lowest);
    (lowest < 16).then_some(lowest)
}

impl<I: Input> MeshPeer<I> {
    /// Writes the next datagram and returns who shall get it.
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if let Some(seat) = take(&mut self.due.play) {
            return self.write_play(now, seat, buf);
        }
        if let Some(seat) = take(&mut self.due.hello) {
            write_hello(buf, &self.gathering.hello(now, seat));
            return self.peer(seat);
        }
        while let Some(seat) = take(&mut self.due.statement) {
            if let Some(statement) = self.view.statement(&self.held_ends()) {
                write_statement(buf, &statement, self.shape.seats);
                return self.peer(seat);
            }
        }
        while let Some(seat) = take(&mut self.due.decision) {
            if let Some(decision) = self.view.last() {
                write_decision(buf, decision, self.shape.seats);
                return self.peer(seat);
            }
        }
        if let Some(seat) = take(&mut self.due.leave) {
            write_mesh_leave(buf);
            return self.peer(seat);
        }
        if let Some((to, seat)) = self.due.ask.take() {
            let lane = self.lanes.get(usize::from(seat.0))?;
            write_ask(buf, u8::try_from(seat.0).unwrap_or(u8::MAX), lane.next());
            return self.peer(to);
        }
        while let Some(seat) = take(&mut self.due.forward) {
            if let Some(peer) = self.write_forward(seat, buf) {
                return Some(peer);
            }
        }
        None
    }

    fn write_play(&mut self, now: Instant, seat: u16, buf: &mut Vec<u8>) -> Option<PeerId> {
        let (to, shown_end) = (usize::from(seat), self.shown_end());
        let theirs = self.lanes.get(to)?;
        let ours = self.lanes.get(usize::from(self.seat.0))?;
        let link = self.links.get_mut(to)?.as_mut()?;
        let closed = Closed {
            chain: ours.chain(),
            end: shown_end,
            next_at: self.own.ready_at(link.repair.next()),
        };
        let body = &mut self.body;
        let slice = link.repair.slice_by(now, &closed, &self.limits, |wanted| {
            body.newest(&closed, wanted, &self.limits)
        });
        let wait = link.repair.answer_nanos(&self.limits);
        let wanted = self.ledger.ask(now, Seat(seat), wait);
        let steps = self.hashes.take(&mut link.hashes);
        let place = match self.state {
            State::Running { .. } => self.clock.place(now),
            State::Gathering { .. } | State::Leaving { .. } | State::Closed => 0,
        };
        let head = PlayHead {
            is_gap: theirs.has_gap(self.limits.ticks),
            next_low: theirs.next().low(),
            clock: low_place(place),
            lead: link.pace.lead(),
            wanted_low: wanted.map(|step| Tick(step).low()),
            first_low: Tick(slice.ticks.start).low(),
        };
        if let Some(committing) = &self.committing {
            committing.write(buf, &slice.ticks);
        }
        write_play_head(buf, &head, &steps, self.hashes.of(steps.clone()));
        let count = u64::try_from(slice.ticks.len()).unwrap_or(u64::MAX);
        buf.extend_from_slice(body.lay_out(closed.chain, &slice.ticks));
        self.stats.bundles_sent = self.stats.bundles_sent.saturating_add(count);
        let catch_up = u64::from(slice.is_catch_up);
        self.stats.catch_up_datagrams = self.stats.catch_up_datagrams.saturating_add(catch_up);
        Some(link.peer)
    }

    /// Answers what the peer of `to` asked for last: as much as a datagram takes.
    fn write_forward(&mut self, to: u16, buf: &mut Vec<u8>) -> Option<PeerId> {
        let link = self.links.get_mut(usize::from(to))?.as_mut()?;
        let (seat, first) = link.asked.take()?;
        let lane = self.lanes.get(usize::from(seat))?;
        if first >= lane.held_end() || lane.chain().get(first).is_none() {
            return None;
        }
        write_forward_head(buf, seat, first);
        let (mut len, mut tick) = (0_usize, first);
        while tick < lane.held_end()
            && let Some(bundle) = lane.chain().get(tick)
            && len.saturating_add(bundle.len()) <= self.limits.len_max
        {
            buf.extend_from_slice(bundle);
            len = len.saturating_add(bundle.len());
            tick = tick.plus(1);
        }
        self.stats.forwards_sent = self.stats.forwards_sent.saturating_add(1);
        Some(link.peer)
    }

    fn peer(&self, seat: u16) -> Option<PeerId> {
        let link = self.links.get(usize::from(seat))?.as_ref()?;
        Some(link.peer)
    }
}
