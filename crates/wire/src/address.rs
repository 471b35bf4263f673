//! Addresses: their canonical form, the source that rate limits count, and which destinations
//! can answer.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Returns the canonical form of `address`: equal for two addresses that reach the same peer.
///
/// An IPv4-mapped address (`::ffff:192.0.2.1`) becomes the IPv4 address. The flow label of an IPv6
/// address is dropped. So is its zone (`%2`), unless the address is link-local: any other address
/// means the same in each zone, and systems report it without one.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(v6) = address else {
        return address;
    };
    match v6.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, v6.port()),
        IpAddr::V6(ip) => {
            let zone = if has_zone(ip) { v6.scope_id() } else { 0 };
            SocketAddrV6::new(ip, v6.port(), 0, zone).into()
        }
    }
}

/// Whether `ip` means a different host in each zone (RFC 4007, section 4).
const fn has_zone(ip: Ipv6Addr) -> bool {
    let [_, scope, ..] = ip.octets();
    ip.is_unicast_link_local() || (ip.is_multicast() && scope & 0x0f <= 2)
}

/// The source that rate limits count for an address: the IPv4 address, or the /64 of an IPv6
/// address, because one host can use its whole /64.
///
/// An IPv4-mapped address has the source of its IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(IpAddr);

impl SourceKey {
    /// Returns the source of `ip`.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            v4 @ IpAddr::V4(_) => v4,
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & PREFIX_64)),
        })
    }

    /// Returns the IPv4 address, or the first address of the /64.
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        self.0
    }
}

const PREFIX_64: u128 = u128::MAX << 64;

/// The network that shares limits with an address: its /24 (IPv4) or /48 (IPv6), the least that a
/// network operator announces or assigns.
///
/// An IPv4-mapped address has the network of its IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkKey(u64);

impl NetworkKey {
    /// Returns the network of `ip`.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self((ip.to_bits() >> 8) as u64),
            IpAddr::V6(ip) => {
                let [a, b, c, ..] = ip.segments();
                Self(NETWORK_V6 | (a as u64) << 32 | (b as u64) << 16 | c as u64)
            }
        }
    }

    /// Returns a number that is unique to the network: 24 bits of an IPv4 one; 48 bits and bit 48 of an
    /// IPv6 one.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Tells IPv6 networks from IPv4 ones.
const NETWORK_V6: u64 = 1 << 48;

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => ip.fmt(f),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

/// Checks that a peer at `address` could answer.
///
/// # Errors
///
/// [`BadDestination`] if nothing can answer from it; its text names the address and the reason.
pub const fn check_destination(address: SocketAddr) -> Result<(), BadDestination> {
    let ip = address.ip().to_canonical();
    let cause = if address.port() == 0 {
        BadDestinationCause::Port
    } else if ip.is_unspecified() {
        BadDestinationCause::Unspecified
    } else if ip.is_multicast() {
        BadDestinationCause::Multicast
    } else {
        match (ip, address) {
            (IpAddr::V4(ip), _) if ip.is_broadcast() => BadDestinationCause::Broadcast,
            (IpAddr::V6(ip), SocketAddr::V6(v6))
                if ip.is_unicast_link_local() && v6.scope_id() == 0 =>
            {
                BadDestinationCause::NoZone
            }
            _ => return Ok(()),
        }
    };
    Err(BadDestination { address, cause })
}

/// An address that no peer can answer from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadDestination {
    /// The address as passed in.
    pub address: SocketAddr,
    /// Why nothing can answer.
    pub cause: BadDestinationCause,
}

/// Why nothing can answer from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadDestinationCause {
    /// Its port is 0.
    Port,
    /// It is 0.0.0.0 or `::`: a server can bind it, but no client can connect to it.
    Unspecified,
    /// It is 255.255.255.255. The broadcast address of a subnet looks like any other.
    Broadcast,
    /// It is a multicast address.
    Multicast,
    /// It is link-local (`fe80::/10`) and has no zone.
    NoZone,
}

impl fmt::Display for BadDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing can answer from {}: ", self.address)?;
        f.write_str(match self.cause {
            BadDestinationCause::Port => "port 0 is no port of a server",
            BadDestinationCause::Unspecified => {
                "a server binds this address; to dial it, name an address of its host"
            }
            BadDestinationCause::Broadcast => "it is the broadcast address",
            BadDestinationCause::Multicast => "it is a multicast group",
            BadDestinationCause::NoZone => {
                "a link-local address needs the number of its interface, as in [fe80::1%2]:7777"
            }
        })
    }
}

