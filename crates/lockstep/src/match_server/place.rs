//! One seat: its inputs, and who holds it.

use wire::Instant;

use super::pace::Need;
use super::pace::Pace;
use super::snapshots::{Delivery, Loaded};
use crate::input::Width;
use crate::input_log::InputLog;
use crate::repair::{Repair, RepairLimits};
use crate::tick::{PeerId, Tick};

/// A seat of the match.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) holder: Holder,
    /// Inputs that its holder sent.
    pub(super) log: InputLog,
    /// What longer ticks its player needs.
    pub(super) need: Need,
}

#[derive(Debug)]
pub(super) enum Holder {
    /// Nobody, or nobody any more.
    Empty,
    Held(Player),
}

/// Somebody who plays, or is about to.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) peer: PeerId,
    pub(super) state: PlayerState,
    /// Whether it is due a welcome or turns.
    pub(super) is_due: bool,
    pub(super) repair: Repair,
    /// Turns that wait for its simulation, as it last said.
    pub(super) lag: u32,
    pub(super) pace: Pace,
    /// Since when it waits for a snapshot, where it does.
    pub(super) waits_since: Option<Instant>,
    /// The snapshot on its way to it.
    pub(super) delivery: Option<Delivery>,
    /// How many it was sent without having proved right for long since.
    pub(super) deliveries: u8,
    /// The one that it got last.
    pub(super) loaded: Option<Loaded>,
    /// How long before its tick's close the newest input came, in quarter ticks; -128 before one
    /// did.
    pub(super) slack: i8,
}

/// How far somebody has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayerState {
    /// It does not hold the welcome.
    Welcomed {
        /// When to send it again.
        again_at: Instant,
        /// When it is put out; `None` before ticks begin.
        until: Option<Instant>,
    },
    /// It came into a running match and lacks more than the chain holds; its seat is absent.
    AwaitsSnapshot,
    /// It came into a running match and gets the ticks that it lacks; its seat is absent.
    CatchingUp,
    /// It has caught up: its seat plays from the first tick on that has an input of its.
    InStep,
    /// Its inputs count.
    Playing {
        /// First tick that waits for its input, where the policy lets it; none before its first
        /// input, nor after a tick waited in vain, until an input comes in time.
        awaited_from: Option<Tick>,
    },
}

impl Place {
    pub(super) fn new(width: Width) -> Self {
        Self {
            holder: Holder::Empty,
            log: InputLog::new(width.byte_len()),
            need: Need::default(),
        }
    }

    pub(super) const fn player(&self) -> Option<&Player> {
        match &self.holder {
            Holder::Held(player) => Some(player),
            Holder::Empty => None,
        }
    }

    pub(super) const fn player_mut(&mut self) -> Option<&mut Player> {
        match &mut self.holder {
            Holder::Held(player) => Some(player),
            Holder::Empty => None,
        }
    }

    /// Whether its holder has the welcome.
    pub(super) fn is_ready(&self) -> bool {
        self.player().is_some_and(Player::is_ready)
    }
}

impl Player {
    /// Somebody who is due a welcome at once.
    pub(super) fn new(
        peer: PeerId,
        now: Instant,
        until: Option<Instant>,
        limits: &RepairLimits,
    ) -> Self {
        Self {
            peer,
            state: PlayerState::Welcomed {
                again_at: now,
                until,
            },
            is_due: false,
            repair: Repair::new(limits),
            lag: 0,
            pace: Pace::default(),
            waits_since: None,
            delivery: None,
            deliveries: 0,
            loaded: None,
            slack: i8::MIN,
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        !matches!(self.state, PlayerState::Welcomed { .. })
    }

    /// Whether `tick` waits for its input, where the policy lets it.
    pub(super) fn is_awaited(&self, tick: Tick) -> bool {
        match self.state {
            PlayerState::Playing { awaited_from } => awaited_from.is_some_and(|from| from <= tick),
            PlayerState::Welcomed { .. }
            | PlayerState::AwaitsSnapshot
            | PlayerState::CatchingUp
            | PlayerState::InStep => false,
        }
    }

    /// Whether it is sent turns.
    pub(super) const fn has_turns(&self) -> bool {
        self.is_ready() && !matches!(self.state, PlayerState::AwaitsSnapshot)
    }

    /// When to send the welcome again, or to give it up.
    pub(super) fn welcome_at(&self) -> Option<Instant> {
        match self.state {
            PlayerState::Welcomed { again_at, until } => {
                Some(until.map_or(again_at, |until| again_at.min(until)))
            }
            PlayerState::AwaitsSnapshot
            | PlayerState::CatchingUp
            | PlayerState::InStep
            | PlayerState::Playing { .. } => None,
        }
    }
}
