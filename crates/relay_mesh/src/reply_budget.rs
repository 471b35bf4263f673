//! Limits on a foreign game's replies to sources that have not proved to receive them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NetworkKey, TokenBucket};

/// Limits of the unproved sources of one /24 or /48 in one game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnprovedLimits {
    /// New sources per second, with a burst of [`unproved`](Self::unproved). 256 is a quarter of
    /// the default [`open_rate`](crate::Config::open_rate): a carrier's NAT has thousands of
    /// players behind one address, and one network cannot use up the rate of all others.
    pub newcomers: u32,
    /// Unproved sources at a time; 1,024. Beyond it the oldest is evicted.
    pub unproved: u32,
    /// Bytes of replies per second to all of them together, and the burst; 1 MiB: two replies of
    /// full length to each newcomer. It bounds the traffic that forged addresses can direct at a
    /// network.
    pub bytes: u32,
}

impl Default for UnprovedLimits {
    fn default() -> Self {
        Self {
            newcomers: 256,
            unproved: 1_024,
            bytes: 1 << 20,
        }
    }
}

/// Sources of one /24 or /48 in the game with this index.
type SourcePrefix = (usize, NetworkKey);

const fn prefix_of((game, source): (usize, SocketAddr)) -> SourcePrefix {
    (game, NetworkKey::of(source.ip()))
}

/// Limits replies to source addresses that may be forged.
///
/// A game may answer with more than it receives, and its players prove nothing to the entry. Until
/// two exchanges in each direction a source gets at most 4 replies and 4 KiB per second, and all
/// such sources of one /24 or /48 together the limits of [`UnprovedLimits`].
#[derive(Debug, Default)]
pub(crate) struct ReplyBudget {
    shares: BTreeMap<SourcePrefix, Share>,
    /// Earliest next removal of unused shares.
    forget_at: Instant,
}

/// State of the unproved sources of one prefix.
#[derive(Debug)]
struct Share {
    limits: UnprovedLimits,
    bytes: TokenBucket,
    /// Number of unproved sources.
    sources: u32,
    newcomers: TokenBucket,
}

#[derive(Debug)]
pub(crate) struct ProofState {
    prefix: SourcePrefix,
    exchange: Exchange,
    replies: TokenBucket,
    bytes: TokenBucket,
}

impl ProofState {
    const fn new(now: Instant, prefix: SourcePrefix, exchange: Exchange) -> Self {
        Self {
            prefix,
            exchange,
            replies: TokenBucket::new(SOURCE_REPLIES, SOURCE_REPLIES, now),
            bytes: TokenBucket::new(SOURCE_BYTES, SOURCE_BYTES, now),
        }
    }

    /// State of a source that a trusted proxy names; replies go to the proxy.
    pub(crate) const fn named_by_proxy(now: Instant, source: (usize, SocketAddr)) -> Self {
        Self::new(now, prefix_of(source), Exchange::Proved)
    }
}

impl ReplyBudget {
    /// Whether the prefix of a source has the maximum number of unproved sources in a game.
    pub(crate) fn is_full(&self, source: (usize, SocketAddr)) -> bool {
        let share = self.shares.get(&prefix_of(source));
        share.is_some_and(|share| share.sources >= share.limits.unproved)
    }

    /// Whether the prefix of a source has used up its rate of new sources.
    pub(crate) fn is_rate_spent(&self, now: Instant, source: (usize, SocketAddr)) -> bool {
        let share = self.shares.get(&prefix_of(source));
        share.is_some_and(|share| share.newcomers.available(now) == 0)
    }

    /// Adds a new source; `None` if its prefix is at a limit.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        source: (usize, SocketAddr),
        limits: UnprovedLimits,
    ) -> Option<ProofState> {
        self.forget(now);
        let prefix = prefix_of(source);
        if self.shares.len() >= PREFIXES_MAX && !self.shares.contains_key(&prefix) {
            return None;
        }
        let share = self.shares.entry(prefix).or_insert_with(|| Share {
            limits,
            bytes: TokenBucket::new(limits.bytes, limits.bytes, now),
            sources: 0,
            newcomers: TokenBucket::new(limits.newcomers, limits.unproved, now),
        });
        if share.sources >= share.limits.unproved || !share.newcomers.take(now, 1) {
            return None;
        }
        share.sources = share.sources.saturating_add(1);
        Some(ProofState::new(now, prefix, Exchange::NEW))
    }

    pub(crate) fn on_request(&mut self, proof: &mut ProofState) -> bool {
        let is_proof = proof.exchange.on_request();
        if is_proof {
            self.leave(proof.prefix);
        }
        is_proof
    }

    /// Returns whether a reply of `len` bytes may be sent to the source.
    pub(crate) fn allows(&mut self, now: Instant, proof: &mut ProofState, len: usize) -> bool {
        if proof.exchange == Exchange::Proved {
            return true;
        }
        let units = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(share) = self.shares.get_mut(&proof.prefix) else {
            return false;
        };
        let is_within = proof.replies.available(now) >= 1
            && proof.bytes.available(now) >= units
            && share.bytes.take(now, units);
        if !is_within || !proof.replies.take(now, 1) || !proof.bytes.take(now, units) {
            return false;
        }
        proof.exchange.on_reply();
        true
    }

    pub(crate) fn on_end(&mut self, proof: &ProofState) {
        if proof.exchange != Exchange::Proved {
            self.leave(proof.prefix);
        }
    }

    fn leave(&mut self, prefix: SourcePrefix) {
        if let Some(share) = self.shares.get_mut(&prefix) {
            share.sources = share.sources.saturating_sub(1);
        }
    }

    /// Removes shares without sources and with full buckets, if there is no room.
    fn forget(&mut self, now: Instant) {
        if self.shares.len() < PREFIXES_MAX || now < self.forget_at {
            return;
        }
        self.forget_at = now + FORGET_GAP;
        self.shares.retain(|_, share| {
            share.sources > 0
                || share.bytes.available(now) < share.limits.bytes
                || share.newcomers.available(now) < share.limits.unproved
        });
    }
}

