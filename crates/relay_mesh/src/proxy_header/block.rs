//! Version 2: binary.

use wire::proxy_header::{self as block, BlockRead, Family, Subject};

use super::header::{
    CHECKSUM_LEN, Header, TLV_HEADER_LEN, Tlv, TlvKind, Tlvs, UNIQUE_ID_MAX, Version, checksum_of,
};
use super::{BadHeader, Found};

/// Reads a header from bytes that begin with the signature, or are a prefix of it.
pub(super) fn read(bytes: &[u8], len_max: usize) -> Result<Found<'_>, BadHeader> {
    let block = match block::read(bytes, len_max)? {
        BlockRead::Whole(block) => block,
        BlockRead::Partial { needed } => return Ok(Found::Partial { needed }),
    };
    let tlvs = match Tlvs::read(block.bytes, block.extensions) {
        // Addresses of the proxy itself, and of no family, must be skipped, whatever they are.
        Err(BadHeader::Tlv) if block.subject == Subject::Proxy || block.family == Family::None => {
            Tlvs::NONE
        }
        tlvs => tlvs?,
    };
    Ok(Found::Header(Header {
        version: Version::Two,
        subject: block.subject,
        tlvs,
        len: block.bytes.len(),
    }))
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
    let too_long = |error: block::TooLong| WriteError::TooLong(error.0);
    block::write(subject, extensions_len(tlvs, checksum)?, out).map_err(too_long)?;
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

fn extensions_len(tlvs: &[Tlv<'_>], checksum: Checksum) -> Result<usize, WriteError> {
    let mut len: usize = 0;
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
    Ok(len)
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

wire::error_text! { WriteError {
    Self::Datagrams => "version 1 of the PROXY protocol is for streams",
    Self::TooLong(len) => "a header of {len} bytes, over the limit of {BLOCK_MAX}",
    Self::Tlv(TlvKind(kind)) => "an extension of type {kind:#04x} is reserved or too long",
}}
