//! The document: its JSON form, its values, and errors in it with their location.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{NodeId, UnixTime};

use super::envelope::AdminKeys;
use super::game_rule::{GameRule, Protocol, ProxyRule, check_name};
use super::outcome::Validity;
use crate::config_text::{TextError, read_json};
use crate::game::{EntryGame, ExitGame, Game, Mode};
use crate::link_state::Roles;

/// A network's configuration; docs/signed-config.md has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Name of the network, which its nodes' own files state too; independent of its secret.
    pub network: String,
    /// Version in the network's sequence; 1 to 2^53 - 1.
    pub version: u64,
    /// Start of its validity.
    pub not_before: UnixTime,
    /// End of its validity.
    pub not_after: UnixTime,
    /// What applies after the end if no other document has arrived.
    pub after_end: AfterEnd,
    /// The keys that verify the next document.
    pub admins: AdminKeys,
    /// Members and their roles; `None` admits every node with the network secret, in any role.
    pub members: Option<BTreeMap<NodeId, Roles>>,
    /// Games by name.
    pub games: BTreeMap<String, GameRule>,
}

/// What applies once a document has expired and no other has arrived.
///
/// The clock never ends anything that runs: otherwise an attacker that withholds documents from a
/// node, or sets its clock, could end its players' games.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterEnd {
    /// Nothing changes; the operator is notified.
    #[default]
    Serve,
    /// Existing flows continue; new ones are refused.
    RefuseNew,
}

impl Document {
    /// Longest name of a network, in bytes.
    pub const NETWORK_LEN_MAX: usize = 64;
    /// Most members listed: the capacity of a link-state table.
    pub const MEMBERS_MAX: usize = 1_024;
    /// Largest version and time in seconds: RFC 8259, section 6, calls integers up to it safe.
    pub const NUMBER_MAX: u64 = (1 << 53) - 1;

    /// Reads the text of a document; an [`Envelope`](super::Envelope) checks signatures.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] names the value and the rule that it breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, DocumentError> {
        let (found, max) = (bytes.len(), DOCUMENT_LEN_MAX);
        if found > max {
            return Err(DocumentError::TooLong { found, max });
        }
        let text: DocumentText = read_json(bytes, |_| None).map_err(DocumentError::Json)?;
        check_name(&text.network, Self::NETWORK_LEN_MAX, Place::of("network"))?;
        check_number(text.version, 1, "version")?;
        check_number(text.not_before, 0, "not_before")?;
        let end_min = text.not_before.saturating_add(1);
        check_number(text.not_after, end_min, "not_after")?;
        Ok(Self {
            version: text.version,
            not_before: UnixTime::from_secs(text.not_before),
            not_after: UnixTime::from_secs(text.not_after),
            after_end: text.after_end,
            admins: AdminKeys::read(&text.admins)?,
            members: text.members.as_deref().map(read_members).transpose()?,
            games: GameRule::read_all(&text.games)?,
            network: text.network,
        })
    }

    /// Returns the roles that `node` may have; `None` if it is not a member.
    #[must_use]
    pub fn roles(&self, node: &NodeId) -> Option<Roles> {
        match &self.members {
            Some(members) => members.get(node).copied(),
            None => Some(Roles::ALL),
        }
    }

    /// Returns whether `node` may be a member.
    #[must_use]
    pub fn is_member(&self, node: &NodeId) -> bool {
        self.roles(node).is_some()
    }

    /// Returns whether `node` may forward packets of others.
    #[must_use]
    pub fn may_relay(&self, node: &NodeId) -> bool {
        self.has_role(node, Roles::RELAY)
    }

    /// Returns whether `node` may be an entry of `game`; an exit checks it for each entry.
    #[must_use]
    pub fn may_enter(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::ENTRY) && rule.is_some_and(|rule| rule.entry.admits(node))
    }

    /// Returns whether `node` may be an exit of `game`; an entry checks it.
    #[must_use]
    pub fn may_exit(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::EXIT) && rule.is_some_and(|rule| rule.exit.admits(node))
    }

    /// Returns whether `node` may be an end of any game's paths; a relay checks it.
    #[must_use]
    pub fn may_send(&self, node: &NodeId) -> bool {
        let enters = self.has_role(node, Roles::ENTRY);
        let exits = self.has_role(node, Roles::EXIT);
        let mut rules = self.games.values();
        rules.any(|rule| enters && rule.entry.admits(node) || exits && rule.exit.admits(node))
    }

    /// Returns whether new flows are accepted at `unix`; existing ones always continue.
    #[must_use]
    pub fn takes_new_flows(&self, unix: UnixTime) -> bool {
        self.after_end == AfterEnd::Serve || unix < self.not_after
    }

    /// Returns the document's validity at `unix`.
    #[must_use]
    pub fn validity(&self, unix: UnixTime) -> Validity {
        if unix < self.not_after {
            Validity::InForce
        } else {
            Validity::Expired
        }
    }

    fn has_role(&self, node: &NodeId, role: Roles) -> bool {
        self.roles(node).is_some_and(|roles| roles.contains(role))
    }

    /// Returns the UDP games and the TCP games that `own` may carry in `roles`, opened at an entry
    /// on the addresses `listen`.
    ///
    /// They do not list the remote ends, which are checked against the document for each flow: a
    /// changed list then ends no flow that it still allows.
    pub(crate) fn carried(
        &self,
        (own, roles): (NodeId, Roles),
        listen: &[IpAddr],
    ) -> (Vec<Game>, Vec<Game>) {
        let (mut over_udp, mut over_tcp) = (Vec::new(), Vec::new());
        for (name, rule) in &self.games {
            let is_entry = roles.contains(Roles::ENTRY) && self.may_enter(name, &own);
            let is_exit = roles.contains(Roles::EXIT) && self.may_exit(name, &own);
            if !is_entry && !is_exit {
                continue;
            }
            let games = match rule.protocol {
                Protocol::Udp => &mut over_udp,
                Protocol::Tcp => &mut over_tcp,
            };
            games.push(Game {
                name: name.clone(),
                mode: rule.mode,
                entry: is_entry.then(|| rule.at_entry(listen)),
                exit: is_exit.then(|| rule.at_exit()),
            });
        }
        (over_udp, over_tcp)
    }
}

