//! `tickwire matchmaker status`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::super::host::HostPort;
use super::super::say;
use crate::exit::{Exit, Failure};
use crate::http::client::{self, Request};

/// Options of `matchmaker status`.
#[derive(Args, Clone, Debug)]
pub struct AskStatus {
    /// Address of its edge, as HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    http: HostPort,
    /// Timeout, seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl AskStatus {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let request = Request {
            line: "GET /v1/status",
            headers: &[],
            body: None,
            timeout: Duration::from_secs(self.timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let answer = self.http.ask(MATCHMAKER, request)?;
        let stranger = |what: &str| {
            let mut failure = client::wrong_server(MATCHMAKER, &self.http);
            failure.sentence = format!("{failure}: {what}");
            failure
        };
        match answer.status {
            200 => {}
            503 => {
                let sentence = format!("{}: the matchmaker's thread does not answer", self.http);
                return Err(Failure::new(Exit::TimedOut, sentence));
            }
            429 => {
                let sentence = format!("{}: this host asks too often", self.http);
                return Err(Failure::refused(sentence));
            }
            status => return Err(stranger(&status.to_string())),
        }
        let status: Value =
            serde_json::from_slice(&answer.body).map_err(|_| stranger("no JSON"))?;
        let hub = status.get("hub").and_then(Value::as_str);
        let hub = hub.ok_or_else(|| stranger("another JSON"))?;
        if self.json {
            say(&String::from_utf8_lossy(&answer.body))?;
        } else {
            for name in ["hub", "servers", "tickets_waiting", "matches", "players"] {
                let value = status.get(name).unwrap_or(&Value::Null);
                say(&format!(
                    "{name:<16} {}",
                    value.to_string().trim_matches('"')
                ))?;
            }
        }
        if hub == "up" {
            Ok(())
        } else {
            Err(Failure::new(
                Exit::CheckFailed,
                "the matchmaker has no link to its hub",
            ))
        }
    }
}

/// Name of the server in failures.
const MATCHMAKER: &str = "matchmaker";
/// A status has a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
