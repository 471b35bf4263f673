//! What is said to those who watch, and what they say.

use core::ops::Range;

use wire::Instant;

use super::Moments;
use super::Tail;
use super::{Audience, Guest, Stage, WELCOME_INTERVAL_MILLIS, after};
use super::{Feed, Standing};
use crate::chain::{CHAIN_LEN, REACH};
use crate::event::CloseReason;
use crate::message::{
    Direction, Report, Up, decode_bare_report, decode_chunk_ack, decode_up, write_bye,
    write_turns_head, write_welcome,
};
use crate::repair::{Ack, Closed, RepairLimits, newest};
use crate::stats::SpectatorStats;
use crate::tick::{PeerId, Tick};

/// What all feeds share while turns are written.
struct Shared<'a> {
    stage: &'a Stage<'a>,
    tail: &'a Tail,
    moments: &'a Moments,
    limits: &'a RepairLimits,
}

impl Audience {
    /// Writes the next datagram and returns who shall get it.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        buf: &mut Vec<u8>,
        stats: &mut SpectatorStats,
    ) -> Option<PeerId> {
        if self.cursor < self.feeds.len() {
            self.tail.lay_out(stage, &self.terms.limits);
        }
        let shared = Shared {
            stage,
            tail: &self.tail,
            moments: &self.moments,
            limits: &self.terms.limits,
        };
        while let Some(feed) = self.feeds.get_mut(self.cursor) {
            self.cursor = self.cursor.saturating_add(1);
            if feed.is_due_turns(stage.end) {
                write_feed(feed, now, &shared, buf, stats);
                if feed.repair.is_newest_due() {
                    self.cursor = self.cursor.saturating_sub(1);
                }
                return Some(feed.peer);
            }
            if let Standing::Arriving { .. } = feed.standing
                && let Some(welcome) = &self.welcome
                && core::mem::take(&mut feed.is_due)
            {
                write_welcome(buf, welcome);
                return Some(feed.peer);
            }
        }
        self.serving
            .transmit(now, buf)
            .or_else(|| self.transmit_farewell(buf))
    }

    /// Writes the next word to those who watch no more.
    pub(crate) fn transmit_farewell(&mut self, buf: &mut Vec<u8>) -> Option<PeerId> {
        let (peer, reason) = self.farewells.poll()?;
        write_bye(buf, reason);
        Some(peer)
    }

    /// Takes what `peer` says while there is no match; false where nobody knows it.
    pub(crate) fn on_early_datagram(&mut self, peer: PeerId) -> bool {
        self.has(peer) || self.farewells.remind(peer)
    }

    /// Takes what `peer` says; false where nobody knows it.
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        (peer, datagram): (PeerId, &[u8]),
        stats: &mut SpectatorStats,
    ) -> bool {
        let place = self.places.get(&peer).copied();
        if place.is_none() && !self.farewells.knows(peer) {
            return false;
        }
        if let Some(place) = place
            && let Some((next_low, is_gap)) = decode_bare_report(datagram)
        {
            self.on_ack(now, stage, (place, next_low, is_gap), stats);
            return true;
        }
        let width = self.welcome.as_ref().map(|welcome| welcome.shape.width);
        let up = width.and_then(|width| decode_up(datagram, width).ok());
        let Some(place) = place else {
            // Whoever still watches has not heard that it does not.
            let is_watching = matches!(up, Some(Up::Ready { .. } | Up::Report(_)));
            return is_watching && self.farewells.remind(peer);
        };
        match up {
            Some(Up::Report(report)) => self.on_report(now, stage, (place, &report), stats),
            Some(Up::Ready { next }) => self.on_ready(now, stage, (place, next), stats),
            Some(Up::SnapshotAsk) => self.on_asked(now, stage, place, stats),
            Some(Up::Leave(reason)) => {
                self.remove(peer, reason, CloseReason::Removed);
            }
            // Nobody asks a spectator where its state began to differ.
            Some(Up::Answer(_)) => {
                stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
            }
            None => {
                if let Ok(ack) = decode_chunk_ack(datagram, Direction::Up) {
                    self.on_snapshot_ack(now, stage, peer, &ack);
                    self.serve(now, stage, stats);
                } else {
                    stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
                }
            }
        }
        true
    }

    fn on_ready(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        (place, next): (usize, Tick),
        stats: &mut SpectatorStats,
    ) {
        let Some(feed) = self.feeds.get_mut(place) else {
            return;
        };
        let peer = feed.peer;
        if let Standing::Arriving { .. } = feed.standing {
            feed.is_due = false;
            let is_in_reach =
                stage.begin <= next && next <= stage.end && stage.end.since(next) <= REACH;
            if is_in_reach {
                feed.begin_at(next);
            } else {
                feed.repair.begin_at(next);
                feed.standing = Standing::AwaitsSnapshot;
                self.want_for(now, peer);
                self.serve(now, stage, stats);
            }
        }
        // It is heard, though there may be nothing for it yet.
        if let Some(feed) = self.feeds.get_mut(place)
            && (feed.standing == Standing::AwaitsSnapshot || feed.repair.next() >= stage.end)
        {
            feed.is_due = true;
            let wait = core::time::Duration::from_millis(WELCOME_INTERVAL_MILLIS);
            self.wake_at(after(now, wait));
        }
    }

    fn on_report(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        (place, report): (usize, &Report<'_>),
        stats: &mut SpectatorStats,
    ) {
        if report.inputs.is_some() {
            stats.dropped_inputs = stats.dropped_inputs.saturating_add(1);
            return;
        }
        self.on_ack(now, stage, (place, report.next_low, report.is_gap), stats);
    }

    /// Takes the word of the feed in `place` of what it has.
    fn on_ack(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        (place, next_low, is_gap): (usize, u16, bool),
        stats: &mut SpectatorStats,
    ) {
        let next = stage.end.widen_back(next_low);
        let next = next.filter(|next| stage.end.since(*next) <= CHAIN_LEN);
        let feed = self.feeds.get_mut(place);
        let feed = feed.filter(|feed| feed.standing == Standing::Watching);
        let (Some(next), Some(feed)) = (next, feed) else {
            stats.dropped_ack = stats.dropped_ack.saturating_add(1);
            return;
        };
        let before = next.0.checked_sub(1).map(Tick);
        let ack = Ack {
            next,
            is_gap,
            sent_at: before.and_then(|tick| self.moments.get(tick)),
        };
        feed.repair.on_ack(now, &ack);
    }

    /// Takes the wish of one who serves others.
    fn on_asked(
        &mut self,
        now: Instant,
        stage: &Stage<'_>,
        place: usize,
        stats: &mut SpectatorStats,
    ) {
        let Some(feed) = self.feeds.get(place) else {
            return;
        };
        let peer = feed.peer;
        if feed.guest == Guest::Spectator {
            stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
            return;
        }
        let may_have = feed.standing == Standing::Watching
            && feed.snapshot_from <= now
            && !self.is_served(peer);
        if may_have {
            self.want_for(now, peer);
            self.serve(now, stage, stats);
        }
    }
}

