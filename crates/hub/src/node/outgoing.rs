//! Mails that are not confirmed as stored.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use wire::{ClientId, Generator, Instant};

use crate::id::SenderSeq;

/// Mails that are not confirmed as stored, ordered by number.
///
/// They are sent in order, and all of them again over a new link: the hub detects repeats by
/// number.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    mails: VecDeque<OutgoingMail>,
    /// Bytes of their payloads.
    bytes: usize,
    /// The last number assigned.
    last: SenderSeq,
    /// How many of `mails`, from the front, are sent or need not be sent over this link.
    sent: usize,
    /// Set while the hub has no room.
    paused: Option<Instant>,
    /// Set after the hub had no room: one mail is sent alone until it is settled.
    probing: bool,
    /// Consecutive `Busy` verdicts.
    refusals: u32,
}

/// Longest pause, unless the hub requests a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A mail that is not confirmed as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutgoingMail {
    pub(super) seq: SenderSeq,
    pub(super) player: ClientId,
    pub(super) ttl_s: u32,
    pub(super) body: Bytes,
    /// Whether its verdict is known, while an earlier mail has none.
    settled: bool,
}

impl Outgoing {
    pub(super) fn push(&mut self, player: ClientId, ttl_s: u32, body: Bytes) -> SenderSeq {
        self.last = self.last.next();
        self.bytes = self.bytes.saturating_add(body.len());
        self.mails.push_back(OutgoingMail {
            seq: self.last,
            player,
            ttl_s,
            body,
            settled: false,
        });
        self.last
    }

    /// Applies a verdict to a run of mails; returns the numbers that it settles.
    ///
    /// Runs arrive in any order, since the store completes in any order.
    pub(super) fn settle(&mut self, first: SenderSeq, last: SenderSeq) -> Vec<SenderSeq> {
        let mut settled = Vec::new();
        let skipped = first.0.saturating_sub(self.settled().0.saturating_add(1));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        for mail in self.mails.iter_mut().skip(skipped) {
            if mail.seq > last {
                break;
            }
            if !mail.settled {
                mail.settled = true;
                settled.push(mail.seq);
                self.bytes = self.bytes.saturating_sub(mail.body.len());
                mail.body = Bytes::new();
            }
        }
        while self.mails.front().is_some_and(|mail| mail.settled) {
            self.mails.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
        self.skip_settled();
        if !settled.is_empty() {
            self.probing = false;
            self.refusals = 0;
        }
        settled
    }

    /// Pauses for at least `wait`, longer with each consecutive refusal. Afterwards it sends one
    /// mail alone, and the others once that is settled.
    ///
    /// Resending everything at once would repeat the load that the hub has just refused.
    pub(super) fn pause(
        &mut self,
        last: SenderSeq,
        now: Instant,
        wait: Duration,
        generator: &mut Generator,
    ) {
        if self.mails.front().is_none_or(|front| front.seq > last) {
            return;
        }
        self.sent = 0;
        self.probing = true;
        // Verdicts on mails that were in flight together count as one refusal.
        if self.paused.is_none() {
            let doubled = wait.saturating_mul(1 << self.refusals.min(16));
            let pause = doubled.min(wait.max(PAUSE_MAX));
            let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
            let spread = Duration::from_nanos(generator.between(0, nanos / 2));
            self.paused = Some(now + pause + spread);
            self.refusals = self.refusals.saturating_add(1);
        }
    }

    /// Starts from the front over a new link.
    pub(super) const fn rewind(&mut self) {
        self.sent = 0;
        self.paused = None;
        self.probing = false;
        self.refusals = 0;
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
    }

    pub(super) const fn paused_until(&self) -> Option<Instant> {
        self.paused
    }

    pub(super) fn next(&self) -> Option<&OutgoingMail> {
        match self.paused {
            None if self.probing && self.sent > 0 => None,
            None => self.mails.get(self.sent),
            Some(_) => None,
        }
    }

    /// Marks [`next`](Self::next) as sent.
    pub(super) fn on_sent(&mut self) {
        self.sent = self.sent.saturating_add(1);
        self.skip_settled();
    }

    fn skip_settled(&mut self) {
        while self.mails.get(self.sent).is_some_and(|mail| mail.settled) {
            self.sent = self.sent.saturating_add(1);
        }
    }

    /// Returns the last number up to which all mails are settled.
    pub(super) fn settled(&self) -> SenderSeq {
        let front = self.mails.front();
        front.map_or(self.last, |front| SenderSeq(front.seq.0.saturating_sub(1)))
    }

    pub(super) fn len(&self) -> usize {
        self.mails.len()
    }

    /// Returns about how many bytes it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let each = size_of::<OutgoingMail>();
        self.mails
            .len()
            .saturating_mul(each)
            .saturating_add(self.bytes)
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
