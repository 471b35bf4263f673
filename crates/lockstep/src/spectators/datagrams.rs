//! Datagrams to and from spectators.

use core::ops::Range;

use wire::Instant;

use super::Tail;
use super::TickTimes;
use super::{ShownTicks, SpectatorKind, SpectatorSet, WELCOME_INTERVAL_MILLIS};
use super::{Spectator, SpectatorState};
use crate::chain::{CHAIN_LEN, REACH};
use crate::event::CloseReason;
use crate::message::{
    Direction, Report, Up, decode_bare_report, decode_chunk_ack, decode_up, write_bye,
    write_turns_head, write_welcome,
};
use crate::repair::{Ack, Closed, RepairLimits, newest};
use crate::stats::SpectatorStats;
use crate::tick::{PeerId, Tick};

struct Shared<'a> {
    shown_ticks: &'a ShownTicks<'a>,
    tail: &'a Tail,
    tick_times: &'a TickTimes,
    limits: &'a RepairLimits,
}

impl SpectatorSet {
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        buf: &mut Vec<u8>,
        stats: &mut SpectatorStats,
    ) -> Option<PeerId> {
        if self.cursor < self.members.len() {
            self.tail.encode(shown_ticks, &self.set_config.limits);
        }
        let shared = Shared {
            shown_ticks,
            tail: &self.tail,
            tick_times: &self.tick_times,
            limits: &self.set_config.limits,
        };
        while let Some(spectator) = self.members.get_mut(self.cursor) {
            self.cursor = self.cursor.saturating_add(1);
            if spectator.is_due_turns(shown_ticks.end) {
                write_spectator(spectator, now, &shared, buf, stats);
                if spectator.repair.is_newest_due {
                    self.cursor = self.cursor.saturating_sub(1);
                }
                return Some(spectator.peer);
            }
            if let SpectatorState::Arriving { .. } = spectator.state
                && let Some(welcome) = &self.welcome
                && core::mem::take(&mut spectator.is_due)
            {
                write_welcome(buf, welcome);
                return Some(spectator.peer);
            }
        }
        self.transfers
            .transmit(now, buf)
            .or_else(|| self.transmit_close(buf))
    }

    pub(crate) fn transmit_close(&mut self, buf: &mut Vec<u8>) -> Option<PeerId> {
        let (peer, reason) = self.closing.poll()?;
        write_bye(buf, reason);
        Some(peer)
    }

    pub(crate) fn on_early_datagram(&mut self, peer: PeerId) -> bool {
        self.has(peer) || self.closing.mark_due(peer)
    }

    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        (peer, datagram): (PeerId, &[u8]),
        stats: &mut SpectatorStats,
    ) -> bool {
        let index = self.indices.get(&peer).copied();
        if index.is_none() && !self.closing.knows(peer) {
            return false;
        }
        if let Some(index) = index
            && let Some((next_low, is_gap)) = decode_bare_report(datagram)
        {
            self.on_ack(now, shown_ticks, (index, next_low, is_gap), stats);
            return true;
        }
        let width = self.welcome.as_ref().map(|welcome| welcome.shape.width);
        let up = width.and_then(|width| decode_up(datagram, width).ok());
        let Some(index) = index else {
            // A former spectator that still watches has missed its final packet.
            let is_watching = matches!(up, Some(Up::Ready { .. } | Up::Report(_)));
            return is_watching && self.closing.mark_due(peer);
        };
        match up {
            Some(Up::Report(report)) => self.on_report(now, shown_ticks, (index, &report), stats),
            Some(Up::Ready { next }) => self.on_ready(now, shown_ticks, (index, next), stats),
            Some(Up::SnapshotAsk) => self.on_snapshot_request(now, shown_ticks, index, stats),
            Some(Up::Leave(reason)) => {
                self.remove(peer, reason, CloseReason::Removed);
            }
            // Spectators are never asked to bisect a desync.
            Some(Up::Answer(_)) => {
                stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
            }
            None => {
                if let Ok(ack) = decode_chunk_ack(datagram, Direction::Up) {
                    self.on_snapshot_ack(now, shown_ticks, peer, &ack);
                    self.serve(now, shown_ticks, stats);
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
        shown_ticks: &ShownTicks<'_>,
        (index, next): (usize, Tick),
        stats: &mut SpectatorStats,
    ) {
        let Some(spectator) = self.members.get_mut(index) else {
            return;
        };
        let peer = spectator.peer;
        if let SpectatorState::Arriving { .. } = spectator.state {
            spectator.is_due = false;
            let is_in_reach = shown_ticks.begin <= next
                && next <= shown_ticks.end
                && shown_ticks.end.since(next) <= REACH;
            if is_in_reach {
                spectator.begin_at(next);
            } else {
                spectator.repair.begin_at(next);
                spectator.state = SpectatorState::AwaitsSnapshot;
                self.request_for(now, peer);
                self.serve(now, shown_ticks, stats);
            }
        }
        // Counts as a sign of life, though nothing may be due yet.
        if let Some(spectator) = self.members.get_mut(index)
            && (spectator.state == SpectatorState::AwaitsSnapshot
                || spectator.repair.next >= shown_ticks.end)
        {
            spectator.is_due = true;
            let wait = core::time::Duration::from_millis(WELCOME_INTERVAL_MILLIS);
            self.wake_at(now + wait);
        }
    }

    fn on_report(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        (index, report): (usize, &Report<'_>),
        stats: &mut SpectatorStats,
    ) {
        if report.inputs.is_some() {
            stats.dropped_inputs = stats.dropped_inputs.saturating_add(1);
            return;
        }
        self.on_ack(
            now,
            shown_ticks,
            (index, report.next_low, report.is_gap),
            stats,
        );
    }

    fn on_ack(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        (index, next_low, is_gap): (usize, u16, bool),
        stats: &mut SpectatorStats,
    ) {
        let next = shown_ticks.end.widen_back(next_low);
        let next = next.filter(|next| shown_ticks.end.since(*next) <= CHAIN_LEN);
        let spectator = self.members.get_mut(index);
        let spectator = spectator.filter(|spectator| spectator.state == SpectatorState::Watching);
        let (Some(next), Some(spectator)) = (next, spectator) else {
            stats.dropped_ack = stats.dropped_ack.saturating_add(1);
            return;
        };
        let before = next.0.checked_sub(1).map(Tick);
        let ack = Ack {
            next,
            is_gap,
            sent_at: before.and_then(|tick| self.tick_times.get(tick)),
        };
        spectator.repair.on_ack(now, &ack);
    }

    fn on_snapshot_request(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        index: usize,
        stats: &mut SpectatorStats,
    ) {
        let Some(spectator) = self.members.get(index) else {
            return;
        };
        let peer = spectator.peer;
        if spectator.kind == SpectatorKind::Spectator {
            stats.dropped_malformed = stats.dropped_malformed.saturating_add(1);
            return;
        }
        let may_have = spectator.state == SpectatorState::Watching
            && spectator.snapshot_from <= now
            && !self.is_served(peer);
        if may_have {
            self.request_for(now, peer);
            self.serve(now, shown_ticks, stats);
        }
    }
}

fn write_spectator(
    spectator: &mut Spectator,
    now: Instant,
    shared: &Shared<'_>,
    buf: &mut Vec<u8>,
    stats: &mut SpectatorStats,
) {
    let Shared {
        shown_ticks,
        tail,
        tick_times,
        limits,
    } = shared;
    spectator.is_due = false;
    if spectator.state != SpectatorState::Watching {
        write_turns_head(buf, 0, i8::MIN, spectator.repair.next.low(), None);
        return;
    }
    spectator
        .repair
        .on_ticks(shown_ticks.end.since(spectator.sent_end), limits);
    spectator.sent_end = shown_ticks.end;
    let closed = Closed {
        chain: shown_ticks.chain,
        end: shown_ticks.end,
        next_at: tick_times.get(spectator.repair.next),
    };
    let mut is_laid_out = false;
    let slice = spectator.repair.slice_by(now, &closed, limits, |wanted| {
        tail.first_from(wanted.from).map_or_else(
            || newest(&closed, wanted, limits),
            |first| {
                is_laid_out = true;
                first.0..shown_ticks.end.0
            },
        )
    });
    spectator.is_due = spectator.repair.is_newest_due;
    if is_laid_out {
        buf.extend_from_slice(tail.datagram(Tick(slice.ticks.start)));
    } else {
        write_turns(&slice.ticks, shown_ticks, buf);
    }
    let catch_up = u64::from(slice.is_catch_up);
    stats.turns_sent = stats.turns_sent.saturating_add(1);
    stats.catch_up_datagrams = stats.catch_up_datagrams.saturating_add(catch_up);
}

pub(super) fn write_turns(ticks: &Range<u32>, shown_ticks: &ShownTicks<'_>, buf: &mut Vec<u8>) {
    write_turns_head(buf, 0, i8::MIN, Tick(ticks.start).low(), None);
    for tick in ticks.clone() {
        buf.extend_from_slice(shown_ticks.chain.get(Tick(tick)).unwrap_or_default());
    }
}
