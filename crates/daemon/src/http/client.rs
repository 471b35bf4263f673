//! One request a connection, plain HTTP/1.1.

mod answer;

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::exit::{Exit, Failure};
pub use answer::Answer;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method and path.
    pub line: &'a str,
    /// Whole lines without their ends.
    pub headers: &'a [String],
    /// Content type and body; `None` for no body.
    pub body: Option<(&'a str, &'a [u8])>,
    /// How long the other end may be silent.
    pub patience: Duration,
    /// Longest answer, bytes.
    pub answer_bytes_max: u64,
}

/// Asks `server`.
///
/// # Errors
///
/// The system's; `InvalidData` where what comes back is no HTTP, or longer than it may be.
pub fn ask(server: SocketAddr, request: Request<'_>) -> io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&server, request.patience)?;
    ask_on(stream, &server.to_string(), request)
}

/// Asks `host`, with its port, on a connection to it.
///
/// # Errors
///
/// As [`ask`].
pub(crate) fn ask_on(
    mut stream: TcpStream,
    host: &str,
    request: Request<'_>,
) -> io::Result<Answer> {
    stream.set_read_timeout(Some(request.patience))?;
    stream.set_write_timeout(Some(request.patience))?;
    let line = request.line;
    let mut head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
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
    answer::read(stream, request.answer_bytes_max)
}

/// Says in a sentence why `who` gave no answer at its address within this time.
pub(crate) fn why(
    who: &str,
    (address, patience): (SocketAddr, Duration),
    error: &io::Error,
) -> Failure {
    let kind = error.kind();
    // What Unix calls a timeout of a socket is the first, what Windows calls it the second.
    if kind == ErrorKind::WouldBlock || kind == ErrorKind::TimedOut {
        let sentence = format!("{address} did not answer within {} s", patience.as_secs());
        Failure::new(Exit::TimedOut, sentence)
    } else if kind == ErrorKind::InvalidData {
        is_none(who, address)
    } else {
        let sentence = format!("nobody answers at {address}: {error}");
        Failure::new(Exit::Unreachable, sentence)
    }
}

/// Something else than `who` answers there, so that `who` cannot be reached.
pub(crate) fn is_none(who: &str, address: impl fmt::Display) -> Failure {
    let sentence = format!("what answers at {address} is no {who}");
    Failure::new(Exit::Unreachable, sentence)
}

fn is_hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}
