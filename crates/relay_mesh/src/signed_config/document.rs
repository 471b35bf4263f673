//! The document itself.

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

/// What the super-admin says; docs/signed-config.md has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Which network it is for: a name that its nodes' own files state too. Not the network secret,
    /// nor made from it, so that a secret changes without a new document.
    pub network: String,
    /// Place in the network's sequence; 1 to 2^53 - 1.
    pub version: u64,
    /// From when on it may be taken.
    pub not_before: UnixTime,
    /// Until when it may be taken, and holds.
    pub not_after: UnixTime,
    /// What holds after that, where no other came.
    pub after_end: AfterEnd,
    /// Who signs the next one.
    pub admins: AdminKeys,
    /// Who may be a member, and as what; `None` admits all that hold the network's secret, as
    /// anything.
    pub members: Option<BTreeMap<NodeId, Roles>>,
    /// The games, by name.
    pub games: BTreeMap<String, GameRule>,
}

/// What holds once a document's time is over and no other came.
///
/// Nothing that runs is ever ended by the clock: who can hold new documents back from a node, or set
/// its clock, would end its players' games.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterEnd {
    /// It goes on as before, and the operator is told.
    #[default]
    Serve,
    /// Flows that run go on; no new one is let in.
    RefuseNew,
}

impl Document {
    /// Longest name of a network, bytes.
    pub const NETWORK_LEN_MAX: usize = 64;
    /// Most members named: as many nodes as a link-state table holds.
    pub const MEMBERS_MAX: usize = 1_024;
    /// Largest version, and largest time in seconds. Up to it every JSON reader keeps whole numbers;
    /// RFC 8259, section 6.
    pub const NUMBER_MAX: u64 = (1 << 53) - 1;

    /// Reads the text of a document; its signatures are an [`Envelope`](super::Envelope)'s matter.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] says which value breaks which rule.
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
    /// Returns the roles that `node` may have; `None` where it is no member.
    #[must_use]
    pub fn roles(&self, node: &NodeId) -> Option<Roles> {
        match &self.members {
            Some(members) => members.get(node).copied(),
            None => Some(Roles::ALL),
        }
    }

    /// Returns whether `node` may be a member at all.
    #[must_use]
    pub fn is_member(&self, node: &NodeId) -> bool {
        self.roles(node).is_some()
    }

    /// Returns whether `node` may pass packets of others.
    #[must_use]
    pub fn may_relay(&self, node: &NodeId) -> bool {
        self.has_role(node, Roles::RELAY)
    }

    /// Returns whether `node` may send players of `game`. An exit asks this of the entry that asks it.
    #[must_use]
    pub fn may_enter(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::ENTRY) && rule.is_some_and(|rule| rule.entry.admits(node))
    }

    /// Returns whether `node` may speak to the server of `game`. An entry asks this of the exit; what
    /// a node that may not says about its way to the server counts for nothing.
    #[must_use]
    pub fn may_exit(&self, game: &str, node: &NodeId) -> bool {
        let rule = self.games.get(game);
        self.has_role(node, Roles::EXIT) && rule.is_some_and(|rule| rule.exit.admits(node))
    }

    /// Returns whether `node` is an end of some game's paths. A relay asks this of who wants labels:
    /// which game they are for is between the ends, and for them to ask.
    #[must_use]
    pub fn may_send(&self, node: &NodeId) -> bool {
        let enters = self.has_role(node, Roles::ENTRY);
        let exits = self.has_role(node, Roles::EXIT);
        let mut rules = self.games.values();
        rules.any(|rule| enters && rule.entry.admits(node) || exits && rule.exit.admits(node))
    }

    /// Returns whether the document lets new flows in at `unix`; those that run always go on.
    #[must_use]
    pub fn takes_new_flows(&self, unix: UnixTime) -> bool {
        self.after_end == AfterEnd::Serve || unix < self.not_after
    }

    /// Returns how it stands with the document at `unix`.
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
    /// It speaks TCP.
    Tcp,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "it speaks TCP, which this node does not carry",
        })
    }
}

impl Document {
    /// Returns the games that `own` may carry in `roles`, opened at an entry on the addresses `listen`:
    /// those over UDP, and those over TCP.
    ///
    /// Who stands at the other end is no part of them: that is asked of the document for each flow, so
    /// that another list ends no flow that it allows too.
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
