//! Those who watch: what each has, and what all are sent. A server has them, and a fan.
//!
//! All get slices of one chain. What most of them get in a tick, the newest few bundles, is laid
//! out once for all; what remains for each is a choice, a head and a copy.

mod farewell;
mod feed;
mod moments;
mod saying;
mod serving;
mod tail;

use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant, Lookup};

use crate::chain::{CHAIN_LEN, Chain};
use crate::event::{CloseReason, JoinError, LeaveReason};
use crate::message::Welcome;
use crate::repair::RepairLimits;
use crate::stats::SpectatorStats;
use crate::tick::{PeerId, Tick};
use crate::transfer::TransferLimits;

use farewell::Farewells;
pub(crate) use feed::Guest;
use feed::{Feed, Standing};
use moments::Moments;
use serving::Serving;
use tail::Tail;

/// Ticks from one report of a spectator to its next, where it lacks nothing: a quarter of the
/// datagrams up. What is lost while it is silent, the usual copies bring.
pub(crate) const SPECTATOR_REPORT_TICKS: u32 = 4;

/// Time between welcomes, give or take a quarter by lot.
const WELCOME_INTERVAL_MILLIS: u64 = 50;

/// Ticks from one look at who is too far behind to the next.
const LOOK_TICKS: u32 = 64;

/// What holds for all who watch.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Most who may watch.
    pub(crate) feeds_max: usize,
    /// How long to wait for somebody's first word.
    pub(crate) ready_timeout: Duration,
    /// How fast each gets a snapshot.
    pub(crate) transfer: TransferLimits,
    pub(crate) limits: RepairLimits,
}

/// What there is to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) chain: &'a Chain,
    /// First tick from which on the chain has all, or had.
    pub(crate) begin: Tick,
    /// First tick that is not shown yet.
    pub(crate) end: Tick,
}

/// Somebody watches no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) peer: PeerId,
    pub(crate) reason: LeaveReason,
}

/// All who watch.
#[derive(Debug)]
pub(crate) struct Audience {
    terms: Terms,
    /// What they are told of the match, once that is known.
    welcome: Option<Welcome>,
    /// In no order.
    feeds: Vec<Feed>,
    /// Where each is in `feeds`.
    places: Lookup<PeerId, usize>,
    farewells: Farewells,
    serving: Serving,
    /// When ticks were shown.
    moments: Moments,
    /// The newest bundles.
    tail: Tail,
    /// No feed below it has a datagram due.
    cursor: usize,
    /// When somebody is due a word without a tick.
    timer: Option<Instant>,
    /// What the application was not told yet.
    gone: VecDeque<Gone>,
}

impl Audience {
    pub(crate) fn new(terms: Terms, generator: &mut Generator) -> Self {
        Self {
            terms,
            welcome: None,
            feeds: Vec::new(),
            places: Lookup::new(generator),
            farewells: Farewells::default(),
            serving: Serving::default(),
            moments: Moments::default(),
            tail: Tail::default(),
            cursor: 0,
            timer: None,
            gone: VecDeque::new(),
        }
    }

    /// Takes what there is to know of the match.
    pub(crate) const fn set_welcome(&mut self, welcome: Welcome) {
        self.welcome = Some(welcome);
    }

    /// Takes what there is to know of a match that others close, and what its ticks add to budgets.
    pub(crate) const fn follow(&mut self, welcome: Welcome, gain: u32) {
        let limits = &mut self.terms.limits;
        limits.ticks = welcome.repair as u32;
        limits.period_nanos = welcome.period_nanos as u64;
        limits.gain = gain;
        self.set_welcome(welcome);
    }

    /// Lets `peer` watch; `guest` is what it may ask for.
    pub(crate) fn let_in(
        &mut self,
        now: Instant,
        peer: PeerId,
        guest: Guest,
    ) -> Result<(), JoinError> {
        if self.has(peer) {
            return Err(JoinError::PeerTaken);
        }
        if self.feeds.len() >= self.terms.feeds_max {
            return Err(JoinError::Full);
        }
        self.moments.prepare();
        self.tail.prepare(self.terms.limits.len_max);
        self.farewells.forget(peer);
        self.places.insert(peer, self.feeds.len());
        let until = after(now, self.terms.ready_timeout);
        self.feeds
            .push(Feed::new((peer, guest), now, until, &self.terms.limits));
        self.wake_at(now);
        Ok(())
    }

    /// Puts `peer` out and tells it; false where it does not watch.
    pub(crate) fn remove(&mut self, peer: PeerId, reason: LeaveReason, close: CloseReason) -> bool {
        let Some(place) = self.places.remove(&peer) else {
            return false;
        };
        if place < self.feeds.len() {
            self.feeds.swap_remove(place);
        }
        if let Some(moved) = self.feeds.get(place) {
            self.places.insert(moved.peer, place);
        }
        // Whoever was moved down may be due.
        self.cursor = self.cursor.min(place);
        self.serving.forget(peer);
        self.farewells.add(peer, close, self.terms.feeds_max);
        if !reason.is_players() {
            self.farewells.remind(peer);
        }
        self.gone.push_back(Gone { peer, reason });
        true
    }

