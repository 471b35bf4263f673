//! Leaving a mesh, and continuing without a peer; agreement is reached by [`View`].
//!
//! [`View`]: crate::view::View

use wire::{Instant, Seat};

use super::clock::ClockOffset;
use super::ticking::HashCursor;
use super::{MeshClose, MeshEvent, MeshPeer, State};
use crate::event::LeaveReason;
use crate::input::Input;
use crate::message::{Decision, MESH_SEATS_MAX, MeshMessage, Statement, Ticks, bit, pick_seat};
use crate::repair::{Repair, RepairLimits};
use crate::repeat::jittered;
use crate::tick::{PeerId, Tick};
use crate::view::DecisionOutcome;

const REPEAT_INTERVAL_MILLIS: u64 = 40;

impl<I: Input> MeshPeer<I> {
    pub(super) fn on_membership(&mut self, now: Instant, from: u16, message: &MeshMessage<'_>) {
        match message {
            MeshMessage::Leave => {
                if self.view.on_leaving(bit(from)) {
                    self.on_suspected(now);
                }
            }
            MeshMessage::Statement(statement) => self.on_statement(now, from, statement),
            MeshMessage::Decision(decision) => self.on_decision(now, from, decision),
            MeshMessage::Ask { seat, first } => {
                let is_gone = self.others() & bit((*seat).into()) == 0;
                if is_gone && let Some(Some(link)) = self.links.get_mut(usize::from(from)) {
                    link.asked = Some((*seat, *first));
                    self.due.forward |= bit(from);
                }
            }
            MeshMessage::Forward {
                seat,
                first,
                bundles,
            } => {
                let seat = u16::from(*seat);
                let queue = self.queues.get(usize::from(seat));
                if self.view.members & bit(seat) == 0
                    && let Some(cut) = queue.and_then(|queue| queue.cut)
                {
                    self.keep(seat, *first, cut, bundles);
                }
            }
            MeshMessage::Play(_) | MeshMessage::Committed(..) | MeshMessage::Hello(_) => {}
        }
    }

    pub(super) fn on_suspected(&mut self, now: Instant) {
        if self.view.is_too_few() {
            self.close(Some(MeshClose::TooFew));
            return;
        }
        self.due.play &= self.others();
        self.due.statement = self.others();
        self.state = State::Running {
            state_at: self.repeat_at(now),
        };
        self.decide();
    }

    pub(super) fn repeat_leave(&mut self, now: Instant, copies: u8, at: Instant) {
        if at > now {
            return;
        }
        if copies == 0 {
            self.close(None);
            return;
        }
        self.due.leave = self.others();
        self.state = State::Leaving {
            copies: copies.saturating_sub(1),
            at: self.repeat_at(now),
        };
    }

    pub(super) fn ask_for_missing(&mut self, now: Instant) {
        let members = self.view.members;
        let mut queues = self.queues.iter().zip((0..).map(Seat));
        let missing = queues
            .find(|(queue, seat)| members & bit(seat.0) == 0 && queue.known_end() < Tick(u32::MAX));
        let Some((_, seat)) = missing else {
            self.asking_since = None;
            return;
        };
        let since = *self.asking_since.get_or_insert(now);
        let waited = now.as_nanos().saturating_sub(since.as_nanos());
        if waited > self.peer_timeout.saturating_mul(2) {
            self.close(Some(MeshClose::Unserved));
            return;
        }
        let others = self.others();
        let to = pick_seat(&mut self.generator, others);
        self.due.ask = to.map(|to| (to.0, seat));
    }

    /// First tick that we lack of each seat, of those that count.
    pub(super) fn held_ends(&self) -> Ticks {
        let mut held = Ticks::default();
        for (tick, queue) in held.iter_mut().zip(&self.queues) {
            *tick = queue.held_end();
        }
        held
    }

    fn on_statement(&mut self, now: Instant, from: u16, statement: &Statement) {
        if let Some(last) = self.view.last.as_ref()
            && last.members == statement.members
        {
            self.due.decision |= bit(from);
            return;
        }
        if self.view.on_statement(from, statement, self.alive(now)) {
            self.on_suspected(now);
        } else {
            self.decide();
        }
    }

    fn on_decision(&mut self, now: Instant, from: u16, decision: &Decision) {
        match self.view.on_decision(from, decision, &self.held_ends()) {
            DecisionOutcome::Ignored => {
                self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
            }
            DecisionOutcome::Out(tick) => self.close(Some(MeshClose::Excluded { tick })),
            DecisionOutcome::Installed(decision) => {
                self.install(&decision);
                if self.view.suspects != 0 {
                    self.on_suspected(now);
                }
            }
        }
    }

