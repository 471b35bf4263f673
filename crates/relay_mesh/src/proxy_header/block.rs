//! Version 2: binary.
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

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header::{
    BadHeader, CHECKSUM_LEN, Ends, Header, Pair, Subject, TLV_HEADER_LEN, Tlv, TlvKind, Tlvs,
    Transport, UNIQUE_ID_MAX, Version, checksum_of,
};
use super::{Found, SIGNATURE};

/// Length of the part before the addresses.
const FIXED_LEN: usize = 16;
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
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
        (_, Family::V4(transport)) => flow::<4>(transport, rest)?,
        (_, Family::V6(transport)) => flow::<16>(transport, rest)?,
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

    /// Offset of the extensions.
    const fn end(self) -> usize {
        FIXED_LEN.saturating_add(self.len())
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

/// Longest header: 16 bytes, and 65,535 that its length field can count.
pub const BLOCK_MAX: usize = 16 + 65_535;

/// Whether a header has a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checksum {
    /// No checksum.
    #[default]
    None,
    /// Its last extension is its CRC32C, 7 bytes; the specification, section 2.2.3.
    Crc32c,
}

/// Appends a header of version 2 to `out`: `tlvs` in order, then the checksum if there is one.
///
/// Without extensions it has 28 bytes for IPv4, 52 otherwise; if only one address is IPv4, it is
/// mapped into IPv6. A [`Subject`] without addresses takes 16.
///
/// # Errors
///
/// [`WriteError`] if the header is invalid; nothing is appended then.
pub fn write_block(
    subject: &Subject,
    tlvs: &[Tlv<'_>],
    checksum: Checksum,
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    let start = out.len();
    let written = append(subject, tlvs, checksum, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn append(
    subject: &Subject,
    tlvs: &[Tlv<'_>],
    checksum: Checksum,
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    let start = out.len();
    let (command, family, addresses) = match subject {
        Subject::Proxy => (LOCAL, 0, 0),
        Subject::Unnamed => (PROXY, 0, 0),
        Subject::Flow(ends) => {
            let transport = match ends.transport {
                Transport::Stream => 0x01,
                Transport::Datagram => 0x02,
            };
            match ends.pair() {
                Pair::V4(_) => (PROXY, 0x10 | transport, 12),
                Pair::V6(_) => (PROXY, 0x20 | transport, 36),
            }
        }
    };
    let len = rest_len(addresses, tlvs, checksum)?;
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[command, family]);
    out.extend_from_slice(&len.to_be_bytes());
    if let Subject::Flow(ends) = subject {
        append_ends(ends, out);
    }
    for tlv in tlvs {
        append_tlv(tlv, out)?;
    }
    if checksum == Checksum::Crc32c {
        let (kind, value) = (TlvKind::CRC32C, &[0; CHECKSUM_LEN]);
        append_tlv(&Tlv { kind, value }, out)?;
        let header = out.get(start..).unwrap_or_default();
        let sum = checksum_of(header, header.len());
        out.truncate(out.len().saturating_sub(CHECKSUM_LEN));
        out.extend_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}

fn rest_len(addresses: usize, tlvs: &[Tlv<'_>], checksum: Checksum) -> Result<u16, WriteError> {
    let mut len = addresses;
    for tlv in tlvs {
        let is_long = tlv.kind == TlvKind::UNIQUE_ID && tlv.value.len() > UNIQUE_ID_MAX;
        if is_long || tlv.kind == TlvKind::CRC32C {
            return Err(WriteError::Tlv(tlv.kind));
        }
        let tlv_len = tlv.value.len().saturating_add(TLV_HEADER_LEN);
        len = len.saturating_add(tlv_len);
    }
    if checksum == Checksum::Crc32c {
        len = len.saturating_add(TLV_HEADER_LEN + CHECKSUM_LEN);
    }
    u16::try_from(len).map_err(|_| WriteError::TooLong(len.saturating_add(FIXED_LEN)))
}

fn append_ends(ends: &Ends, out: &mut Vec<u8>) {
    match ends.pair() {
        Pair::V4(pair) => out.extend(pair.iter().flat_map(Ipv4Addr::octets)),
        Pair::V6(pair) => out.extend(pair.iter().flat_map(Ipv6Addr::octets)),
    }
    for port in ends.ports() {
        out.extend_from_slice(&port.to_be_bytes());
    }
}

fn append_tlv(tlv: &Tlv<'_>, out: &mut Vec<u8>) -> Result<(), WriteError> {
    let len = tlv.value.len();
    let len = u16::try_from(len).map_err(|_| WriteError::TooLong(len))?;
    out.push(tlv.kind.0);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(tlv.value);
    Ok(())
}

/// Why a header cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// Version 1 does not support datagrams.
    Datagrams,
    /// Its length in bytes, over 65,551.
    TooLong(usize),
    /// A checksum, which [`Checksum::Crc32c`] adds, or a unique id over 128 bytes.
    Tlv(TlvKind),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagrams => f.write_str("version 1 of the PROXY protocol is for streams"),
            Self::TooLong(len) => {
                write!(f, "a header of {len} bytes, over the limit of {BLOCK_MAX}")
            }
            Self::Tlv(TlvKind(kind)) => {
                write!(
                    f,
                    "an extension of type {kind:#04x} is reserved or too long"
                )
            }
        }
    }
}

impl core::error::Error for WriteError {}
