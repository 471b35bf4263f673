//! What a seated client says: what it has, its inputs, its state hashes.

use wire::Instant;

use super::Session;
use crate::checksum::StateHasher;
use crate::client_peer::stepping::Stepping;
use crate::event::ReportError;
use crate::message::{HashSlice, ReportHead, fitting_inputs, write_report};
use crate::tick::Tick;

/// Reports up to this length, in bytes, are not worth shortening: the transport's own 59 bytes
/// weigh more.
const REPORT_LEN_SMALL: usize = 24;

impl Session {
    /// Takes the root of a state, and its sections where there are any.
    pub(in crate::client_peer) fn report(
        &mut self,
        tick: Tick,
        root: u64,
        state: Option<&StateHasher>,
    ) -> Result<(), ReportError> {
        let next = self
            .stepping
            .as_ref()
            .map_or_else(|| self.reader.next(), Stepping::settled);
        if tick.plus(1) != next || tick < self.reported_end {
            return Err(ReportError::OutOfOrder);
        }
        if self.is_spectator() {
            self.reported_end = tick.plus(1);
            return Ok(());
        }
        let log = self.log();
        let hash = log.report(root);
        let interval = u32::from(self.welcome.hash_interval.get());
        if tick.0.is_multiple_of(interval) && !self.is_spectator() {
            let step = tick.0.checked_div(interval).unwrap_or(0);
            self.hashes.push(step, hash)?;
        }
        let sections = state.into_iter().flat_map(StateHasher::sections);
        self.rungs.push(tick, (hash, log.short()), sections);
        self.reported_end = tick.plus(1);
        Ok(())
    }

    /// Appends a report of at most `len_max` bytes.
    pub(in crate::client_peer) fn write_report(
        &mut self,
        now: Instant,
        len_max: usize,
        out: &mut Vec<u8>,
    ) {
        self.unsaid = 0;
        if self.is_spectator() {
            self.write_spectators_report(out);
            return;
        }
        let interval = u32::from(self.welcome.hash_interval.get());
        let newest = self
            .end
            .0
            .checked_sub(1)
            .and_then(|tick| tick.checked_div(interval));
        let reference = self.history.reference();
        let mut head = ReportHead {
            loaded: self.loaded,
            next_low: self.end.low(),
            is_gap: self.is_gap(),
            lag: self.lag(now),
            hashes: newest.map_or_else(HashSlice::default, |newest| self.hashes.take(newest)),
            ahead: self.history.first().since(self.end),
            is_fresh: reference.is_none(),
        };
        let before = reference.unwrap_or(&self.neutral);
        let width = self.welcome.shape.width;
        let start = out.len();
        write_report(out, &head, width, before, self.history.inputs());
        let all = self.history.inputs().len();
        let len = out.len().saturating_sub(start);
        // Inputs that change all the time: those that would come too late anyway stay out.
        let mut copies = all;
        if len > REPORT_LEN_SMALL {
            copies = copies.min(self.useful_copies());
        }
        if len > len_max {
            // Each input goes out in as many reports as hold it, the newest with the most time left.
            let fitting = fitting_inputs(len_max, width, &self.neutral, self.history.inputs());
            copies = copies.min(fitting);
        }
        if copies == all {
            return;
        }
        let skipped = all.saturating_sub(copies);
        out.truncate(start);
        head.ahead = head
            .ahead
            .saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
        head.is_fresh = true;
        let inputs = self.history.inputs().skip(skipped);
        write_report(out, &head, width, &self.neutral, inputs);
    }

    /// Turns that wait for the game: those that have arrived, but for those that are held back.
    fn lag(&self, now: Instant) -> u32 {
        let playout = self.playout.get();
        let due = match &self.clock {
            Some(clock) if self.stepping.is_none() && !playout.is_zero() => {
                clock.count_by(now, playout).min(self.end)
            }
            Some(_) | None => self.end,
        };
        due.since(self.simulated())
    }

    /// Says what is there; who watches has no more to say, and nobody waits for it.
    fn write_spectators_report(&self, out: &mut Vec<u8>) {
        let head = ReportHead {
            next_low: self.end.low(),
            is_gap: self.is_gap(),
            ..ReportHead::default()
        };
        let width = self.welcome.shape.width;
        write_report(out, &head, width, &self.neutral, core::iter::empty());
    }

    /// How many of the newest inputs can still arrive in time: the newest comes `slack` before its
    /// tick's close, and each older one a tick less.
    fn useful_copies(&self) -> usize {
        let repair = usize::from(self.welcome.repair);
        let Some(slack) = self.slack else {
            return usize::MAX;
        };
        let ticks = usize::try_from(slack.div_euclid(4)).unwrap_or(0);
        repair.max(ticks.saturating_add(2))
    }
}
