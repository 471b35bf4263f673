//! A minimal client of the edge.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::net::PATIENCE;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn read(bytes: Vec<u8>) -> Self {
        let answer = String::from_utf8(bytes).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_lowercase(),
            json: serde_json::from_str(body).unwrap_or(Value::Null),
        }
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.json[name].as_str().unwrap_or_default()
    }

    /// Asserts an error response with this status, code, and a detail.
    pub(crate) fn assert_refused(&self, status: u16, error: &str) {
        assert_eq!(
            (self.status, self.text("error")),
            (status, error),
            "{self:?}"
        );
        assert!(!self.text("detail").is_empty(), "{self:?}");
    }
}

/// Sends bytes and returns everything received.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may close before all is written.
    stream.write_all(bytes).ok();
    let mut answer = Vec::new();
    // A reset after the response counts as its end.
    stream.read_to_end(&mut answer).ok();
    answer
}

pub(crate) fn ask(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    Answer::read(raw(address, request(line, headers, body).as_bytes()))
}

/// A request with `Connection: close`.
pub(crate) fn request(line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut request = format!("{line} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n");
    for (name, value) in headers {
        write!(request, "{name}: {value}\r\n").unwrap();
    }
    if !body.is_empty() {
        write!(request, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    request.push_str("\r\n");
    request.push_str(body);
    request
}

/// A ticket and its resume key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldTicket {
    pub(crate) ticket: String,
    pub(crate) resume_key: String,
}

pub(crate) fn post(address: SocketAddr, body: &str) -> Answer {
    let json = [("Content-Type", "application/json")];
    ask(address, "POST /v1/tickets", &json, body)
}

pub(crate) fn submit(address: SocketAddr, client: u64) -> HeldTicket {
    let answer = post(address, &format!(r#"{{"client_id":"{client}"}}"#));
    assert_eq!(answer.status, 201, "{answer:?}");
    held(&answer)
}

pub(crate) fn held(answer: &Answer) -> HeldTicket {
    HeldTicket {
        ticket: answer.text("ticket").to_owned(),
        resume_key: answer.text("resume_key").to_owned(),
    }
}

/// Sends a ticket request: `verb` is `GET`, `DELETE` or `POST`, `rest` follows the id.
pub(crate) fn about(address: SocketAddr, verb: &str, held: &HeldTicket, rest: &str) -> Answer {
    let bearer = format!("Bearer {}", held.resume_key);
    let line = format!("{verb} /v1/tickets/{}{rest}", held.ticket);
    ask(address, &line, &[("Authorization", &bearer)], "")
}

/// Waits until a ticket has a seat.
pub(crate) fn assigned(address: SocketAddr, held: &HeldTicket) -> Answer {
    crate::net::until("a ticket has a seat", || {
        let answer = about(address, "GET", held, "?wait=10");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_ne!(answer.text("state"), "ended", "{answer:?}");
        (answer.text("state") == "assigned").then_some(answer)
    })
}
