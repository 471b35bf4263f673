//! Datagrams to and from other peers.

use wire::{Instant, Seat};

use super::clock::low_position;
use super::input_queue::{AHEAD_MAX, InputQueue};
use super::setup::HelloOutcome;
use super::{MeshEvent, MeshPeer, State};
use crate::chain::CHAIN_LEN;
use crate::input::Input;
use crate::message::{
    Commitment, DecodeError, Hello, MeshMessage, Play, PlayHead, SeatBundles, Seats, bit,
    decode_known_play, decode_mesh, play_bytes, take_lowest, write_ask, write_decision,
    write_forward_head, write_hello, write_mesh_leave, write_play_head, write_statement,
};
use crate::repair::{Ack, Closed};
use crate::tick::{PeerId, Tick};

impl<I: Input> MeshPeer<I> {
    pub(super) fn receive(&mut self, now: Instant, peer: PeerId, datagram: &[u8]) {
        let Some(from) = self.peer_index.seat_of(peer) else {
            self.count_unknown();
            return;
        };
        let queue = self.queues.get(usize::from(from));
        let known = |first_low, index| queue?.received.bundle_near(first_low, index);
        if let Some(bytes) = play_bytes(datagram) {
            match &decode_known_play(bytes, self.shape, known) {
                Ok(play) if self.accept_from(now, from) => self.on_plain_play(now, from, play),
                Ok(_) => {}
                Err(error) => self.on_malformed(from, *error),
            }
            return;
        }
        match decode_mesh(datagram, self.shape) {
            Ok(message) if self.accept_from(now, from) => self.on_message(now, from, &message),
            Ok(_) => {}
            Err(error) => self.on_malformed(from, error),
        }
    }

    fn accept_from(&mut self, now: Instant, from: u16) -> bool {
        match self.state {
            State::Gathering { .. } | State::Running { .. } => {}
            State::Leaving { .. } | State::Closed => return false,
        }
        if self.view.members & bit(from) == 0 {
            // It does not know that the others continue without it.
            self.count_unknown();
            self.due.decision |= bit(from);
            return false;
        }
        if self.others() & bit(from) == 0 {
            self.count_unknown();
            return false;
        }
        if let Some(Some(link)) = self.links.get_mut(usize::from(from)) {
            link.on_received(now, self.peer_timeout);
        }
        true
    }

    fn on_message(&mut self, now: Instant, from: u16, message: &MeshMessage<'_>) {
        match message {
            MeshMessage::Play(play) => self.on_plain_play(now, from, play),
            MeshMessage::Committed(commitment, play) => {
                self.on_committed(now, from, commitment, play);
            }
            MeshMessage::Hello(hello) => self.on_hello(now, from, hello),
            MeshMessage::Leave
            | MeshMessage::Statement(_)
            | MeshMessage::Decision(_)
            | MeshMessage::Ask { .. }
            | MeshMessage::Forward { .. } => {
                // No peer is removed before ticks begin.
                if let State::Running { .. } = self.state {
                    self.on_membership(now, from, message);
                }
            }
        }
    }

    fn on_malformed(&mut self, from: u16, error: DecodeError) {
        self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
        if let (DecodeError::Version(_), State::Gathering { .. }) = (error, self.state)
            && self.gathering.on_mismatched(from)
        {
            self.push_event(MeshEvent::Mismatch { seat: Seat(from) });
        }
    }

    fn on_hello(&mut self, now: Instant, from: u16, hello: &Hello) {
        match self.state {
            State::Gathering { .. } => {}
            State::Running { .. } => {
                if hello.starts_in.is_none() {
                    // It does not know when ticks begin.
                    self.due.hello |= bit(from);
                }
                return;
            }
            State::Leaving { .. } | State::Closed => return,
        }
        match self.gathering.on_hello(now, from, hello) {
            HelloOutcome::Known => {}
            HelloOutcome::New => {
                self.due.hello = self.others();
                if let Some(queue) = self.queues.get_mut(usize::from(from))
                    && queue.received.end == Tick(0)
                {
                    queue.begin(hello.delay);
                }
            }
            HelloOutcome::Mismatched => self.push_event(MeshEvent::Mismatch { seat: Seat(from) }),
        }
    }

    fn on_plain_play(&mut self, now: Instant, from: u16, play: &Play<'_>) {
        if self.committing.is_some() {
            self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
        } else {
            self.on_play(now, from, play);
        }
    }

