//! Gossip state of one neighbour.

use core::ops::BitOr;
use std::collections::{BTreeMap, BTreeSet};

use wire::{Instant, TokenBucket};

use crate::link_state::ShortId;

#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) push_mode: PushMode,
    /// Whether this node chose it.
    pub(super) is_chosen: bool,
    /// Whether its link was up at the last check.
    pub(super) is_up: bool,
    pub(super) push: BTreeMap<ShortId, RecordParts>,
    pub(super) have: BTreeSet<ShortId>,
    /// When the next push, request and digest may be sent.
    pub(super) next_flush: Instant,
    pub(super) next_request: Instant,
    pub(super) next_digest: Instant,
    pub(super) digest: DigestState,
    /// Whether it has sent a digest.
    digests_seen: DigestsSeen,
    /// Bytes that it sends.
    inbound_bytes: TokenBucket,
    /// Bytes of replies and digests to it.
    reply_bytes: TokenBucket,
    /// Origins of the expired records sent to it.
    expired_replies: TokenBucket,
}

/// How new records reach a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushMode {
    /// Not at all: the neighbour takes no part in this node's gossip.
    None,
    /// As advertisements.
    Lazy,
    /// As records.
    Eager,
}

#[derive(Clone, Copy, Debug)]
enum DigestsSeen {
    None,
    Some,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DigestState {
    Sent,
    /// It is sent as soon as the limits allow.
    Pending,
}

/// A set of an origin's record kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordParts(u8);

impl Neighbour {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            push_mode: PushMode::None,
            is_chosen: false,
            is_up: false,
            push: BTreeMap::new(),
            have: BTreeSet::new(),
            next_flush: now,
            next_request: now,
            next_digest: now,
            digest: DigestState::Sent,
            digests_seen: DigestsSeen::None,
            inbound_bytes: TokenBucket::new(INBOUND_RATE, INBOUND_RATE.saturating_mul(4), now),
            reply_bytes: TokenBucket::new(REPLY_RATE, REPLY_RATE.saturating_mul(2), now),
            expired_replies: TokenBucket::new(EXPIRED_RATE, EXPIRED_BURST, now),
        }
    }

    /// Records a digest; returns whether it is the first one.
    pub(super) const fn is_first_digest(&mut self) -> bool {
        let is_first = matches!(self.digests_seen, DigestsSeen::None);
        self.digests_seen = DigestsSeen::Some;
        is_first
    }

    pub(super) fn admit(&mut self, now: Instant, len: usize) -> bool {
        self.inbound_bytes.take(now, price(len))
    }

    /// Consumes the budget of a reply or digest of `len` bytes.
    pub(super) fn may_reply(&mut self, now: Instant, len: usize) -> bool {
        self.reply_bytes.take(now, price(len))
    }

    pub(super) fn may_send_expired(&mut self, now: Instant) -> bool {
        self.expired_replies.take(now, 1)
    }

    /// Makes an eager link lazy; returns whether it was eager.
    pub(super) fn make_lazy(&mut self) -> bool {
        let was_eager = self.push_mode == PushMode::Eager;
        if was_eager {
            self.push_mode = PushMode::Lazy;
            self.push.clear();
        }
        was_eager
    }

    pub(super) fn part(&mut self) {
        self.push_mode = PushMode::None;
        self.is_chosen = false;
        self.push.clear();
        self.have.clear();
    }
}

impl RecordParts {
    pub(super) const NODE: Self = Self(1);
    pub(super) const LINKS: Self = Self(2);
    pub(super) const DELTA: Self = Self(4);

    pub(super) const fn has(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }
}

impl BitOr for RecordParts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A message's bytes and a fixed overhead, so that small messages are not free.
fn price(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX).saturating_add(32)
}

/// Bytes per second of a neighbour's messages; 1,000 nodes need 20 KB over all links.
const INBOUND_RATE: u32 = 256 << 10;
const REPLY_RATE: u32 = 128 << 10;
const EXPIRED_RATE: u32 = 4;
/// Its burst, as many as one request names: a healed partition may restart many versions.
const EXPIRED_BURST: u32 = 64;
