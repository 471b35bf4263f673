//! `tickwire matchmaker status`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::super::say;
use crate::exit::{Exit, Failure};

/// Which matchmaker to ask, and how to show the answer.
#[derive(Args, Clone, Debug)]
pub struct AskStatus {
    /// Where its edge listens, as IP:PORT.
    #[arg(long)]
    http: SocketAddr,
    /// Seconds to wait for an answer.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
    /// Answers in JSON.
    #[arg(long)]
    json: bool,
}

impl AskStatus {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let answer = self.ask().map_err(|error| self.judge(&error))?;
        let refused = |what: &str| {
            Failure::refused(format_args!(
                "what answers at {} is no matchmaker: {what}",
                self.http
            ))
        };
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or_else(|| refused("no HTTP"))?;
        let line = head.lines().next().unwrap_or_default();
        if !line.starts_with("HTTP/1.") || line.split(' ').nth(1) != Some("200") {
            return Err(refused(line));
        }
        let status: Value = serde_json::from_str(body).map_err(|_| refused("no JSON"))?;
        let hub = status.get("hub").and_then(Value::as_str);
        let hub = hub.ok_or_else(|| refused("another JSON"))?;
        if self.json {
            say(body)?;
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

    fn ask(&self) -> io::Result<String> {
        let patience = Duration::from_secs(self.timeout);
        let mut stream = TcpStream::connect_timeout(&self.http, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let host = self.http;
        let request =
            format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn judge(&self, error: &io::Error) -> Failure {
        let address = self.http;
        let kind = error.kind();
        // What Unix calls a timeout of a socket is the first, what Windows calls it the second.
        if kind == ErrorKind::WouldBlock || kind == ErrorKind::TimedOut {
            let sentence = format!("{address} did not answer within {} s", self.timeout);
            Failure::new(Exit::TimedOut, sentence)
        } else if kind == ErrorKind::InvalidData {
            Failure::refused(format_args!("what answers at {address} is no matchmaker"))
        } else {
            let sentence = format!("nobody answers at {address}: {error}");
            Failure::new(Exit::Unreachable, sentence)
        }
    }
}

/// A status has a few hundred.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
