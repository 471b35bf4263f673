//! Live messages, and presence as a list.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use base64ct::{Base64, Encoding as _};
use hub::Name;
use hub::record::META_BYTES_MAX;
use serde_json::{Value, json};
use wire::{ClientId, NodeId};

use super::link::{LinkRequest, LiveMessage};
use super::mailbox::body;
use super::parameter::{self, Parameters};
use super::presence::{Key, State as PresenceState};
use super::shared::{Shared, loading, reached_one};
use crate::http::connections::Activity;
use crate::http::error_response::ErrorResponse;

type PathPart = Result<Path<String>, PathRejection>;

/// Sends the body to a player that is online.
pub(super) async fn forward(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    player: PathPart,
    request: Request,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let body = body(&shared, &activity, request).await?;
    let message = LiveMessage::Forward(player, body);
    let outcome = shared.send(|answer| LinkRequest::Live(message, answer));
    reached_one(outcome.await?)?;
    Ok(Json(json!({"reached": true})))
}

/// Sends the body to the subscribers of a topic.
pub(super) async fn cast(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    topic: PathPart,
    request: Request,
) -> Result<Json<Value>, ErrorResponse> {
    let topic = parameter::name(topic)?;
    let body = body(&shared, &activity, request).await?;
    let message = LiveMessage::Cast(topic, body);
    let outcome = shared.send(|answer| LinkRequest::Live(message, answer));
    let outcome = outcome.await?;
    Ok(Json(
        json!({"nodes": outcome.reached, "busy": outcome.busy}),
    ))
}

/// Asks the node of a player to disconnect it; the body is the reason.
pub(super) async fn kick(
    State(shared): State<Arc<Shared>>,
    Extension(activity): Extension<Activity>,
    player: PathPart,
    request: Request,
) -> Result<Json<Value>, ErrorResponse> {
    let player = parameter::player(player)?;
    let reason = body(&shared, &activity, request).await?;
    if reason.len() > META_BYTES_MAX {
        let detail = format!("a reason has at most {META_BYTES_MAX} bytes");
        return Err(ErrorResponse::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            detail,
        ));
    }
    let message = LiveMessage::Kick(player, reason);
    let outcome = shared.send(|answer| LinkRequest::Live(message, answer));
    reached_one(outcome.await?)?;
    Ok(Json(json!({"reached": true})))
}

/// Keys that one list looks at, at most.
const SCAN_MAX: usize = 65_536;

/// Lists nodes and players, each by id.
pub(super) async fn presence(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<Json<Value>, ErrorResponse> {
    let parameters =
        Parameters::read(&uri, &["kind", "prefix", "node", "service", "after", "max"])?;
    let kind = Kinds::read(&parameters)?;
    let max = parameters.count("max", shared.config.page_max)?;
    let node: Option<NodeId> = parameters.parsed("node", "a node id")?;
    let after: Option<After> = parameters.parsed("after", "the next of a list")?;
    let service: Option<Name> = parameters.parsed("service", "a name")?;
    let prefix = parameters.text("prefix").unwrap_or_default();
    if !shared.presence.is_loaded() {
        return Err(loading());
    }
    let after = after.map(|After(key)| key).or_else(|| kind.first_after());
    let filter = |key| kind.admits(key) && text_of(key).starts_with(prefix);
    let revision = shared.presence.revision();
    let (states, next) = shared.presence.list(after, (max, SCAN_MAX), filter);
    let (mut nodes, mut players) = (Vec::new(), Vec::new());
    // Filters of what was found: a page may have fewer entries than asked.
    for state in &states {
        match state {
            PresenceState::Node(_, Some(info)) => {
                if service.is_none_or(|service| info.services.contains(&service)) {
                    nodes.push(state_json(state));
                }
            }
            PresenceState::Player(_, Some((holder, _))) => {
                if node.is_none_or(|node| node == *holder) {
                    players.push(state_json(state));
                }
            }
            PresenceState::Node(_, None) | PresenceState::Player(_, None) => {}
        }
    }
    Ok(Json(json!({
        "revision": revision.to_string(),
        "nodes": nodes,
        "players": players,
        "next": next.map(|key| After(key).to_string()),
    })))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    All,
    Nodes,
    Players,
}

impl Kinds {
    pub(super) fn read(parameters: &Parameters) -> Result<Self, ErrorResponse> {
        let kind = parameters.parsed("kind", "nodes, players, or in a watch keys")?;
        Ok(kind.unwrap_or(Self::All))
    }

    pub(super) const fn admits(self, key: Key) -> bool {
        match (self, key) {
            (Self::All, _) | (Self::Nodes, Key::Node(_)) | (Self::Players, Key::Player(_)) => true,
            (Self::Nodes, Key::Player(_)) | (Self::Players, Key::Node(_)) => false,
        }
    }

    /// Players follow the last node.
    fn first_after(self) -> Option<Key> {
        (self == Self::Players).then_some(Key::Node(NodeId([u8::MAX; 32])))
    }
}

impl std::str::FromStr for Kinds {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "nodes" => Ok(Self::Nodes),
            "players" => Ok(Self::Players),
            _ => Err(()),
        }
    }
}

/// A place in a list: `node-ID` or `player-NUMBER`.
#[derive(Clone, Copy, Debug)]
struct After(Key);

impl std::fmt::Display for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Key::Node(node) => write!(f, "node-{node}"),
            Key::Player(player) => write!(f, "player-{}", player.0),
        }
    }
}

impl std::str::FromStr for After {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, rest) = text.split_once('-').ok_or(())?;
        match kind {
            "node" => rest.parse().map(Key::Node).map(Self).map_err(|_| ()),
            "player" => {
                let number = rest.parse().map_err(|_| ())?;
                Ok(Self(Key::Player(ClientId(number))))
            }
            _ => Err(()),
        }
    }
}

fn text_of(key: Key) -> String {
    match key {
        Key::Node(node) => node.to_string(),
        Key::Player(player) => player.0.to_string(),
    }
}

/// A state as in lists and `WebSocket` messages.
pub(super) fn state_json(state: &PresenceState) -> Value {
    match state {
        PresenceState::Node(node, info) => {
            let mut value = json!({"node": node.to_string(), "up": info.is_some()});
            if let (Some(info), Some(fields)) = (info, value.as_object_mut()) {
                let services: Vec<String> = info.services.iter().map(ToString::to_string).collect();
                fields.insert("role".to_owned(), info.role.to_string().into());
                fields.insert("instance".to_owned(), info.instance.to_string().into());
                fields.insert("epoch".to_owned(), info.epoch.0.into());
                fields.insert("services".to_owned(), services.into());
            }
            value
        }
        PresenceState::Player(player, holder) => {
            let node = holder.as_ref().map(|(node, _)| node.to_string());
            let note = holder.as_ref().map(|(_, note)| Base64::encode_string(note));
            json!({"player": player.0.to_string(), "node": node, "note": note})
        }
    }
}
