//! Datagrams to and from clients.

use wire::{Instant, Seat};

use super::close::{PlayerState, player, player_mut};
use super::{LAG_IN_STEP, MatchServer};
use crate::chain::CHAIN_LEN;
use crate::config::ClosePolicy;
use crate::event::{CloseReason, Phase};
use crate::input::Input;
use crate::input_log::BEHIND_MAX;
use crate::message::{
    Direction, HashRun, INPUT_AHEAD_MAX, InputRun, Mode, Report, Up, Welcome, decode_chunk,
    decode_chunk_ack, decode_up, write_bye, write_stretch, write_turns_head, write_welcome,
};
use crate::repair::{Ack, Closed};
use crate::tick::{PeerId, Tick};

impl<I: Input> MatchServer<I> {
    pub(super) fn on_datagram(&mut self, now: Instant, peer: PeerId, datagram: &[u8]) {
        let Some(seat) = self.peers.get(&peer).copied() else {
            if self.on_spectators_datagram(now, peer, datagram) {
                return;
            }
            // A former player that still plays has missed its final packet.
            if let Some((_, is_due)) = self.departed.get_mut(&peer)
                && matches!(
                    decode_up(datagram, I::WIDTH),
                    Ok(Up::Ready { .. } | Up::Report(_))
                )
            {
                *is_due = true;
            }
            self.stats.dropped_unknown_peer = self.stats.dropped_unknown_peer.saturating_add(1);
            return;
        };
        if let Ok(ack) = decode_chunk_ack(datagram, Direction::Up) {
            self.on_snapshot_ack(now, seat, &ack);
            return;
        }
        if let Ok(chunk) = decode_chunk(datagram, Direction::Up) {
            self.on_donated(now, seat, &chunk);
            return;
        }
        match decode_up(datagram, I::WIDTH) {
            Ok(Up::Ready { next }) => self.on_ready(now, seat, next),
            Ok(Up::Report(report)) => self.on_report(now, seat, &report),
            Ok(Up::Answer(answer)) => self.on_bisect_answer(seat, &answer),
            Ok(Up::Leave(reason)) => self.remove(seat, reason, CloseReason::Removed),
            // Players do not request snapshots; the server decides.
            Ok(Up::SnapshotAsk) | Err(_) => {
                self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
            }
        }
    }

    fn on_report(&mut self, now: Instant, seat: Seat, report: &Report<'_>) {
        let next = self.end.widen_back(report.next_low);
        let Some(next) = next.filter(|next| self.end.since(*next) <= CHAIN_LEN) else {
            self.stats.dropped_ack = self.stats.dropped_ack.saturating_add(1);
            return;
        };
        let sent_at = next
            .0
            .checked_sub(1)
            .and_then(|tick| self.closed_at(Tick(tick)));
        let next_at = self.closed_at(next);
        let Some(player) = player_mut(&mut self.seats, seat).filter(|player| player.has_turns())
        else {
            self.stats.dropped_ack = self.stats.dropped_ack.saturating_add(1);
            return;
        };
        let ack = Ack {
            next,
            is_gap: report.is_gap,
            sent_at,
        };
        player.repair.on_ack(now, &ack);
        player.lag = report.lag;
        player.pace.on_received(now);
        // Hashes of a replaced state are ignored.
        let counts = player.loaded.map(|loaded| loaded.id) == report.loaded;
        let is_in_step = !report.is_gap
            && report.lag <= LAG_IN_STEP
            && player.repair.is_level(now, next_at, &self.limits);
        if player.state == PlayerState::CatchingUp && is_in_step {
            player.state = PlayerState::InStep;
        }
        if report.hashes.count > 0 && counts {
            self.on_hashes(seat, next, &report.hashes);
        }
        if let Some(inputs) = &report.inputs
            && self.phase == Phase::Running
        {
            self.on_inputs(now, seat, next, inputs);
        }
    }

    fn on_hashes(&mut self, seat: Seat, next: Tick, hashes: &HashRun<'_>) {
        let interval = u32::from(self.config.hash_interval.get()).max(1);
        let newest = next
            .0
            .checked_sub(1)
            .and_then(|tick| tick.checked_div(interval));
        let first = newest.and_then(|newest| newest.checked_sub(hashes.back));
        let reaches_past = hashes.count > hashes.back.saturating_add(1);
        let Some(first) = first.filter(|_| !reaches_past) else {
            self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            return;
        };
        for (hash, index) in hashes.iter().zip(0..) {
            if !self
                .hash_comparator
                .insert(seat, first.saturating_add(index), hash)
            {
                self.stats.hashes_refused = self.stats.hashes_refused.saturating_add(1);
            }
        }
        self.settle_hashes();
        self.review_hashes(seat);
    }

