//! Processes of the pool: as many as are needed, and some warm.

use core::time::Duration;

use crypto::Provider;
use wire::{CommandId, Instant, NodeId};

use super::Matchmaker;
use crate::command::{Command, Outcome};
use crate::event::{DownReason, Event};
use crate::lease::ServerLink;
use crate::outbox::Pending;
use crate::pool::{Slot, SlotState, backoff};
use crate::record::Intake;
use crate::timer::Timer;

impl<P: Provider> Matchmaker<P> {
    /// Takes word that the process which the command `run` ([`Command::Spawn`]) started has ended,
    /// by itself or by a crash. Its instance is given up at once, before its lease ends. Of a
    /// process that has ended after [`Command::Stop`] the outcome of that command says so.
    pub fn handle_exited(&mut self, now: Instant, run: CommandId) {
        let now = self.enter(now);
        let Some(slot) = self.pool.slot_of_run(run) else {
            return;
        };
        match self.pool.get(slot).map(|place| (place.state, place.node)) {
            Some((SlotState::Starting { .. }, _)) => {
                self.outbox.forget_slot(slot);
                self.fail_slot(now, slot);
                self.rest(now, slot);
            }
            Some((SlotState::Serving, node)) => {
                if let Some(link) = self.servers.of_node(node) {
                    self.lose(now, link, DownReason::Exited);
                }
            }
            Some((SlotState::Idle { .. } | SlotState::Stopping, _)) | None => {}
        }
        self.advance(now);
    }

    /// Starts processes until all matches that wait have room, and as many servers as are kept warm
    /// have too.
    pub(super) fn staff(&mut self, now: Instant) {
        if !self.is_recovered || self.pool.len() == 0 {
            return;
        }
        let seats = usize::from(self.game.rule.seats());
        let (starting, late) = self.pool.starting();
        let warm = usize::from(self.config.warm);
        let waiting = self.matches.waiting();
        let wanted = if let Some(capacity) = self.pool.capacity {
            let matches_each = usize::from(capacity).checked_div(seats);
            let each = matches_each.unwrap_or(1).max(1);
            waiting.div_ceil(each).saturating_add(warm)
        } else {
            // Nobody knows yet how many matches one takes: the first tells, unless it is late.
            waiting.saturating_add(warm).min(late.saturating_add(1))
        };
        let there = self.servers.with_room(seats, wanted);
        let there = there.saturating_add(starting);
        for _ in there..wanted {
            let Some(slot) = self.pool.startable(now) else {
                return;
            };
            self.start(now, slot);
        }
    }

    fn start(&mut self, now: Instant, slot: Slot) {
        let Some(place) = self.pool.get_mut(slot) else {
            return;
        };
        let spawn = Command::Spawn {
            slot,
            node: place.node,
        };
        let ready_until = now + self.config.ready_timeout;
        place.state = SlotState::Starting {
            ready_until,
            is_late: false,
        };
        place.run = Some(self.outbox.command(Pending::Spawn(slot), spawn));
        let look_at = ready_until.min(now + LATE_AFTER);
        self.timers.set(Timer::Slot(slot), look_at);
    }

    /// Processes that were started can register again: each has [`recovery`](crate::Config::recovery)
    /// for it at the least. How late one is counts from now on.
    pub(super) fn prolong_starts(&mut self, now: Instant) {
        let recovered_at = now + self.config.recovery;
        for (slot, place) in self.pool.iter_mut() {
            if let SlotState::Starting {
                ready_until,
                is_late,
            } = &mut place.state
            {
                *ready_until = recovered_at.max(*ready_until);
                let look_at = if *is_late {
                    *ready_until
                } else {
                    (now + LATE_AFTER).min(*ready_until)
                };
                self.timers.set(Timer::Slot(slot), look_at);
            }
        }
    }

    /// Tells the process of a slot to end.
    fn stop(&mut self, now: Instant, slot: Slot) {
        self.outbox.forget_slot(slot);
        let Some(place) = self.pool.get_mut(slot) else {
            return;
        };
        place.state = SlotState::Stopping;
        let run = place.run;
        self.outbox
            .command(Pending::Stop(slot), Command::Stop { slot, run });
        let again_at = now + self.config.stop_timeout;
        self.timers.set(Timer::Slot(slot), again_at);
    }

    /// Counts that no lasting server came of a slot.
    fn fail_slot(&mut self, now: Instant, slot: Slot) {
        debug_assert!(now >= self.now);
        if let Some(place) = self.pool.get_mut(slot) {
            place.failures = place.failures.saturating_add(1);
            let failures = place.failures;
            self.event(Event::SpawnFailed { slot, failures });
        }
    }

    /// Leaves a slot empty, until it has rested where it failed.
    fn rest(&mut self, now: Instant, slot: Slot) {
        let bounds = (self.config.backoff_min, self.config.backoff_max);
        let Some(place) = self.pool.get_mut(slot) else {
            return;
        };
        place.run = None;
        let retry_at = if place.failures == 0 {
            now
        } else {
            now + backoff(bounds, place.failures, &mut self.generator)
        };
        place.state = SlotState::Idle { retry_at };
        if retry_at > now {
            self.timers.set(Timer::Slot(slot), retry_at);
        } else {
            self.timers.clear(Timer::Slot(slot));
        }
    }