impl core::error::Error for BadDestination {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_one_form() {
        for (given, form) in [
            ("192.0.2.1:9", "192.0.2.1:9"),
            ("[::ffff:192.0.2.1]:9", "192.0.2.1:9"),
            ("[::ffff:192.0.2.1%3]:9", "192.0.2.1:9"),
            ("[::1]:9", "[::1]:9"),
            ("[2001:db8::1%3]:9", "[2001:db8::1]:9"),
            ("[fe80::1%3]:9", "[fe80::1%3]:9"),
            ("[ff02::1%3]:9", "[ff02::1%3]:9"),
            ("[ff0e::1%3]:9", "[ff0e::1]:9"),
        ] {
            assert_eq!(canonical(address(given)), address(form), "{given}");
        }
        let labelled = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 77, 0);
        assert_eq!(canonical(labelled.into()), address("[::1]:9"));
    }

    #[test]
    fn a_host_is_one_source() {
        let source = |text: &str| SourceKey::of(text.parse().unwrap());
        assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:3:4:5:6"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_ne!(source("::"), source("0.0.0.0"));
        assert_eq!(source("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(source("2001:db8::9").to_string(), "2001:db8::/64");
    }

    #[test]
    fn what_cannot_answer_is_refused_with_its_address_and_the_reason() {
        for (given, cause, text) in [
            (
                "192.0.2.1:0",
                BadDestinationCause::Port,
                "nothing can answer from 192.0.2.1:0: port 0 is no port of a server",
            ),
            (
                "0.0.0.0:7",
                BadDestinationCause::Unspecified,
                "nothing can answer from 0.0.0.0:7: a server binds this address; to dial it, name an address of its host",
            ),
            (
                "255.255.255.255:7",
                BadDestinationCause::Broadcast,
                "nothing can answer from 255.255.255.255:7: it is the broadcast address",
            ),
            (
                "224.0.0.1:7",
                BadDestinationCause::Multicast,
                "nothing can answer from 224.0.0.1:7: it is a multicast group",
            ),
            (
                "[fe80::1]:7",
                BadDestinationCause::NoZone,
                "nothing can answer from [fe80::1]:7: a link-local address needs the number of its interface, as in [fe80::1%2]:7777",
            ),
        ] {
            let address = address(given);
            let error = check_destination(address).unwrap_err();
            assert_eq!(error, BadDestination { address, cause });
            assert_eq!(error.to_string(), text);
        }
        for (given, cause) in [
            ("[::]:7", BadDestinationCause::Unspecified),
            ("[::ffff:0.0.0.0]:7", BadDestinationCause::Unspecified),
            ("[::ffff:224.0.0.1]:7", BadDestinationCause::Multicast),
            ("[::ffff:255.255.255.255]:7", BadDestinationCause::Broadcast),
            ("[ff02::1%2]:7", BadDestinationCause::Multicast),
        ] {
            let error = check_destination(address(given)).unwrap_err();
            assert_eq!(error.cause, cause, "{given}");
        }
        for given in ["127.0.0.1:1", "[::1]:1", "[fe80::1%2]:7", "192.0.2.255:7"] {
            assert_eq!(check_destination(address(given)), Ok(()), "{given}");
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_are_24_and_48_bits_long() {
        let same = [
            ("192.0.2.1", "192.0.2.255"),
            ("192.0.2.1", "::ffff:192.0.2.77"),
            ("2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff"),
        ];
        for (a, b) in same {
            assert_eq!(NetworkKey::of(ip(a)), NetworkKey::of(ip(b)), "{a} {b}");
        }
        let different = [
            ("192.0.2.1", "192.0.3.1"),
            ("2001:db8:1::", "2001:db8:2::"),
            // Equal numbers of different families, and an address that is not the mapped form.
            ("0.0.0.0", "::"),
            ("192.0.2.1", "::192.0.2.1"),
        ];
        for (a, b) in different {
            assert_ne!(NetworkKey::of(ip(a)), NetworkKey::of(ip(b)), "{a} {b}");
        }
    }
}
