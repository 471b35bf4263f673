//! A question that only who is at an address can answer.

use core::time::Duration;

use wire::{Generator, Instant};

use crate::packet::{Header, TAG_LEN};

/// How long an answer is waited for at least. The way to a new address may be much longer than the one
/// that was measured: three times the probe timeout of a path of which nothing is known, RFC 9000,
/// section 8.2.4, and RFC 9002, section 6.2.2.
const LIFE: Duration = Duration::from_secs(3);
/// How many patiences an answer is waited for where that is longer.
const PATIENCES: u32 = 3;
/// When it is sent again first, at the latest: whoever's old way was bad, and who waits long for
/// answers there, is not to wait so long for the new one.
const GAP: Duration = Duration::from_millis(250);
/// How long after one the next is sent, at most.
const GAP_MAX: Duration = Duration::from_secs(1);
/// Bytes of a packet with a challenge, at most: header, type and token, tag.
pub(in crate::session) const PACKET_LEN_MAX: usize = Header::LEN_MAX + 9 + TAG_LEN;

/// A challenge, sent again with the same token after one patience, 250 ms at most, then after twice as
/// long, and so on up to a second: an answer to any of them counts until it is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge {
    /// What the answer must repeat; drawn when it is first sent.
    token: Option<[u8; 8]>,
    tries: u8,
    /// When it was first sent.
    sent_at: Instant,
    /// When it is sent next.
    next_at: Instant,
    /// When it is given up, once it was sent.
    over_at: Instant,
}

impl Challenge {
    pub(super) const fn due_at(at: Instant) -> Self {
        Self {
            token: None,
            tries: 0,
            sent_at: at,
            next_at: at,
            over_at: at,
        }
    }

    /// Asks at `now` where nothing was asked yet.
    pub(super) fn hasten(&mut self, now: Instant) {
        if self.tries == 0 {
            self.next_at = self.next_at.min(now);
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_at && !self.is_over(now)
    }

    /// Returns whether nobody has answered.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.tries > 0 && now >= self.over_at
    }

    /// Takes note that it is sent; returns its token.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        generator: &mut Generator,
        patience: Duration,
    ) -> [u8; 8] {
        let token = *self.token.get_or_insert_with(|| {
            let mut token = [0; 8];
            generator.fill(&mut token);
            token
        });
        if self.tries == 0 {
            self.sent_at = now;
            self.over_at = now + LIFE.max(patience.saturating_mul(PATIENCES));
        }
        let gap = patience.min(GAP).saturating_mul(1 << self.tries.min(16));
        self.next_at = now + gap.min(GAP_MAX);
        self.tries = self.tries.saturating_add(1);
        token
    }

    pub(super) fn is_answered_by(&self, token: [u8; 8]) -> bool {
        self.token == Some(token)
    }

    /// Returns how long the answer took, where it is known which try it is to.
    pub(super) fn round_trip(&self, now: Instant) -> Option<Duration> {
        (self.tries == 1).then(|| now.saturating_since(self.sent_at))
    }

    /// Returns when it is next sent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.tries == 0 || self.next_at < self.over_at).then_some(self.next_at)
    }
}
