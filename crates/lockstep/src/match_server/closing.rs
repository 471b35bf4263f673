//! Closing ticks.

use wire::{Instant, Seat};

use super::MatchServer;
use crate::bundle;
use crate::chain::CHAIN_LEN;
use crate::event::{CloseReason, LeaveReason, Phase};
use crate::input::Input;
use crate::turn::Origin;
use crate::{Substitute, Tick};

/// Ticks that may be closed late in one go. After a longer pause of the process the match goes on
/// from where it was: nobody's inputs for the time between could have been heard.
const LATE_MAX: u64 = 8;

impl<I: Input> MatchServer<I> {
    /// Closes what is due.
    pub(super) fn close_due(&mut self, now: Instant) {
        if self.phase != Phase::Running {
            return;
        }
        let due = self.close_time(self.end);
        if now < due {
            return;
        }
        let period = self.limits.period_nanos.max(1);
        let late = now.saturating_since(due).as_nanos();
        let late = u64::try_from(late).unwrap_or(u64::MAX) / period;
        if late >= LATE_MAX {
            let skipped = core::time::Duration::from_nanos(late.saturating_mul(period));
            self.origin += skipped;
            self.stats.pauses = self.stats.pauses.saturating_add(1);
        }
        while self.phase == Phase::Running && self.close_time(self.end) <= now {
            self.close_tick(now);
        }
        self.expire_hashes(now);
    }

    fn close_tick(&mut self, now: Instant) {
        let tick = self.end;
        self.after.copy_from(&self.before);
        for (place, seat) in self.places.iter().zip((0..=u16::MAX).map(Seat)) {
            if place.player().is_none() {
                self.after.set(seat, &self.neutral, Origin::Absent);
            } else if let Some(input) = place.log.get(tick) {
                self.after.set(seat, input, Origin::Confirmed);
            } else {
                let input = match self.config.substitute {
                    Substitute::Repeat => self.before.value(seat),
                    Substitute::Neutral => &self.neutral,
                };
                self.after.set(seat, input, Origin::Substituted);
                self.stats.inputs_substituted = self.stats.inputs_substituted.saturating_add(1);
            }
        }
        self.scratch.clear();
        bundle::encode(&self.before, &self.after, &mut self.scratch);
        self.chain.put(tick, &self.scratch);
        self.stats.bundles_encoded = self.stats.bundles_encoded.saturating_add(1);
        core::mem::swap(&mut self.before, &mut self.after);
        let place = usize::try_from(tick.0 % CHAIN_LEN).unwrap_or(0);
        if let Some(at) = self.closed_at.get_mut(place) {
            *at = now;
        }
        self.end = tick.plus(1);
        self.stats.ticks_closed = self.stats.ticks_closed.saturating_add(1);
        self.on_tick_closed();
        if tick >= Tick::LAST {
            self.close(now);
        }
    }

    /// Has the tick sent to all, and puts out those whom the chain can no longer serve.
    fn on_tick_closed(&mut self) {
        self.transmit_from = 0;
        self.gather_early_inputs();
        for index in 0..self.shape.seats {
            let Some(player) = self
                .places
                .get_mut(usize::from(index))
                .and_then(super::place::Place::player_mut)
            else {
                continue;
            };
            player.repair.on_tick(&self.limits);
            player.is_due |= player.is_ready;
            if self.end.since(player.repair.next()) > CHAIN_LEN {
                self.remove(Seat(index), LeaveReason::Behind, CloseReason::Behind);
            }
        }
    }
}
