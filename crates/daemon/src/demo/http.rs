//! A client of the matchmaker's HTTP edge: one request a connection, plain HTTP/1.1 on loopback.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// What an edge answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Value,
}

impl Answer {
    /// Returns a text of the answer; an empty one where there is none of this name.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.json
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns a number of the answer.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.json.get(name).and_then(Value::as_u64)
    }
}

/// Asks: `line` is a method and a path, `headers` are whole lines without their ends, and `body`
/// is JSON, or empty for none.
///
/// # Errors
///
/// The system's; `InvalidData` where what comes back is no HTTP with JSON, or over 16 KiB.
pub(crate) fn ask(
    edge: SocketAddr,
    line: &str,
    headers: &[String],
    body: &str,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&edge, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = format!("{line} HTTP/1.1\r\nHost: {edge}\r\nConnection: close\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    if !body.is_empty() {
        let length = body.len();
        // Writing to a string cannot fail.
        write!(
            request,
            "Content-Type: application/json\r\nContent-Length: {length}\r\n"
        )
        .ok();
    }
    request.push_str("\r\n");
    request.push_str(body);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    parse(&answer).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Reads a whole answer; one that was cut off is no JSON.
fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let json = serde_json::from_str(body).ok()?;
    Some(Answer { status, json })
}

/// How long the edge may be silent; above the longest wait that is asked for.
const PATIENCE: Duration = Duration::from_secs(15);
/// A ticket with its grant has less than 3 KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_what_is_none_is_not() {
        let answer = parse("HTTP/1.1 201 Created\r\nx: y\r\n\r\n{\"a\":\"b\",\"n\":7}").unwrap();
        assert_eq!(
            (answer.status, answer.text("a"), answer.text("z")),
            (201, "b", "")
        );
        assert_eq!((answer.number("n"), answer.number("a")), (Some(7), None));
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n\r\n{\"a\":",
            "HTTP/1.1 2",
            "SSH-2.0-x\r\n\r\n{}",
            "HTTP/1.1 abc\r\n\r\n{}",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
