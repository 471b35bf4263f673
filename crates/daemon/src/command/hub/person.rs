//! `tickwire hub person`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::super::print_line;
use super::request::ApiArgs;
use crate::exit::Failure;
use crate::http::request::percent_encode;

/// Commands for all data of one player.
#[derive(Clone, Debug, Subcommand)]
pub enum PersonCommand {
    /// Prints the player's mail, keys and records of statistics, one JSON object a line; the last line
    /// has the kind `complete`.
    Export(PersonArgs),
    /// Deletes the player's mail and keys; returns once that is on the hub's disk.
    Delete(PersonArgs),
}

/// Options of `hub person`.
#[derive(Args, Clone, Debug)]
pub struct PersonArgs {
    #[command(flatten)]
    api: ApiArgs,
    /// The player.
    player: u64,
}

impl PersonCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::Export(args) | Self::Delete(args) => args.api.json,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Export(args) => args.export(),
            Self::Delete(args) => args.delete(),
        }
    }
}

impl PersonArgs {
    fn export(&self) -> Result<(), Failure> {
        let player = self.player;
        let mut after = String::new();
        let mut count = 0_u64;
        loop {
            let line = format!("GET /v1/players/{player}/data{after}");
            let page = self.api.json(&line, None)?;
            let entries = page.get("entries").and_then(Value::as_array);
            for entry in entries.into_iter().flatten() {
                print_line(&entry.to_string())?;
                count = count.saturating_add(1);
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("?after={}", percent_encode(next)),
                None => break,
            }
        }
        let end = json!({"kind": "complete", "player": player.to_string(), "entries": count});
        print_line(&end.to_string())
    }

    fn delete(&self) -> Result<(), Failure> {
        let line = format!("DELETE /v1/players/{}/data", self.player);
        let (mut mails, mut keys) = (0_u64, 0_u64);
        let until = loop {
            let answer = self.api.json(&line, None)?;
            let number = |field| {
                answer
                    .get(field)
                    .and_then(Value::as_u64)
                    .unwrap_or_default()
            };
            mails = mails.saturating_add(number("mails"));
            keys = keys.saturating_add(number("keys"));
            if answer.get("more") != Some(&Value::Bool(true)) {
                break number("records_until");
            }
        };
        if self.api.json {
            let all = json!({"schema": 1, "mails": mails, "keys": keys, "records_until": until});
            return print_line(&all.to_string());
        }
        print_line(&format!(
            "{mails} mails and {keys} keys deleted; records of statistics are kept until {until} (seconds \
             since 1970)"
        ))
    }
}
