//! `PureGamer`'s two files, for operators who migrate from it.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use crypto::{PemError, PublicKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use wire::NodeId;

use super::document::{DOCUMENT_LEN_MAX, GameText, ListKind, ListText};
use super::game_rule::{Protocol, ProxyRule};
use crate::config_text::{TextError, read_json};
use crate::game::Mode;

/// A node's `config.json`, with its five fields unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFile {
    /// Key that signs the configuration; PEM, `PUBLIC KEY`.
    pub super_admin_pub_key: PublicKey,
    /// File that stores the last configuration.
    pub config_path: String,
    /// Folder for all other files.
    pub data_path: String,
    /// Nodes to dial first.
    pub bootstrap_nodes: Vec<PeerAddress>,
    /// Port for UDP and TCP; 0 selects an ephemeral one.
    pub port: u16,
}

/// A node's libp2p address, such as `/ip4/192.0.2.1/udp/4001/quic-v1/p2p/12D3Koo...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The node's name there. It is no [`NodeId`], since its key has another type.
    pub peer: String,
    /// Its address.
    pub address: SocketAddr,
}

impl NodeFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`ImportError`]; its text is one sentence for an operator.
    pub fn read(bytes: &[u8]) -> Result<Self, ImportError> {
        let text: NodeFileText = parse(bytes)?;
        let key = PublicKey::from_pem(&text.super_admin_pub_key).map_err(ImportError::Key)?;
        let bootstrap_nodes = text.bootstrap_nodes.iter().map(|node| {
            read_peer_address(node).ok_or_else(|| ImportError::PeerAddress(node.clone()))
        });
        Ok(Self {
            super_admin_pub_key: key,
            config_path: text.config_path,
            data_path: text.data_path,
            bootstrap_nodes: bootstrap_nodes.collect::<Result<_, _>>()?,
            port: text.port,
        })
    }
}

/// Mappings that turn a game configuration into a part of a document.
///
/// `PureGamer` identifies nodes by libp2p peer ids (Ed25519 keys) and servers by host names. A
/// document uses node ids and IP addresses, which need no lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Node id of each peer id.
    pub nodes: BTreeMap<String, NodeId>,
    /// Address of each host name.
    pub hosts: BTreeMap<String, IpAddr>,
}

impl Import {
    /// Converts a game configuration to the `games` of a document, as JSON text. `HAProxy` becomes
    /// TCP with version 2 of the PROXY protocol; `speed_test_protocol` and `system.listen_host` are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`ImportError`] names the first value that cannot be converted.
    pub fn games(&self, bytes: &[u8]) -> Result<String, ImportError> {
        let text: GameFileText = parse(bytes)?;
        let games = text.games.iter().map(|game| self.game(game));
        let games: Vec<GameText> = games.collect::<Result<_, _>>()?;
        serde_json::to_string_pretty(&games)
            .map_err(|error| ImportError::Json(TextError::of_whole(error.to_string())))
    }

    fn game(&self, game: &OldGame) -> Result<GameText, ImportError> {
        let (protocol, proxy_header) = match game.protocol.as_str() {
            "UDP" => (Protocol::Udp, None),
            "TCP" => (Protocol::Tcp, None),
            "HAProxy" => (Protocol::Tcp, Some(ProxyRule::default())),
            _ => return Err(ImportError::Protocol(game.protocol.clone())),
        };
        let literal = game.host.parse().ok();
        let ip = literal.or_else(|| self.hosts.get(&game.host).copied());
        let ip = ip.ok_or_else(|| ImportError::Host(game.host.clone()))?;
        Ok(GameText {
            name: game.id.clone(),
            protocol,
            server: SocketAddr::new(ip, game.port).to_string(),
            mode: Mode::default(),
            listen_ports: vec![game.listen_port],
            entry: self.list(&game.entry_node)?,
            exit: self.list(&game.exit_node)?,
            proxy_header,
        })
    }

    fn list(&self, list: &OldList) -> Result<ListText, ImportError> {
        let (kind, nodes) = match list.kind.as_str() {
            "all" => (ListKind::All, &[][..]),
            "white" => (ListKind::White, list.white_list.as_slice()),
            "black" => (ListKind::Black, list.black_list.as_slice()),
            _ => return Err(ImportError::ListType(list.kind.clone())),
        };
        let nodes = nodes.iter().map(|peer| {
            let node = self.nodes.get(peer);
            let node = node.ok_or_else(|| ImportError::Node(peer.clone()))?;
            Ok(node.to_string())
        });
        Ok(ListText {
            kind,
            nodes: nodes.collect::<Result<_, _>>()?,
        })
    }
}

/// Why a `PureGamer` file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportError {
    /// It is longer than the limit of a document.
    TooLong,
    /// It is not valid JSON of this format; the error has line and field.
    Json(TextError),
    /// `super_admin_pub_key` is no P-256 key.
    Key(PemError),
    /// An address does not consist of IP, UDP or TCP port, and peer id.
    PeerAddress(String),
    /// A protocol other than `TCP`, `HAProxy` and `UDP`.
    Protocol(String),
    /// A type of list other than `all`, `white` and `black`.
    ListType(String),
    /// A host name without an address in [`Import::hosts`].
    Host(String),
    /// A node without an id in [`Import::nodes`].
    Node(String),
}

wire::error_text! { ImportError {
    Self::TooLong => "file is over {DOCUMENT_LEN_MAX} bytes",
    Self::Json(error) => "{error}",
    Self::Key(error) => "super_admin_pub_key: {error}",
    Self::PeerAddress(text) => "bootstrap node {text:?} is no address",
    Self::Protocol(text) => "protocol {text:?} is not TCP, HAProxy or UDP",
    Self::ListType(text) => "list type {text:?} is not all, white or black",
    Self::Host(text) => "host {text:?} is no address, and none is given for it",
    Self::Node(text) => "no node id is given for peer {text:?}",
}}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFileText {
    super_admin_pub_key: String,
    config_path: String,
    data_path: String,
    bootstrap_nodes: Vec<String>,
    port: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GameFileText {
    games: Vec<OldGame>,
    #[serde(default, rename = "system")]
    _system: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldGame {
    id: String,
    protocol: String,
    host: String,
    port: u16,
    listen_port: u16,
    entry_node: OldList,
    exit_node: OldList,
    #[serde(default, rename = "speed_test_protocol")]
    _speed_test_protocol: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldList {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    white_list: Vec<String>,
    #[serde(default)]
    black_list: Vec<String>,
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ImportError> {
    if bytes.len() > DOCUMENT_LEN_MAX {
        return Err(ImportError::TooLong);
    }
    read_json(bytes, |_| None).map_err(ImportError::Json)
}

/// Parses `/ip4|ip6/A/tcp|udp/PORT`, any transport suffix, and `/p2p/PEER` at the end.
fn read_peer_address(text: &str) -> Option<PeerAddress> {
    let mut parts = text.strip_prefix('/')?.split('/');
    let ip = match parts.next()? {
        "ip4" => IpAddr::V4(parts.next()?.parse().ok()?),
        "ip6" => IpAddr::V6(parts.next()?.parse().ok()?),
        _ => return None,
    };
    if !matches!(parts.next()?, "tcp" | "udp") {
        return None;
    }
    let port = parts.next()?.parse().ok()?;
    let peer = parts.next_back().filter(|peer| !peer.is_empty())?;
    if !matches!(parts.next_back()?, "p2p" | "ipfs") {
        return None;
    }
    Some(PeerAddress {
        peer: peer.to_owned(),
        address: SocketAddr::new(ip, port),
    })
}

#[cfg(test)]
mod tests;
