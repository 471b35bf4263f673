//! `tickwire hub mail`.

use std::path::PathBuf;

use base64ct::{Base64, Encoding as _};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::super::print_line;
use super::request::{ApiArgs, read_body};
use crate::exit::Failure;

/// Commands for a mailbox.
#[derive(Clone, Debug, Subcommand)]
pub enum MailCommand {
    /// Prints the mails of a mailbox, oldest first; deletes nothing.
    Ls(ListMail),
    /// Stores a mail; returns once it is on the hub's disk.
    Send(SendMail),
    /// Deletes the mails up to a number.
    Ack(AckMail),
    /// Deletes all mails.
    Clear(ClearMail),
}

/// Options of `hub mail ls`.
#[derive(Args, Clone, Debug)]
pub struct ListMail {
    #[command(flatten)]
    api: ApiArgs,
    /// The player.
    player: u64,
    /// The first mail by its number.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

/// Options of `hub mail send`.
#[derive(Args, Clone, Debug)]
pub struct SendMail {
    #[command(flatten)]
    api: ApiArgs,
    /// The player.
    player: u64,
    /// The mail.
    #[arg(required_unless_present = "file")]
    text: Option<String>,
    /// Reads the mail from a file; - for stdin.
    #[arg(long, conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Seconds until it expires; default: the hub's own.
    #[arg(long)]
    ttl: Option<u32>,
}

/// Options of `hub mail ack`.
#[derive(Args, Clone, Debug)]
pub struct AckMail {
    #[command(flatten)]
    api: ApiArgs,
    /// The player.
    player: u64,
    /// The number of the last mail to delete.
    upto: u64,
}

/// Options of `hub mail clear`.
#[derive(Args, Clone, Debug)]
pub struct ClearMail {
    #[command(flatten)]
    api: ApiArgs,
    /// The player.
    player: u64,
}

impl MailCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::Ls(list) => list.api.json,
            Self::Send(send) => send.api.json,
            Self::Ack(ack) => ack.api.json,
            Self::Clear(clear) => clear.api.json,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Ls(list) => list.show(),
            Self::Send(send) => send.run(),
            Self::Ack(ack) => {
                let line = format!("POST /v1/mail/{}/ack", ack.player);
                let body = json!({"upto": ack.upto}).to_string();
                let answer = ack.api.json(&line, Some(body.as_bytes()))?;
                print_answer(&ack.api, &answer)
            }
            Self::Clear(clear) => {
                let line = format!("DELETE /v1/mail/{}", clear.player);
                let answer = clear.api.json(&line, None)?;
                print_answer(&clear.api, &answer)
            }
        }
    }
}

fn print_answer(api: &ApiArgs, answer: &Value) -> Result<(), Failure> {
    if api.json {
        print_line(&answer.to_string())
    } else {
        Ok(())
    }
}

/// Reads all mails of a mailbox from a number on.
pub(super) fn read_all(api: &ApiArgs, player: u64, mut from: u64) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    loop {
        let mut page = api.json(&format!("GET /v1/mail/{player}?from={from}"), None)?;
        let mails = page.get_mut("mails").and_then(Value::as_array_mut);
        let mails = mails.map(std::mem::take).unwrap_or_default();
        let last = mails.last().and_then(|mail| mail.get("seq")?.as_u64());
        all.extend(mails);
        match last.filter(|_| page.get("more") == Some(&Value::Bool(true))) {
            Some(last) => from = last.saturating_add(1),
            None => return Ok(all),
        }
    }
}

impl ListMail {
    fn show(&self) -> Result<(), Failure> {
        let mails = read_all(&self.api, self.player, self.from)?;
        if self.api.json {
            return print_line(&json!({"schema": 1, "mails": mails}).to_string());
        }
        for mail in &mails {
            let text = |field| mail.get(field).and_then(Value::as_str).unwrap_or_default();
            let seq = mail.get("seq").and_then(Value::as_u64).unwrap_or_default();
            let body = Base64::decode_vec(text("body")).unwrap_or_default();
            // Control characters of a sender must not reach the terminal.
            let body = String::from_utf8_lossy(&body);
            print_line(&format!("{seq} {} {}", text("from"), body.escape_debug()))?;
        }
        Ok(())
    }
}

impl SendMail {
    fn run(&self) -> Result<(), Failure> {
        let body = match (&self.text, &self.file) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(file)) => read_body(file, "a mail")?,
            (None, None) => Vec::new(),
        };
        let ttl = self
            .ttl
            .map_or_else(String::new, |ttl| format!("?ttl={ttl}"));
        let line = format!("POST /v1/mail/{}{ttl}", self.player);
        let answer = self.api.json(&line, Some(&body))?;
        print_answer(&self.api, &answer)
    }
}
