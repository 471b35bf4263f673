//! One request a connection, plain HTTP/1.1.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::exit::{Exit, Failure};

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Method and path.
    pub(crate) line: &'a str,
    /// Whole lines without their ends.
    pub(crate) headers: &'a [String],
    /// Content type and body; `None` for no body.
    pub(crate) body: Option<(&'a str, &'a [u8])>,
    /// How long the other end may be silent.
    pub(crate) patience: Duration,
    /// Longest answer, bytes.
    pub(crate) answer_bytes_max: u64,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Asks `server`.
///
/// # Errors
///
/// The system's; `InvalidData` where what comes back is no HTTP, or longer than it may be.
pub(crate) fn ask(server: SocketAddr, request: Request<'_>) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, request.patience)?;
    stream.set_read_timeout(Some(request.patience))?;
    stream.set_write_timeout(Some(request.patience))?;
    let line = request.line;
    let mut head = format!("{line} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n");
    for header in request.headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if let Some((kind, body)) = request.body {
        let length = body.len();
        // Writing to a string cannot fail.
        write!(head, "Content-Type: {kind}\r\nContent-Length: {length}\r\n").ok();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if let Some((_, body)) = request.body {
        // A server that refuses a request answers before it has read it whole.
        match stream.write_all(body) {
            Err(error) if !is_hung_up(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let mut answer = Vec::new();
    let limit = request.answer_bytes_max.saturating_add(1);
    match stream.take(limit).read_to_end(&mut answer) {
        Err(error) if !is_hung_up(&error) || answer.is_empty() => return Err(error),
        Ok(_) | Err(_) => {}
    }
    if u64::try_from(answer.len()).is_ok_and(|len| len > request.answer_bytes_max) {
        return Err(ErrorKind::InvalidData.into());
    }
    parse(&answer).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Says in a sentence why `who` gave no answer at its address within so many seconds.
pub(crate) fn why(who: &str, (address, secs): (SocketAddr, u64), error: &io::Error) -> Failure {
    let kind = error.kind();
    // What Unix calls a timeout of a socket is the first, what Windows calls it the second.
    if kind == ErrorKind::WouldBlock || kind == ErrorKind::TimedOut {
        let sentence = format!("{address} did not answer within {secs} s");
        Failure::new(Exit::TimedOut, sentence)
    } else if kind == ErrorKind::InvalidData {
        Failure::refused(format_args!("what answers at {address} is no {who}"))
    } else {
        let sentence = format!("nobody answers at {address}: {error}");
        Failure::new(Exit::Unreachable, sentence)
    }
}

fn is_hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// Reads an answer, whose end is that of the connection.
fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end)?;
    let head = str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = body.get(4..)?.to_vec();
    let told = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>())
    });
    // One that was cut off is none.
    let is_whole = told.is_none_or(|told| told == Ok(body.len()));
    is_whole.then_some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_what_is_none_is_not() {
        let answer = parse(b"HTTP/1.1 201 Created\r\nx: y\r\n\r\n{\"a\":7}").unwrap();
        assert_eq!((answer.status, &*answer.body), (201, &b"{\"a\":7}"[..]));
        let empty = parse(b"HTTP/1.1 204 No Content\r\nContent-length: 0\r\n\r\n").unwrap();
        assert_eq!((empty.status, empty.body.len()), (204, 0));
        for text in [
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 2",
            "SSH-2.0-x\r\n\r\n{}",
            "HTTP/1.1 abc\r\n\r\n{}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