fn write_feed(
    feed: &mut Feed,
    now: Instant,
    shared: &Shared<'_>,
    buf: &mut Vec<u8>,
    stats: &mut SpectatorStats,
) {
    let Shared {
        stage,
        tail,
        moments,
        limits,
    } = shared;
    feed.is_due = false;
    if feed.standing != Standing::Watching {
        write_turns_head(buf, 0, i8::MIN, feed.repair.next().low(), None);
        return;
    }
    feed.repair.on_ticks(stage.end.since(feed.sent_end), limits);
    feed.sent_end = stage.end;
    let closed = Closed {
        chain: stage.chain,
        end: stage.end,
        next_at: moments.get(feed.repair.next()),
    };
    let mut is_laid_out = false;
    let slice = feed.repair.slice_by(now, &closed, limits, |wanted| {
        tail.first_from(wanted.from).map_or_else(
            || newest(&closed, wanted, limits),
            |first| {
                is_laid_out = true;
                first.0..stage.end.0
            },
        )
    });
    feed.is_due = feed.repair.is_newest_due();
    if is_laid_out {
        buf.extend_from_slice(tail.datagram(Tick(slice.ticks.start)));
    } else {
        write_turns(&slice.ticks, stage, buf);
    }
    let catch_up = u64::from(slice.is_catch_up);
    stats.turns_sent = stats.turns_sent.saturating_add(1);
    stats.catch_up_datagrams = stats.catch_up_datagrams.saturating_add(catch_up);
}

/// Writes a datagram with the bundles of `ticks`, as anybody may get it.
pub(super) fn write_turns(ticks: &Range<u32>, stage: &Stage<'_>, buf: &mut Vec<u8>) {
    write_turns_head(buf, 0, i8::MIN, Tick(ticks.start).low(), None);
    for tick in ticks.clone() {
        buf.extend_from_slice(stage.chain.get(Tick(tick)).unwrap_or_default());
    }
}
