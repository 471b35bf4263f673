//! What other peers say.

use wire::{Instant, Seat};

use super::gathering::Greeting;
use super::lane::{AHEAD_MAX, Lane};
use super::{MeshEvent, MeshPeer, State};
use crate::chain::CHAIN_LEN;
use crate::input::Input;
use crate::message::{
    Commitment, DecodeError, Hello, LaneBundles, MeshMessage, Play, Seats, bit, decode_known_play,
    decode_mesh, play_bytes,
};
use crate::repair::Ack;
use crate::tick::{PeerId, Tick};

impl<I: Input> MeshPeer<I> {
    pub(super) fn receive(&mut self, now: Instant, peer: PeerId, datagram: &[u8]) {
        let Some(from) = self.roster.seat_of(peer) else {
            self.count_unknown();
            return;
        };
        let lane = self.lanes.get(usize::from(from));
        let known = |first_low, index| lane?.bundle_near(first_low, index);
        if let Some(bytes) = play_bytes(datagram) {
            match &decode_known_play(bytes, self.shape, known) {
                Ok(play) if self.is_heard(now, from) => self.on_bare_play(now, from, play),
                Ok(_) => {}
                Err(error) => self.on_malformed(from, *error),
            }
            return;
        }
        match decode_mesh(datagram, self.shape) {
            Ok(message) if self.is_heard(now, from) => self.on_message(now, from, &message),
            Ok(_) => {}
            Err(error) => self.on_malformed(from, error),
        }
    }

    /// Takes note of a sound datagram, and returns whether its sender is listened to.
    fn is_heard(&mut self, now: Instant, from: u16) -> bool {
        match self.state {
            State::Gathering { .. } | State::Running { .. } => {}
            State::Leaving { .. } | State::Closed => return false,
        }
        if self.view.members() & bit(from) == 0 {
            // It does not know that the others play on without it.
            self.count_unknown();
            self.due.decision |= bit(from);
            return false;
        }
        if self.others() & bit(from) == 0 {
            self.count_unknown();
            return false;
        }
        if let Some(Some(link)) = self.links.get_mut(usize::from(from)) {
            link.on_heard(now, self.patience);
        }
        true
    }

    fn on_message(&mut self, now: Instant, from: u16, message: &MeshMessage<'_>) {
        match message {
            MeshMessage::Play(play) => self.on_bare_play(now, from, play),
            MeshMessage::Committed(commitment, play) => {
                self.on_committed(now, from, commitment, play);
            }
            MeshMessage::Hello(hello) => self.on_hello(now, from, hello),
            MeshMessage::Leave
            | MeshMessage::Statement(_)
            | MeshMessage::Decision(_)
            | MeshMessage::Ask { .. }
            | MeshMessage::Forward { .. } => {
                // Nobody leaves before ticks begin.
                if let State::Running { .. } = self.state {
                    self.on_parting(now, from, message);
                }
            }
        }
    }

    fn on_malformed(&mut self, from: u16, error: DecodeError) {
        self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
        if let (DecodeError::Version(_), State::Gathering { .. }) = (error, self.state)
            && self.gathering.on_strange(from)
        {
            self.tell(MeshEvent::Mismatch { seat: Seat(from) });
        }
    }

    fn on_hello(&mut self, now: Instant, from: u16, hello: &Hello) {
        match self.state {
            State::Gathering { .. } => {}
            State::Running { .. } => {
                if hello.starts_in.is_none() {
                    // It has not heard when ticks begin.
                    self.due.hello |= bit(from);
                }
                return;
            }
            State::Leaving { .. } | State::Closed => return,
        }
        match self.gathering.on_hello(now, from, hello) {
            Greeting::Known => {}
            Greeting::News => {
                self.due.hello = self.others();
                if let Some(lane) = self.lanes.get_mut(usize::from(from))
                    && lane.next() == Tick(0)
                {
                    lane.begin(hello.delay);
                }
            }
            Greeting::Strange => self.tell(MeshEvent::Mismatch { seat: Seat(from) }),
        }
    }

    /// Takes play of a match without commitments.
    fn on_bare_play(&mut self, now: Instant, from: u16, play: &Play<'_>) {
        if self.committing.is_some() {
            self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
        } else {
            self.on_play(now, from, play);
        }
    }

