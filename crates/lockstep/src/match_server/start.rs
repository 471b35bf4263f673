//! Start of the match, late joins, and takeover.

use core::time::Duration;

use wire::{Instant, MatchId, Seat, Seed};

use super::MatchServer;
use super::place::{Holder, Place, Player, PlayerState};
use crate::chain::{CHAIN_LEN, Chain, ChainReader, REACH};
use crate::config::{Config, StartPolicy};
use crate::event::{CloseReason, ConfigError, LeaveReason, Phase, ServerEvent};
use crate::input::Input;
use crate::tick::{PeerId, Tick};

/// Time between welcomes, with 25 % jitter, so that many clients do not synchronise.
const WELCOME_INTERVAL_MILLIS: u64 = 50;

/// Most turns that may be pending in the simulation of a client that is in step.
pub(super) const LAG_IN_STEP: u32 = 2;

impl<I: Input> MatchServer<I> {
    /// Gives an empty seat to `peer`.
    pub(super) fn seat(&mut self, now: Instant, peer: PeerId, seat: Seat) {
        let until = (self.phase == Phase::Running).then(|| now + self.config.start_timeout);
        let end = self.end;
        let Some(place) = self.places.get_mut(usize::from(seat.0)) else {
            return;
        };
        // Early inputs of the previous player do not count.
        place.log.clear();
        place.holder = Holder::Held(Player::new(peer, now, until, &self.limits));
        self.departed.remove(&peer);
        self.spectators.forget(peer);
        self.peers.insert(peer, seat);
        if self.phase == Phase::Gathering {
            debug_assert_eq!(end, self.base, "no tick closes before the start");
            if end == Tick(0) {
                self.hash_comparator.admit(seat);
            } else {
                let step = self.step_after(end);
                self.hash_comparator.admit_late(seat, step);
            }
        }
    }

    /// The player of `seat` has the welcome and lacks ticks from `next` on.
    pub(super) fn on_ready(&mut self, now: Instant, seat: Seat, next: Tick) {
        let (end, is_in_reach) = (self.end, self.is_in_reach(next));
        let place = self.places.get_mut(usize::from(seat.0));
        let Some(player) = place
            .and_then(Place::player_mut)
            .filter(|player| !player.is_ready())
        else {
            return;
        };
        if self.phase == Phase::Running {
            self.on_late_ready(now, seat, next);
            return;
        }
        if end > Tick(0) {
            // A player that lacks more than is kept needs a snapshot, and so ticks that close.
            if !is_in_reach {
                return;
            }
            player.repair.begin_at(next);
        }
        player.state = PlayerState::Playing { awaited_from: None };
        player.is_due = false;
        self.events.push_back(ServerEvent::Ready { seat });
        if self.phase != Phase::Gathering || self.config.start != StartPolicy::AllReady {
            return;
        }
        if self.places.iter().all(Place::is_ready) {
            self.begin(now);
        } else if self.start_at.is_none() {
            self.start_at = Some(now + self.config.start_timeout);
        }
    }

    /// Begins to bring a late player up to date.
    fn on_late_ready(&mut self, now: Instant, seat: Seat, next: Tick) {
        let is_in_reach = self.is_in_reach(next);
        let place = self.places.get_mut(usize::from(seat.0));
        let Some(player) = place.and_then(Place::player_mut) else {
            return;
        };
        player.is_due = false;
        self.events.push_back(ServerEvent::Ready { seat });
        if !is_in_reach {
            player.state = PlayerState::AwaitsSnapshot;
            self.request_for(now, seat);
            return;
        }
        player.state = PlayerState::CatchingUp;
        player.repair.begin_at(next);
        player.is_due = true;
        self.transmit_from = 0;
        let interval = u32::from(self.config.hash_interval.get());
        self.hash_comparator
            .admit_late(seat, next.0.div_ceil(interval));
    }

    /// Whether the chain can serve ticks from `next` on.
    fn is_in_reach(&self, next: Tick) -> bool {
        next <= self.end && self.end.since(next) <= REACH
    }

