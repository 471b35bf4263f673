//! Version 2 headers of the PROXY protocol, up to their extensions.
//!
//! W. Tarreau, "The PROXY protocol, versions 1 and 2", of 2020-03-05, section 2.2, big-endian:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 12 | signature |
//! | 12 | 1 | version 2 in the upper half; command, 0 `LOCAL`, 1 `PROXY` |
//! | 13 | 1 | family, 0 none, 1 IPv4, 2 IPv6, 3 UNIX; transport, 0 none, 1 stream, 2 datagrams |
//! | 14 | 2 | length of what follows |
//! | 16 | 12, 36 or 216 | source address, destination address; of IPv4 and IPv6 both ports |
//! | | | extensions |
//!
//! Version 1, extensions and their checksum are in `relay_mesh::proxy_header`.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::mapped;

/// The first bytes of every header.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the part before the addresses.
const FIXED_LEN: usize = 16;
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// Two addresses of 108 bytes each.
const UNIX_LEN: usize = 216;

/// A header with extensions that are not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The peer that it describes.
    pub subject: Subject,
    /// Its address family.
    pub family: Family,
    /// The complete header.
    pub bytes: &'a [u8],
    /// Its last bytes; empty if their start is unknown.
    pub extensions: &'a [u8],
}

/// What the bytes hold of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRead<'a> {
    /// All of it.
    Whole(Block<'a>),
    /// Its start.
    Partial {
        /// Least total number of bytes that the header has.
        needed: usize,
    },
}

/// Reads a header of at most `len_max` bytes from the start of `bytes`.
///
/// # Errors
///
/// [`BadHeader`] if `bytes` are not the start of such a header.
pub fn read(bytes: &[u8], len_max: usize) -> Result<BlockRead<'_>, BadHeader> {
    if bytes
        .iter()
        .zip(SIGNATURE)
        .any(|(byte, want)| *byte != want)
    {
        return Err(BadHeader::Version);
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_LEN>() else {
        return if len_max < FIXED_LEN {
            Err(BadHeader::TooLong)
        } else {
            Ok(BlockRead::Partial { needed: FIXED_LEN })
        };
    };
    let [.., command, family, high, low] = *fixed;
    let rest_len = usize::from(u16::from_be_bytes([high, low]));
    let len = FIXED_LEN.saturating_add(rest_len);
    if len > len_max {
        return Err(BadHeader::TooLong);
    }
    let family = Family::of(command, family, rest_len)?;
    let (Some(bytes), Some(rest)) = (bytes.get(..len), rest.get(..rest_len)) else {
        return Ok(BlockRead::Partial { needed: len });
    };
    let subject = match (command, family) {
        (LOCAL, _) => Subject::Proxy,
        (_, Family::V4(transport)) => flow::<4>(transport, rest)?,
        (_, Family::V6(transport)) => flow::<16>(transport, rest)?,
        (_, Family::Unix | Family::None | Family::Ignored) => Subject::Unnamed,
    };
    let extensions = match family {
        Family::Ignored => &[],
        Family::V4(_) | Family::V6(_) | Family::Unix | Family::None => {
            rest.get(family.len()..).unwrap_or_default()
        }
    };
    Ok(BlockRead::Whole(Block {
        subject,
        family,
        bytes,
        extensions,
    }))
}

fn flow<const LEN: usize>(transport: Transport, rest: &[u8]) -> Result<Subject, BadHeader>
where
    IpAddr: From<[u8; LEN]>,
{
    let (source, rest) = rest.split_first_chunk().ok_or(BadHeader::Short)?;
    let (destination, rest) = rest.split_first_chunk().ok_or(BadHeader::Short)?;
    let [a, b, c, d] = *rest.first_chunk().ok_or(BadHeader::Short)?;
    let addresses = [*source, *destination].map(IpAddr::from);
    let ports = [[a, b], [c, d]].map(u16::from_be_bytes);
    Ok(Subject::Flow(Ends::new(transport, addresses, ports)))
}

