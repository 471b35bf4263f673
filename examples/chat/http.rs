//! The subset of HTTP/1.1 that a lobby needs: one request and one response per connection, each
//! bounded in length and time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tickwire::servicer::Clock;
use wire::Instant;

/// Maximum bytes of head and body together.
const MESSAGE_MAX: usize = 8_192;
/// Time limit for a whole connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stream with a deadline for the whole connection, so that a slow peer cannot hold it open.
pub(crate) struct Hurried {
    stream: TcpStream,
    clock: Clock,
    deadline: Instant,
}

impl Hurried {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let clock = Clock::new();
        Self {
            stream,
            clock,
            deadline: clock.now() + PATIENCE,
        }
    }

    /// Returns the time until the deadline.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_since(self.clock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for Hurried {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(to)
    }
}

impl Write for Hurried {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads a request or a response: its first line and its body.
pub(crate) fn read(from: &mut impl Read) -> io::Result<(String, String)> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut bytes = Vec::new();
    let mut from = from.take(u64::try_from(MESSAGE_MAX).unwrap_or(u64::MAX));
    let mut chunk = [0; 1_024];
    loop {
        let text = core::str::from_utf8(&bytes).unwrap_or_default();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = length_of(head).ok_or_else(|| wrong("a message without a length"))?;
            if let Some(body) = body.get(..length) {
                let line = head.lines().next().unwrap_or_default();
                return Ok((line.to_owned(), body.to_owned()));
            }
        }
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Err(wrong("a message that is cut short or too long"));
        }
        bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
    }
}

/// Writes a request or a response.
pub(crate) fn write(to: &mut impl Write, line: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        to,
        "{line}\r\nhost: lobby\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n{body}"
    )?;
    to.flush()
}

fn length_of(head: &str) -> Option<usize> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let (_, length) = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    length.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader which returns one byte per call.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let (Some((byte, rest)), Some(room)) = (self.0.split_first(), to.first_mut()) else {
                return Ok(0);
            };
            *room = *byte;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn messages_round_trip_in_any_fragmentation() {
        let mut bytes = Vec::new();
        write(&mut bytes, "POST /login HTTP/1.1", "{\"name\":\"änn\"}").unwrap();
        let read_all = read(&mut bytes.as_slice()).unwrap();
        assert_eq!(read_all, read(&mut Drip(&bytes)).unwrap());
        assert_eq!(read_all.0, "POST /login HTTP/1.1");
        assert_eq!(read_all.1, "{\"name\":\"änn\"}");
        for len in 0..bytes.len() {
            assert!(read(&mut &bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_message_without_length_or_too_long_ends_at_the_limit() {
        let endless = read(&mut io::repeat(b'a')).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::InvalidData);
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 18446744073709551615\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 9000\r\n\r\n",
        ] {
            let mut message = text.as_bytes().chain(io::repeat(b'a'));
            assert!(read(&mut message).is_err(), "{text}");
        }
    }
}
