//! Reading version 2.
//!
//! The specification, section 2.2, big-endian:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 12 | signature |
//! | 12 | 1 | version 2 in the upper half; command, 0 `LOCAL`, 1 `PROXY` |
//! | 13 | 1 | family, 0 none, 1 IPv4, 2 IPv6, 3 UNIX; transport, 0 none, 1 stream, 2 datagrams |
//! | 14 | 2 | length of what follows |
//! | 16 | 12, 36 or 216 | source address, destination address; of IPv4 and IPv6 both ports |
//! | | | extensions: type, 1; length, 2; value |

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header::BadHeader;
use super::header::Tlvs;
use super::header::{Ends, Header, Subject, Transport, Version};
use super::read::Found;

/// Length of the part before the addresses.
pub(super) const FIXED_LEN: usize = 16;
/// Version and command.
pub(super) const LOCAL: u8 = 0x20;
pub(super) const PROXY: u8 = 0x21;
/// Two addresses of 108 bytes each.
const UNIX_LEN: usize = 216;

/// Reads a header from bytes that begin with the signature, or are a prefix of it.
pub(super) fn read(bytes: &[u8], len_max: usize) -> Result<Found<'_>, BadHeader> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_LEN>() else {
        return if len_max < FIXED_LEN {
            Err(BadHeader::TooLong)
        } else {
            Ok(Found::Partial { needed: FIXED_LEN })
        };
    };
    let [.., command, family, high, low] = *fixed;
    let rest_len = usize::from(u16::from_be_bytes([high, low]));
    let len = FIXED_LEN.saturating_add(rest_len);
    if len > len_max {
        return Err(BadHeader::TooLong);
    }
    let family = Family::of(command, family, rest_len)?;
    let (Some(whole), Some(rest)) = (bytes.get(..len), rest.get(..rest_len)) else {
        return Ok(Found::Partial { needed: len });
    };
    let subject = match (command, family) {
        (LOCAL, _) => Subject::Proxy,
        (_, Family::V4(transport)) => v4(transport, rest)?,
        (_, Family::V6(transport)) => v6(transport, rest)?,
        (_, Family::Unix | Family::None | Family::Ignored) => Subject::Unnamed,
    };
    // Addresses of `LOCAL`, and of no family, must be skipped, whatever they are.
    let is_skipped = command == LOCAL || matches!(family, Family::None);
    let tlvs = match (family, Tlvs::read(whole, family.end())) {
        // The start of extensions is unknown.
        (Family::Ignored, _) => Tlvs::NONE,
        (_, Err(BadHeader::Tlv)) if is_skipped => Tlvs::NONE,
        (_, tlvs) => tlvs?,
    };
    Ok(Found::Header(Header {
        version: Version::Two,
        subject,
        tlvs,
        len,
    }))
}

/// The addresses of a header.
#[derive(Clone, Copy, Debug)]
enum Family {
    V4(Transport),
    V6(Transport),
    Unix,
    /// No family and no transport.
    None,
    /// The proxy's own; to be ignored.
    Ignored,
}

impl Family {
    /// Reads the command and family bytes of a header with `rest_len` bytes after the fixed part.
    fn of(command: u8, family: u8, rest_len: usize) -> Result<Self, BadHeader> {
        match command {
            PROXY => Self::of_another(family, rest_len),
            LOCAL => Ok(Self::of_another(family, rest_len).unwrap_or(Self::Ignored)),
            _ if command >> 4 == LOCAL >> 4 => Err(BadHeader::Command),
            _ => Err(BadHeader::Version),
        }
    }

    const fn of_another(family: u8, rest_len: usize) -> Result<Self, BadHeader> {
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

    /// Returns the offset of the extensions.
    const fn end(self) -> usize {
        FIXED_LEN.saturating_add(self.len())
    }

    /// Returns the length of addresses and ports.
    const fn len(self) -> usize {
        match self {
            Self::V4(_) => 12,
            Self::V6(_) => 36,
            Self::Unix => UNIX_LEN,
            Self::None | Self::Ignored => 0,
        }
    }
}

fn v4(transport: Transport, rest: &[u8]) -> Result<Subject, BadHeader> {
    let (source, rest) = rest.split_first_chunk::<4>().ok_or(BadHeader::Short)?;
    let (destination, rest) = rest.split_first_chunk::<4>().ok_or(BadHeader::Short)?;
    let addresses = [*source, *destination].map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    Ok(Subject::Flow(Ends::new(transport, addresses, ports(rest)?)))
}

fn v6(transport: Transport, rest: &[u8]) -> Result<Subject, BadHeader> {
    let (source, rest) = rest.split_first_chunk::<16>().ok_or(BadHeader::Short)?;
    let (destination, rest) = rest.split_first_chunk::<16>().ok_or(BadHeader::Short)?;
    let addresses = [*source, *destination].map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    Ok(Subject::Flow(Ends::new(transport, addresses, ports(rest)?)))
}

fn ports(rest: &[u8]) -> Result<[u16; 2], BadHeader> {
    let [a, b, c, d] = *rest.first_chunk::<4>().ok_or(BadHeader::Short)?;
    Ok([[a, b], [c, d]].map(u16::from_be_bytes))
}