/// Appends a header to `out`, up to its extensions, which the caller appends.
///
/// # Errors
///
/// [`TooLong`] if its length field cannot count `extensions_len` more bytes; nothing is appended
/// then.
pub fn write(subject: &Subject, extensions_len: usize, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let pair = match subject {
        Subject::Flow(ends) => Some((ends, ends.pair())),
        Subject::Proxy | Subject::Unnamed => None,
    };
    let command = match subject {
        Subject::Proxy => LOCAL,
        Subject::Unnamed | Subject::Flow(_) => PROXY,
    };
    let (family, addresses_len) = match pair {
        Some((ends, AddressPair::V4(_))) => (0x10 | ends.transport.bits(), 12),
        Some((ends, AddressPair::V6(_))) => (0x20 | ends.transport.bits(), 36),
        None => (0, 0_usize),
    };
    let len = addresses_len.saturating_add(extensions_len);
    let rest_len = u16::try_from(len).map_err(|_| TooLong(len.saturating_add(FIXED_LEN)))?;
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[command, family]);
    out.extend_from_slice(&rest_len.to_be_bytes());
    if let Some((ends, pair)) = pair {
        match pair {
            AddressPair::V4(pair) => out.extend(pair.iter().flat_map(Ipv4Addr::octets)),
            AddressPair::V6(pair) => out.extend(pair.iter().flat_map(Ipv6Addr::octets)),
        }
        out.extend(ends.ports().map(u16::to_be_bytes).as_flattened());
    }
    Ok(())
}

/// Length of a header that its length field cannot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub usize);

/// Address family of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4(Transport),
    /// IPv6.
    V6(Transport),
    /// UNIX sockets; their paths are not read.
    Unix,
    /// No family and no transport.
    None,
    /// Invalid, in a header of the proxy itself; its addresses are ignored.
    Ignored,
}

impl Family {
    /// Reads the command and family bytes of a header with `rest_len` bytes after the fixed part.
    fn of(command: u8, family: u8, rest_len: usize) -> Result<Self, BadHeader> {
        match command {
            PROXY => Self::of_bytes(family, rest_len),
            LOCAL => Ok(Self::of_bytes(family, rest_len).unwrap_or(Self::Ignored)),
            _ if command >> 4 == LOCAL >> 4 => Err(BadHeader::Command),
            _ => Err(BadHeader::Version),
        }
    }

    const fn of_bytes(family: u8, rest_len: usize) -> Result<Self, BadHeader> {
        let transport = match family & 0x0F {
            0 => None,
            1 => Some(Transport::Stream),
            2 => Some(Transport::Datagram),
            _ => return Err(BadHeader::Family),
        };
        let family = match (family >> 4, transport) {
            (0, None) => Self::None,
            (1, Some(transport)) => Self::V4(transport),
            (2, Some(transport)) => Self::V6(transport),
            (3, Some(_)) => Self::Unix,
            // Section 2.2 defines no other combination.
            _ => return Err(BadHeader::Family),
        };
        if family.len() > rest_len {
            return Err(BadHeader::Short);
        }
        Ok(family)
    }