    /// Puts all out.
    pub(crate) fn remove_all(&mut self, reason: LeaveReason, close: CloseReason) {
        while let Some(last) = self.feeds.last() {
            let peer = last.peer;
            self.remove(peer, reason, close);
        }
    }

    /// Forgets that `peer` watched once: it is told so no more.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.farewells.forget(peer);
    }

    /// Takes note that all before `stage.end` is shown, and all before `shown` was.
    pub(crate) fn on_shown(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        shown: Tick,
        stats: &mut SpectatorStats,
    ) {
        self.moments.set(now, shown, stage.end);
        self.cursor = 0;
        if stage.end.0 / LOOK_TICKS != shown.0 / LOOK_TICKS {
            self.put_out_those_behind(stage);
        }
        self.drop_late(now, stage);
        self.serve(now, stage, stats);
    }

    /// Has all get turns again who lack some, though nothing more is shown.
    pub(crate) fn remind(&mut self, stage: &Stage<'_>) {
        for feed in &mut self.feeds {
            feed.is_due |= feed.repair.next() < stage.end;
        }
        self.cursor = 0;
    }

    /// Has all who watch get a snapshot, or be out: what lies before `stage.begin` is lost.
    pub(crate) fn begin_anew(&mut self, now: Instant, stage: &Stage<'_>) {
        for feed in &mut self.feeds {
            if feed.standing == Standing::Watching && feed.repair.next() < stage.begin {
                feed.standing = Standing::AwaitsSnapshot;
                feed.wants_snapshot = true;
                // What is on its way to it is too old, and two at once would hold each other up.
                self.serving.forget(feed.peer);
                self.serving.queue(now, feed.peer);
            }
        }
    }

    /// Runs what is due at `now`: repeats welcomes, and gives up on those who never answered, or do
    /// not take their snapshot.
    pub(crate) fn on_timeout(&mut self, now: Instant, generator: &mut Generator) {
        self.drop_stalled(now);
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timer = None;
        self.cursor = 0;
        let mut place = 0;
        while let Some(feed) = self.feeds.get_mut(place) {
            let Standing::Arriving { again_at, until } = &mut feed.standing else {
                place = place.saturating_add(1);
                continue;
            };
            if *until <= now {
                let peer = feed.peer;
                self.remove(peer, LeaveReason::NotReady, CloseReason::NotReady);
                continue;
            }
            if *again_at <= now {
                let quarter = WELCOME_INTERVAL_MILLIS / 4;
                let (low, high) = (
                    WELCOME_INTERVAL_MILLIS.saturating_sub(quarter),
                    WELCOME_INTERVAL_MILLIS.saturating_add(quarter),
                );
                let wait = Duration::from_millis(generator.between(low, high));
                *again_at = after(now, wait);
                feed.is_due = true;
            }
            let at = (*again_at).min(*until);
            self.wake_at(at);
            place = place.saturating_add(1);
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is due, or a piece of a snapshot.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pieces = self.serving.poll_timeout();
        self.timer.into_iter().chain(pieces).min()
    }

    /// Who is gone.
    pub(crate) fn poll_gone(&mut self) -> Option<Gone> {
        self.gone.pop_front()
    }

    pub(crate) fn has(&self, peer: PeerId) -> bool {
        self.places.contains(&peer)
    }

    pub(crate) const fn len(&self) -> usize {
        self.feeds.len()
    }

    /// Bytes that it holds on the heap, snapshots left out.
    pub(crate) fn memory_len(&self) -> usize {
        let place = size_of::<(PeerId, usize)>().saturating_add(1);
        [
            self.feeds.capacity().saturating_mul(size_of::<Feed>()),
            self.places.len().saturating_mul(place.saturating_mul(2)),
            self.gone.capacity().saturating_mul(size_of::<Gone>()),
            self.farewells.memory_len(),
            self.serving.memory_len(),
            self.moments.memory_len(),
            self.tail.memory_len(),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    fn wake_at(&mut self, at: Instant) {
        self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
    }

    fn put_out_those_behind(&mut self, stage: &Stage<'_>) {
        let mut place = 0;
        while let Some(feed) = self.feeds.get(place) {
            let is_lost = feed.standing == Standing::Watching
                && stage.end.since(feed.repair.next()) > CHAIN_LEN;
            if is_lost {
                let peer = feed.peer;
                self.remove(peer, LeaveReason::Behind, CloseReason::Behind);
            } else {
                place = place.saturating_add(1);
            }
        }
    }
}

fn after(at: Instant, span: Duration) -> Instant {
    at + span
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
