//! What a header says.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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

/// One extension: a type, and a value of at most 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tlv<'a> {
    /// What it is.
    pub kind: TlvKind,
    /// What it says.
    pub value: &'a [u8],
}

/// Type of an extension; the specification, section 2.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlvKind(pub u8);

impl TlvKind {
    /// The protocol spoken over the connection, as TLS agreed on it; section 2.2.1.
    pub const ALPN: Self = Self(0x01);
    /// The host name that the client asked for; section 2.2.2.
    pub const AUTHORITY: Self = Self(0x02);
    /// CRC32C of the header, 4 bytes; section 2.2.3. Checked when it is read.
    pub const CRC32C: Self = Self(0x03);
    /// Padding; section 2.2.4.
    pub const NOOP: Self = Self(0x04);
    /// Names the connection, at most 128 bytes; section 2.2.5.
    pub const UNIQUE_ID: Self = Self(0x05);
    /// What is known of the client's TLS, with extensions of its own; section 2.2.6.
    pub const SSL: Self = Self(0x20);
    /// Name of the network namespace; section 2.2.7.
    pub const NETNS: Self = Self(0x30);
    /// Ours, of those left to applications: 16 bytes that name a flow, 8 of the exit's run and 8 of the flow
    /// within it. No two flows have the same.
    pub const SESSION_ID: Self = Self(0xE0);
    /// Ours: the nodes between player and server, the entry first and the exit last, 8 bytes each, which are
    /// the first of the node's id. Those between the two are on the exit's own way back to the player, and
    /// missing while it has none; his datagrams may come another way.
    pub const NODES: Self = Self(0xE1);

    /// Returns whether the specification leaves it to applications: 0xE0 to 0xEF; section 2.2.8.
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

/// The extensions of a header that was read, in their order and as they came, padding and repeated ones
/// included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlvs<'a> {
    /// What was not given out yet; ends where an extension does.
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    pub(super) const NONE: Self = Self { rest: &[] };

    /// Takes the extensions that stand from `start` on in a whole `header`, once lengths and checksum are
    /// checked.
    pub(super) fn read(header: &'a [u8], start: usize) -> Result<Self, BadHeader> {
        let rest = header.get(start..).ok_or(BadHeader::Short)?;
        let mut left = rest;
        let mut checksum = None;
        while let Some((tlv, behind)) = split(left)? {
            match tlv.kind {
                TlvKind::CRC32C => {
                    let value = tlv.value.first_chunk().ok_or(BadHeader::Tlv)?;
                    let is_whole = tlv.value.len() == CHECKSUM_LEN;
                    let end = header.len().saturating_sub(behind.len());
                    let told = (end, u32::from_be_bytes(*value));
                    if !is_whole || checksum.replace(told).is_some() {
                        return Err(BadHeader::Tlv);
                    }
                }
                TlvKind::UNIQUE_ID if tlv.value.len() > UNIQUE_ID_MAX => {
                    return Err(BadHeader::Tlv);
                }
                _ => {}
            }
            left = behind;
        }
        match checksum {
            Some((end, told)) if checksum_of(header, end) != told => Err(BadHeader::Checksum),
            Some(_) | None => Ok(Self { rest }),
        }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let (tlv, behind) = split(self.rest).ok().flatten()?;
        self.rest = behind;
        Some(tlv)
    }
}

/// Takes the first extension off; `None` where there is none left.
fn split(bytes: &[u8]) -> Result<Option<(Tlv<'_>, &[u8])>, BadHeader> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let ([kind, high, low], rest) = bytes.split_first_chunk().ok_or(BadHeader::Tlv)?;
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (value, behind) = rest.split_at_checked(len).ok_or(BadHeader::Tlv)?;
    let kind = TlvKind(*kind);
    Ok(Some((Tlv { kind, value }, behind)))
}

/// Returns the checksum of a `header` whose field for it ends at `end` and counts as zero; section 2.2.3.
pub(super) fn checksum_of(header: &[u8], end: usize) -> u32 {
    let start = end.saturating_sub(CHECKSUM_LEN);
    let before = crc32c::crc32c(header.get(..start).unwrap_or_default());
    let zero = crc32c::crc32c_append(before, &[0; CHECKSUM_LEN]);
    crc32c::crc32c_append(zero, header.get(end..).unwrap_or_default())
}

/// Type and length of an extension.
pub(super) const TLV_HEADER_LEN: usize = 3;
/// Bytes of a checksum.
pub(super) const CHECKSUM_LEN: usize = 4;
/// Longest value of [`TlvKind::UNIQUE_ID`]; the specification, section 2.2.5.
pub const UNIQUE_ID_MAX: usize = 128;

/// What is wrong with bytes that begin like a header. The connection or datagram is to be dropped; the
/// specification, sections 2.1 and 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadHeader {
    /// A line of version 1 that is not written exactly as the grammar has it.
    Line,
    /// A line of version 1 without its end in 107 bytes, or a header longer than is taken.
    TooLong,
    /// Behind the signature of version 2 stands another version.
    Version,
    /// A command that is neither `LOCAL` nor `PROXY`.
    Command,
    /// A family or a transport that is not assigned; or, in a datagram, a transport that is none of
    /// datagrams.
    Family,
    /// Too short for the addresses of its family; or a datagram that ends within it.
    Short,
    /// Extensions that do not end where the header does, a checksum that is not 4 bytes long or stands
    /// there twice, or a unique id over 128 bytes.
    Tlv,
    /// The checksum is another one.
    Checksum,
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "the line breaks the grammar of version 1",
            Self::TooLong => "the header is longer than is taken",
            Self::Version => "the header is of an unknown version",
            Self::Command => "the header has an unknown command",
            Self::Family => "the header has an unknown family or transport",
            Self::Short => "the header ends before its addresses do",
            Self::Tlv => {
                "the extensions of the header do not end with it, or one has a wrong length"
            }
            Self::Checksum => "the checksum of the header is wrong",
        })
    }
}

impl core::error::Error for BadHeader {}
