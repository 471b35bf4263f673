//! One seat: its inputs, and who holds it.

use wire::Instant;

use crate::PeerId;
use crate::input::Width;
use crate::input_log::InputLog;
use crate::repair::{Repair, RepairLimits};

/// A seat of the match.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) holder: Holder,
    /// Inputs that its players sent.
    pub(super) log: InputLog,
}

#[derive(Debug)]
pub(super) enum Holder {
    /// Nobody, or nobody any more.
    Empty,
    Held(Player),
}

/// Somebody who plays.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) peer: PeerId,
    /// Whether it holds the welcome.
    pub(super) is_ready: bool,
    /// When to send the welcome; `None` once it is ready.
    pub(super) welcome_at: Option<Instant>,
    /// Whether it is due a welcome or turns.
    pub(super) is_due: bool,
    pub(super) repair: Repair,
    /// How long before its tick's close the newest input came, in quarter ticks; -128 before one
    /// did.
    pub(super) slack: i8,
}

impl Place {
    pub(super) fn new(width: Width) -> Self {
        Self {
            holder: Holder::Empty,
            log: InputLog::new(width.byte_len()),
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
}

impl Player {
    /// Somebody who is due a welcome at once.
    pub(super) const fn new(peer: PeerId, now: Instant, limits: &RepairLimits) -> Self {
        Self {
            peer,
            is_ready: false,
            welcome_at: Some(now),
            is_due: false,
            repair: Repair::new(limits),
            slack: i8::MIN,
        }
    }
}
