//! How a game server is told of its players, as operators write it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::game_rule::Protocol;
use crate::proxy_header::Version;
use crate::server_header::{HeaderExtras, HeaderTiming, ServerHeader};

/// The headers of the PROXY protocol that a game server gets; in a document, an object that may leave out what
/// is usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyRule {
    /// In which form.
    #[serde(default)]
    pub version: ProxyVersion,
    /// Before which datagrams; a stream has it once, at its start.
    #[serde(default)]
    pub datagrams: ProxyTiming,
    /// What version 2 says besides the addresses.
    #[serde(default)]
    pub extras: BTreeSet<ProxyExtra>,
}

/// Version of the PROXY protocol; in a document, its number, 1 or 2. Games over UDP have 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct ProxyVersion(pub Version);

impl TryFrom<u8> for ProxyVersion {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            1 => Ok(Self(Version::One)),
            2 => Ok(Self(Version::Two)),
            _ => Err("the PROXY protocol has versions 1 and 2"),
        }
    }
}

impl From<ProxyVersion> for u8 {
    fn from(version: ProxyVersion) -> Self {
        match version.0 {
            Version::One => 1,
            Version::Two => 2,
        }
    }
}

/// Which of a flow's datagrams begin with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyTiming {
    /// As long as the server has not answered within the last 2 s.
    #[default]
    First,
    /// All.
    Each,
}

/// What a header says besides the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyExtra {
    /// Its checksum.
    Crc32c,
    /// The flow's own name.
    SessionId,
    /// The nodes on the way.
    Nodes,
}

impl ProxyRule {
    /// Makes of it what an exit needs.
    #[must_use]
    pub fn header(&self) -> ServerHeader {
        ServerHeader {
            version: self.version.0,
            timing: match self.datagrams {
                ProxyTiming::First => HeaderTiming::First,
                ProxyTiming::Each => HeaderTiming::Each,
            },
            extras: self
                .extras
                .iter()
                .fold(HeaderExtras::NONE, |all, extra| all | extra.bit()),
        }
    }

    /// Returns whether a game of `protocol` cannot have it: version 1 is a line for streams, without
    /// extensions, and a stream has one header at its start. PROXY protocol, sections 2.1 and 2.2.
    #[must_use]
    pub fn does_not_go_with(&self, protocol: Protocol) -> bool {
        let is_udp = protocol == Protocol::Udp;
        match self.version.0 {
            Version::One => is_udp || !self.extras.is_empty(),
            Version::Two => !is_udp && self.datagrams == ProxyTiming::Each,
        }
    }
}

impl ProxyExtra {
    const fn bit(self) -> HeaderExtras {
        match self {
            Self::Crc32c => HeaderExtras::CHECKSUM,
            Self::SessionId => HeaderExtras::SESSION_ID,
            Self::Nodes => HeaderExtras::NODES,
        }
    }
}
