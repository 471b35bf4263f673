//! When a session is next to be called, and what is done then.

use core::time::Duration;

use crypto::Aead;
use wire::Instant;

use super::close::Phase;
use super::{Ping, Sending, Session};
use crate::channel::ChannelId;
use crate::endpoint::stall::STALL_MAX;
use crate::error::CloseReason;
use crate::nanos::Nanos;
use crate::sent::Timeout;
use crate::timeouts::Timeouts;

impl<A: Aead> Session<A> {
    /// Returns when `handle_timeout` is next needed. Deadlines that were seen to and wait for the
    /// drain are left out.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pending = |at: &Instant| *at > self.checked_at;
        match &self.phase {
            Phase::Open => Some(self.first_deadline()),
            Phase::Flushing { until, .. } => Some(self.first_deadline().min(*until)),
            Phase::Closing { gone_at, closes } => closes
                .next_at
                .filter(pending)
                .map_or(Some(*gone_at), |next| Some(next.min(*gone_at))),
            Phase::Draining { gone_at } => Some(*gone_at),
            Phase::Gone => None,
        }
    }

    /// The earliest deadline of an open session. Asked for in each drain: no list is made of them.
    fn first_deadline(&self) -> Instant {
        let mut first = self.heard_at + self.idle_span();
        let mut always = |at: Option<Instant>| {
            if let Some(at) = at {
                first = first.min(at);
            }
        };
        always(self.sent.poll_timeout(&self.rtt));
        always(self.outbox.poll_timeout());
        always(self.inbox.poll_timeout());
        always(self.opening.poll_timeout());
        always(self.mtu.poll_timeout());
        let mut pending = |at: Option<Instant>| {
            if let Some(at) = at
                && at > self.checked_at
            {
                first = first.min(at);
            }
        };
        pending(self.received.poll_timeout());
        pending(Some(self.keepalive_at));
        pending(self.path.poll_timeout());
        pending(self.flow.wake_at());
        first
    }

    /// Runs every timer due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.checked_at = self.checked_at.max(now);
        self.opening.handle_timeout(now);
        self.run_phase(now);
        if !matches!(self.phase, Phase::Open | Phase::Flushing { .. }) {
            return;
        }
        if now >= self.heard_at + self.idle_span() {
            self.end(CloseReason::Timeout, Box::default());
            self.phase = Phase::Gone;
            self.news.is_gone = true;
            return;
        }
        self.outbox.handle_timeout(now);
        self.inbox.handle_timeout(now);
        self.mtu.handle_timeout(now);
        if now >= self.keepalive_at {
            // A whole keepalive without a packet of ours.
            self.is_resting = true;
            self.shrink(now);
        }
        // Where packets were lost, a probe for those behind them may be due by now, too.
        self.run_recovery(now);
        self.run_recovery(now);
    }

    /// Counts as lost what is due, or sends a probe.
    fn run_recovery(&mut self, now: Instant) {
        let (sent, rtt, mut fates) = self.parts(now);
        let timeout = sent.on_timeout(now, rtt, |content, _| fates.on_lost(content));
        match timeout {
            Timeout::Checked(summary) => self.count(now, &summary),
            Timeout::Probe => {
                if self.flow.look_for_silence(now, &self.rtt) {
                    self.mtu.on_hole(now);
                }
                self.sent.set_recovery(self.flow.recovery());
                self.tell_rate();
                self.outbox.probe();
                if let Some((_, sending)) = &mut self.confirm {
                    *sending = Sending::Due;
                }
                self.ping = if self.outbox.is_keeping() {
                    Ping::Alone
                } else {
                    Ping::Due
                };
            }
        }
    }

    /// Changes how long either end may be silent; returns what holds.
    pub(crate) fn set_timeouts(
        &mut self,
        now: Instant,
        timeouts: &Timeouts,
    ) -> (Duration, Duration) {
        self.silence.set(timeouts);
        // Sooner than before, or not before the next packet.
        self.keepalive_at = self.keepalive_at.min(now + self.silence.keepalive);
        (self.silence.idle.get(), self.silence.keepalive.get())
    }

    /// Changes how long unreliable messages of a channel may wait; returns whether there is one.
    pub(crate) fn set_ttl(&mut self, channel: ChannelId, ttl: Duration) -> bool {
        self.outbox.set_ttl(channel, ttl)
    }

    /// Moves the idle deadline by a stall of our own process.
    pub(crate) fn on_stall(&mut self, span: Duration) {
        self.deaf_for = (self.deaf_for + Nanos::of(span)).min(Nanos::of(STALL_MAX));
    }

    /// Silence after which the session is given up: never less than three probes take.
    fn idle_span(&self) -> Nanos {
        self.silence.idle.max(self.rtt.ptos(3)) + self.deaf_for
    }
}
