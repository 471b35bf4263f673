//! What one peer knows of another.

use wire::Instant;

use super::clock::Pace;
use super::hashes::HashCursor;
use crate::repair::{Repair, RepairLimits};
use crate::tick::{PeerId, Tick};

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

    /// Takes a datagram's arrival. After half of `patience`, in nanoseconds, in silence it is doubted for another
    /// `patience`: others may have given it up.
    pub(super) const fn on_heard(&mut self, now: Instant, patience: u64) {
        if self.is_quiet(now, patience) {
            self.doubted_until = Instant::from_nanos(now.as_nanos().saturating_add(patience));
        }
        self.heard_at = now;
    }

    /// Takes it as heard now, where what was said before could not be.
    pub(super) const fn forgive(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Returns whether it was silent for longer than `patience`.
    pub(super) const fn is_silent(&self, now: Instant, patience: u64) -> bool {
        self.silence(now) > patience
    }

    /// Returns whether it is heard, and was of late.
    pub(super) fn is_alive(&self, now: Instant, patience: u64) -> bool {
        !self.is_quiet(now, patience) && self.doubted_until <= now
    }

    const fn is_quiet(&self, now: Instant, patience: u64) -> bool {
        self.silence(now) > patience / 2
    }

    /// Nanoseconds since it was last heard.
    const fn silence(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.heard_at.as_nanos())
    }
}
