//! What a session keeps, forgets and hands on when the match gets another server.

#![warn(clippy::arithmetic_side_effects)]

use wire::Instant;

use super::Session;
use crate::chain::CHAIN_LEN;
use crate::match_server::Past;
use crate::message::Bundles;
use crate::{ClientStats, Tick};

impl Session {
    /// Begins anew with a server that closes `next`, which is not before what has arrived in one
    /// piece, and all later ticks; it has none of our inputs, and a clock of its own.
    pub(in crate::client_peer) fn begin_anew(&mut self, next: Tick) {
        debug_assert!(next >= self.end, "nobody goes on before what we hold");
        // What came out of order of later ones was closed by the server before.
        self.chain.forget_from(next);
        self.seen_end = self.seen_end.min(next).max(self.end);
        self.forget_acks();
        self.history.forget_before(Tick(u32::MAX));
        self.stamped = None;
        // Of earlier ticks the owner is told still.
        let last = next.0.checked_sub(1).map(Tick);
        self.promised = self
            .promised
            .zip(last)
            .map(|((first, promised), last)| (first, promised.min(last)));
        self.slack = None;
        self.clock = None;
    }

    /// Returns all that has arrived in one piece.
    pub(in crate::client_peer) fn past(&self) -> Past<'_> {
        let mut reader = self.reader.clone();
        while reader.next() < self.end && reader.read(&self.chain).is_some() {}
        Past {
            chain: &self.chain,
            reader,
        }
    }

    pub(in crate::client_peer) fn bundle(&self, tick: Tick) -> Option<&[u8]> {
        self.chain.get(tick)
    }

    /// Takes closed ticks before `end` that did not come from the server.
    pub(in crate::client_peer) fn take_closed(
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
