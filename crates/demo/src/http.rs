//! A client of the matchmaker's HTTP edge: plain HTTP/1.1 on loopback, JSON answers.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use daemon::http::client::{self, Request};

/// An answer of the edge.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Value,
}

impl Answer {
    /// Returns a string field; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.json
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns a number field.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.json.get(name).and_then(Value::as_u64)
    }
}

/// Sends a request: `line` is method and path, `headers` are lines without their ends, `body` is
/// JSON or empty.
///
/// # Errors
///
/// I/O errors; `InvalidData` if the answer is no HTTP with JSON, or over 16 KiB.
pub(crate) fn ask(
    edge: SocketAddr,
    line: &str,
    headers: &[String],
    body: &str,
) -> io::Result<Answer> {
    let request = Request {
        line,
        headers,
        body: (!body.is_empty()).then_some(("application/json", body.as_bytes())),
        timeout: PATIENCE,
        answer_bytes_max: ANSWER_BYTES_MAX,
    };
    let answer = client::request(edge, request)?;
    let json = serde_json::from_slice(&answer.body).map_err(|_| ErrorKind::InvalidData)?;
    let status = answer.status;
    Ok(Answer { status, json })
}

/// Timeout of an answer; above the longest long poll.
const PATIENCE: Duration = Duration::from_secs(15);
/// A ticket with its grant is below 3 KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
