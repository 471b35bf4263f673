//! `tickwire matchmaker status`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::super::host::HostPort;
use super::super::print_line;
use crate::exit::{Exit, Failure};
use crate::http::client::{self, Request};

/// Options of `matchmaker status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
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

impl StatusArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let request = Request {
            line: "GET /v1/status",
            headers: &[],
            body: None,
            timeout: Duration::from_secs(self.timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let answer = self.http.send(MATCHMAKER, request)?;
        let wrong_server = |what: &str| {
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
            status => return Err(wrong_server(&status.to_string())),
        }
        let status: Value =
            serde_json::from_slice(&answer.body).map_err(|_| wrong_server("no JSON"))?;
        let hub = status.get("hub").and_then(Value::as_str);
        let hub = hub.ok_or_else(|| wrong_server("another JSON"))?;
        if self.json {
            print_line(&String::from_utf8_lossy(&answer.body))?;
        } else {
            for name in ["hub", "servers", "tickets_waiting", "matches", "players"] {
                let value = status.get(name).unwrap_or(&Value::Null);
                print_line(&format!(
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
