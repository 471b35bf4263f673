//! What is told of a link.

#[cfg(doc)]
use crate::cost::Loss;
use crate::cost::{Cost, LossCode};

/// One end's view of a link, as link records carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// Median round trip and jitter; unroutable where the link is new or dead.
    pub delay: Cost,
    /// Share of lost probes, [beyond chance](Loss::beyond_chance).
    pub loss: LossCode,
}

impl LinkReport {
    /// There is no way over the link.
    pub const DOWN: Self = Self {
        delay: Cost::UNROUTABLE,
        loss: LossCode::ALL,
    };

    /// There is none any more, because one of its ends chose others: no trouble, and no hurry. Told as
    /// [`DOWN`](Self::DOWN); nothing that was measured looks like it, since who loses all took longer before.
    pub const PARTED: Self = Self {
        delay: Cost::ZERO,
        loss: LossCode::ALL,
    };

    /// Returns whether there is a way over the link.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.delay.is_routable() && self.loss.0 < LossCode::ALL.0
    }

    /// Returns the worse of both ends' views, each number by itself.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            delay: self.delay.max(other.delay),
            loss: self.loss.max(other.loss),
        }
    }
}
