//! What a game server is told of its players.

use core::ops::BitOr;

use crate::proxy_header::{Checksum, Version};

/// The headers of the PROXY protocol that a game server gets from its exit. Only for servers that know of them;
/// others take them for a part of what a player says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerHeader {
    /// In which form. Games over UDP have version 2: version 1 knows of no datagrams.
    pub version: Version,
    /// Before which datagrams.
    pub timing: HeaderTiming,
    /// What they say besides the addresses.
    pub extras: HeaderExtras,
}

/// Which of a flow's datagrams begin with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeaderTiming {
    /// The first, and each further one as long as the server has not answered within the last 2 s; and what a
    /// player makes look like a header. For servers that remember whom a flow is for.
    #[default]
    First,
    /// Each. For servers that remember nothing; every datagram is longer by the header.
    Each,
}

/// What a header says besides the addresses; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderExtras(u8);

impl HeaderExtras {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Its CRC32C; 7 bytes.
    pub const CHECKSUM: Self = Self(1);
    /// The flow's own name, [`SESSION_ID`](crate::proxy_header::TlvKind::SESSION_ID); 19 bytes.
    pub const SESSION_ID: Self = Self(2);
    /// The nodes on the way, [`NODES`](crate::proxy_header::TlvKind::NODES); 3 bytes, and 8 for each of 2 to 5
    /// nodes.
    pub const NODES: Self = Self(4);

    /// Returns whether all of `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns whether a header is checked.
    pub(crate) const fn checksum(self) -> Checksum {
        if self.contains(Self::CHECKSUM) {
            Checksum::Crc32c
        } else {
            Checksum::None
        }
    }
}

impl BitOr for HeaderExtras {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