    /// Whether all seated players are ready.
    pub(crate) fn is_everybody_ready(&self) -> bool {
        let mut players = self.places.iter().filter_map(Place::player);
        players.all(Player::is_ready)
    }

    /// Repeats welcomes, and removes late players that never answered.
    pub(super) fn repeat_welcomes(&mut self, now: Instant) {
        for index in 0..self.shape.seats {
            let place = self.places.get_mut(usize::from(index));
            let Some(player) = place.and_then(Place::player_mut) else {
                continue;
            };
            let PlayerState::Welcomed { again_at, until } = &mut player.state else {
                continue;
            };
            if until.is_some_and(|until| until <= now) {
                self.remove(Seat(index), LeaveReason::NotReady, CloseReason::NotReady);
            } else if *again_at <= now {
                let quarter = WELCOME_INTERVAL_MILLIS / 4;
                let millis = self.generator.between(
                    WELCOME_INTERVAL_MILLIS - quarter,
                    WELCOME_INTERVAL_MILLIS + quarter,
                );
                *again_at = now + Duration::from_millis(millis);
                player.is_due = true;
                self.transmit_from = 0;
            }
        }
    }

    /// Begins without players that are not ready in time.
    pub(super) fn start_if_overdue(&mut self, now: Instant) {
        if self.start_at.is_none_or(|at| now < at) {
            return;
        }
        for seat in (0..self.shape.seats).map(Seat) {
            let place = self.places.get(usize::from(seat.0));
            if place
                .is_some_and(|place| matches!(place.holder, Holder::Held(_)) && !place.is_ready())
            {
                self.remove(seat, LeaveReason::NotReady, CloseReason::NotReady);
            }
        }
        self.begin(now);
    }

    /// Stops the start timer if no ready player is left.
    pub(super) fn stop_waiting(&mut self) {
        if !self.places.iter().any(Place::is_ready) {
            self.start_at = None;
        }
    }

    /// Begins the first tick.
    pub(super) fn begin(&mut self, now: Instant) {
        debug_assert_eq!(self.phase, Phase::Gathering, "a match begins once");
        self.phase = Phase::Running;
        self.origin = now;
        self.start_at = None;
        let late = Some(now + self.config.start_timeout);
        for place in &mut self.places {
            if let Some(player) = place.player_mut()
                && let PlayerState::Welcomed { until, .. } = &mut player.state
            {
                *until = late;
            }
        }
        self.events.push_back(ServerEvent::Started);
    }
}

/// Closed ticks of a match that is taken over.
#[derive(Debug)]
pub(crate) struct Past<'a> {
    pub(crate) chain: &'a Chain,
    /// Positioned after the last closed tick: its inputs, and the hash over all.
    pub(crate) reader: ChainReader,
}

impl<I: Input> MatchServer<I> {
    /// Creates a server that continues after the ticks of `past`. It gathers its players, closes
    /// the next tick one tick length after a start by hand, and serves the past ticks that are
    /// kept.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if such a match cannot be played.
    pub(crate) fn resume(
        config: Config,
        (match_id, seed): (MatchId, Seed),
        now: Instant,
        past: &Past<'_>,
    ) -> Result<Self, ConfigError> {
        let mut config = config;
        config.start = StartPolicy::ByHand;
        let mut server = Self::new(config, match_id, seed, now)?;
        let end = past.reader.next();
        for tick in (end.minus(CHAIN_LEN).0..end.0).map(Tick) {
            if let Some(bundle) = past.chain.get(tick) {
                server.chain.put(tick, bundle);
            }
        }
        server.end = end;
        server.base = end;
        server.before.copy_from(past.reader.row());
        server
            .reader
            .resume_from(end, past.reader.row(), past.reader.log());
        let step = server.step_after(end);
        server.hash_comparator.begin_at(step);
        server.skip_show();
        Ok(server)
    }

    /// First hash step at `tick` or later.
    pub(super) fn step_after(&self, tick: Tick) -> u32 {
        tick.0.div_ceil(self.config.hash_interval.get().into())
    }
}
