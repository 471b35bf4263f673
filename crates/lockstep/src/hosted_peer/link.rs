//! What one player knows of another.

use core::time::Duration;

use wire::Instant;

use crate::tick::{PeerId, Tick};

/// Another player of the match.
#[derive(Debug)]
pub(super) struct Link {
    /// The driver's number for it.
    pub(super) peer: PeerId,
    /// When it was last heard, other than in doubt; at first, when we began.
    received_at: Instant,
    /// Whether it ever was.
    was_received: bool,
    /// When it last spoke to us as to its host.
    followed_at: Option<Instant>,
    /// When it last said that it does not hear the host.
    suspected_at: Option<Instant>,
    /// Since when its silence counts towards giving it up: no earlier than we last
    /// slept, or the host changed.
    awake_at: Instant,
    /// When we last woke up: what was before is nobody's silence.
    woken_at: Instant,
    /// Up to where it stated that it holds closed ticks.
    pub(super) held: Tick,
    /// First tick that it asked for.
    pub(super) asked: Option<Tick>,
}

/// How long a doubt lasts: those who doubt say so each 40 ms.
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

    /// Takes note that it takes us for its host.
    pub(super) const fn on_followed(&mut self, now: Instant) {
        self.followed_at = Some(now);
    }

    /// Takes its word that it does not hear the host, or does again.
    pub(super) const fn set_suspicion(&mut self, at: Option<Instant>) {
        self.suspected_at = at;
    }

    /// Takes note that somebody new hosts: what was before does not count towards giving it up.
    pub(super) const fn forgive(&mut self, now: Instant) {
        self.awake_at = now;
        self.suspected_at = None;
    }

    /// Takes note that we slept.
    pub(super) const fn wake(&mut self, now: Instant) {
        self.forgive(now);
        self.woken_at = now;
    }

    /// Whether it was silent for longer than `host_timeout`, while we were awake.
    pub(super) fn is_silent(&self, now: Instant, host_timeout: Duration) -> bool {
        now.saturating_since(self.received_at.max(self.woken_at)) > host_timeout
    }

    /// Since when it counts as given up, if it stays silent: `host_timeout` after its last word, or
    /// twice that where it never said one.
    pub(super) fn lost_at(&self, host_timeout: Duration) -> Instant {
        let host_timeout = if self.was_received {
            host_timeout
        } else {
            host_timeout.saturating_mul(2)
        };
        self.received_at.max(self.awake_at) + host_timeout
    }

    /// When it is doubted: after `host_timeout`, or where it was never heard after `first`.
    pub(super) fn suspect_at(&self, host_timeout: Duration, first: Duration) -> Instant {
        let host_timeout = if self.was_received {
            host_timeout
        } else {
            first
        };
        self.received_at.max(self.awake_at) + host_timeout
    }

    pub(super) fn is_following(&self, now: Instant, host_timeout: Duration) -> bool {
        self.followed_at
            .is_some_and(|at| now.saturating_since(at) <= host_timeout)
    }

    pub(super) fn suspects_host(&self, now: Instant) -> bool {
        self.suspected_at
            .is_some_and(|at| now.saturating_since(at) <= SUSPICION_TTL)
    }
}
