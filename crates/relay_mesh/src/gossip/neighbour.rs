//! One neighbour, as gossip sees it.

use core::ops::BitOr;
use std::collections::{BTreeMap, BTreeSet};

use udp_proto::budget::TokenBucket;
use wire::Instant;

use crate::link_state::ShortId;

/// A neighbour with a session.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) push_mode: PushMode,
    /// Whether we chose it, rather than it us.
    pub(super) is_chosen: bool,
    /// Whether its link was up when last looked at.
    pub(super) was_up: bool,
    /// What it is to be told, of whom.
    pub(super) push: BTreeMap<ShortId, RecordParts>,
    /// Of whose records it is to have word.
    pub(super) have: BTreeSet<ShortId>,
    /// When it may be told of more.
    pub(super) next_flush: Instant,
    /// When it may be asked again.
    pub(super) next_request: Instant,
    /// When it may be told again what is held.
    pub(super) next_digest: Instant,
    /// Whether it is to be told then.
    pub(super) digest: DigestState,
    /// What it has told of what it holds.
    digests_seen: DigestsSeen,
    /// Bytes that it may say.
    inbound_bytes: TokenBucket,
    /// Bytes of answers and digests that it may be told.
    reply_bytes: TokenBucket,
    /// Origins whose expired records it may be shown.
    expired_replies: TokenBucket,
}

/// What a neighbour is told of new records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushMode {
    /// Nothing: we do not gossip with it.
    None,
    /// That they are there.
    Lazy,
    /// The records.
    Eager,
}

/// Whether a neighbour has told what it holds.
#[derive(Clone, Copy, Debug)]
enum DigestsSeen {
    None,
    Some,
}

/// Whether a neighbour is to be told what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DigestState {
    /// It was told all that it was to be told.
    Sent,
    /// It is, as soon as it may be.
    Pending,
}

/// Parts of what an origin says; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordParts(u8);

impl Neighbour {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            push_mode: PushMode::None,
            is_chosen: false,
            was_up: false,
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

    /// Whether this is the first time that it tells what it holds.
    pub(super) const fn is_first_digest(&mut self) -> bool {
        let is_first = matches!(self.digests_seen, DigestsSeen::None);
        self.digests_seen = DigestsSeen::Some;
        is_first
    }

    /// Takes what a message of `len` bytes costs.
    pub(super) fn admit(&mut self, now: Instant, len: usize) -> bool {
        self.inbound_bytes.take(now, price(len))
    }

    /// Takes what an answer or a digest of `len` bytes costs.
    pub(super) fn may_reply(&mut self, now: Instant, len: usize) -> bool {
        self.reply_bytes.take(now, price(len))
    }

    /// Takes what it costs to show the expired records of one origin.
    pub(super) fn may_send_expired(&mut self, now: Instant) -> bool {
        self.expired_replies.take(now, 1)
    }

    /// Has no part in gossip from now on.
    pub(super) fn part(&mut self) {
        self.push_mode = PushMode::None;
        self.is_chosen = false;
        self.push.clear();
        self.have.clear();
    }
}

impl RecordParts {
    /// The node record.
    pub(super) const NODE: Self = Self(1);
    /// The link record.
    pub(super) const LINKS: Self = Self(2);
    /// The delta.
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

/// A message's bytes and what goes with it, so that small ones are not free.
fn price(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX).saturating_add(32)
}

/// Bytes a second of a neighbour's messages; 1,000 nodes need 20 KB over all links.
const INBOUND_RATE: u32 = 256 << 10;
/// Bytes a second of answers and digests to a neighbour.
const REPLY_RATE: u32 = 128 << 10;
/// Origins a second whose expired records are shown to a neighbour.
const EXPIRED_RATE: u32 = 4;
/// The same at once, as many as a request names: after a part of the network was down, all of its nodes
/// count from below behind one neighbour.
const EXPIRED_BURST: u32 = 64;
