//! Continuing with another server, or without a seat.

use wire::Instant;

use super::Session;
use crate::chain::CHAIN_LEN;
use crate::client_peer::{ClientPeer, State};
use crate::input::Input;
use crate::match_server::Past;
use crate::message::{Bundles, Welcome};
use crate::stats::ClientStats;
use crate::tick::{PeerId, Tick};

impl<I: Input> ClientPeer<I> {
    /// Continues with `server`, which closes `next` and all later ticks. Bundles for these, inputs
    /// stamped for them, and snapshot transfers are dropped.
    pub(crate) fn migrate(&mut self, now: Instant, server: PeerId, next: Tick) {
        self.reconnect(now, server);
        if let State::Seated { session, .. } = &mut self.state {
            session.restart(next);
        }
    }

    /// Returns the welcome, once it arrived.
    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        self.session().map(Session::welcome)
    }

    /// Returns the closed ticks held; `None` before the welcome.
    pub(crate) fn past(&self) -> Option<Past<'_>> {
        Some(self.session()?.past())
    }

    /// Takes closed ticks before `end` from another player.
    pub(crate) fn take_closed(
        &mut self,
        now: Instant,
        first: Tick,
        end: Tick,
        bundles: &Bundles<'_>,
    ) {
        if let State::Seated { session, .. } = &mut self.state {
            session.take_closed(now, (first, end), bundles, &mut self.stats);
        }
    }

    /// Appends up to `len_max` bytes of closed ticks from `first` on; returns their number.
    pub(crate) fn write_closed(&self, first: Tick, len_max: usize, buf: &mut Vec<u8>) -> u32 {
        let Some(session) = self.session() else {
            return 0;
        };
        let start = buf.len();
        let mut tick = first;
        while tick < session.end()
            && let Some(bundle) = session.bundle(tick)
            && buf.len().saturating_sub(start).saturating_add(bundle.len()) <= len_max
        {
            buf.extend_from_slice(bundle);
            tick = tick.plus(1);
        }
        tick.since(first)
    }
}

impl Session {
    /// Restarts with a server that closes `next`, which is not before `end`, and all later ticks.
    /// It has none of our inputs, and its own clock.
    fn restart(&mut self, next: Tick) {
        debug_assert!(next >= self.end, "nobody goes on before what we hold");
        // Later ticks received out of order were closed by the previous server.
        self.chain.forget_from(next);
        self.seen_end = self.seen_end.min(next).max(self.end);
        self.forget_acks();
        self.history.forget_before(Tick(u32::MAX));
        self.stamped = None;
        // Substitutions in earlier ticks are still reported.
        self.promised.revoke(next, self.returned_end);
        if let Some(stepping) = &mut self.stepping {
            stepping.restart(next);
        }
        self.slack = None;
        self.clock = None;
    }

    /// Continues as a spectator if `welcome` has no seat for us any more; returns whether it does.
    pub(in crate::client_peer) fn lose_seat(&mut self, welcome: &Welcome) -> bool {
        let is_lost = self.welcome.seat.is_some() && welcome.seat.is_none();
        if !is_lost || welcome.match_id != self.welcome.match_id {
            return false;
        }
        self.welcome.seat = None;
        self.history.forget_before(Tick(u32::MAX));
        if let Some(stepping) = &mut self.stepping {
            stepping.lose_seat();
        }
        true
    }

    /// Returns all ticks before `end`.
    fn past(&self) -> Past<'_> {
        let mut reader = self.reader.clone();
        while reader.next() < self.end && reader.read(&self.chain).is_some() {}
        Past {
            chain: &self.chain,
            reader,
        }
    }

    fn bundle(&self, tick: Tick) -> Option<&[u8]> {
        self.chain.get(tick)
    }

    /// Takes closed ticks before `end` from another peer than the server.
    fn take_closed(
        &mut self,
        now: Instant,
        (first, end): (Tick, Tick),
        bundles: &Bundles<'_>,
        stats: &mut ClientStats,
    ) {
        let end = end.min(self.reader.next().plus(CHAIN_LEN)).min(Tick::LAST);
        let mut tick = first;
        for bundle in bundles.iter() {
            if tick >= end {
                stats.bundles_early = stats.bundles_early.saturating_add(1);
            } else if tick < self.end || self.chain.has(tick) {
                stats.bundles_repeated = stats.bundles_repeated.saturating_add(1);
            } else {
                self.chain.put(tick, bundle);
            }
            tick = tick.plus(1);
        }
        while self.chain.has(self.end) {
            self.end = self.end.plus(1);
            self.advanced_at = now;
        }
        self.seen_end = self.seen_end.max(self.end);
    }
}
