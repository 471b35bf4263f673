//! A question that only who is at an address can answer.

use core::time::Duration;

use wire::{Generator, Instant};

use crate::packet::{Header, TAG_LEN};

/// How often a challenge is sent; TWP/1, section 9.
const TRIES: u8 = 3;
/// Bytes of a packet with a challenge, at most: header, type and token, tag.
pub(super) const PACKET_LEN_MAX: u64 = (Header::LEN_MAX + 9 + TAG_LEN) as u64;

/// A challenge, sent up to three times with one token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge {
    /// What the answer must repeat; drawn when it is first sent.
    token: Option<[u8; 8]>,
    tries: u8,
    /// When it was first sent.
    sent_at: Instant,
    /// When it is sent next; behind the last try, when it is given up.
    next_at: Instant,
}

impl Challenge {
    pub(super) const fn due_at(at: Instant) -> Self {
        Self {
            token: None,
            tries: 0,
            sent_at: at,
            next_at: at,
        }
    }

    /// Asks at `now` where nothing was asked yet.
    pub(super) fn hasten(&mut self, now: Instant) {
        if self.tries == 0 {
            self.next_at = self.next_at.min(now);
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.tries < TRIES && now >= self.next_at
    }

    /// Returns whether nobody has answered.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.tries == TRIES && now >= self.next_at
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
        }
        self.tries = self.tries.saturating_add(1);
        self.next_at = now + patience;
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
        (self.tries < TRIES).then_some(self.next_at)
    }
}
