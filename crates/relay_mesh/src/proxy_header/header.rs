//! Contents of a header.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A header, and the offset of the payload after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header<'a> {
    /// Its version.
    pub version: Version,
    /// The peer that it describes.
    pub subject: Subject,
    /// Its extensions, in order; none in version 1.
    pub tlvs: Tlvs<'a>,
    /// Its length in bytes; the proxied peer's data follow.
    pub len: usize,
}

impl<'a> Header<'a> {
    /// Returns the two addresses; `None` if the connection's own apply.
    #[must_use]
    pub const fn ends(&self) -> Option<Ends> {
        match self.subject {
            Subject::Flow(ends) => Some(ends),
            Subject::Proxy | Subject::Unnamed => None,
        }
    }

    /// Returns the value of the first extension of this kind.
    #[must_use]
    pub fn tlv(&self, kind: TlvKind) -> Option<&'a [u8]> {
        let mut tlvs = self.tlvs.clone();
        tlvs.find(|tlv| tlv.kind == kind).map(|tlv| tlv.value)
    }
}

/// Version of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// A line of text, for streams; the specification, section 2.1.
    One,
    /// Binary, for streams and datagrams; section 2.2.
    #[default]
    Two,
}

/// The peer that a header describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The proxy itself, for example in a health check: its own address applies.
    Proxy,
    /// A peer without an address: `UNKNOWN` in version 1; in version 2 no family, or a UNIX socket.
    /// The proxy's own address applies.
    Unnamed,
    /// A peer with addresses.
    Flow(Ends),
}

/// Source and destination of a proxied flow, as the proxy sees them.
///
/// An IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2) is read as IPv4. Unspecified and
/// multicast addresses are not rejected; the caller must check them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The transport.
    pub transport: Transport,
    /// The initiator: the player.
    pub source: SocketAddr,
    /// The address that the player connected to, or the server's.
    pub destination: SocketAddr,
}

/// Transport of a proxied flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// Two addresses of one family, as in a header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pair {
    /// Both are IPv4 or IPv4-mapped.
    V4([Ipv4Addr; 2]),
    /// At least one is IPv6; an IPv4 address is mapped.
    V6([Ipv6Addr; 2]),
}

impl Ends {
    pub(super) const fn pair(&self) -> Pair {
        let source = self.source.ip().to_canonical();
        match (source, self.destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Pair::V4([source, destination]),
            (source, destination) => Pair::V6([in_v6(source), in_v6(destination)]),
        }
    }

    pub(super) const fn ports(&self) -> [u16; 2] {
        [self.source.port(), self.destination.port()]
    }

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

/// One extension: a type, and a value of at most 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tlv<'a> {
    /// Its type.
    pub kind: TlvKind,
    /// Its value.
    pub value: &'a [u8],
}

/// Type of an extension; the specification, section 2.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlvKind(pub u8);

impl TlvKind {
    /// The application protocol that TLS negotiated; section 2.2.1.
    pub const ALPN: Self = Self(0x01);
    /// The host name that the client requested; section 2.2.2.
    pub const AUTHORITY: Self = Self(0x02);
    /// CRC32C of the header, 4 bytes; section 2.2.3. It is verified when the header is read.
    pub const CRC32C: Self = Self(0x03);
    /// Padding; section 2.2.4.
    pub const NOOP: Self = Self(0x04);
    /// Id of the connection, at most 128 bytes; section 2.2.5.
    pub const UNIQUE_ID: Self = Self(0x05);
    /// The client's TLS parameters, with nested extensions; section 2.2.6.
    pub const SSL: Self = Self(0x20);
    /// Name of the network namespace; section 2.2.7.
    pub const NETNS: Self = Self(0x30);
    /// Tickwire's: a flow's id of 16 bytes, never reused: 8 of the exit's run, 8 of the flow in it.
    pub const SESSION_ID: Self = Self(0xE0);
    /// Tickwire's: the nodes between player and server, from entry to exit; for each the first 8
    /// bytes of its id. Intermediate nodes are those of the exit's route back to the player, if it
    /// has one.
    pub const NODES: Self = Self(0xE1);