fn check_number(found: u64, min: u64, field: &'static str) -> Result<(), DocumentError> {
    let max = Document::NUMBER_MAX;
    if (min..=max).contains(&found) {
        Ok(())
    } else {
        Err(Place::of(field).fault(Fault::OutOfRange { min, max }))
    }
}

fn read_members(texts: &[MemberText]) -> Result<BTreeMap<NodeId, Roles>, DocumentError> {
    Place::of("members").at_most(texts.len(), Document::MEMBERS_MAX)?;
    let mut members = BTreeMap::new();
    for (index, text) in texts.iter().enumerate() {
        let place = Place::item("members", index);
        let node = text.node.parse::<NodeId>();
        let node = node.map_err(|_| place.part("node").fault(Fault::BadNodeId))?;
        let roles = text.roles.iter().fold(Roles::NONE, |roles, role| {
            roles
                | match role {
                    RoleText::Entry => Roles::ENTRY,
                    RoleText::Relay => Roles::RELAY,
                    RoleText::Exit => Roles::EXIT,
                }
        });
        if members.insert(node, roles).is_some() {
            return Err(place.part("node").fault(Fault::Twice));
        }
    }
    Ok(members)
}

/// Longest document, in bytes.
pub const DOCUMENT_LEN_MAX: usize = 256 << 10;

/// Why a node does not carry a game that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOut {
    /// It uses TCP.
    Tcp,
}

wire::display_text! { LeftOut {
    Self::Tcp => "it uses TCP, which this node does not carry",
}}

impl GameRule {
    fn at_entry(&self, listen: &[IpAddr]) -> EntryGame {
        let ports = self.listen_ports.iter();
        let listen =
            ports.flat_map(|&port| listen.iter().map(move |&ip| SocketAddr::new(ip, port)));
        EntryGame {
            listen: listen.collect(),
            exits: Vec::new(),
        }
    }