    /// Takes the outcome of [`Command::Spawn`]; the process may have registered before.
    pub(super) fn on_spawned(&mut self, now: Instant, slot: Slot, outcome: &Outcome) {
        let is_starting = self
            .pool
            .get(slot)
            .is_some_and(|place| matches!(place.state, SlotState::Starting { .. }));
        if is_starting && *outcome != Outcome::Started {
            self.fail_slot(now, slot);
            self.rest(now, slot);
        }
    }

    /// Takes the outcome of [`Command::Stop`]; where it failed, it is told again in time.
    pub(super) fn on_stopped(&mut self, now: Instant, slot: Slot, outcome: &Outcome) {
        if *outcome == Outcome::Stopped {
            self.rest(now, slot);
        }
    }

    /// The node of a slot has registered, whoever started it, and serves so many seats.
    pub(super) fn on_slot_serving(&mut self, node: NodeId, capacity: u16) {
        if let Some(slot) = self.pool.slot_of(node)
            && let Some(place) = self.pool.get_mut(slot)
        {
            place.state = SlotState::Serving;
            self.pool.capacity = Some(capacity);
            self.timers.clear(Timer::Slot(slot));
        }
    }

    /// Looks later whether an instance of the pool still stands unused.
    pub(super) fn watch_unused(&mut self, now: Instant, link: ServerLink) {
        if let Some(slot) = self.serving_slot(link.node) {
            let due = now + self.config.unused_timeout;
            self.timers.set(Timer::Slot(slot), due);
        }
    }

    /// The instance of `node` is gone.
    pub(super) fn on_server_lost(
        &mut self,
        now: Instant,
        node: NodeId,
        since: Instant,
        reason: DownReason,
    ) {
        let Some(slot) = self.serving_slot(node) else {
            return;
        };
        if let Some(place) = self.pool.get_mut(slot)
            && now.saturating_since(since) >= self.config.backoff_max
        {
            place.failures = 0;
        }
        match reason {
            // The other instance serves in its place.
            DownReason::Superseded => {}
            DownReason::Exited => {
                self.outbox.forget_slot(slot);
                self.fail_slot(now, slot);
                self.rest(now, slot);
            }
            DownReason::LeaseLost => {
                self.fail_slot(now, slot);
                self.stop(now, slot);
            }
            DownReason::Left | DownReason::Unused => self.stop(now, slot),
        }
    }

    /// A slot has waited for what its state says.
    pub(super) fn on_slot_due(&mut self, now: Instant, slot: Slot) {
        let Some(place) = self.pool.get(slot) else {
            return;
        };
        match place.state {
            // Rested: `staff` may start it.
            SlotState::Idle { .. } => {}
            SlotState::Starting { ready_until, .. } if ready_until > now => {
                if let Some(place) = self.pool.get_mut(slot) {
                    place.state = SlotState::Starting {
                        ready_until,
                        is_late: true,
                    };
                }
                self.timers.set(Timer::Slot(slot), ready_until);
            }
            // It cannot register, and gets time once it can.
            SlotState::Starting { .. } if self.cut_since.is_some() => {}
            SlotState::Starting { .. } => {
                self.fail_slot(now, slot);
                self.stop(now, slot);
            }
            SlotState::Serving => self.on_unused_due(now, slot, place.node),
            SlotState::Stopping => self.stop(now, slot),
        }
    }

    /// Stops an instance that has stood unused, where enough others are warm.
    fn on_unused_due(&mut self, now: Instant, slot: Slot, node: NodeId) {
        let Some(link) = self.servers.of_node(node) else {
            return;
        };
        let Some(server) = self.servers.get(link) else {
            return;
        };
        if !server.matches.is_empty() {
            return;
        }
        let unused_until = server.unused_since + self.config.unused_timeout;
        let warm = usize::from(self.config.warm);
        let unused = self
            .servers
            .iter()
            .filter(|(_, server)| server.intake == Intake::Open && server.matches.is_empty())
            .take(warm.saturating_add(1))
            .count();
        if unused_until > now {
            self.timers.set(Timer::Slot(slot), unused_until);
        } else if unused > warm && self.matches.waiting() == 0 && self.cut_since.is_none() {
            self.lose(now, link, DownReason::Unused);
        } else {
            self.watch_unused(now, link);
        }
    }

    /// The slot of `node`, where its instance serves.
    fn serving_slot(&self, node: NodeId) -> Option<Slot> {
        let slot = self.pool.slot_of(node)?;
        let place = self.pool.get(slot)?;
        (place.state == SlotState::Serving).then_some(slot)
    }
}

/// A process that takes longer to register is not waited for before others are started.
const LATE_AFTER: Duration = Duration::from_secs(5);
