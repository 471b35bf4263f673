//! Addresses: their text and canonical form, the source that rate limits count, and which
//! destinations can answer.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

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
/// address, because one host can use its whole /64. An IPv4-mapped address counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(IpAddr);

impl SourceKey {
    /// Returns the source of `ip`.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        Self(first_of_prefix(ip, 32, 64))
    }

    /// Returns the IPv4 address, or the first address of the /64.
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        self.0
    }
}

/// Returns an IPv6 address as it is, and an IPv4 address mapped (RFC 4291, section 2.5.5.2).
#[must_use]
pub const fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Returns the first address of the prefix of `ip` that has `v4_bits` bits (IPv4) or `v6_bits` bits
/// (IPv6). An IPv4-mapped address counts as IPv4.
#[must_use]
pub const fn first_of_prefix(ip: IpAddr, v4_bits: u32, v6_bits: u32) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.unbounded_shl(u32::BITS.saturating_sub(v4_bits));
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.unbounded_shl(u128::BITS.saturating_sub(v6_bits));
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// The network that shares limits with an address: its /24 (IPv4) or /48 (IPv6), the least that a
/// network operator announces or assigns. An IPv4-mapped address counts as IPv4.
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

/// Parses an IP address and port, such as `192.0.2.7:5029` or `[2001:db8::1]:5029`.
///
/// # Errors
///
/// [`AddressError`] if `text` is anything else; the message states what was found.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    match text.parse() {
        // Its last group may be meant as a port.
        Ok(IpAddr::V6(_)) => return Err(AddressError::NoBrackets),
        Ok(IpAddr::V4(_)) => return Err(AddressError::NoPort),
        Err(_) if is_bracketed(text) => return Err(AddressError::NoPort),
        Err(_) => {}
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(AddressError::NoPort);
    };
    if host.contains(':') && !host.starts_with('[') {
        let is_v6 = host.parse::<Ipv6Addr>().is_ok();
        return Err(if is_v6 {
            AddressError::NoBrackets
        } else {
            AddressError::Form
        });
    }
    check_port(port)?;
    let is_ip =
        host.starts_with('[') || host.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    Err(if is_ip {
        AddressError::Form
    } else {
        AddressError::HostName
    })
}

/// Parses the port of a destination.
///
/// # Errors
///
/// [`AddressError::Port`] if it is 0, above 65,535, or not a number.
pub fn check_port(text: &str) -> Result<u16, AddressError> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or(AddressError::Port)
}

fn is_bracketed(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// Why a text is not an IP address and port; the message says what to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is empty.
    Empty,
    /// The port is missing.
    NoPort,
    /// The port is not a number from 1 to 65,535.
    Port,
    /// An IPv6 address without brackets.
    NoBrackets,
    /// It is a host name, and names are not resolved here.
    HostName,
    /// Anything else.
    Form,
}

crate::error_text! { AddressError {
    Self::Empty | Self::Form => "expected IP:port, like 192.0.2.7:5029 or [2001:db8::1]:5029",
    Self::NoPort => "the port is missing; expected IP:port, like 192.0.2.7:5029",
    Self::Port => "the port is not within 1 to 65535",
    Self::NoBrackets => "an IPv6 address with a port needs brackets, like [::1]:5029",
    Self::HostName => "host names are not resolved here; expected IP:port, like 192.0.2.7:5029",
}}

#[cfg(test)]
mod tests;
