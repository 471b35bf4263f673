//! `tickwire hub watch`.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use clap::Args;
use crypto::{Provider as _, Ring};

use super::super::print_line;
use super::request::ApiArgs;
use crate::exit::{Exit, Failure};
use crate::http::client;
use crate::http::request::percent_encode;
use crate::http::websocket::{Sent, accept_key, decode_sent, encode_pong};
use crate::trust;

/// Options of `hub watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchPresence {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    /// Continues after this revision.
    #[arg(long)]
    from: Option<String>,
    /// Ends after this many messages.
    #[arg(long)]
    count: Option<u64>,
}

impl WatchPresence {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let from = self.from.as_deref().map_or_else(String::new, |from| {
            format!("?from={}", percent_encode(from))
        });
        watch(&self.api, &from, self.count)
    }
}

/// Prints each message of `/v1/watch` with `query` as a line of JSON, at most `count`.
pub(super) fn watch(api: &ApiArgs, query: &str, count: Option<u64>) -> Result<(), Failure> {
    Watcher { api, count }.run(query)
}

struct Watcher<'a> {
    api: &'a ApiArgs,
    count: Option<u64>,
}

impl Watcher<'_> {
    fn run(&self, query: &str) -> Result<(), Failure> {
        let mut ring = Ring::new();
        let mut key = [0; 16];
        ring.random(&mut key).map_err(|_| trust::no_entropy())?;
        let key = Base64::encode_string(&key);
        let mut stream = self.api.connect()?;
        let authorization = self.api.authorization()?;
        let authorization = authorization.map_or_else(String::new, |line| format!("{line}\r\n"));
        let request = format!(
            "GET /v1/watch{query} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{authorization}\r\n",
            self.api.http()
        );
        stream
            .write_all(request.as_bytes())
            .map_err(|error| self.lost(&error))?;
        let answer = client::read_upgrade(&mut stream, &accept_key(key.as_bytes()))
            .map_err(|error| self.lost(&error))?;
        if let Some(answer) = answer {
            return Err(self.api.failure(&answer));
        }
        stream
            .set_read_timeout(SILENCE_MAX)
            .map_err(|error| self.lost(&error))?;
        self.print(stream, &mut ring)
    }

    fn print(&self, mut stream: impl Read + Write, ring: &mut Ring) -> Result<(), Failure> {
        let mut received = Vec::new();
        let mut count = 0_u64;
        while self.count.is_none_or(|most| count < most) {
            match decode_sent(&received) {
                Some((Sent::Text(text), len)) => {
                    print_line(&text)?;
                    count = count.saturating_add(1);
                    received.drain(..len);
                }
                Some((Sent::Ping(payload), len)) => {
                    received.drain(..len);
                    let mut mask = [0; 4];
                    ring.random(&mut mask).map_err(|_| trust::no_entropy())?;
                    let pong = encode_pong(&payload, mask);
                    stream.write_all(&pong).map_err(|error| self.lost(&error))?;
                }
                Some((Sent::Close(reason), _)) => {
                    let http = self.api.http();
                    let sentence = format_args!("{http} closed the WebSocket: {reason}");
                    return Err(Failure::refused(sentence));
                }
                Some((Sent::Other, len)) => drop(received.drain(..len)),
                None if received.len() > RECEIVED_MAX => {
                    return Err(client::wrong_server("hub with an API", self.api.http()));
                }
                None => {
                    let mut bytes = [0; 8_192];
                    let len = stream.read(&mut bytes).map_err(|error| self.lost(&error))?;
                    if len == 0 {
                        return Err(self.lost(&ErrorKind::UnexpectedEof.into()));
                    }
                    received.extend_from_slice(bytes.get(..len).unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        let http = self.api.http();
        let sentence = format_args!("{http}: the connection is lost: {error}");
        Failure::new(Exit::Unreachable, sentence)
    }
}

/// Longest time without a frame; the hub pings each 20 s.
const SILENCE_MAX: Duration = Duration::from_secs(70);

/// Longest message accepted, bytes.
const RECEIVED_MAX: usize = 1 << 20;