    fn on_committed(
        &mut self,
        now: Instant,
        from: u16,
        commitment: &Commitment<'_>,
        play: &Play<'_>,
    ) {
        if self.committing.is_none() {
            self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
            return;
        }
        let is_known = self.gathering.received & bit(from) != 0;
        let stamped = self.local.end;
        let Some(queue) = self.queues.get_mut(usize::from(from)) else {
            return;
        };
        let before = queue.known_end();
        if is_known
            && let Some(first) = queue.received.end.widen_near(play.head.first_low)
            && !queue.on_commitment(commitment, first, stamped)
        {
            self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
        }
        self.on_play(now, from, play);
        match self
            .queues
            .get_mut(usize::from(from))
            .map(InputQueue::prove)
        {
            Some(Ok(())) => self.on_more_known(from, before),
            Some(Err(tick)) => self.on_violation(now, Seat(from), tick),
            None => {}
        }
    }

    fn on_violation(&mut self, now: Instant, seat: Seat, tick: Tick) {
        if let State::Running { .. } = self.state
            && self.view.suspect(bit(seat.0))
        {
            self.events
                .push_back(MeshEvent::CommitViolation { seat, tick });
            self.on_suspected(now);
        }
    }

    fn on_play(&mut self, now: Instant, from: u16, play: &Play<'_>) {
        if self.gathering.received & bit(from) == 0 {
            // Only once we know that it plays the same match.
            self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
            return;
        }
        self.on_ack(now, from, play);
        if !play.hashes.is_empty() {
            self.on_hashes(Seat(from), &play.hashes);
        }
        let queue = self.queues.get(usize::from(from));
        let first = queue.and_then(|queue| queue.received.end.widen_near(play.head.first_low));
        if let Some(first) = first {
            self.keep(from, first, Tick(u32::MAX), &play.bundles);
        } else {
            self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
        }
    }

    fn on_ack(&mut self, now: Instant, from: u16, play: &Play<'_>) {
        let position = match self.state {
            State::Running { .. } => Some(self.clock.position(now)),
            State::Gathering { .. } | State::Leaving { .. } | State::Closed => None,
        };
        let end = self.revealed_end();
        let Some(Some(link)) = self.links.get_mut(usize::from(from)) else {
            return;
        };
        if let Some(position) = position {
            link.offset
                .on_datagram(play.head.clock, play.head.lead, position);
        }
        if let Some(low) = play.head.wanted_low {
            link.hashes.on_wanted(&self.hashes, low);
        }
        match end.widen_back(play.head.next_low) {
            Some(next) if end.since(next) < CHAIN_LEN => {
                let sent_at = next
                    .0
                    .checked_sub(1)
                    .and_then(|tick| self.local.ready_at(Tick(tick)));
                let ack = Ack {
                    next,
                    is_gap: play.head.is_gap,
                    sent_at,
                };
                link.repair.on_ack(now, &ack);
            }
            Some(_) | None => {
                self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
            }
        }
    }

    pub(super) fn keep(&mut self, seat: u16, first: Tick, end: Tick, bundles: &SeatBundles<'_>) {
        let window = self.read.plus(AHEAD_MAX).min(Tick::LAST).min(end);
        let Some(queue) = self.queues.get_mut(usize::from(seat)) else {
            return;
        };
        let (before, next) = (queue.known_end(), queue.received.end);
        let is_only_last_new = first.plus(bundles.len()) == next.plus(1);
        let (early, repeated) = if is_only_last_new && next < window && !bundles.is_empty() {
            queue.received.put(next, bundles.last());
            (0, bundles.len().saturating_sub(1).into())
        } else {
            queue.received.extend(first, window, bundles.iter())
        };
        self.stats.bundles_early = self.stats.bundles_early.saturating_add(early);
        self.stats.bundles_repeated = self.stats.bundles_repeated.saturating_add(repeated);
        self.on_more_known(seat, before);
    }

    /// Updates the first missing tick after inputs of `seat` from `before` on may have arrived.
    fn on_more_known(&mut self, seat: u16, before: Tick) {
        let Some(end) = self
            .queues
            .get(usize::from(seat))
            .map(InputQueue::known_end)
        else {
            return;
        };
        if end == before {
            return;
        }
        if before <= self.known {
            if end > self.known {
                self.awaited &= !bit(seat);
            }
            // While others are awaited, nothing changes.
            if self.awaited == 0 {
                self.refresh_known();
            }
        }
        self.predict_input(Seat(seat));
    }

    pub(super) fn alive(&self, now: Instant) -> Seats {
        let links = self.links.iter().zip(0..);
        links.fold(0, |alive, (link, seat)| match link {
            Some(link) if link.is_alive(now, self.peer_timeout) => alive | bit(seat),
            Some(_) | None => alive,
        })
    }

    const fn count_unknown(&mut self) {
        self.stats.dropped_unknown_peer = self.stats.dropped_unknown_peer.saturating_add(1);
    }
}

