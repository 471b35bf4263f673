//! A blocking HTTP/1.1 client: one request per connection.

use std::fmt::{self, Write as _};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use servicer::Authorities;

use super::tls::PROTOCOL;
use crate::exit::{Exit, Failure};

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method and path.
    pub line: &'a str,
    /// Header lines without line ends.
    pub headers: &'a [String],
    /// Content type and body; `None` for no body.
    pub body: Option<(&'a str, &'a [u8])>,
    /// Timeout of each read and write.
    pub timeout: Duration,
    /// Longest response, bytes.
    pub answer_bytes_max: u64,
}

/// Sends a request to `server`.
///
/// # Errors
///
/// The system's; `InvalidData` if the response is malformed or too long.
pub fn request(server: SocketAddr, request: Request<'_>) -> io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&server, request.timeout)?;
    stream.set_read_timeout(Some(request.timeout))?;
    stream.set_write_timeout(Some(request.timeout))?;
    request_on(stream, &server.to_string(), request)
}

/// A connection, with or without TLS.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Wraps a connection to `host`, and sets its timeouts.
    pub(crate) fn new(
        stream: TcpStream,
        host: &str,
        (timeout, authorities): (Duration, Option<&Authorities>),
    ) -> io::Result<Self> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let Some(authorities) = authorities else {
            return Ok(Self::Plain(stream));
        };
        let invalid = || io::Error::from(ErrorKind::InvalidInput);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| invalid())?;
        let tls = ClientConnection::new(authorities.client_config(PROTOCOL), name);
        let tls = tls.map_err(|_| invalid())?;
        Ok(Self::Tls(Box::new(StreamOwned::new(tls, stream))))
    }

    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        };
        stream.set_read_timeout(Some(timeout))
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Reads the response to the handshake of a `WebSocket`. Returns `None` if the server accepts it, and the
/// response otherwise.
pub(crate) fn read_upgrade(stream: &mut impl Read, accept: &str) -> io::Result<Option<Answer>> {
    let mut head = Vec::new();
    // Byte by byte: what follows is not part of the response.
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
        if head.len() > HEAD_BYTES_MAX {
            return Err(malformed());
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    answer.parse(&head).map_err(|_| malformed())?;
    if answer.code != Some(101) {
        let rest = stream.take(ERROR_BYTES_MAX);
        return read(io::Cursor::new(head).chain(rest), ERROR_BYTES_MAX).map(Some);
    }
    let mut fields = answer.headers.iter();
    let is_accepted = fields.any(|field| {
        field.name.eq_ignore_ascii_case("sec-websocket-accept") && field.value == accept.as_bytes()
    });
    is_accepted.then_some(None).ok_or_else(malformed)
}

/// Longest response that rejects a handshake, bytes.
const ERROR_BYTES_MAX: u64 = 64 << 10;

pub(crate) fn request_on(
    mut stream: impl Read + Write,
    host: &str,
    request: Request<'_>,
) -> io::Result<Answer> {
    let line = request.line;
    let mut head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for header in request.headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if let Some((kind, body)) = request.body {
        let length = body.len();
        write!(head, "Content-Type: {kind}\r\nContent-Length: {length}\r\n").ok();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if let Some((_, body)) = request.body {
        // A server may respond with an error before it has read the body.
        match stream.write_all(body) {
            Err(error) if !is_disconnect(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    stream.flush()?;
    read(stream, request.answer_bytes_max)
}

/// Describes why `server_name` did not respond at an address.
pub(crate) fn failure(
    server_name: &str,
    (address, timeout): (SocketAddr, Duration),
    error: &io::Error,
) -> Failure {
    let kind = error.kind();
    // Unix reports a socket timeout as `WouldBlock`, Windows as `TimedOut`.
    if kind == ErrorKind::WouldBlock || kind == ErrorKind::TimedOut {
        let sentence = format!("{address} did not answer within {} s", timeout.as_secs());
        Failure::new(Exit::TimedOut, sentence)
    } else if kind == ErrorKind::InvalidData && error.get_ref().is_none() {
        wrong_server(server_name, address)
    } else if kind == ErrorKind::InvalidData {
        // An error of TLS, such as a certificate that the client does not trust.
        let sentence = format!("no TLS connection to {address}: {error}");
        Failure::new(Exit::Unreachable, sentence)
    } else {
        let sentence = format!("no response from {address}: {error}");
        Failure::new(Exit::Unreachable, sentence)
    }
}

pub(crate) fn wrong_server(server_name: &str, address: impl fmt::Display) -> Failure {
    let sentence = format!("the server at {address} is not a {server_name}");
    Failure::new(Exit::Unreachable, sentence)
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Empty,
    Length(u64),
    Chunked,
    Close,
}

/// Reads a response of at most `bytes_max` bytes, head and framing included.
fn read(stream: impl Read, bytes_max: u64) -> io::Result<Answer> {
    let mut input = BufReader::new(stream.take(bytes_max));
    let (status, framing) = loop {
        let head = read_head(&mut input)?;
        let (status, framing) = parse_head(&head).ok_or_else(malformed)?;
        // Interim responses (RFC 9110, section 15.2). An upgrade was not requested.
        match status {
            101 => return Err(malformed()),
            100..200 => {}
            _ => break (status, framing),
        }
    };
    let mut body = Vec::new();
    match framing {
        Framing::Empty => {}
        Framing::Length(len) => read_exactly(&mut input, len, &mut body)?,
        Framing::Chunked => read_chunks(&mut input, &mut body)?,
        Framing::Close => {
            match input.read_to_end(&mut body) {
                // Some servers end the body with a reset.
                Err(error) if !is_disconnect(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
            if input.get_ref().limit() == 0 {
                return Err(malformed());
            }
        }
    }
    Ok(Answer { status, body })
}

fn malformed() -> io::Error {
    ErrorKind::InvalidData.into()
}

fn read_head(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let line = read_line(input)?;
        let is_end = line == b"\r\n" || line == b"\n";
        head.extend_from_slice(&line);
        if is_end && head.len() > line.len() {
            return Ok(head);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(malformed());
        }
    }
}

fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let max = u64::try_from(HEAD_BYTES_MAX).unwrap_or(u64::MAX);
    input.by_ref().take(max).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        Ok(line)
    } else {
        Err(malformed())
    }
}

/// Parses status and framing (RFC 9112, section 6.3).
fn parse_head(head: &[u8]) -> Option<(u16, Framing)> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    if !answer.parse(head).ok()?.is_complete() {
        return None;
    }
    let status = answer.code?;
    if status < 200 || status == 204 || status == 304 {
        return Some((status, Framing::Empty));
    }
    let values = |name: &'static str| {
        let named = answer
            .headers
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| str::from_utf8(field.value).unwrap_or_default())
    };
    let codings: Vec<&str> = values("transfer-encoding").flat_map(elements).collect();
    let mut lengths = values("content-length").flat_map(elements);
    let framing = match (codings.as_slice(), lengths.next()) {
        ([coding], None) if coding.eq_ignore_ascii_case("chunked") => Framing::Chunked,
        // An unknown coding, or one with a length, which enables response smuggling.
        ([_, ..], _) => return None,
        ([], Some(length)) => {
            let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
            // Repeated lengths must be equal.
            if !is_number || lengths.any(|other| other != length) {
                return None;
            }
            Framing::Length(length.parse().ok()?)
        }
        ([], None) => Framing::Close,
    };
    Some((status, framing))
}

/// The elements of a list (RFC 9110, section 5.6.1).
fn elements(list: &str) -> impl Iterator<Item = &str> {
    let elements = list
        .split(',')
        .map(|element| element.trim_matches([' ', '\t']));
    elements.filter(|element| !element.is_empty())
}

fn read_exactly(input: &mut impl Read, len: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let read = input.by_ref().take(len).read_to_end(body)?;
    if u64::try_from(read) == Ok(len) {
        Ok(())
    } else {
        Err(malformed())
    }
}

/// Reads chunks and the trailer (RFC 9112, section 7.1).
fn read_chunks(input: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(input)?;
        let size = match httparse::parse_chunk_size(&line) {
            Ok(httparse::Status::Complete((_, size))) => size,
            Ok(httparse::Status::Partial) | Err(_) => return Err(malformed()),
        };
        if size == 0 {
            break;
        }
        read_exactly(input, size, body)?;
        if read_line(input)? != b"\r\n" {
            return Err(malformed());
        }
    }
    let mut trailer = 0_usize;
    loop {
        let line = read_line(input)?;
        if line == b"\r\n" {
            return Ok(());
        }
        trailer = trailer.saturating_add(line.len());
        if trailer > HEAD_BYTES_MAX {
            return Err(malformed());
        }
    }
}