    fn decide(&mut self) {
        if let Some(decision) = self.view.decide(&self.held_ends()) {
            self.install(&decision);
        }
    }

    fn install(&mut self, decision: &Decision) {
        let left = decision.members & !decision.next;
        for ((queue, cut), seat) in self.queues.iter_mut().zip(decision.cuts).zip(0..) {
            if decision.next & bit(seat) == 0 {
                queue.cut(cut);
            }
        }
        for (seat, tick) in (0..self.shape.seats).map(Seat).zip(decision.cuts) {
            if left & bit(seat.0) == 0 {
                continue;
            }
            self.hash_comparator.exclude(seat);
            let reason = if self.view.leaving & bit(seat.0) == 0 {
                LeaveReason::Removed
            } else {
                LeaveReason::Quit
            };
            self.events
                .push_back(MeshEvent::Left { seat, tick, reason });
        }
        self.asking_since = None;
        self.refresh_known();
    }

    fn repeat_at(&mut self, now: Instant) -> Instant {
        now + jittered(&mut self.generator, REPEAT_INTERVAL_MILLIS)
    }
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) repair: Repair,
    pub(super) offset: ClockOffset,
    pub(super) hashes: HashCursor,
    pub(super) asked: Option<(u8, Tick)>,
    received_at: Instant,
    suspect_until: Instant,
}

impl Link {
    pub(super) fn new(peer: PeerId, limits: &RepairLimits, now: Instant) -> Self {
        Self {
            peer,
            repair: Repair::new(limits),
            offset: ClockOffset::default(),
            hashes: HashCursor::default(),
            asked: None,
            received_at: now,
            suspect_until: Instant::ZERO,
        }
    }

    /// A datagram arrived. After a silence of half of `peer_timeout`, in nanoseconds, the peer
    /// remains suspected for another `peer_timeout`: others may have removed it.
    pub(super) const fn on_received(&mut self, now: Instant, peer_timeout: u64) {
        if self.is_quiet(now, peer_timeout) {
            self.suspect_until = Instant::from_nanos(now.as_nanos().saturating_add(peer_timeout));
        }
        self.received_at = now;
    }

    pub(super) const fn reset_silence(&mut self, now: Instant) {
        self.received_at = now;
    }

    pub(super) const fn is_silent(&self, now: Instant, peer_timeout: u64) -> bool {
        self.silence(now) > peer_timeout
    }

    pub(super) fn is_alive(&self, now: Instant, peer_timeout: u64) -> bool {
        !self.is_quiet(now, peer_timeout) && self.suspect_until <= now
    }

    const fn is_quiet(&self, now: Instant, peer_timeout: u64) -> bool {
        self.silence(now) > peer_timeout / 2
    }

    const fn silence(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.received_at.as_nanos())
    }
}

/// Hint slots, by the low bits of an id: twice as many as seats.
const HINTS: usize = 2 * MESH_SEATS_MAX as usize;

/// Ids of all other peers. The hint avoids a scan with an end that a branch predictor cannot learn.
#[derive(Debug)]
pub(super) struct PeerIndex {
    numbers: Vec<Option<PeerId>>,
    /// The seat of an id, unless another id has the same low bits.
    hints: [u8; HINTS],
}

impl PeerIndex {
    pub(super) fn new(numbers: impl Iterator<Item = Option<PeerId>>) -> Self {
        let numbers: Vec<_> = numbers.collect();
        let mut hints = [0; HINTS];
        for (number, seat) in numbers.iter().zip(0..) {
            if let Some(hint) = number.and_then(|number| hints.get_mut(index(number))) {
                *hint = seat;
            }
        }
        Self { numbers, hints }
    }

    pub(super) fn seat_of(&self, peer: PeerId) -> Option<u16> {
        let hint = *self.hints.get(index(peer))?;
        if self.numbers.get(usize::from(hint)) == Some(&Some(peer)) {
            return Some(hint.into());
        }
        let mut numbers = self.numbers.iter().zip(0..);
        let (_, seat) = numbers.find(|(number, _)| **number == Some(peer))?;
        Some(seat)
    }
}

fn index(peer: PeerId) -> usize {
    usize::try_from(peer.0).unwrap_or(0) % HINTS
}

#[cfg(test)]
mod tests;
