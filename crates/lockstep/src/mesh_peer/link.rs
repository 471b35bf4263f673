//! What one peer knows of another.

#![warn(clippy::arithmetic_side_effects)]

use core::time::Duration;

use wire::Instant;

use super::clock::Pace;
use super::hashes::HashCursor;
use crate::repair::{Repair, RepairLimits};
use crate::{PeerId, Tick};

/// Another peer of the mesh.
#[derive(Debug)]
pub(super) struct Link {
    /// The driver's number for it.
    pub(super) peer: PeerId,
    /// What it has of our inputs.
    pub(super) repair: Repair,
    /// How far its clock is from ours.
    pub(super) pace: Pace,
    /// What it was sent of our state hashes.
    pub(super) hashes: HashCursor,
    /// Whose inputs, from which tick on, it asked for last.
    pub(super) asked: Option<(u8, Tick)>,
    /// When it was last heard.
    heard_at: Instant,
    /// Until when it counts as one that falls silent, though it is heard.
    doubted_until: Instant,
}

impl Link {
    pub(super) fn new(peer: PeerId, limits: &RepairLimits, now: Instant) -> Self {
        Self {
            peer,
            repair: Repair::new(limits),
            pace: Pace::default(),
            hashes: HashCursor::default(),
            asked: None,
            heard_at: now,
            doubted_until: Instant::ZERO,
        }
    }

    /// Takes a datagram's arrival. After half of `patience` in silence it is doubted for another
    /// `patience`: others may have given it up.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "arithmetic on instants saturates"
    )]
    pub(super) fn on_heard(&mut self, now: Instant, patience: Duration) {
        if self.is_quiet(now, patience) {
            self.doubted_until = now + patience;
        }
        self.heard_at = now;
    }

    /// Takes it as heard now, where what was said before could not be.
    pub(super) const fn forgive(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Returns whether it was silent for longer than `patience`.
    pub(super) fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        now.saturating_since(self.heard_at) > patience
    }

    /// Returns whether it is heard, and was of late.
    pub(super) fn is_alive(&self, now: Instant, patience: Duration) -> bool {
        !self.is_quiet(now, patience) && self.doubted_until <= now
    }

    fn is_quiet(&self, now: Instant, patience: Duration) -> bool {
        now.saturating_since(self.heard_at) > patience / 2
    }
}
