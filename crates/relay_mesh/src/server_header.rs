//! PROXY headers for game servers.

use core::ops::BitOr;

use crate::proxy_header::{Checksum, Version};

/// PROXY protocol headers from an exit to a game server. Only for servers that parse them; others
/// treat them as player data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerHeader {
    /// Header version. Games over UDP use version 2, since version 1 has no datagrams.
    pub version: Version,
    /// Which datagrams have a header.
    pub timing: HeaderTiming,
    /// Extensions besides the addresses.
    pub extras: HeaderExtras,
}

/// Which of a flow's datagrams start with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeaderTiming {
    /// The first, each further one while the server has not answered within the last 2 s, and those
    /// in which a player imitates a header. For servers that remember the player of each flow.
    #[default]
    First,
    /// All. For servers without state; every datagram is longer by the header.
    Each,
}

/// Extensions of a header; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderExtras(u8);

impl HeaderExtras {
    /// None.
    pub const NONE: Self = Self(0);
    /// Its CRC32C; 7 bytes.
    pub const CHECKSUM: Self = Self(1);
    /// Unique id of the flow, [`SESSION_ID`](crate::proxy_header::TlvKind::SESSION_ID); 19 bytes.
    pub const SESSION_ID: Self = Self(2);
    /// Nodes on the path, [`NODES`](crate::proxy_header::TlvKind::NODES); 3 bytes, and 8 for each
    /// of 2 to 5 nodes.
    pub const NODES: Self = Self(4);

    /// Returns whether all of `others` are in the set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns whether headers have a checksum.
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
