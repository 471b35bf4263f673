//! `tickwire hub kv`.

use std::path::PathBuf;

use base64ct::{Base64, Encoding as _};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::super::print_line;
use super::request::{ApiArgs, print_bytes, read_body};
use super::watch::watch;
use crate::exit::Failure;
use crate::http::request::percent_encode;

/// Commands for the hub's keys.
#[derive(Clone, Debug, Subcommand)]
pub enum KvCommand {
    /// Prints the value of a key; status 1 if there is none.
    Get(GetKey),
    /// Sets a key; prints its revision.
    Put(PutKey),
    /// Sets a key that has a given revision, or none; status 4 if it has another.
    Cas(SwapKey),
    /// Deletes a key; status 1 if there is none.
    Delete(DeleteKey),
    /// Prints keys with a prefix: key, revision, value.
    Range(ListKeys),
    /// Prints keys with a prefix and their changes, one JSON object a line.
    Watch(WatchKeys),
}

/// Options of `hub kv get`.
#[derive(Args, Clone, Debug)]
pub struct GetKey {
    #[command(flatten)]
    api: ApiArgs,
    /// The key.
    key: String,
}

/// The key to set, and its value.
#[derive(Args, Clone, Debug)]
pub struct PutKey {
    #[command(flatten)]
    api: ApiArgs,
    /// The key.
    key: String,
    /// The value, at most 64 KiB.
    #[arg(required_unless_present = "file")]
    value: Option<String>,
    /// Reads the value from a file; - for stdin.
    #[arg(long, conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Whether the key survives a restart of the hub.
    #[arg(long, value_enum)]
    durability: Option<KeyDurability>,
    /// Lease of the API; the key is deleted when it ends.
    #[arg(long)]
    lease: Option<String>,
}

/// Whether a key survives a restart of the hub.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeyDurability {
    /// It is on disk before it is confirmed.
    Disk,
    /// It is lost at a restart.
    Memory,
}

/// Options of `hub kv cas`.
#[derive(Args, Clone, Debug)]
pub struct SwapKey {
    /// The revision that the key must have; 0 if it must not exist.
    #[arg(long)]
    revision: u64,
    #[command(flatten)]
    put: PutKey,
}

/// Options of `hub kv delete`.
#[derive(Args, Clone, Debug)]
pub struct DeleteKey {
    #[command(flatten)]
    api: ApiArgs,
    /// The key.
    key: String,
    /// The revision that it must have.
    #[arg(long)]
    revision: Option<u64>,
}

/// Options of `hub kv range`.
#[derive(Args, Clone, Debug)]
pub struct ListKeys {
    #[command(flatten)]
    api: ApiArgs,
    /// The prefix; all keys without one.
    #[arg(default_value = "")]
    prefix: String,
}

/// Options of `hub kv watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchKeys {
    #[command(flatten)]
    api: ApiArgs,
    /// The prefix; all keys without one.
    #[arg(default_value = "")]
    prefix: String,
    /// Continues after this revision.
    #[arg(long)]
    from: Option<u64>,
    /// Ends after this many messages.
    #[arg(long)]
    count: Option<u64>,
}

impl KvCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::Get(get) => get.api.json,
            Self::Put(put) => put.api.json,
            Self::Cas(swap) => swap.put.api.json,
            Self::Delete(delete) => delete.api.json,
            Self::Range(list) => list.api.json,
            Self::Watch(watch) => watch.api.json,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Get(get) => get.show(),
            Self::Put(put) => put.send(None),
            Self::Cas(swap) => swap.put.send(Some(swap.revision)),
            Self::Delete(delete) => delete.send(),
            Self::Range(list) => list.show(),
            Self::Watch(keys) => keys.run(),
        }
    }
}

impl GetKey {
    fn show(&self) -> Result<(), Failure> {
        let line = format!("GET /v1/kv/{}", percent_encode(&self.key));
        let entry = self.api.json(&line, None)?;
        if self.api.json {
            return print_line(&entry.to_string());
        }
        print_bytes(&value(&entry))
    }
}

impl PutKey {
    fn send(&self, expected: Option<u64>) -> Result<(), Failure> {
        let body = match (&self.value, &self.file) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(file)) => read_body(file, "a value")?,
            (None, None) => Vec::new(),
        };
        let mut query = Vec::new();
        match self.durability {
            Some(KeyDurability::Disk) => query.push("durability=disk".to_owned()),
            Some(KeyDurability::Memory) => query.push("durability=memory".to_owned()),
            None => {}
        }
        if let Some(lease) = &self.lease {
            query.push(format!("lease={}", percent_encode(lease)));
        }
        let line = format!(
            "PUT /v1/kv/{}?{}",
            percent_encode(&self.key),
            query.join("&")
        );
        let condition = expected.map(condition);
        let written = self.api.json_if(&line, condition, Some(&body))?;
        print_revision(&self.api, &written)
    }
}

impl DeleteKey {
    fn send(&self) -> Result<(), Failure> {
        let line = format!("DELETE /v1/kv/{}", percent_encode(&self.key));
        let condition = self.revision.map(condition);
        let written = self.api.json_if(&line, condition, None)?;
        print_revision(&self.api, &written)
    }
}

/// The header line with the revision that a key must have.
fn condition(revision: u64) -> String {
    match revision {
        0 => "If-None-Match: *".to_owned(),
        revision => format!("If-Match: \"{revision}\""),
    }
}

fn print_revision(api: &ApiArgs, written: &Value) -> Result<(), Failure> {
    if api.json {
        return print_line(&written.to_string());
    }
    let revision = written.get("revision").and_then(Value::as_str);
    print_line(revision.unwrap_or_default())
}

fn value(entry: &Value) -> Vec<u8> {
    let value = entry.get("value").and_then(Value::as_str);
    Base64::decode_vec(value.unwrap_or_default()).unwrap_or_default()
}

impl ListKeys {
    fn show(&self) -> Result<(), Failure> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let line = format!("GET /v1/kv?prefix={}{after}", percent_encode(&self.prefix));
            let mut page = self.api.json(&line, None)?;
            let entries = page.get_mut("entries").and_then(Value::as_array_mut);
            let entries = entries.map(std::mem::take).unwrap_or_default();
            let text = |entry: &Value, field| {
                let text = entry.get(field).and_then(Value::as_str);
                text.unwrap_or_default().to_owned()
            };
            let last = entries.last().map(|entry| text(entry, "key"));
            if self.api.json {
                all.extend(entries);
            } else {
                for entry in &entries {
                    let bytes = value(entry);
                    // Control characters of a writer must not reach the terminal.
                    let value = String::from_utf8_lossy(&bytes);
                    let (key, revision) = (text(entry, "key"), text(entry, "revision"));
                    print_line(&format!("{key} {revision} {}", value.escape_debug()))?;
                }
            }
            match last.filter(|_| page.get("more") == Some(&Value::Bool(true))) {
                Some(last) => after = format!("&after={}", percent_encode(&last)),
                None if self.api.json => {
                    return print_line(&json!({"schema": 1, "entries": all}).to_string());
                }
                None => return Ok(()),
            }
        }
    }
}

impl WatchKeys {
    fn run(&self) -> Result<(), Failure> {
        let prefix = percent_encode(&self.prefix);
        let from = self.from.map(|from| format!("&from={from}"));
        let query = format!("?kind=keys&prefix={prefix}{}", from.unwrap_or_default());
        watch(&self.api, &query, self.count)
    }
}
