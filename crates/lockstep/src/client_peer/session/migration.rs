//! Going on with another server that took over the match, or without a seat: what a session keeps,
//! forgets and hands on.

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
    /// Goes on with `server`, which closes `next` and all later ticks. What is held of those, and
    /// inputs stamped for what is not held yet, are forgotten; so are snapshots under way.
    pub(crate) fn migrate(&mut self, now: Instant, server: PeerId, next: Tick) {
        self.reconnect(now, server);
        if let State::Seated { session, .. } = &mut self.state {
            session.restart(next);
        }
    }

    /// Returns what the match is, where the welcome came.
    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        self.session().map(Session::welcome)
    }

    /// Returns all that is closed, as far as it is held; `None` before the welcome.
    pub(crate) fn past(&self) -> Option<Past<'_>> {
        Some(self.session()?.past())
    }

    /// Takes closed ticks that another player passed on, those before `end`.
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

    /// Appends the bundles of closed ticks from `first` on to `buf`, as many as are `len_max` bytes;
    /// returns how many.
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
    /// Begins anew with a server that closes `next`, which is not before what has arrived in one
    /// piece, and all later ticks; it has none of our inputs, and a clock of its own.
    fn restart(&mut self, next: Tick) {
        debug_assert!(next >= self.end, "nobody goes on before what we hold");
        // What came out of order of later ones was closed by the server before.
        self.chain.forget_from(next);
        self.seen_end = self.seen_end.min(next).max(self.end);
        self.forget_acks();
        self.history.forget_before(Tick(u32::MAX));
        self.stamped = None;
        // Of earlier ticks the owner is told still.
        self.promised.take_back(next, self.returned_end);
        if let Some(stepping) = &mut self.stepping {
            stepping.restart(next);
        }
        self.slack = None;
        self.clock = None;
    }

    /// Goes on as a spectator where `welcome` has no seat for us any more; returns whether it had.
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

    /// Returns all that has arrived in one piece.
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

    /// Takes closed ticks before `end` that did not come from the server.
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