/// Recipients of due datagrams: between two drains, at most one of each kind per peer.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) hello: Seats,
    pub(super) play: Seats,
    pub(super) statement: Seats,
    pub(super) decision: Seats,
    pub(super) leave: Seats,
    pub(super) forward: Seats,
    pub(super) ask: Option<(u16, Seat)>,
}

impl Due {
    pub(super) const fn is_empty(&self) -> bool {
        let all =
            self.hello | self.play | self.statement | self.decision | self.leave | self.forward;
        all == 0 && self.ask.is_none()
    }
}

impl<I: Input> MeshPeer<I> {
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if let Some(seat) = take_lowest(&mut self.due.play) {
            return self.write_play(now, seat, buf);
        }
        if let Some(seat) = take_lowest(&mut self.due.hello) {
            write_hello(buf, &self.gathering.hello(now, seat));
            return self.peer(seat);
        }
        while let Some(seat) = take_lowest(&mut self.due.statement) {
            if let Some(statement) = self.view.statement(&self.held_ends()) {
                write_statement(buf, &statement, self.shape.seats);
                return self.peer(seat);
            }
        }
        while let Some(seat) = take_lowest(&mut self.due.decision) {
            if let Some(decision) = self.view.last.as_ref() {
                write_decision(buf, decision, self.shape.seats);
                return self.peer(seat);
            }
        }
        if let Some(seat) = take_lowest(&mut self.due.leave) {
            write_mesh_leave(buf);
            return self.peer(seat);
        }
        if let Some((to, seat)) = self.due.ask.take() {
            let queue = self.queues.get(usize::from(seat.0))?;
            write_ask(
                buf,
                u8::try_from(seat.0).unwrap_or(u8::MAX),
                queue.received.end,
            );
            return self.peer(to);
        }
        while let Some(seat) = take_lowest(&mut self.due.forward) {
            if let Some(peer) = self.write_forward(seat, buf) {
                return Some(peer);
            }
        }
        None
    }

    fn write_play(&mut self, now: Instant, seat: u16, buf: &mut Vec<u8>) -> Option<PeerId> {
        let (to, revealed_end) = (usize::from(seat), self.revealed_end());
        let theirs = self.queues.get(to)?;
        let ours = self.queues.get(usize::from(self.seat.0))?;
        let link = self.links.get_mut(to)?.as_mut()?;
        let closed = Closed {
            chain: &ours.received.chain,
            end: revealed_end,
            next_at: self.local.ready_at(link.repair.next),
        };
        let body = &mut self.body;
        let slice = link.repair.slice_by(now, &closed, &self.limits, |wanted| {
            body.newest(&closed, wanted, &self.limits)
        });
        let wait = link.repair.answer_nanos(&self.limits);
        let wanted = self.hash_comparator.ask(now, Seat(seat), wait);
        let steps = link.hashes.take(&self.hashes);
        let position = match self.state {
            State::Running { .. } => self.clock.position(now),
            State::Gathering { .. } | State::Leaving { .. } | State::Closed => 0,
        };
        let head = PlayHead {
            is_gap: theirs.received.is_gap(self.limits.ticks),
            next_low: theirs.received.end.low(),
            clock: low_position(position),
            lead: link.offset.lead(),
            wanted_low: wanted.map(|step| Tick(step).low()),
            first_low: Tick(slice.ticks.start).low(),
        };
        if let Some(committing) = &self.committing {
            committing.write(buf, &slice.ticks);
        }
        let hashes = steps.clone().filter_map(|step| self.hashes.get(step));
        write_play_head(buf, &head, &steps, hashes);
        let count = u64::try_from(slice.ticks.len()).unwrap_or(u64::MAX);
        buf.extend_from_slice(body.encode(closed.chain, &slice.ticks));
        self.stats.bundles_sent = self.stats.bundles_sent.saturating_add(count);
        let catch_up = u64::from(slice.is_catch_up);
        self.stats.catch_up_datagrams = self.stats.catch_up_datagrams.saturating_add(catch_up);
        Some(link.peer)
    }

    fn write_forward(&mut self, to: u16, buf: &mut Vec<u8>) -> Option<PeerId> {
        let link = self.links.get_mut(usize::from(to))?.as_mut()?;
        let (seat, first) = link.asked.take()?;
        let queue = self.queues.get(usize::from(seat))?;
        let (chain, end) = (&queue.received.chain, queue.held_end());
        if first >= end || !chain.has(first) {
            return None;
        }
        write_forward_head(buf, seat, first);
        chain.write_run(first, end, self.limits.len_max, buf);
        self.stats.forwards_sent = self.stats.forwards_sent.saturating_add(1);
        Some(link.peer)
    }

    fn peer(&self, seat: u16) -> Option<PeerId> {
        let link = self.links.get(usize::from(seat))?.as_ref()?;
        Some(link.peer)
    }
}