    /// Takes play of a match with commitments.
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
        let is_known = self.gathering.heard() & bit(from) != 0;
        let stamped = self.own.end();
        let Some(lane) = self.lanes.get_mut(usize::from(from)) else {
            return;
        };
        let before = lane.known_end();
        if is_known
            && let Some(first) = lane.next().widen_near(play.head.first_low)
            && !lane.on_commitment(commitment, first, stamped)
        {
            self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
        }
        self.on_play(now, from, play);
        match self.lanes.get_mut(usize::from(from)).map(Lane::prove) {
            Some(Ok(())) => self.on_more_known(from, before),
            Some(Err(tick)) => self.on_breach(now, Seat(from), tick),
            None => {}
        }
    }

    /// Gives up one who showed other inputs than it committed to.
    fn on_breach(&mut self, now: Instant, seat: Seat, tick: Tick) {
        if let State::Running { .. } = self.state
            && self.view.suspect(bit(seat.0))
        {
            // Once for each seat at most.
            self.events.push_back(MeshEvent::Breach { seat, tick });
            self.on_suspicion(now);
        }
    }

    fn on_play(&mut self, now: Instant, from: u16, play: &Play<'_>) {
        if self.gathering.heard() & bit(from) == 0 {
            // Not before we know that it plays the same match.
            self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
            return;
        }
        self.on_ack(now, from, play);
        if !play.hashes.is_empty() {
            self.on_hashes(Seat(from), &play.hashes);
        }
        let next = self.lanes.get(usize::from(from)).map(Lane::next);
        let first = next.and_then(|next| next.widen_near(play.head.first_low));
        if let Some(first) = first {
            self.keep(from, first, Tick(u32::MAX), &play.bundles);
        } else {
            self.stats.dropped_window = self.stats.dropped_window.saturating_add(1);
        }
    }

    /// Takes what a peer says of our inputs, hashes and clock.
    fn on_ack(&mut self, now: Instant, from: u16, play: &Play<'_>) {
        let place = match self.state {
            State::Running { .. } => Some(self.clock.place(now)),
            State::Gathering { .. } | State::Leaving { .. } | State::Closed => None,
        };
        let end = self.shown_end();
        let Some(Some(link)) = self.links.get_mut(usize::from(from)) else {
            return;
        };
        if let Some(place) = place {
            link.pace
                .on_datagram(play.head.clock, play.head.lead, place);
        }
        if let Some(low) = play.head.wanted_low {
            self.hashes.on_wanted(&mut link.hashes, low);
        }
        match end.widen_back(play.head.next_low) {
            Some(next) if end.since(next) < CHAIN_LEN => {
                let sent_at = next
                    .0
                    .checked_sub(1)
                    .and_then(|tick| self.own.ready_at(Tick(tick)));
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

    /// Keeps the bundles of `seat` from tick `first` on that lie before `end`.
    pub(super) fn keep(&mut self, seat: u16, first: Tick, end: Tick, bundles: &LaneBundles<'_>) {
        let window = self.read.plus(AHEAD_MAX).min(Tick::LAST).min(end);
        let Some(lane) = self.lanes.get_mut(usize::from(seat)) else {
            return;
        };
        let before = lane.known_end();
        let next = lane.next();
        let (mut tick, mut repeated) = (first, 0_u32);
        if first.plus(bundles.len()) == next.plus(1) && next < window && !bundles.is_empty() {
            // Nearly always: the last one is new, the others are copies.
            repeated = bundles.len().saturating_sub(1);
            lane.put(next, bundles.last());
        } else {
            for bundle in bundles.iter() {
                if tick < next {
                    repeated = repeated.saturating_add(1);
                } else if tick >= window {
                    self.stats.bundles_early = self.stats.bundles_early.saturating_add(1);
                } else if !lane.put(tick, bundle) {
                    repeated = repeated.saturating_add(1);
                }
                tick = tick.plus(1);
            }
        }
        self.stats.bundles_repeated = self.stats.bundles_repeated.saturating_add(repeated.into());
        self.on_more_known(seat, before);
    }

    /// Takes it that more may be known of the inputs of `seat` than those before `before`.
    fn on_more_known(&mut self, seat: u16, before: Tick) {
        let Some(end) = self.lanes.get(usize::from(seat)).map(Lane::known_end) else {
            return;
        };
        if end == before {
            return;
        }
        if before <= self.known {
            if end > self.known {
                self.awaited &= !bit(seat);
            }
            // While others are waited for, nothing more is known.
            if self.awaited == 0 {
                self.refresh_known();
            }
        }
        self.foresee(Seat(seat));
    }

    /// Those who are heard, and were of late.
    pub(super) fn alive(&self, now: Instant) -> Seats {
        let links = self.links.iter().zip(0..);
        links.fold(0, |alive, (link, seat)| match link {
            Some(link) if link.is_alive(now, self.patience) => alive | bit(seat),
            Some(_) | None => alive,
        })
    }

    const fn count_unknown(&mut self) {
        self.stats.dropped_unknown_peer = self.stats.dropped_unknown_peer.saturating_add(1);
    }
}
