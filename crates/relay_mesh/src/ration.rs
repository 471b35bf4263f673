//! How much a foreign game may answer a source that has not proved that it receives.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use udp_proto::budget::{Prefix, TokenBucket, prefix_of};
use wire::Instant;

use crate::exchange::Exchange;

/// Rations replies to sources that may be forged.
///
/// A game may answer more than it was asked, and its players prove nothing to the entry. So until
/// two exchanges in each direction a source gets at most 4 replies and 4 KiB a second, and all
/// such sources of one /24 or /48 together 64 KiB a second, and at most 64 of them at a time, of
/// which 16 a second are new.
#[derive(Debug, Default)]
pub(crate) struct ReplyRation {
    prefixes: BTreeMap<Prefix, Share>,
    /// When shares may be forgotten next.
    forget_at: Instant,
}

/// What unproved sources of one prefix have.
#[derive(Debug)]
struct Share {
    bytes: TokenBucket,
    /// Sources that are not proved.
    sources: u32,
    /// Sources that may be taken.
    newcomers: TokenBucket,
}

/// How far one source has come in proving that it receives.
#[derive(Debug)]
pub(crate) struct Standing {
    exchange: Exchange,
    /// Reply datagrams.
    replies: TokenBucket,
    /// Bytes of replies.
    bytes: TokenBucket,
}

impl ReplyRation {
    /// Whether the prefix of a source has as many unproved ones as it may.
    pub(crate) fn is_crowded(&self, source: SocketAddr) -> bool {
        let share = self.prefixes.get(&prefix_of(source.ip()));
        share.is_some_and(|share| share.sources >= SOURCES_MAX)
    }

    /// Whether the prefix of a source has had as many new ones of late as it may.
    pub(crate) fn is_spent(&self, now: Instant, source: SocketAddr) -> bool {
        let share = self.prefixes.get(&prefix_of(source.ip()));
        share.is_some_and(|share| share.newcomers.available(now) == 0)
    }

    /// Takes a new source; `None` where its prefix has as many unproved ones as it may.
    pub(crate) fn admit(&mut self, now: Instant, source: SocketAddr) -> Option<Standing> {
        self.forget(now);
        let prefix = prefix_of(source.ip());
        if self.prefixes.len() >= PREFIXES_MAX && !self.prefixes.contains_key(&prefix) {
            return None;
        }
        let share = self.prefixes.entry(prefix).or_insert_with(|| Share {
            bytes: TokenBucket::new(PREFIX_BYTES, PREFIX_BYTES, now),
            sources: 0,
            newcomers: TokenBucket::new(NEWCOMERS, SOURCES_MAX, now),
        });
        if share.sources >= SOURCES_MAX || !share.newcomers.take(now, 1) {
            return None;
        }
        share.sources = share.sources.saturating_add(1);
        Some(Standing {
            exchange: Exchange::NEW,
            replies: TokenBucket::new(SOURCE_REPLIES, SOURCE_REPLIES, now),
            bytes: TokenBucket::new(SOURCE_BYTES, SOURCE_BYTES, now),
        })
    }

    /// Takes a datagram of the source; returns whether that was the proof.
    pub(crate) fn on_request(&mut self, source: SocketAddr, standing: &mut Standing) -> bool {
        let is_proof = standing.exchange.on_request();
        if is_proof {
            self.leave(source);
        }
        is_proof
    }

    /// Returns whether a reply of `len` bytes may go to the source.
    pub(crate) fn allows(
        &mut self,
        now: Instant,
        source: SocketAddr,
        standing: &mut Standing,
        len: usize,
    ) -> bool {
        if standing.exchange == Exchange::Proved {
            return true;
        }
        let units = u32::try_from(len).unwrap_or(u32::MAX);
        let prefix = prefix_of(source.ip());
        let Some(share) = self.prefixes.get_mut(&prefix) else {
            return false;
        };
        let is_within = standing.replies.available(now) >= 1
            && standing.bytes.available(now) >= units
            && share.bytes.take(now, units);
        if !is_within || !standing.replies.take(now, 1) || !standing.bytes.take(now, units) {
            return false;
        }
        standing.exchange.on_reply();
        true
    }

    /// Takes the end of a source.
    pub(crate) fn on_end(&mut self, source: SocketAddr, standing: &Standing) {
        if standing.exchange != Exchange::Proved {
            self.leave(source);
        }
    }

    fn leave(&mut self, source: SocketAddr) {
        let prefix = prefix_of(source.ip());
        if let Some(share) = self.prefixes.get_mut(&prefix) {
            share.sources = share.sources.saturating_sub(1);
        }
    }

