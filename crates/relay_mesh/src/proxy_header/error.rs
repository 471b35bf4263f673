//! Why a header is rejected.

use wire::proxy_header::BadHeader as BadBlock;

/// Why a header is malformed: drop the connection or datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadHeader {
    /// A line of version 1 that does not match the grammar.
    Line,
    /// A line of version 1 without an end within 107 bytes, or the caller's limit.
    LineTooLong,
    /// Version 2: the part before the extensions. In a datagram, a stream transport is
    /// [`BadBlock::Family`], and a header without its end [`BadBlock::Short`].
    Block(BadBlock),
    /// Extensions that do not end with the header, a checksum that is not 4 bytes long or occurs
    /// twice, or a unique id over 128 bytes.
    Tlv,
    /// The checksum does not match.
    Checksum,
}

wire::error_text! { BadHeader {
    Self::Line => "the line does not match the grammar of version 1",
    Self::LineTooLong => "the line is over the length limit",
    Self::Block(bad) => "{bad}",
    Self::Tlv => "the extensions of the header do not end with it, or one has a wrong length",
    Self::Checksum => "the checksum of the header is wrong",
}}

impl From<BadBlock> for BadHeader {
    fn from(bad: BadBlock) -> Self {
        Self::Block(bad)
    }
}
