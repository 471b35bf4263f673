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

    /// Returns what a word without a signature, `told`, makes of what was signed: no worse than that a route over
    /// three relays stays a way.
    #[must_use]
    pub(crate) fn raised_to(self, told: Self) -> Self {
        Self {
            delay: told.delay.min(self.delay.max(TOLD_MAX)),
            loss: told.loss.min(self.loss.max(TOLD_LOSS_MAX)),
        }
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

/// Delay that a delta tells of at most, where the record does not say more: with the price of [`TOLD_LOSS_MAX`]
/// 797 ms, and four such links are a way of less than the 3,276 ms from which on there is none.
const TOLD_MAX: Cost = Cost::from_millis(400);
/// The same of loss: 18 %, which the usual [`CostModel`](crate::cost::CostModel) prices at 397 ms.
const TOLD_LOSS_MAX: LossCode = LossCode(180);