const HEAD_BYTES_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 200_000;

    fn parse(text: &[u8]) -> io::Result<Answer> {
        read(text, MAX)
    }

    #[test]
    fn rfc9112_responses_are_read_in_each_framing() {
        for (text, status, body) in [
            (
                "HTTP/1.1 201 Created\r\nx: y\r\n\r\n{\"a\":7}",
                201,
                "{\"a\":7}",
            ),
            ("HTTP/1.0 200 OK\r\n\r\nabc", 200, "abc"),
            ("HTTP/1.1 200 \r\n\r\n", 200, ""),
            ("HTTP/1.1 200\r\n\r\n", 200, ""),
            (
                "HTTP/1.1 204 No Content\r\nContent-length: 0\r\n\r\n",
                204,
                "",
            ),
            ("HTTP/1.1 200 OK\r\nCONTENT-LENGTH:3\r\n\r\nabc", 200, "abc"),
            // Bytes after the body are ignored.
            (
                "HTTP/1.1 200 OK\r\ncontent-length: \t3 \r\n\r\nabcdef",
                200,
                "abc",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\n\r\nabc",
                200,
                "abc",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nContent-Length: 3\r\n\r\nabc",
                200,
                "abc",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
                200,
                "abc0123456789",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: railer\r\n\r\n",
                200,
                "",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 404 No\r\n\r\nno",
                404,
                "no",
            ),
        ] {
            let expected = Answer {
                status,
                body: body.as_bytes().to_vec(),
            };
            assert_eq!(parse(text.as_bytes()).ok(), Some(expected), "{text}");
        }
    }

    #[test]
    fn rfc9112_malformed_and_truncated_responses_are_rejected() {
        for text in [
            "",
            "\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\n{}}",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 2",
            "SSH-2.0-x\r\n\r\n{}",
            "HTTP/1.1 abc\r\n\r\n{}",
            "HTTP/2.0 200 OK\r\n\r\n{}",
            "HTTP/1.1 101 Switching\r\n\r\n",
        ] {
            let kind = parse(text.as_bytes()).map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::InvalidData), "{text}");
        }
    }

    #[test]
    fn a_response_is_limited_in_length() {
        for head in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n61a80\r\n",
        ] {
            let answer = head.as_bytes().chain(io::repeat(b'a').take(400_000));
            let read = read(answer, MAX).map_err(|error| error.kind());
            assert_eq!(read, Err(ErrorKind::InvalidData), "{head}");
        }
        let endless = io::repeat(b'a');
        assert!(read(endless, u64::MAX).is_err(), "a head has an end");
    }

    #[test]
    fn a_failed_handshake_is_named_and_is_no_other_server() {
        let at = (
            SocketAddr::from(([127, 0, 0, 1], 1)),
            Duration::from_secs(1),
        );
        let tls = io::Error::new(ErrorKind::InvalidData, "invalid peer certificate");
        let found = failure("hub", at, &tls).sentence;
        assert_eq!(
            found,
            "no TLS connection to 127.0.0.1:1: invalid peer certificate"
        );
        let other = failure("hub", at, &malformed()).sentence;
        assert_eq!(other, "the server at 127.0.0.1:1 is not a hub");
    }
}
