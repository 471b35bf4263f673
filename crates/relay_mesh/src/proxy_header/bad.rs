//! Why what begins like a header is none.

use core::fmt;

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
