//! Blocked prefixes, checked before any byte of a datagram is read.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use std::collections::{BTreeMap, BTreeSet};

use wire::Instant;
use wire::address::first_of_prefix;

/// The addresses that share their first bits: `203.0.113.0/24`, `2001:db8::/32`.
///
/// IPv4 prefixes have 8 to 32 bits, IPv6 ones 16 to 128. An IPv4 address mapped into IPv6 (RFC 4291,
/// section 2.5.5.2) counts as the IPv4 address; no IPv6 prefix holds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    bits: u8,
    /// With all bits behind the first `bits` zero.
    first: IpAddr,
}

impl Prefix {
    /// Makes the prefix of `bits` bits that `address` lies in.
    ///
    /// # Errors
    ///
    /// [`BlockError::Bits`] where `bits` is out of range.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, BlockError> {
        let address = address.to_canonical();
        let range = match address {
            IpAddr::V4(_) => 8..=32,
            IpAddr::V6(_) => 16..=128,
        };
        if range.contains(&bits) {
            Ok(Self::of(address, bits))
        } else {
            Err(BlockError::Bits(bits))
        }
    }

    /// The prefix of one host: an IPv4 address alone, of an IPv6 address the /64.
    #[must_use]
    pub fn of_host(address: IpAddr) -> Self {
        match address.to_canonical() {
            address @ IpAddr::V4(_) => Self::of(address, 32),
            address @ IpAddr::V6(_) => Self::of(address, 64),
        }
    }

    /// Returns whether `address` lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && Self::of(address, self.bits) == *self
    }

    /// Returns its first address.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns how many bits its addresses share.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// `bits` is in range, and `address` canonical.
    fn of(address: IpAddr, bits: u8) -> Self {
        let first = first_of_prefix(address, bits.into(), bits.into());
        Self { bits, first }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = BlockError;

    /// Reads `address/bits`, or an address alone for all its bits.
    fn from_str(text: &str) -> Result<Self, BlockError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BlockError::Text)?;
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| BlockError::Text)?,
            None if address.to_canonical().is_ipv4() => 32,
            None => 128,
        };
        Self::new(address, bits)
    }
}

/// Blocked address prefixes: those of the application, and those of protocol violations
/// ([`Config::block_breaches`](crate::Config::block_breaches)). Forgeable datagrams add none.
#[derive(Debug, Default)]
pub struct BlockList {
    /// When each entry ends; `None` is permanent.
    ends: BTreeMap<Prefix, Option<Instant>>,
    /// Temporary entries, earliest end first.
    ending: BTreeSet<(Instant, Prefix)>,
    /// How many prefixes have each length, for IPv4 and IPv6: a lookup tries only lengths in use.
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

    /// Returns whether `address` is in a blocked prefix, by one lookup per length in use.
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

wire::error_text! { BlockError {
    Self::Text => "a prefix is an address, and maybe a slash and its bits",
    Self::Bits(bits) => "prefix of {bits} bits is out of range",
    Self::Full => "the block list holds {PREFIXES_MAX} prefixes already",
}}

#[cfg(test)]
mod tests;
