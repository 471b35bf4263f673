//! When a session is next to be called, and what is done then.

use core::time::Duration;

use crypto::Aead;
use wire::Instant;

use super::close::Phase;
use super::{Sending, Session};
use crate::endpoint::stall::STALL_MAX;
use crate::error::CloseReason;
use crate::sent::Timeout;

impl<A: Aead> Session<A> {
    /// Returns when `handle_timeout` is next needed. Deadlines that were seen to and wait for the
    /// drain are left out.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pending = |at: &Instant| *at > self.checked_at;
        match &self.phase {
            Phase::Open | Phase::Flushing { .. } => {
                let until = match self.phase {
                    Phase::Flushing { until, .. } => Some(until),
                    Phase::Open | Phase::Closing { .. } | Phase::Draining { .. } | Phase::Gone => {
                        None
                    }
                };
                [
                    Some(self.heard_at + self.idle_span()),
                    until,
                    self.received.poll_timeout().filter(pending),
                    Some(self.keepalive_at).filter(pending),
                    self.sent.poll_timeout(&self.rtt),
                    self.outbox.poll_timeout(),
                    self.inbox.poll_timeout(),
                    self.opening.poll_timeout(),
                    self.path.poll_timeout().filter(pending),
                    self.flow.wake_at().filter(pending),
                    self.mtu.poll_timeout(),
                ]
                .into_iter()
                .flatten()
                .min()
            }
            Phase::Closing {
                next_at, gone_at, ..
            } => next_at
                .filter(pending)
                .map_or(Some(*gone_at), |next| Some(next.min(*gone_at))),
            Phase::Draining { gone_at } => Some(*gone_at),
            Phase::Gone => None,
        }
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
            self.shrink(now);
        }
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
                self.pings_due = 1;
            }
        }
    }

    /// Moves the idle deadline by a stall of our own process.
    pub(crate) fn on_stall(&mut self, span: Duration) {
        self.deaf_for = self.deaf_for.saturating_add(span).min(STALL_MAX);
    }

    /// Silence after which the session is given up: never less than three probes take.
    fn idle_span(&self) -> Duration {
        self.idle_timeout.max(self.rtt.pto() * 3) + self.deaf_for
    }
}
