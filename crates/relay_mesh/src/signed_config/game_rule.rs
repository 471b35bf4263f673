//! A document's rules for one game.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wire::NodeId;

use super::document::{DocumentError, Fault, GameText, ListKind, ListText, Place};
use crate::flow_message::GAME_NAME_MAX;
use crate::game::{HeaderExtras, HeaderTiming, Mode, ServerHeader};
use crate::proxy_header::Version;

/// How the network carries a game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameRule {
    /// Its transport protocol.
    pub protocol: Protocol,
    /// How its flows react to failures.
    pub mode: Mode,
    /// Address of its server.
    pub server: SocketAddr,
    /// Ports that entries listen on; 1 to 16, ascending.
    pub listen_ports: BTreeSet<u16>,
    /// Nodes that may be its entry.
    pub entry: NodeList,
    /// Nodes that may be its exit.
    pub exit: NodeList,
    /// The PROXY header that its server receives, if any.
    pub proxy_header: Option<ProxyRule>,
}

/// Transport protocol of a game.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Datagrams.
    #[default]
    Udp,
    /// Streams.
    Tcp,
}

/// Nodes that may act in a role. It does not restrict players.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeList {
    /// All members.
    All,
    /// Only these.
    White(BTreeSet<NodeId>),
    /// All members except these.
    Black(BTreeSet<NodeId>),
}

impl NodeList {
    /// Most nodes of one list.
    pub const NODES_MAX: usize = 1_024;

    /// Returns whether the list admits `node`.
    #[must_use]
    pub fn admits(&self, node: &NodeId) -> bool {
        match self {
            Self::All => true,
            Self::White(nodes) => nodes.contains(node),
            Self::Black(nodes) => !nodes.contains(node),
        }
    }

    fn read(text: &ListText, place: Place) -> Result<Self, DocumentError> {
        place.at_most(text.nodes.len(), Self::NODES_MAX)?;
        let mut read = BTreeSet::new();
        for (index, node) in text.nodes.iter().enumerate() {
            let place = place.part_item(index);
            let node = node.parse().map_err(|_| place.fault(Fault::BadNodeId))?;
            if !read.insert(node) {
                return Err(place.fault(Fault::Twice));
            }
        }
        match text.kind {
            ListKind::All if !read.is_empty() => Err(place.part_item(0).fault(Fault::NodesInAll)),
            ListKind::All => Ok(Self::All),
            ListKind::White => Ok(Self::White(read)),
            ListKind::Black => Ok(Self::Black(read)),
        }
    }
}

impl GameRule {
    /// Most ports of one game.
    pub const LISTEN_PORTS_MAX: usize = 16;
    /// Most games of one document.
    pub const GAMES_MAX: usize = 1_024;

    pub(super) fn read_all(texts: &[GameText]) -> Result<BTreeMap<String, Self>, DocumentError> {
        Place::of("games").at_most(texts.len(), Self::GAMES_MAX)?;
        let mut games = BTreeMap::new();
        for (index, text) in texts.iter().enumerate() {
            let place = Place::item("games", index);
            check_name(&text.name, GAME_NAME_MAX, place.part("name"))?;
            let rule = Self::read(text, place)?;
            if games.insert(text.name.clone(), rule).is_some() {
                return Err(place.part("name").fault(Fault::Twice));
            }
        }
        Ok(games)
    }

    fn read(text: &GameText, place: Place) -> Result<Self, DocumentError> {
        let rule = Self {
            protocol: text.protocol,
            mode: text.mode,
            server: read_server(&text.server, place.part("server"))?,
            listen_ports: read_ports(&text.listen_ports, place.part("listen_ports"))?,
            entry: NodeList::read(&text.entry, place.part("entry.nodes"))?,
            exit: NodeList::read(&text.exit, place.part("exit.nodes"))?,
            proxy_header: text.proxy_header.clone(),
        };
        let proxy = rule.proxy_header.as_ref();
        if proxy.is_some_and(|proxy| proxy.is_incompatible_with(rule.protocol)) {
            return Err(place.part("proxy_header").fault(Fault::WrongProtocol));
        }
        Ok(rule)
    }
}

/// Checks a name: 1 to `max` characters of `A-Z a-z 0-9 . _ -`.
pub(super) fn check_name(name: &str, max: usize, place: Place) -> Result<(), DocumentError> {
    if name.is_empty() {
        return Err(place.fault(Fault::Empty));
    }
    place.at_most(name.len(), max)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.bytes().all(is_name) {
        Ok(())
    } else {
        Err(place.fault(Fault::BadName))
    }
}

fn read_server(text: &str, place: Place) -> Result<SocketAddr, DocumentError> {
    text.parse()
        .ok()
        .filter(|server: &SocketAddr| server.port() != 0 && !server.ip().is_unspecified())
        .ok_or_else(|| place.fault(Fault::BadAddress))
}

fn read_ports(ports: &[u16], place: Place) -> Result<BTreeSet<u16>, DocumentError> {
    if ports.is_empty() {
        return Err(place.fault(Fault::Empty));
    }
    place.at_most(ports.len(), GameRule::LISTEN_PORTS_MAX)?;
    let mut read = BTreeSet::new();
    for (index, &port) in ports.iter().enumerate() {
        let place = place.part_item(index);
        if port == 0 {
            let (min, max) = (1, u16::MAX.into());
            return Err(place.fault(Fault::OutOfRange { min, max }));
        }
        if !read.insert(port) {
            return Err(place.fault(Fault::Twice));
        }
    }
    Ok(read)
}

/// The PROXY headers that a game server receives; all members have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyRule {
    /// Version of the headers.
    #[serde(default)]
    pub version: ProxyVersion,
    /// Datagrams that have a header; a stream has one, at its start.
    #[serde(default)]
    pub datagrams: HeaderTiming,
    /// Extensions of version 2.
    #[serde(default)]
    pub extras: BTreeSet<ProxyExtra>,
}

/// Version of the PROXY protocol; in a document its number, 1 or 2. UDP games use 2.
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

/// An extension of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyExtra {
    /// Its checksum.
    Crc32c,
    /// The flow's id.
    SessionId,
    /// The nodes on the route.
    Nodes,
}

impl ProxyRule {
    /// Converts the rule to an exit's settings.
    #[must_use]
    pub fn header(&self) -> ServerHeader {
        let extras = self.extras.iter();
        ServerHeader {
            version: self.version.0,
            timing: self.datagrams,
            extras: extras.fold(HeaderExtras::NONE, |all, extra| all | extra.bit()),
        }
    }

    /// Returns whether games of `protocol` cannot use the rule: version 1 is for streams and has no
    /// extensions, and a stream has one header at its start. PROXY protocol, sections 2.1 and 2.2.
    #[must_use]
    pub fn is_incompatible_with(&self, protocol: Protocol) -> bool {
        let is_udp = protocol == Protocol::Udp;
        match self.version.0 {
            Version::One => is_udp || !self.extras.is_empty(),
            Version::Two => !is_udp && self.datagrams == HeaderTiming::Each,
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
