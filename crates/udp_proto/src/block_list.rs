//! Blocked prefixes, checked before any byte of a datagram is read.

mod prefix;

use std::collections::{BTreeMap, BTreeSet};

use core::net::IpAddr;

use wire::Instant;

pub use prefix::Prefix;

/// Blocked address prefixes.
///
/// Empty unless the application fills it or enables entries for protocol violations
/// ([`Config::block_breaches`](crate::Config::block_breaches)). Datagrams that may be forged never
/// add entries.
#[derive(Debug, Default)]
pub struct BlockList {
    /// When each entry ends; `None` is permanent.
    ends: BTreeMap<Prefix, Option<Instant>>,
    /// Temporary entries, earliest end first.
    ending: BTreeSet<(Instant, Prefix)>,
    /// The number of prefixes of each length, for IPv4 and IPv6, so that a lookup tries only
    /// lengths in use.
    lengths: [BTreeMap<u8, u32>; 2],
}

/// Most prefixes; TWP/1, section 13.
const PREFIXES_MAX: usize = 65_536;
/// Most expired entries removed at once.
const EXPIRED_AT_ONCE: usize = 64;

impl BlockList {
    /// Blocks a prefix, until `end` if given. A later call for the same prefix replaces the
    /// earlier.
    ///
    /// # Errors
    ///
    /// [`BlockError::Full`] if 65,536 others are blocked.
    pub fn insert(
        &mut self,
        now: Instant,
        prefix: Prefix,
        end: Option<Instant>,
    ) -> Result<(), BlockError> {
        self.expire(now);
        if self.ends.len() >= PREFIXES_MAX && !self.ends.contains_key(&prefix) {
            return Err(BlockError::Full);
        }
        match self.ends.insert(prefix, end) {
            Some(Some(before)) => {
                self.ending.remove(&(before, prefix));
            }
            Some(None) => {}
            None => {
                let lengths = self.lengths_of(prefix.first());
                let count = lengths.entry(prefix.bits()).or_default();
                *count = count.saturating_add(1);
            }
        }
        if let Some(end) = end {
            self.ending.insert((end, prefix));
        }
        Ok(())
    }

    /// Unblocks a prefix. Returns whether it was blocked.
    pub fn remove(&mut self, prefix: &Prefix) -> bool {
        let Some(end) = self.ends.remove(prefix) else {
            return false;
        };
        if let Some(end) = end {
            self.ending.remove(&(end, *prefix));
        }
        let lengths = self.lengths_of(prefix.first());
        if let Some(count) = lengths.get_mut(&prefix.bits()) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                lengths.remove(&prefix.bits());
            }
        }
        true
    }

    /// Returns whether `address` is in a blocked prefix. One lookup per length in use, at most 25
    /// for IPv4 or 113 for IPv6, and none while the list is empty.
    pub fn contains(&mut self, now: Instant, address: IpAddr) -> bool {
        if self.ends.is_empty() {
            return false;
        }
        self.expire(now);
        self.candidates(address).any(|prefix| {
            let end = self.ends.get(&prefix);
            end.is_some_and(|end| end.is_none_or(|end| end > now))
        })
    }

    /// Returns the prefixes with their ends, shortest prefixes first. May include expired ones.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Option<Instant>)> {
        self.ends.iter().map(|(prefix, end)| (*prefix, *end))
    }

    /// Returns the number of blocked prefixes.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether no prefix is blocked.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The prefixes of `address`, of the lengths in use.
    fn candidates(&self, address: IpAddr) -> impl Iterator<Item = Prefix> {
        let address = address.to_canonical();
        let [of_v4, of_v6] = &self.lengths;
        let lengths = if address.is_ipv4() { of_v4 } else { of_v6 };
        lengths.keys().map(move |bits| Prefix::of(address, *bits))
    }

    const fn lengths_of(&mut self, address: IpAddr) -> &mut BTreeMap<u8, u32> {
        let [of_v4, of_v6] = &mut self.lengths;
        if address.is_ipv4() { of_v4 } else { of_v6 }
    }

    /// Removes some of the expired entries.
    fn expire(&mut self, now: Instant) {
        for _ in 0..EXPIRED_AT_ONCE {
            match self.ending.first() {
                Some(&(end, prefix)) if end <= now => self.remove(&prefix),
                Some(_) | None => return,
            };
        }
    }
}

/// Why a prefix cannot be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The text is not a prefix.
    Text,
    /// The prefix length is out of range.
    Bits(u8),
    /// 65,536 prefixes are blocked.
    Full,
}

