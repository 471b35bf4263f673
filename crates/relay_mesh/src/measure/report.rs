//! Link reports.

#[cfg(doc)]
use crate::cost::Loss;
use crate::cost::{Cost, LossCode};

/// One end's view of a link, as used in link records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// Median round trip plus jitter; unroutable if the link is new or dead.
    pub delay: Cost,
    /// Share of lost probes, [beyond chance](Loss::beyond_chance).
    pub loss: LossCode,
}

impl LinkReport {
    /// The link is unusable.
    pub const DOWN: Self = Self {
        delay: Cost::UNROUTABLE,
        loss: LossCode::ALL,
    };

    /// The link was closed on purpose because one of its ends selected other links, so it is
    /// neither a fault nor urgent. Published as [`DOWN`](Self::DOWN). No measurement equals it,
    /// since a link that loses everything has a delay above zero.
    pub const PARTED: Self = Self {
        delay: Cost::ZERO,
        loss: LossCode::ALL,
    };

    /// Returns whether the link is usable.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.delay.is_routable() && self.loss.0 < LossCode::ALL.0
    }

    /// Returns the signed report `self` updated with the unsigned report `told`. An unsigned report
    /// can worsen it only so far that a route over three relays stays routable.
    #[must_use]
    pub(crate) fn raised_to(self, told: Self) -> Self {
        Self {
            delay: told.delay.min(self.delay.max(TOLD_MAX)),
            loss: told.loss.min(self.loss.max(TOLD_LOSS_MAX)),
        }
    }

    /// Returns the worse of both ends' views, for each value separately.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            delay: self.delay.max(other.delay),
            loss: self.loss.max(other.loss),
        }
    }
}

/// Maximum delay that an unsigned delta can report if the record has less. With the price of
/// [`TOLD_LOSS_MAX`] that is 797 ms, so four such links stay below the limit of 3,276 ms.
const TOLD_MAX: Cost = Cost::from_millis(400);
/// The same for loss: 18 %, which the default [`CostModel`](crate::cost::CostModel) prices at 397
/// ms.
const TOLD_LOSS_MAX: LossCode = LossCode(180);
