//! Writes version 2.

use core::fmt;

use super::SIGNATURE;
use super::block::{FIXED_LEN, LOCAL, PROXY};
use super::header::{CHECKSUM_LEN, TLV_HEADER_LEN, Tlv, TlvKind, UNIQUE_ID_MAX, checksum_of};
use super::header::{Ends, Pair, Subject, Transport};

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
    let addresses = match subject {
        Subject::Flow(ends) => addresses_len(ends),
        Subject::Proxy | Subject::Unnamed => 0,
    };
    let len = rest_len(addresses, tlvs, checksum)?;
    out.extend_from_slice(&SIGNATURE);
    let [command, family] = match subject {
        Subject::Proxy => [LOCAL, 0],
        Subject::Unnamed => [PROXY, 0],
        Subject::Flow(ends) => [PROXY, family_of(ends)],
    };
    out.extend_from_slice(&[command, family]);
    out.extend_from_slice(&len.to_be_bytes());
    if let Subject::Flow(ends) = subject {
        append_ends(ends, out);
    }
    for tlv in tlvs {
        append_tlv(tlv, out)?;
    }
    if checksum == Checksum::Crc32c {
        let value = [0; CHECKSUM_LEN];
        append_tlv(
            &Tlv {
                kind: TlvKind::CRC32C,
                value: &value,
            },
            out,
        )?;
        let sum = checksum_of(
            out.get(start..).unwrap_or_default(),
            out.len().saturating_sub(start),
        );
        out.truncate(out.len().saturating_sub(CHECKSUM_LEN));
        out.extend_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}

/// Returns the length of what follows the fixed part.
fn rest_len(addresses: usize, tlvs: &[Tlv<'_>], checksum: Checksum) -> Result<u16, WriteError> {
    let mut len = addresses;
    for tlv in tlvs {
        let is_ours = tlv.kind == TlvKind::CRC32C;
        let is_long = tlv.kind == TlvKind::UNIQUE_ID && tlv.value.len() > UNIQUE_ID_MAX;
        if is_ours || is_long {
            return Err(WriteError::Tlv(tlv.kind));
        }
        len = len
            .saturating_add(TLV_HEADER_LEN)
            .saturating_add(tlv.value.len());
    }
    if checksum == Checksum::Crc32c {
        len = len.saturating_add(TLV_HEADER_LEN + CHECKSUM_LEN);
    }
    u16::try_from(len).map_err(|_| WriteError::TooLong(len.saturating_add(FIXED_LEN)))
}

const fn addresses_len(ends: &Ends) -> usize {
    match ends.pair() {
        Pair::V4(_) => 12,
        Pair::V6(_) => 36,
    }
}

const fn family_of(ends: &Ends) -> u8 {
    let family = match ends.pair() {
        Pair::V4(_) => 0x10,
        Pair::V6(_) => 0x20,
    };
    family
        | match ends.transport {
            Transport::Stream => 0x01,
            Transport::Datagram => 0x02,
        }
}

fn append_ends(ends: &Ends, out: &mut Vec<u8>) {
    match ends.pair() {
        Pair::V4(pair) => pair
            .iter()
            .for_each(|ip| out.extend_from_slice(&ip.octets())),
        Pair::V6(pair) => pair
            .iter()
            .for_each(|ip| out.extend_from_slice(&ip.octets())),
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
    /// A reserved extension: a checksum, which [`Checksum::Crc32c`] adds, or a unique id over 128
    /// bytes.
    Tlv(TlvKind),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagrams => f.write_str("version 1 of the PROXY protocol is for streams"),
            Self::TooLong(len) => {
                write!(f, "a header of {len} bytes, over the limit of {BLOCK_MAX}")
            }
            Self::Tlv(kind) => write!(
                f,
                "an extension of type {:#04x} is reserved or too long",
                kind.0
            ),
        }
    }
}

impl core::error::Error for WriteError {}
