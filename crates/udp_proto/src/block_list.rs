//! Prefixes that are not heard: looked at before any byte of a datagram is.

use std::collections::{BTreeMap, BTreeSet};

use core::net::IpAddr;

/// Blocked address prefixes.
///
/// Empty unless the application fills it; nothing that a datagram says ever adds to it.
#[derive(Debug, Default)]
pub struct BlockList {
    /// First address of each prefix, v4 mapped into v6, with the prefix length in bits of 128.
    prefixes: BTreeSet<(u8, u128)>,
    /// How many prefixes have each length, so that a look-up tries only lengths in use.
    lengths: BTreeMap<u8, u32>,
}

/// Most prefixes; TWP/1, section 13.
const PREFIXES_MAX: usize = 65_536;

impl BlockList {
    /// Blocks the addresses that share their first `bits` bits with `address`.
    ///
    /// # Errors
    ///
    /// [`BlockError`] where `bits` is out of range (v4: 8 to 32, v6: 16 to 128) or the list is
    /// full.
    pub fn insert(&mut self, address: IpAddr, bits: u8) -> Result<(), BlockError> {
        let key = key(address, bits).ok_or(BlockError::Bits(bits))?;
        if self.prefixes.len() >= PREFIXES_MAX && !self.prefixes.contains(&key) {
            return Err(BlockError::Full);
        }
        if self.prefixes.insert(key) {
            *self.lengths.entry(key.0).or_default() += 1;
        }
        Ok(())
    }

    /// Takes a prefix off the list; returns whether it stood there.
    pub fn remove(&mut self, address: IpAddr, bits: u8) -> bool {
        let Some(key) = key(address, bits) else {
            return false;
        };
        if !self.prefixes.remove(&key) {
            return false;
        }
        if let Some(count) = self.lengths.get_mut(&key.0) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&key.0);
            }
        }
        true
    }

    /// Returns whether `address` lies in a blocked prefix. At most 128 look-ups, and none while
    /// the list is empty.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = mapped(address);
        self.lengths
            .keys()
            .any(|len| self.prefixes.contains(&(*len, mask(bits, *len))))
    }

    /// Returns how many prefixes are blocked.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Returns whether nothing is blocked.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }
}

/// Why a prefix cannot be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The prefix length is out of range.
    Bits(u8),
    /// 65,536 prefixes are blocked already.
    Full,
}

impl core::fmt::Display for BlockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bits(bits) => write!(f, "prefix of {bits} bits is out of range"),
            Self::Full => write!(f, "the block list holds {PREFIXES_MAX} prefixes already"),
        }
    }
}

impl core::error::Error for BlockError {}

fn key(address: IpAddr, bits: u8) -> Option<(u8, u128)> {
    let len = match address {
        IpAddr::V4(_) if (8..=32).contains(&bits) => bits.checked_add(96)?,
        IpAddr::V6(_) if (16..=128).contains(&bits) => bits,
        IpAddr::V4(_) | IpAddr::V6(_) => return None,
    };
    Some((len, mask(mapped(address), len)))
}

const fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
    .to_bits()
}

fn mask(bits: u128, len: u8) -> u128 {
    let shift = 128_u32.saturating_sub(len.into());
    bits & u128::MAX.checked_shl(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn blocks_a_prefix_and_no_more() {
        let mut list = BlockList::default();
        assert!(!list.contains(ip("203.0.113.9")));
        list.insert(ip("203.0.113.0"), 24).unwrap();
        list.insert(ip("2001:db8::"), 32).unwrap();
        assert!(list.contains(ip("203.0.113.9")));
        assert!(list.contains(ip("::ffff:203.0.113.9")));
        assert!(list.contains(ip("2001:db8:1::1")));
        assert!(!list.contains(ip("203.0.114.9")));
        assert!(list.remove(ip("203.0.113.77"), 24));
        assert!(!list.remove(ip("203.0.113.77"), 24));
        assert!(!list.contains(ip("203.0.113.9")));
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn refuses_prefixes_that_block_too_much() {
        let mut list = BlockList::default();
        assert_eq!(list.insert(ip("10.0.0.0"), 7), Err(BlockError::Bits(7)));
        assert_eq!(list.insert(ip("::"), 15), Err(BlockError::Bits(15)));
        assert!(list.is_empty());
    }

    #[test]
    fn is_full_at_65_536() {
        let mut list = BlockList::default();
        for index in 0..PREFIXES_MAX {
            let address = core::net::Ipv4Addr::from_bits(u32::try_from(index).unwrap());
            list.insert(address.into(), 32).unwrap();
        }
        assert_eq!(list.insert(ip("9.9.9.9"), 32), Err(BlockError::Full));
        assert_eq!(list.insert(ip("0.0.0.1"), 32), Ok(()));
    }
}
