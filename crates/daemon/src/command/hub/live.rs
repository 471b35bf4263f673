//! `tickwire hub ls`, `who`, `kick`, `drain`, `health` and `metrics`.

use clap::Args;
use serde_json::{Value, json};
use wire::NodeId;

use super::super::print_line;
use super::request::{ApiArgs, print_bytes};
use crate::exit::{Exit, Failure};
use crate::http::request::percent_encode;

/// Options of `hub ls`.
#[derive(Args, Clone, Debug)]
pub struct ListNodes {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    /// Only nodes that provide this service.
    #[arg(long)]
    service: Option<String>,
}

/// Options of `hub who`.
#[derive(Args, Clone, Debug)]
pub struct ListPlayers {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    /// One player; status 1 if nobody holds it.
    player: Option<u64>,
    /// Only players that this node holds.
    #[arg(long)]
    node: Option<NodeId>,
}

/// Options of `hub kick`.
#[derive(Args, Clone, Debug)]
pub struct KickPlayer {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    /// The player.
    player: u64,
    /// The reason, for the player's node; at most 256 bytes.
    #[arg(default_value = "")]
    reason: String,
}

/// A request without parameters.
#[derive(Args, Clone, Debug)]
pub struct PlainRequest {
    #[command(flatten)]
    pub(super) api: ApiArgs,
}

impl ListNodes {
    pub(super) fn show(&self) -> Result<(), Failure> {
        let mut query = "kind=nodes".to_owned();
        if let Some(service) = &self.service {
            query.push_str("&service=");
            query.push_str(&percent_encode(service));
        }
        pages(&self.api, &query, "nodes", |node| {
            let services = node.get("services").and_then(Value::as_array);
            let services = services.into_iter().flatten().filter_map(Value::as_str);
            let services: Vec<&str> = services.collect();
            let line = format!(
                "{} {} {}",
                text(node, "node"),
                text(node, "role"),
                services.join(",")
            );
            line.trim_end().to_owned()
        })
    }
}

impl ListPlayers {
    pub(super) fn show(&self) -> Result<(), Failure> {
        if let Some(player) = self.player {
            return self.show_one(player);
        }
        let mut query = "kind=players".to_owned();
        if let Some(node) = self.node {
            query.push_str("&node=");
            query.push_str(&node.to_string());
        }
        pages(&self.api, &query, "players", player_line)
    }

    /// Returns the player's entry in the list of one hub.
    fn find(api: &ApiArgs, player: u64) -> Result<Option<Value>, Failure> {
        // The place before it in the order of the list.
        let after = match player.checked_sub(1) {
            Some(before) => format!("&after=player-{before}"),
            None => String::new(),
        };
        let line = format!("GET /v1/presence?kind=players&max=1{after}");
        let page = api.json(&line, None)?;
        let found = page.get("players").and_then(Value::as_array);
        let found = found.and_then(|players| players.first());
        let is_it = |found: &&Value| text(found, "player") == player.to_string();
        Ok(found.filter(is_it).cloned())
    }

    fn show_one(&self, player: u64) -> Result<(), Failure> {
        let mut found = None;
        for api in self.api.each() {
            found = Self::find(&api, player)?;
            if found.is_some() {
                break;
            }
        }
        let Some(found) = found else {
            let sentence = format_args!("no node holds player {player}");
            return Err(Failure::new(Exit::CheckFailed, sentence));
        };
        if self.api.json {
            print_line(&json!({"schema": 1, "players": [found]}).to_string())
        } else {
            print_line(&player_line(&found))
        }
    }
}

fn player_line(player: &Value) -> String {
    format!("{} {}", text(player, "player"), text(player, "node"))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Prints all pages of a list: a line for each entry, or one object. Each hub lists its own players, and
/// any hub all nodes.
fn pages(
    api: &ApiArgs,
    query: &str,
    kind: &str,
    line: impl Fn(&Value) -> String,
) -> Result<(), Failure> {
    let hubs = if kind == "players" { usize::MAX } else { 1 };
    let mut all = Vec::new();
    for hub in api.each().take(hubs) {
        let mut after = Some(String::new());
        while let Some(place) = after {
            let mut page = hub.json(&format!("GET /v1/presence?{query}{place}"), None)?;
            let found = page.get_mut(kind).and_then(Value::as_array_mut);
            let found = found.map(std::mem::take).unwrap_or_default();
            if api.json {
                all.extend(found);
            } else {
                found
                    .iter()
                    .try_for_each(|entry| print_line(&line(entry)))?;
            }
            let next = page.get("next").and_then(Value::as_str);
            after = next.map(|next| format!("&after={}", percent_encode(next)));
        }
    }
    if api.json {
        print_line(&json!({"schema": 1, kind: all}).to_string())?;
    }
    Ok(())
}

impl KickPlayer {
    pub(super) fn send(&self) -> Result<(), Failure> {
        let line = format!("POST /v1/players/{}/kick", self.player);
        let answer = self.api.json(&line, Some(self.reason.as_bytes()))?;
        if self.api.json {
            return print_line(&answer.to_string());
        }
        Ok(())
    }
}

impl PlainRequest {
    /// Prints the JSON of the answer.
    pub(super) fn show(&self, line: &str) -> Result<(), Failure> {
        print_line(&self.api.json(line, None)?.to_string())
    }

    /// Prints the text of the answer.
    pub(super) fn show_text(&self, line: &str) -> Result<(), Failure> {
        print_bytes(&self.api.bytes(line, None)?)
    }
}