/// Exchange of datagrams, as evidence that the requesting side receives.
///
/// A source that sends after each of [`EXCHANGES`] replies is treated as genuine, since a sender
/// with a forged address does not know when replies arrive. It is no proof: a forger may guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// This many replies followed a request, and a request was last.
    Asked(u8),
    /// This many replies followed a request, and a reply was last.
    Answered(u8),
    /// A request followed the last of [`EXCHANGES`] replies.
    Proved,
}

impl Exchange {
    /// No datagrams yet.
    pub(crate) const NEW: Self = Self::Asked(0);

    /// Handles a datagram of the requesting side; returns whether it completed the proof.
    pub(crate) const fn on_request(&mut self) -> bool {
        let Self::Answered(count) = *self else {
            return false;
        };
        let is_proved = count >= EXCHANGES;
        *self = if is_proved {
            Self::Proved
        } else {
            Self::Asked(count)
        };
        is_proved
    }

    pub(crate) const fn on_reply(&mut self) {
        if let Self::Asked(count) = *self {
            *self = Self::Answered(count.saturating_add(1));
        }
    }
}

/// Replies per second to an unproved source; design of the mesh, "Forwarding limits".
const SOURCE_REPLIES: u32 = 4;
/// Bytes per second to such a source.
const SOURCE_BYTES: u32 = 4 << 10;
/// Minimum interval between removals of unused shares.
const FORGET_GAP: Duration = Duration::from_millis(100);
/// Maximum number of shares, over all games.
const PREFIXES_MAX: usize = 8_192;
/// Replies, each after a request and followed by one, that prove a source.
const EXCHANGES: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, last], port))
    }

    /// 64 sources, 16 new ones per second and 64 KiB per second.
    fn admit(budget: &mut ReplyBudget, millis: u64, from: SocketAddr) -> Option<ProofState> {
        let limits = UnprovedLimits {
            newcomers: 16,
            unproved: 64,
            bytes: 64 << 10,
        };
        budget.admit(Instant::from_millis(millis), (0, from), limits)
    }

    #[test]
    fn pgx11_a_silent_source_gets_four_replies_and_four_kilobytes_a_second() {
        let mut budget = ReplyBudget::default();
        let from = source(1, 1);
        let mut proof = admit(&mut budget, 0, from).unwrap();
        let mut reply = |at, len| budget.allows(Instant::from_millis(at), &mut proof, len);
        let allowed = (0..100).filter(|_| reply(0, 10)).count();
        assert_eq!(allowed, 4);
        assert!(!reply(249, 10));
        assert!(reply(250, 10));
        assert!(reply(2_000, 4_096));
        assert!(!reply(2_000, 1));
    }

    #[test]
    fn pgx11_two_exchanges_in_each_direction_lift_the_ration() {
        let mut budget = ReplyBudget::default();
        let from = source(1, 1);
        let mut proof = admit(&mut budget, 0, from).unwrap();
        for _ in 0..50 {
            budget.on_request(&mut proof);
        }
        assert_eq!(proof.exchange, Exchange::Asked(0), "asking proves nothing");
        for _ in 0..2 {
            assert!(budget.allows(Instant::ZERO, &mut proof, 10));
            budget.on_request(&mut proof);
        }
        assert_eq!(proof.exchange, Exchange::Proved);
        assert!((0..100).all(|_| budget.allows(Instant::ZERO, &mut proof, 1_400)));
    }

    #[test]
    fn pgx11_a_prefix_has_64_sources_and_64_kilobytes_a_second() {
        let mut budget = ReplyBudget::default();
        let mut proofs: Vec<_> = (0..64)
            .map(|port| {
                let from = source(1, port);
                admit(&mut budget, 0, from).unwrap()
            })
            .collect();
        assert!(admit(&mut budget, 0, source(200, 1)).is_none());
        let mut sent = 0;
        for proof in &mut proofs {
            for _ in 0..4 {
                if budget.allows(Instant::ZERO, proof, 1_024) {
                    sent += 1_024;
                }
            }
        }
        assert_eq!(sent, 65_536);
        let proof = proofs.pop().unwrap();
        budget.on_end(&proof);
        assert!(
            admit(&mut budget, 0, source(200, 1)).is_none(),
            "64 at once"
        );
        assert!(
            admit(&mut budget, 63, source(200, 1)).is_some(),
            "16 a second"
        );
    }

    #[test]
    fn pgx11_prefixes_are_bounded() {
        let mut budget = ReplyBudget::default();
        for number in 0..9_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            let from = SocketAddr::from(([10 + a, b, c, 1], 9));
            if let Some(mut proof) = admit(&mut budget, 0, from) {
                // The bucket is not full, so the share is kept.
                assert!(budget.allows(Instant::ZERO, &mut proof, 1_000));
                budget.on_end(&proof);
            }
        }
        assert_eq!(budget.shares.len(), PREFIXES_MAX);
        assert!(admit(&mut budget, 4_000, source(1, 1)).is_some());
    }
}
