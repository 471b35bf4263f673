//! Mails that are not yet known to be on the hub's disk.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use wire::{ClientId, Generator, Instant};

use crate::id::SenderSeq;

/// Mails that are not yet known to be on the hub's disk, in the order of their numbers.
///
/// They go out in order, and all of them again over each new link: the hub knows them by their
/// numbers.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    mails: VecDeque<OutgoingMail>,
    /// Their bodies together.
    bytes: usize,
    /// The last number given.
    last: SenderSeq,
    /// How many of `mails` need not go over this link (any more), from the front on.
    sent: usize,
    /// Set while the hub has no room.
    paused: Option<Instant>,
    /// Whether the hub had no room when it last spoke of these: the first one goes alone then, until
    /// it is settled.
    probing: bool,
    /// How often in a row it had none.
    refusals: u32,
}

/// Longest pause, unless the hub asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A mail that is not yet known to be on the hub's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutgoingMail {
    pub(super) seq: SenderSeq,
    pub(super) player: ClientId,
    pub(super) ttl_s: u32,
    pub(super) body: Bytes,
    /// Whether it is known what became of it; one in front of it is not settled then.
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

    /// Takes word of a run; returns the mails that are settled by it, by number.
    ///
    /// Runs come in any order: the hub's store completes in any.
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

    /// Sends nothing for `wait` and some more, longer each time that the hub says so in a row; then
    /// the first alone, and the others once it is settled.
    ///
    /// Sent all at once they would cost the hub as much again as they did, for nothing, from every
    /// node at the same time.
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
        // Word of mails that were under way together is one refusal.
        if self.paused.is_none() {
            let doubled = wait.saturating_mul(1 << self.refusals.min(16));
            let pause = doubled.min(wait.max(PAUSE_MAX));
            let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
            let spread = Duration::from_nanos(generator.between(0, nanos / 2));
            self.paused = Some(now + pause + spread);
            self.refusals = self.refusals.saturating_add(1);
        }
    }

    /// Begins again over a new link.
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

    /// Returns the mail to send next.
    pub(super) fn next(&self) -> Option<&OutgoingMail> {
        match self.paused {
            None if self.probing && self.sent > 0 => None,
            None => self.mails.get(self.sent),
            Some(_) => None,
        }
    }

    /// Notes that [`next`](Self::next) was sent.
    pub(super) fn on_sent(&mut self) {
        self.sent = self.sent.saturating_add(1);
        self.skip_settled();
    }

    fn skip_settled(&mut self) {
        while self.mails.get(self.sent).is_some_and(|mail| mail.settled) {
            self.sent = self.sent.saturating_add(1);
        }
    }

    /// Returns the last number before which all is settled.
    pub(super) fn settled(&self) -> SenderSeq {
        let front = self.mails.front();
        front.map_or(self.last, |front| SenderSeq(front.seq.0.saturating_sub(1)))
    }

    pub(super) fn len(&self) -> usize {
        self.mails.len()
    }

    /// Returns about how many bytes it all takes.
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
