//! Times of one session, where they are not those of its endpoint.

use core::time::Duration;

use crate::config::{Config, IdleTimeout, Keepalive};
use crate::nanos::Nanos;

/// Times of one session.
///
/// [`Endpoint::connect_with`](crate::Endpoint::connect_with) dials with them, and
/// [`Endpoint::set_timeouts`](crate::Endpoint::set_timeouts) changes them at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// How long connecting may take over all addresses.
    pub connect: Duration,
    /// Silence after which the session is given up; the smaller of both ends' holds.
    pub idle: IdleTimeout,
    /// Longest silence of ours; no more than a third of the idle timeout that holds, and in an open
    /// session no more than it was when that began.
    pub keepalive: Keepalive,
}

impl Timeouts {
    /// Returns those that `config` has for all sessions.
    #[must_use]
    pub const fn of(config: &Config) -> Self {
        Self {
            connect: config.connect_timeout,
            idle: config.idle_timeout,
            keepalive: config.keepalive,
        }
    }
}

/// What the ends of a session have agreed on, and what holds of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// The smaller of both ends' idle timeouts, as they were announced.
    agreed: Nanos,
    /// The longest silence of the peer's that is in good order.
    theirs: Nanos,
    /// That of ours, by what we announced.
    announced: Nanos,
    /// Silence after which we give up.
    pub(crate) idle: Nanos,
    /// The longest silence of ours.
    pub(crate) keepalive: Nanos,
}

impl Silence {
    /// Agrees with a peer who announced these.
    pub(crate) fn new(ours: &Timeouts, their_idle: Duration, their_keepalive: Duration) -> Self {
        let agreed = ours.idle.get().min(their_idle);
        let third = agreed.checked_div(3).unwrap_or_default();
        let announced = Nanos::of(ours.keepalive.get().min(third));
        let theirs = Nanos::of(their_keepalive.min(third));
        let agreed = Nanos::of(agreed);
        Self {
            agreed,
            theirs,
            announced,
            idle: agreed,
            keepalive: announced,
        }
    }

    /// Changes what is ours. The peer goes by what was announced: its keepalives do not come sooner,
    /// so it is given up after three of them at the soonest; and it gives us up as soon as that, whatever
    /// it may since have set, so ours come as often at least.
    pub(crate) fn set(&mut self, timeouts: &Timeouts) {
        let floor = self.theirs.saturating_mul(3).min(self.agreed);
        self.idle = Nanos::of(timeouts.idle.get()).clamp(floor, self.agreed);
        let most = self.announced.min(self.idle.divided(3));
        self.keepalive = Nanos::of(timeouts.keepalive.get()).min(most);
    }
}