    fn at_exit(&self) -> ExitGame {
        ExitGame {
            server: self.server,
            entries: None,
            header: self.proxy_header.as_ref().map(ProxyRule::header),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DocumentText {
    pub(super) network: String,
    pub(super) version: u64,
    pub(super) not_before: u64,
    pub(super) not_after: u64,
    #[serde(default)]
    pub(super) after_end: AfterEnd,
    pub(super) admins: AdminsText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) members: Option<Vec<MemberText>>,
    #[serde(default)]
    pub(super) games: Vec<GameText>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminsText {
    pub(super) threshold: u64,
    pub(super) keys: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberText {
    pub(super) node: String,
    pub(super) roles: Vec<RoleText>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RoleText {
    Entry,
    Relay,
    Exit,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GameText {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) server: String,
    #[serde(default)]
    pub(super) mode: Mode,
    pub(super) listen_ports: Vec<u16>,
    pub(super) entry: ListText,
    pub(super) exit: ListText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) proxy_header: Option<ProxyRule>,
}

/// A list of nodes. No enum with data: serde lets unknown members of a unit variant pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListText {
    #[serde(rename = "type")]
    pub(super) kind: ListKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListKind {
    All,
    White,
    Black,
}

/// Why bytes are not a valid document; displayed as one sentence for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is longer than [`DOCUMENT_LEN_MAX`](super::DOCUMENT_LEN_MAX).
    TooLong {
        /// Its length in bytes.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// It is not JSON of the required form; the error names line and field.
    Json(TextError),
    /// A value breaks a rule.
    At {
        /// The value.
        place: Place,
        /// The rule.
        fault: Fault,
    },
}

/// Location of a value in a document, such as `games[3].entry.nodes[17]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The member of the document.
    pub field: &'static str,
    /// Index of its item, from 0.
    pub index: Option<usize>,
    /// The item's member.
    pub part: Option<&'static str>,
    /// Index of that member's item, from 0.
    pub part_index: Option<usize>,
}

/// A rule that a value breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A required value is missing or empty.
    Empty,
    /// More items or bytes than allowed.
    OverLimit {
        /// The number found.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A number outside its range.
    OutOfRange {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A name with characters other than `A-Z a-z 0-9 . _ -`.
    BadName,
    /// A duplicate.
    Twice,
    /// Not a node id of 64 hexadecimal digits.
    BadNodeId,
    /// Not a P-256 public key, as 130 hexadecimal digits or PEM.
    BadKey,
    /// Not an IP address and port, or one that no host can have.
    BadAddress,
    /// A list of type `all` that names nodes.
    NodesInAll,
    /// Not allowed with this game's protocol.
    WrongProtocol,
}

impl Place {
    pub(super) const fn of(field: &'static str) -> Self {
        Self {
            field,
            index: None,
            part: None,
            part_index: None,
        }
    }

    pub(super) const fn item(field: &'static str, index: usize) -> Self {
        Self {
            index: Some(index),
            ..Self::of(field)
        }
    }

    pub(super) const fn part(self, part: &'static str) -> Self {
        Self {
            part: Some(part),
            ..self
        }
    }

    pub(super) const fn part_item(self, index: usize) -> Self {
        Self {
            part_index: Some(index),
            ..self
        }
    }

    pub(super) const fn fault(self, fault: Fault) -> DocumentError {
        DocumentError::At { place: self, fault }
    }

    /// Checks a number of items or bytes.
    pub(super) const fn at_most(self, found: usize, max: usize) -> Result<(), DocumentError> {
        if found <= max {
            Ok(())
        } else {
            Err(self.fault(Fault::OverLimit { found, max }))
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field)?;
        if let Some(index) = self.index {
            write!(f, "[{index}]")?;
        }
        if let Some(part) = self.part {
            write!(f, ".{part}")?;
        }
        if let Some(index) = self.part_index {
            write!(f, "[{index}]")?;
        }
        Ok(())
    }
}

wire::display_text! { Fault {
    Self::Empty => "is empty",
    Self::OverLimit { found, max } => "has {found}, over the limit of {max}",
    Self::OutOfRange { min, max } => "is not within {min} to {max}",
    Self::BadName => "holds something else than A-Z a-z 0-9 . _ -",
    Self::Twice => "stands there twice",
    Self::BadNodeId => "is no node id of 64 hexadecimal digits",
    Self::BadKey => "is no public key of P-256, in hexadecimal or PEM",
    Self::BadAddress => "is no address that can be reached",
    Self::NodesInAll => "names nodes, and its type is \"all\"",
    Self::WrongProtocol => "does not go with the protocol of the game",
}}

wire::error_text! { DocumentError {
    Self::TooLong { found, max } => "document has {found} bytes, over the limit of {max}",
    Self::Json(error) => "{error}",
    Self::At { place, fault } => "{place} {fault}",
}}

#[cfg(test)]
mod tests;