    /// Length of addresses and ports.
    const fn len(self) -> usize {
        match self {
            Self::V4(_) => 12,
            Self::V6(_) => 36,
            Self::Unix => UNIX_LEN,
            Self::None | Self::Ignored => 0,
        }
    }
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

impl Transport {
    const fn bits(self) -> u8 {
        match self {
            Self::Stream => 1,
            Self::Datagram => 2,
        }
    }
}

/// Two addresses of one family, as in a header.
#[derive(Clone, Copy, Debug)]
pub enum AddressPair {
    /// Both are IPv4 or IPv4-mapped.
    V4([Ipv4Addr; 2]),
    /// At least one is IPv6; an IPv4 address is mapped.
    V6([Ipv6Addr; 2]),
}

impl Ends {
    /// Makes the ends of source and destination.
    #[must_use]
    pub const fn new(
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

    /// Returns the addresses of source and destination.
    #[must_use]
    pub const fn pair(&self) -> AddressPair {
        let source = self.source.ip().to_canonical();
        match (source, self.destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => AddressPair::V4([source, destination]),
            (source, destination) => AddressPair::V6([mapped(source), mapped(destination)]),
        }
    }

    /// Returns the ports of source and destination.
    #[must_use]
    pub const fn ports(&self) -> [u16; 2] {
        [self.source.port(), self.destination.port()]
    }
}

/// Why bytes are not the start of a header up to its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadHeader {
    /// Longer than the caller's limit.
    TooLong,
    /// Another version after the signature, or another signature.
    Version,
    /// A command other than `LOCAL` and `PROXY`.
    Command,
    /// An unassigned family or transport.
    Family,
    /// Too short for its family's addresses.
    Short,
}

crate::error_text! { BadHeader {
    Self::TooLong => "the header is over the length limit",
    Self::Version => "the header is of an unknown version",
    Self::Command => "the header has an unknown command",
    Self::Family => "the header has an unknown family or transport",
    Self::Short => "the header ends within its addresses",
}}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// A header of version 2.
    fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).unwrap();
        [&SIGNATURE, &[command, family][..], &len.to_be_bytes(), rest].concat()
    }

    /// 203.0.113.9, port 4000, to 127.0.0.1, port 9.
    const V4: [u8; 12] = [203, 0, 113, 9, 127, 0, 0, 1, 0x0F, 0xA0, 0, 9];

    fn v6(source: &str) -> Vec<u8> {
        let source: Ipv6Addr = source.parse().unwrap();
        let destination = Ipv6Addr::LOCALHOST.octets();
        [&source.octets()[..], &destination, &[0x0F, 0xA0, 0, 9]].concat()
    }

    fn flow(transport: Transport, source: &str, destination: &str) -> Subject {
        Subject::Flow(Ends {
            transport,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        })
    }

    #[test]
    fn mesh_c1_every_family_of_the_specification_is_read() {
        use Transport::{Datagram, Stream};
        let v4 = |transport| flow(transport, "203.0.113.9:4000", "127.0.0.1:9");
        let from_v6 = flow(Stream, "[2001:db8::9]:4000", "[::1]:9");
        let from_mapped = flow(Datagram, "203.0.113.9:4000", "[::1]:9");
        for (bytes, subject, extensions) in [
            (block(0x21, 0x11, &V4), v4(Stream), 0),
            (block(0x21, 0x12, &V4), v4(Datagram), 0),
            (
                block(0x21, 0x12, &[&V4[..], &[4, 0, 0]].concat()),
                v4(Datagram),
                3,
            ),
            (block(0x21, 0x21, &v6("2001:db8::9")), from_v6, 0),
            (block(0x21, 0x22, &v6("::ffff:203.0.113.9")), from_mapped, 0),
            (block(0x21, 0x31, &[7; 216]), Subject::Unnamed, 0),
            (block(0x21, 0x32, &[7; 217]), Subject::Unnamed, 1),
            (block(0x21, 0x00, &[]), Subject::Unnamed, 0),
            (block(0x21, 0x00, b"anything"), Subject::Unnamed, 8),
            // Addresses of the proxy itself are skipped, whatever the family.
            (block(0x20, 0x00, &[]), Subject::Proxy, 0),
            (block(0x20, 0x12, &V4), Subject::Proxy, 0),
            (block(0x20, 0x12, &V4[..5]), Subject::Proxy, 0),
            (block(0x20, 0xFF, b"anything"), Subject::Proxy, 0),
        ] {
            let Ok(BlockRead::Whole(read)) = read(&bytes, 536) else {
                panic!("{bytes:02x?}");
            };
            let found = (read.subject, read.bytes, read.extensions.len());
            assert_eq!(found, (subject, &bytes[..], extensions), "{bytes:02x?}");
        }
    }

    #[test]
    fn mesh_c1_headers_of_other_versions_commands_and_families_are_refused() {
        for (bytes, bad) in [
            (block(0x11, 0x11, &V4), BadHeader::Version),
            (block(0x31, 0x11, &V4), BadHeader::Version),
            (block(0x01, 0x11, &V4), BadHeader::Version),
            (block(0x22, 0x11, &V4), BadHeader::Command),
            (block(0x2F, 0x11, &V4), BadHeader::Command),
            (block(0x21, 0x41, &V4), BadHeader::Family),
            (block(0x21, 0x13, &V4), BadHeader::Family),
            (block(0x21, 0x10, &V4), BadHeader::Family),
            (block(0x21, 0x01, &V4), BadHeader::Family),
            (block(0x21, 0xFF, &V4), BadHeader::Family),
            (block(0x21, 0x11, &V4[..11]), BadHeader::Short),
            (block(0x21, 0x22, &V4), BadHeader::Short),
            (block(0x21, 0x21, &[0; 35]), BadHeader::Short),
            (block(0x21, 0x31, &[0; 215]), BadHeader::Short),
        ] {
            assert_eq!(read(&bytes, 536), Err(bad), "{bytes:02x?}");
            // At once, before it is complete.
            assert_eq!(read(&bytes[..16], 536), Err(bad), "{bytes:02x?}");
        }
        assert_eq!(read(b"PROXY", 536), Err(BadHeader::Version));
    }

    #[test]
    fn mesh_c1_a_truncated_block_needs_its_length_and_no_more() {
        let whole = block(0x21, 0x12, &[&V4[..], &[4, 0, 0]].concat());
        for len in 0..whole.len() {
            let needed = if len < 16 { 16 } else { whole.len() };
            let partial = BlockRead::Partial { needed };
            assert_eq!(read(&whole[..len], 536), Ok(partial), "{len}");
        }
        let followed = [&whole[..], b"payload"].concat();
        assert_eq!(read(&followed, 536), read(&whole, 536));
    }

    #[test]
    fn mesh_c1_a_block_over_the_callers_limit_is_refused_at_once() {
        let whole = block(0x21, 0x12, &V4);
        assert!(read(&whole, 28).is_ok());
        assert_eq!(read(&whole, 27), Err(BadHeader::TooLong));
        assert_eq!(read(&whole[..16], 27), Err(BadHeader::TooLong));
        assert_eq!(read(&SIGNATURE, 15), Err(BadHeader::TooLong));
        let longest = block(0x20, 0, &vec![0; 65_535]);
        assert!(read(&longest, 65_551).is_ok());
        assert_eq!(read(&longest[..16], 65_550), Err(BadHeader::TooLong));
    }

    #[test]
    fn what_is_written_is_read_and_extensions_are_counted() {
        let ends = |source: &str| Ends {
            transport: Transport::Datagram,
            source: source.parse().unwrap(),
            destination: "127.0.0.1:9".parse().unwrap(),
        };
        for (subject, len) in [
            (Subject::Flow(ends("203.0.113.9:4000")), 28),
            (Subject::Flow(ends("[2001:db8::9]:4000")), 52),
            (Subject::Proxy, 16),
            (Subject::Unnamed, 16),
        ] {
            let mut bytes = vec![];
            write(&subject, 3, &mut bytes).unwrap();
            assert_eq!(bytes.len(), len);
            let needed = len.saturating_add(3);
            bytes.extend_from_slice(&[4, 0, 0, 9]);
            let Ok(BlockRead::Whole(block)) = read(&bytes, needed) else {
                panic!("{subject:?}");
            };
            assert_eq!((block.subject, block.bytes.len()), (subject, needed));
            assert_eq!(block.extensions, [4, 0, 0]);
        }
        let mut out = vec![];
        assert_eq!(
            write(&Subject::Proxy, 65_536, &mut out),
            Err(TooLong(65_552))
        );
        assert!(out.is_empty());
    }
}
