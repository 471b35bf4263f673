//! One who watches.

use wire::Instant;

use crate::repair::{Repair, RepairLimits};
use crate::tick::{PeerId, Tick};

/// What somebody has who watches, and is to get.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) peer: PeerId,
    pub(super) guest: Guest,
    pub(super) standing: Standing,
    pub(super) repair: Repair,
    /// What was shown when it was last sent turns; it is due some once more is.
    pub(super) sent_end: Tick,
    /// Whether it is due a word though nothing more is shown.
    pub(super) is_due: bool,
    /// Whether it waits for a snapshot.
    pub(super) wants_snapshot: bool,
    /// Snapshots that it got in a row without getting along.
    pub(super) deliveries: u8,
    /// When it may be given another one.
    pub(super) snapshot_from: Instant,
}

/// As what somebody watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// For itself.
    Spectator,
    /// For others too: it may ask for snapshots that it does not need itself.
    Fan,
}

/// How far somebody has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not hold the welcome.
    Arriving {
        /// When to send it again.
        again_at: Instant,
        /// When it is put out.
        until: Instant,
    },
    /// It lacks more than the chain holds.
    AwaitsSnapshot,
    /// It gets turns.
    Watching,
}

impl Feed {
    /// Somebody who is due a welcome at once.
    pub(super) const fn new(
        (peer, guest): (PeerId, Guest),
        now: Instant,
        until: Instant,
        limits: &RepairLimits,
    ) -> Self {
        Self {
            peer,
            guest,
            standing: Standing::Arriving {
                again_at: now,
                until,
            },
            repair: Repair::new(limits),
            sent_end: Tick(0),
            is_due: false,
            wants_snapshot: false,
            deliveries: 0,
            snapshot_from: Instant::ZERO,
        }
    }

    /// Has it get turns from `next` on.
    pub(super) const fn begin_at(&mut self, next: Tick) {
        self.standing = Standing::Watching;
        self.repair.begin_at(next);
        self.sent_end = next;
        self.deliveries = 0;
    }

    /// Whether turns go to it now, all before `end` being shown.
    pub(super) fn is_due_turns(&self, end: Tick) -> bool {
        match self.standing {
            Standing::Watching => self.sent_end != end || self.is_due,
            Standing::AwaitsSnapshot => self.is_due,
            Standing::Arriving { .. } => false,
        }
    }
}