impl core::fmt::Display for BlockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Text => f.write_str("a prefix is an address, and maybe a slash and its bits"),
            Self::Bits(bits) => write!(f, "prefix of {bits} bits is out of range"),
            Self::Full => write!(f, "the block list holds {PREFIXES_MAX} prefixes already"),
        }
    }
}

impl core::error::Error for BlockError {}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn u13_blocks_a_prefix_and_no_more() {
        let mut list = BlockList::default();
        assert!(!list.contains(NOW, ip("203.0.113.9")));
        list.insert(NOW, prefix("203.0.113.0/24"), None).unwrap();
        list.insert(NOW, prefix("2001:db8::/32"), None).unwrap();
        assert!(list.contains(NOW, ip("203.0.113.9")));
        assert!(list.contains(NOW, ip("::ffff:203.0.113.9")));
        assert!(list.contains(NOW, ip("2001:db8:1::1")));
        assert!(!list.contains(NOW, ip("203.0.114.9")));
        assert!(list.remove(&prefix("203.0.113.77/24")));
        assert!(!list.remove(&prefix("203.0.113.77/24")));
        assert!(!list.contains(NOW, ip("203.0.113.9")));
        assert_eq!(
            list.iter().collect::<Vec<_>>(),
            [(prefix("2001:db8::/32"), None)]
        );
    }

    #[test]
    fn u13_an_entry_ends_at_its_end_and_a_later_call_moves_it() {
        let mut list = BlockList::default();
        let (one, other) = (prefix("192.0.2.1"), prefix("192.0.2.2"));
        let at = Instant::from_millis;
        list.insert(NOW, one, Some(at(2_000))).unwrap();
        list.insert(NOW, other, Some(at(2_000))).unwrap();
        list.insert(NOW, other, None).unwrap();
        assert!(list.contains(at(1_999), one.first()));
        assert!(!list.contains(at(2_000), one.first()));
        assert_eq!(list.len(), 1);
        assert!(list.contains(at(9_000), other.first()));
        list.insert(at(9_000), other, Some(at(9_001))).unwrap();
        assert!(!list.contains(at(9_001), other.first()));
        assert!(list.is_empty() && list.ending.is_empty());
        assert!(list.lengths.iter().all(BTreeMap::is_empty));
    }

    /// If many entries end at once, a lookup removes 64 of them, and none of the rest blocks.
    #[test]
    fn u13_many_ends_at_once_cost_a_look_up_no_more_than_64() {
        let mut list = BlockList::default();
        for index in 0..1_000 {
            let host = Prefix::of_host(IpAddr::V4(core::net::Ipv4Addr::from_bits(index)));
            list.insert(NOW, host, Some(Instant::from_millis(2_000)))
                .unwrap();
        }
        let late = Instant::from_millis(2_000);
        assert!(!list.contains(late, ip("0.0.3.231")));
        assert_eq!(list.len(), 936);
    }

    #[test]
    fn u13_a_look_up_tries_each_length_in_use_once() {
        let mut list = BlockList::default();
        for (text, of_v4, of_v6) in [
            ("10.0.0.0/8", 1, 0),
            ("11.0.0.0/8", 1, 0),
            ("192.0.2.0/24", 2, 0),
            ("2001:db8::/32", 2, 1),
        ] {
            list.insert(NOW, prefix(text), None).unwrap();
            assert_eq!(list.candidates(ip("1.2.3.4")).count(), of_v4);
            assert_eq!(list.candidates(ip("::1")).count(), of_v6);
        }
        for bits in 16..=128 {
            list.insert(NOW, Prefix::new(ip("::1"), bits).unwrap(), None)
                .unwrap();
        }
        assert_eq!(list.candidates(ip("::2")).count(), 113);
    }

    #[test]
    fn u13_is_full_at_65_536_and_what_has_ended_makes_place() {
        let mut list = BlockList::default();
        let end = Some(Instant::from_millis(2_000));
        for index in 0..PREFIXES_MAX {
            let address = core::net::Ipv4Addr::from_bits(u32::try_from(index).unwrap());
            list.insert(NOW, Prefix::of_host(address.into()), end)
                .unwrap();
        }
        let another = prefix("9.9.9.9");
        assert_eq!(list.insert(NOW, another, None), Err(BlockError::Full));
        assert_eq!(list.insert(NOW, prefix("0.0.0.1"), end), Ok(()));
        assert_eq!(
            list.insert(Instant::from_millis(2_000), another, None),
            Ok(())
        );
    }
}
