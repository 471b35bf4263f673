//! The document.

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{NodeId, UnixTime};

use super::admin_keys::AdminKeys;
use super::fault::{DocumentError, Fault, Place};
use super::game_rule::{GameRule, Protocol, ProxyRule, check_name};
use super::outcome::Validity;
use super::text::{DocumentText, MemberText, RoleText};
use crate::config::{EntryGame, ExitGame, Game};
use crate::config_text::read_json;
use crate::link_state::Roles;

/// A network's configuration; docs/signed-config.md has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Name of the network, which its nodes' own files state too. Independent of the network
    /// secret, so that a new secret needs no new document.
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
    /// Largest version, and largest time in seconds. Every JSON reader preserves integers up to it;
    /// RFC 8259, section 6.
    pub const NUMBER_MAX: u64 = (1 << 53) - 1;

    /// Reads the text of a document; an [`Envelope`](super::Envelope) checks signatures.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] names the value and the rule that it breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > DOCUMENT_LEN_MAX {
            return Err(DocumentError::TooLong {
                found: bytes.len(),
                max: DOCUMENT_LEN_MAX,
            });
        }
        let text: DocumentText = read_json(bytes, |_| None).map_err(DocumentError::Json)?;
        check_name(&text.network, Self::NETWORK_LEN_MAX, Place::of("network"))?;
        check_number(text.version, 1, "version")?;
        check_number(text.not_before, 0, "not_before")?;
        check_number(
            text.not_after,
            text.not_before.saturating_add(1),
            "not_after",
        )?;
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
    if texts.len() > Document::MEMBERS_MAX {
        return Err(Place::of("members").fault(Fault::OverLimit {
            found: texts.len(),
            max: Document::MEMBERS_MAX,
        }));
    }
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

impl Document {
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

    /// Returns whether `node` may be an entry of `game`. An exit checks this for each requesting
    /// entry.
    #[must_use]
    pub fn may_enter(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::ENTRY) && rule.is_some_and(|rule| rule.entry.admits(node))
    }

    /// Returns whether `node` may be an exit of `game`. An entry checks this; measurements of a
    /// node that may not be an exit are ignored.
    #[must_use]
    pub fn may_exit(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::EXIT) && rule.is_some_and(|rule| rule.exit.admits(node))
    }

    /// Returns whether `node` may be an end of any game's paths. A relay checks this for nodes that
    /// request labels; the ends check the game.
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
}

/// Why a node does not carry a game that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOut {
    /// It uses TCP.
    Tcp,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "it uses TCP, which this node does not carry",
        })
    }
}

impl Document {
    /// Returns the UDP games and the TCP games that `own` may carry in `roles`, opened at an entry
    /// on the addresses `listen`.
    ///
    /// They do not list the far ends, which are checked against the document for each flow: a
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
