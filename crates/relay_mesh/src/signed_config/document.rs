//! The document itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{NodeId, UnixTime};

use super::admin_keys::AdminKeys;
use super::fault::{DocumentError, Fault, Place};
use super::game_rule::{GameRule, check_name};
use super::text::{DocumentText, MemberText, RoleText};
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

#[cfg(test)]
mod tests;
