//! A peer's state as seen by one player.

use core::time::Duration;

use wire::Instant;

use crate::tick::{PeerId, Tick};

/// Another player of the match.
#[derive(Debug)]
pub(super) struct Link {
    /// The driver's id for it.
    pub(super) peer: PeerId,
    /// When it last sent a datagram, other than a suspicion; initially, when we began.
    received_at: Instant,
    /// Whether it ever sent one.
    was_received: bool,
    /// When it last addressed us as its host.
    followed_at: Option<Instant>,
    /// When it last announced that it does not receive the host.
    suspected_at: Option<Instant>,
    /// Start of the silence that counts for removal: not before our last pause or change of host.
    awake_at: Instant,
    /// When our last pause ended: silence before does not count.
    woken_at: Instant,
    /// First tick that it lacks, as it stated.
    pub(super) held: Tick,
    /// First tick that it requested.
    pub(super) asked: Option<Tick>,
}

/// Lifetime of a suspicion, which is repeated every 40 ms.
const SUSPICION_TTL: Duration = Duration::from_millis(250);

impl Link {
    pub(super) const fn new(peer: PeerId, now: Instant) -> Self {
        Self {
            peer,
            received_at: now,
            was_received: false,
            followed_at: None,
            suspected_at: None,
            awake_at: now,
            woken_at: now,
            held: Tick(0),
            asked: None,
        }
    }

    pub(super) const fn mark_alive(&mut self, now: Instant) {
        self.received_at = now;
        self.was_received = true;
    }

    /// It treats us as its host.
    pub(super) const fn on_followed(&mut self, now: Instant) {
        self.followed_at = Some(now);
    }

    /// It does not receive the host, or does again.
    pub(super) const fn set_suspicion(&mut self, at: Option<Instant>) {
        self.suspected_at = at;
    }

    /// A new host: earlier silence does not count for removal.
    pub(super) const fn forgive(&mut self, now: Instant) {
        self.awake_at = now;
        self.suspected_at = None;
    }

    /// Our process was paused.
    pub(super) const fn wake(&mut self, now: Instant) {
        self.forgive(now);
        self.woken_at = now;
    }

    /// Whether it was silent for longer than `timeout`, pauses excluded.
    pub(super) fn is_silent(&self, now: Instant, timeout: Duration) -> bool {
        now.saturating_since(self.received_at.max(self.woken_at)) > timeout
    }

    /// When it counts as lost if it stays silent: `timeout` after its last datagram, or twice that
    /// if it never sent one.
    pub(super) fn lost_at(&self, timeout: Duration) -> Instant {
        let timeout = if self.was_received {
            timeout
        } else {
            timeout.saturating_mul(2)
        };
        self.received_at.max(self.awake_at) + timeout
    }

    /// When it is suspected: after `timeout`, or after `first` if it never sent a datagram.
    pub(super) fn suspect_at(&self, timeout: Duration, first: Duration) -> Instant {
        let timeout = if self.was_received { timeout } else { first };
        self.received_at.max(self.awake_at) + timeout
    }

    pub(super) fn is_following(&self, now: Instant, timeout: Duration) -> bool {
        self.followed_at
            .is_some_and(|at| now.saturating_since(at) <= timeout)
    }

    pub(super) fn suspects_host(&self, now: Instant) -> bool {
        self.suspected_at
            .is_some_and(|at| now.saturating_since(at) <= SUSPICION_TTL)
    }
}
