//! The JSON form of a document, before its values are looked at.

use serde::{Deserialize, Serialize};

use super::document::AfterEnd;
use super::game_rule::Protocol;
use super::game_rule::ProxyRule;

/// The whole document.
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
    pub(super) mode: ModeText,
    pub(super) listen_ports: Vec<u16>,
    pub(super) entry: ListText,
    pub(super) exit: ListText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) proxy_header: Option<ProxyRule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModeText {
    Single,
    #[default]
    Shadow,
    Dup,
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
