//! What a header says.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::tlv::{TlvKind, Tlvs};

/// A header, and where what it stands before begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header<'a> {
    /// In which form it came.
    pub version: Version,
    /// Whom it is about.
    pub subject: Subject,
    /// Its extensions, in their order; none in version 1.
    pub tlvs: Tlvs<'a>,
    /// Its bytes; what the proxied peer said begins behind them.
    pub len: usize,
}

impl<'a> Header<'a> {
    /// Returns the two ends that it names; `None` where the connection's own count.
    #[must_use]
    pub const fn ends(&self) -> Option<Ends> {
        match self.subject {
            Subject::Flow(ends) => Some(ends),
            Subject::Proxy | Subject::Unnamed => None,
        }
    }

    /// Returns the value of the first extension of a kind.
    #[must_use]
    pub fn tlv(&self, kind: TlvKind) -> Option<&'a [u8]> {
        let mut tlvs = self.tlvs.clone();
        tlvs.find(|tlv| tlv.kind == kind).map(|tlv| tlv.value)
    }
}

/// Form of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// A line of text, for streams; the specification, section 2.1.
    One,
    /// Binary, for streams and datagrams; section 2.2.
    #[default]
    Two,
}

/// Whom a header is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The proxy itself, such as to see whether the server is there: its own address counts.
    Proxy,
    /// Somebody of whom no address is told: `UNKNOWN` of version 1; in version 2 no family, or a socket of a
    /// file system. The proxy's own address counts, as far as any does.
    Unnamed,
    /// Somebody with addresses.
    Flow(Ends),
}

/// The two ends of what is proxied, as the proxy sees them.
///
/// An IPv4 address mapped into IPv6 (RFC 4291, section 2.5.5.2) is read as the IPv4 address. An unspecified
/// or multicast address is read as it is: whoever asks decides what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// What is between them.
    pub transport: Transport,
    /// Who spoke first: the player.
    pub source: SocketAddr,
    /// To whom: the address that the player spoke to, or the server's.
    pub destination: SocketAddr,
}

/// What is proxied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// Two addresses of one family: as a header holds them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pair {
    /// Both are IPv4, or mapped.
    V4([Ipv4Addr; 2]),
    /// At least one is not; an IPv4 address is mapped into IPv6.
    V6([Ipv6Addr; 2]),
}

impl Ends {
    /// Returns both addresses in one family.
    pub(super) const fn pair(&self) -> Pair {
        let source = self.source.ip().to_canonical();
        match (source, self.destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Pair::V4([source, destination]),
            (source, destination) => Pair::V6([in_v6(source), in_v6(destination)]),
        }
    }

    /// Returns both ports.
    pub(super) const fn ports(&self) -> [u16; 2] {
        [self.source.port(), self.destination.port()]
    }

    /// Makes the ends that a header's fields name.
    pub(super) const fn new(
        transport: Transport,
        [source, destination]: [IpAddr; 2],
        [source_port, destination_port]: [u16; 2],
    ) -> Self {
        Self {
            transport,
            source: SocketAddr::new(source.to_canonical(), source_port),
            destination: SocketAddr::new(destination.to_canonical(), destination_port),
        }
    }
}

const fn in_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