    /// A share whose bucket is full again, and that no source needs, says as much as none. Looked
    /// for where there is no room, a few times a second: a look costs as much as there are shares.
    fn forget(&mut self, now: Instant) {
        if self.prefixes.len() < PREFIXES_MAX || now < self.forget_at {
            return;
        }
        self.forget_at = now + FORGET_GAP;
        self.prefixes.retain(|_, share| {
            share.sources > 0
                || share.bytes.available(now) < PREFIX_BYTES
                || share.newcomers.available(now) < SOURCES_MAX
        });
    }
}

/// Replies a second to a source that is not proved; design of the mesh, "Forwarding limits".
const SOURCE_REPLIES: u32 = 4;
/// Bytes a second to such a source.
const SOURCE_BYTES: u32 = 4 << 10;
/// Bytes a second to all such sources of a prefix.
const PREFIX_BYTES: u32 = 64 << 10;
/// Such sources of a prefix at a time.
const SOURCES_MAX: u32 = 64;
/// New sources of a prefix a second, and [`SOURCES_MAX`] at once: a sixteenth of all that the
/// default [`open_rate`](crate::Config::open_rate) lets in.
const NEWCOMERS: u32 = 16;
/// Least time between two looks for shares to forget.
const FORGET_GAP: Duration = Duration::from_millis(100);
/// Prefixes remembered.
const PREFIXES_MAX: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, last], port))
    }

    #[test]
    fn pgx11_a_silent_source_gets_four_replies_and_four_kilobytes_a_second() {
        let mut ration = ReplyRation::default();
        let from = source(1, 1);
        let mut standing = ration.admit(Instant::ZERO, from).unwrap();
        let mut reply = |at, len| ration.allows(Instant::from_millis(at), from, &mut standing, len);
        let allowed = (0..100).filter(|_| reply(0, 10)).count();
        assert_eq!(allowed, 4);
        assert!(!reply(249, 10));
        assert!(reply(250, 10));
        assert!(reply(2_000, 4_096));
        assert!(!reply(2_000, 1));
    }

    #[test]
    fn pgx11_two_exchanges_in_each_direction_lift_the_ration() {
        let mut ration = ReplyRation::default();
        let from = source(1, 1);
        let mut standing = ration.admit(Instant::ZERO, from).unwrap();
        for _ in 0..50 {
            ration.on_request(from, &mut standing);
        }
        assert_eq!(
            standing.exchange,
            Exchange::Asked(0),
            "asking proves nothing"
        );
        for _ in 0..2 {
            assert!(ration.allows(Instant::ZERO, from, &mut standing, 10));
            ration.on_request(from, &mut standing);
        }
        assert_eq!(standing.exchange, Exchange::Proved);
        assert!((0..100).all(|_| ration.allows(Instant::ZERO, from, &mut standing, 1_400)));
    }

    #[test]
    fn pgx11_a_prefix_has_64_sources_and_64_kilobytes_a_second() {
        let mut ration = ReplyRation::default();
        let mut standings: Vec<_> = (0..64)
            .map(|port| {
                let from = source(1, port);
                (from, ration.admit(Instant::ZERO, from).unwrap())
            })
            .collect();
        assert!(ration.admit(Instant::ZERO, source(200, 1)).is_none());
        let mut sent = 0;
        for (from, standing) in &mut standings {
            for _ in 0..4 {
                if ration.allows(Instant::ZERO, *from, standing, 1_024) {
                    sent += 1_024;
                }
            }
        }
        assert_eq!(sent, 65_536);
        let (from, standing) = standings.pop().unwrap();
        ration.on_end(from, &standing);
        assert!(
            ration.admit(Instant::ZERO, source(200, 1)).is_none(),
            "64 at once"
        );
        let later = Instant::from_millis(63);
        assert!(ration.admit(later, source(200, 1)).is_some(), "16 a second");
    }

    #[test]
    fn pgx11_prefixes_are_bounded() {
        let mut ration = ReplyRation::default();
        for number in 0..9_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            let from = SocketAddr::from(([10 + a, b, c, 1], 9));
            if let Some(mut standing) = ration.admit(Instant::ZERO, from) {
                // Something is owed, so that it is not forgotten at once.
                assert!(ration.allows(Instant::ZERO, from, &mut standing, 1_000));
                ration.on_end(from, &standing);
            }
        }
        assert_eq!(ration.prefixes.len(), PREFIXES_MAX);
        let later = Instant::from_millis(4_000);
        assert!(ration.admit(later, source(1, 1)).is_some());
    }
}
