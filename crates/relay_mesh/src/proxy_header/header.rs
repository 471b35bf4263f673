//! Contents of a header.

use core::fmt;

use wire::proxy_header::{Ends, Subject};

use super::BadHeader;

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

    /// Reads the extensions `rest` of a whole `header`; checks lengths and checksum.
    pub(super) fn read(header: &'a [u8], rest: &'a [u8]) -> Result<Self, BadHeader> {
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