    fn on_inputs(&mut self, now: Instant, seat: Seat, next: Tick, run: &InputRun<'_>) {
        let first = next.plus(run.ahead);
        let end = self.end;
        let Some(entry) = self.seats.get_mut(usize::from(seat.0)) else {
            return;
        };
        let before = if run.is_fresh {
            Some(self.neutral.as_slice())
        } else {
            first
                .0
                .checked_sub(1)
                .and_then(|tick| entry.log.get(Tick(tick)))
        };
        let Some(before) = before else {
            self.stats.dropped_reference = self.stats.dropped_reference.saturating_add(1);
            return;
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(before);
        let stats = &mut self.stats;
        let log = &mut entry.log;
        let mut newest = None;
        let held = (0..run.count).take_while(|index| log.has(first.plus(*index)));
        let held = u32::try_from(held.count()).unwrap_or(0);
        run.unpack_from(held, &mut self.scratch, |index, input| {
            let tick = first.plus(index);
            if tick >= end.plus(INPUT_AHEAD_MAX) {
                stats.inputs_early = stats.inputs_early.saturating_add(1);
            } else if tick >= end.minus(BEHIND_MAX) && log.insert(tick, input) {
                // Kept although late: later inputs may be coded against it.
                stats.inputs_late = stats.inputs_late.saturating_add(u64::from(tick < end));
                newest = Some(tick);
            }
        });
        if let Some(tick) = newest {
            let slack = self.slack(now, tick);
            if let Some(player) = player_mut(&mut self.seats, seat) {
                player.slack = slack;
                if let PlayerState::Playing { awaited_from } = &mut player.state
                    && tick >= end
                {
                    awaited_from.get_or_insert(tick);
                }
            }
        }
    }

    /// Quarter ticks from `now` to the close of `tick`, rounded down: -127 to 127.
    fn slack(&self, now: Instant, tick: Tick) -> i8 {
        let close = self.close_time(tick);
        let quarter = self.limits.period_nanos / 4;
        let quarters = |span: u64| {
            let count = span.checked_div(quarter).unwrap_or(0);
            i8::try_from(count.min(127)).unwrap_or(i8::MAX)
        };
        let (now, close) = (now.as_nanos(), close.as_nanos());
        if now <= close {
            quarters(close.saturating_sub(now))
        } else {
            // Late by less than a quarter still counts as late.
            let late = quarters(now.saturating_sub(close));
            late.saturating_add(1).saturating_neg()
        }
    }
}

impl<I: Input> MatchServer<I> {
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if let Some(peer) = self.transmit_question(now, buf) {
            return Some(peer);
        }
        while self.transmit_from < self.seats.len() {
            let index = self.transmit_from;
            self.transmit_from = index.saturating_add(1);
            let seat = Seat(u16::try_from(index).unwrap_or(u16::MAX));
            if let Some(peer) = self.transmit_to(now, seat, buf) {
                return Some(peer);
            }
        }
        if let Some(peer) = self.transmit_to_spectators(now, buf) {
            return Some(peer);
        }
        if self.phase == Phase::Running
            && let Some(peer) = self.transmit_snapshots(now, buf)
        {
            return Some(peer);
        }
        let (peer, (reason, is_due)) = self.departed.iter_mut().find(|(_, (_, is_due))| *is_due)?;
        *is_due = false;
        write_bye(buf, *reason);
        Some(*peer)
    }

    fn transmit_to(&mut self, now: Instant, seat: Seat, buf: &mut Vec<u8>) -> Option<PeerId> {
        let next_at = {
            let player = player(&self.seats, seat)?;
            self.closed_at(player.repair.next)
        };
        let entry = self.seats.get_mut(usize::from(seat.0))?;
        let next_input_low = entry.log.next.low();
        let player = entry.player.as_mut()?;
        if !player.is_due {
            return None;
        }
        player.is_due = false;
        if !player.is_ready() {
            let peer = player.peer;
            write_welcome(buf, &self.welcome(Some(seat)));
            return Some(peer);
        }
        if self.phase != Phase::Running || !player.has_turns() {
            return None;
        }
        let closed = Closed {
            chain: &self.chain,
            end: self.end,
            next_at,
        };
        let body = &mut self.body;
        let slice = player
            .repair
            .slice_by(now, &closed, &self.limits, |wanted| {
                body.newest(&closed, wanted, &self.limits)
            });
        if player.repair.is_newest_due {
            player.is_due = true;
            self.transmit_from = usize::from(seat.0);
        }
        let wait = player.repair.answer_nanos(&self.limits);
        let wanted = self.hash_comparator.ask(now, seat, wait);
        write_stretch(buf, self.stretch.per_mille);
        let start = buf.len();
        self.forwarding.put(buf);
        write_turns_head(
            buf,
            next_input_low,
            player.slack,
            Tick(slice.ticks.start).low(),
            wanted.map(|step| Tick(step).low()),
        );
        buf.extend_from_slice(body.encode(&self.chain, &slice.ticks));
        self.forwarding.truncate_if_long(buf, start);
        let count = u64::try_from(slice.ticks.len()).unwrap_or(u64::MAX);
        self.stats.bundles_sent = self.stats.bundles_sent.saturating_add(count);
        let catch_up = u64::from(slice.is_catch_up);
        self.stats.catch_up_datagrams = self.stats.catch_up_datagrams.saturating_add(catch_up);
        Some(player.peer)
    }

    pub(crate) fn welcome(&self, seat: Option<Seat>) -> Welcome {
        Welcome {
            mode: match self.config.close {
                ClosePolicy::Clock { .. } => Mode::Clock,
                ClosePolicy::WaitAll { .. } => Mode::WaitAll,
                ClosePolicy::Quorum { .. } => Mode::Quorum,
            },
            shape: self.shape,
            seat,
            period_nanos: self.config.tick_rate.period_nanos(),
            input_delay: self.config.input_delay,
            repair: self.config.repair.get(),
            hash_interval: self.config.hash_interval,
            match_id: self.match_id,
        }
    }
}
