//! A range of addresses, as operators write it.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use super::BlockError;

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
    pub(super) fn of(address: IpAddr, bits: u8) -> Self {
        let first = match address {
            IpAddr::V4(ip) => {
                let shift = 32_u32.saturating_sub(bits.into());
                let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
                IpAddr::V4((ip.to_bits() & mask).into())
            }
            IpAddr::V6(ip) => {
                let shift = 128_u32.saturating_sub(bits.into());
                let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
                IpAddr::V6((ip.to_bits() & mask).into())
            }
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn u13_a_prefix_parses_as_it_prints_with_a_zero_rest() {
        for (text, written) in [
            ("203.0.113.77/24", "203.0.113.0/24"),
            ("203.0.113.77", "203.0.113.77/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("2001:db8:1:2:3::9/64", "2001:db8:1:2::/64"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::ffff:203.0.113.77/24", "203.0.113.0/24"),
            ("::/16", "::/16"),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(prefix.to_string(), written);
            assert_eq!(written.parse(), Ok(prefix));
        }
    }

    #[test]
    fn u13_what_is_no_prefix_or_holds_too_much_is_refused() {
        for text in ["", "/8", "10.0.0.0/", "10.0.0.0/a", "10.0.0/8", "::/200000"] {
            assert_eq!(text.parse::<Prefix>(), Err(BlockError::Text), "{text}");
        }
        for (text, bits) in [
            ("10.0.0.0/7", 7),
            ("10.0.0.0/33", 33),
            ("::/15", 15),
            ("::/129", 129),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(BlockError::Bits(bits)));
        }
    }

    #[test]
    fn u13_no_prefix_of_ipv6_holds_an_ipv4_address() {
        let all: Prefix = "::/16".parse().unwrap();
        assert!(all.contains("::1".parse().unwrap()));
        assert!(!all.contains("1.2.3.4".parse().unwrap()));
        assert!(!all.contains("::ffff:1.2.3.4".parse().unwrap()));
    }
}
