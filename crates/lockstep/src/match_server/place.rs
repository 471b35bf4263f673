//! One seat: its inputs, and its player.

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
    /// Inputs received for it.
    pub(super) log: InputLog,
    /// Its need for longer ticks.
    pub(super) need: Need,
}

#[derive(Debug)]
pub(super) enum Holder {
    /// No player.
    Empty,
    Held(Player),
}

/// A player, active or joining.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) peer: PeerId,
    pub(super) state: PlayerState,
    /// Whether a welcome or turns are due.
    pub(super) is_due: bool,
    pub(super) repair: Repair,
    /// Turns pending in its simulation, as last reported.
    pub(super) lag: u32,
    pub(super) pace: Pace,
    /// When it began to wait for a snapshot.
    pub(super) waits_since: Option<Instant>,
    /// Its current snapshot transfer.
    pub(super) delivery: Option<Delivery>,
    /// Snapshots sent without a lasting match since.
    pub(super) deliveries: u8,
    /// The last snapshot it received.
    pub(super) loaded: Option<Loaded>,
    /// How long before its tick's close the newest input arrived, in quarter ticks; -128 before the
    /// first.
    pub(super) slack: i8,
}

/// Progress of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayerState {
    /// It has not confirmed the welcome.
    Welcomed {
        /// When to send it again.
        again_at: Instant,
        /// When the player is removed; `None` before ticks begin.
        until: Option<Instant>,
    },
    /// It joined a running match and lacks more than the chain holds; its seat is absent.
    AwaitsSnapshot,
    /// It joined a running match and gets the ticks it lacks; its seat is absent.
    CatchingUp,
    /// It caught up: its seat plays from the first tick for which an input arrives.
    InStep,
    /// Its inputs count.
    Playing {
        /// First tick that waits for its input, if the policy allows; `None` before its first
        /// input, and after a tick waited in vain, until an input arrives in time.
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

    /// Whether its player has the welcome.
    pub(super) fn is_ready(&self) -> bool {
        self.player().is_some_and(Player::is_ready)
    }
}

impl Player {
    /// A new player, due a welcome at once.
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

    /// Whether `tick` waits for its input, if the policy allows.
    pub(super) fn is_awaited(&self, tick: Tick) -> bool {
        match self.state {
            PlayerState::Playing { awaited_from } => awaited_from.is_some_and(|from| from <= tick),
            PlayerState::Welcomed { .. }
            | PlayerState::AwaitsSnapshot
            | PlayerState::CatchingUp
            | PlayerState::InStep => false,
        }
    }

    /// Whether it gets turns.
    pub(super) const fn has_turns(&self) -> bool {
        self.is_ready() && !matches!(self.state, PlayerState::AwaitsSnapshot)
    }

    /// When to repeat the welcome, or to give up.
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