    /// Returns whether the type is reserved for applications: 0xE0 to 0xEF; section 2.2.8.
    #[must_use]
    pub const fn is_custom(self) -> bool {
        matches!(self.0, 0xE0..=0xEF)
    }
}

impl fmt::Debug for TlvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlvKind({:#04x})", self.0)
    }
}

/// The extensions of a header, in order, with padding and duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlvs<'a> {
    /// The rest; ends at the end of an extension.
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    pub(super) const NONE: Self = Self { rest: &[] };

    /// Reads the extensions from offset `start` of a whole `header`; checks lengths and checksum.
    pub(super) fn read(header: &'a [u8], start: usize) -> Result<Self, BadHeader> {
        let rest = header.get(start..).ok_or(BadHeader::Short)?;
        let mut left = rest;
        let mut checksum = None;
        while let Some((tlv, after)) = split(left)? {
            match tlv.kind {
                TlvKind::CRC32C => {
                    let value = tlv.value.first_chunk().ok_or(BadHeader::Tlv)?;
                    let is_whole = tlv.value.len() == CHECKSUM_LEN;
                    let end = header.len().saturating_sub(after.len());
                    let found = (end, u32::from_be_bytes(*value));
                    if !is_whole || checksum.replace(found).is_some() {
                        return Err(BadHeader::Tlv);
                    }
                }
                TlvKind::UNIQUE_ID if tlv.value.len() > UNIQUE_ID_MAX => {
                    return Err(BadHeader::Tlv);
                }
                _ => {}
            }
            left = after;
        }
        match checksum {
            Some((end, sum)) if checksum_of(header, end) != sum => Err(BadHeader::Checksum),
            Some(_) | None => Ok(Self { rest }),
        }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let (tlv, after) = split(self.rest).ok().flatten()?;
        self.rest = after;
        Some(tlv)
    }
}

fn split(bytes: &[u8]) -> Result<Option<(Tlv<'_>, &[u8])>, BadHeader> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let ([kind, high, low], rest) = bytes.split_first_chunk().ok_or(BadHeader::Tlv)?;
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (value, after) = rest.split_at_checked(len).ok_or(BadHeader::Tlv)?;
    let kind = TlvKind(*kind);
    Ok(Some((Tlv { kind, value }, after)))
}

/// Returns the checksum of a header as if its field, which ends at `end`, were zero.
pub(super) fn checksum_of(header: &[u8], end: usize) -> u32 {
    let start = end.saturating_sub(CHECKSUM_LEN);
    let before = crc32c::crc32c(header.get(..start).unwrap_or_default());
    let zero = crc32c::crc32c_append(before, &[0; CHECKSUM_LEN]);
    crc32c::crc32c_append(zero, header.get(end..).unwrap_or_default())
}

/// Length of an extension's type and length fields.
pub(super) const TLV_HEADER_LEN: usize = 3;
pub(super) const CHECKSUM_LEN: usize = 4;
/// Longest value of [`TlvKind::UNIQUE_ID`]; the specification, section 2.2.5.
pub const UNIQUE_ID_MAX: usize = 128;

/// Why a header is malformed: drop the connection or datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadHeader {
    /// A line of version 1 that does not match the grammar.
    Line,
    /// A line of version 1 without an end within 107 bytes, or a header over the limit.
    TooLong,
    /// Another version after the signature of version 2.
    Version,
    /// A command other than `LOCAL` and `PROXY`.
    Command,
    /// An unassigned family or transport; or, in a datagram, a stream transport.
    Family,
    /// Too short for its family's addresses; or a datagram that ends within the header.
    Short,
    /// Extensions that do not end with the header, a checksum that is not 4 bytes long or occurs
    /// twice, or a unique id over 128 bytes.
    Tlv,
    /// The checksum does not match.
    Checksum,
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "the line does not match the grammar of version 1",
            Self::TooLong => "the header is over the length limit",
            Self::Version => "the header is of an unknown version",
            Self::Command => "the header has an unknown command",
            Self::Family => "the header has an unknown family or transport",
            Self::Short => "the header ends within its addresses",
            Self::Tlv => {
                "the extensions of the header do not end with it, or one has a wrong length"
            }
            Self::Checksum => "the checksum of the header is wrong",
        })
    }
}

impl core::error::Error for BadHeader {}
