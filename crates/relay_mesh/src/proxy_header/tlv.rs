//! Extensions of version 2.

use core::fmt;

use super::bad::BadHeader;

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
