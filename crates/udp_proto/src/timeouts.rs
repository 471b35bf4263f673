//! Timeouts of one session.

use core::time::Duration;

use crate::config::{Config, IdleTimeout, Keepalive};
use crate::nanos::Nanos;

/// Timeouts of one session.
///
/// [`Endpoint::connect_with`](crate::Endpoint::connect_with) dials with them, and
/// [`Endpoint::set_timeouts`](crate::Endpoint::set_timeouts) changes them at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Timeout of connecting, over all addresses.
    pub connect: Duration,
    /// Idle timeout; the smaller of both ends' applies.
    pub idle: IdleTimeout,
    /// Keepalive interval; at most a third of the idle timeout in effect, and in an open session at
    /// most its initial value.
    pub keepalive: Keepalive,
}

impl Timeouts {
    /// Returns the timeouts that `config` sets for all sessions.
    #[must_use]
    pub const fn of(config: &Config) -> Self {
        Self {
            connect: config.connect_timeout,
            idle: config.idle_timeout,
            keepalive: config.keepalive,
        }
    }
}

/// The negotiated timeouts of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// The smaller of both ends' announced idle timeouts.
    agreed: Nanos,
    /// The peer's longest keepalive interval.
    theirs: Nanos,
    /// Ours, as announced.
    announced: Nanos,
    /// The idle timeout in effect.
    pub(crate) idle: Nanos,
    /// The keepalive interval in effect.
    pub(crate) keepalive: Nanos,
}

impl Silence {
    /// Negotiates with a peer that announced these.
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

    /// Changes our values. The peer relies on the announced ones. Its keepalives do not become more
    /// frequent, so our idle timeout is at least three of them. It may time us out after the same
    /// number of ours, whatever it has set since, so ours do not become rarer.
    pub(crate) fn set(&mut self, timeouts: &Timeouts) {
        let floor = self.theirs.saturating_mul(3).min(self.agreed);
        self.idle = Nanos::of(timeouts.idle.get()).clamp(floor, self.agreed);
        let most = self.announced.min(self.idle.divided(3));
        self.keepalive = Nanos::of(timeouts.keepalive.get()).min(most);
    }
}
