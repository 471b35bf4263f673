//! `GET /v1/watch`: snapshot, changes, resume, limits.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use wire::ClientId;

use super::{Api, bearer};
use crate::net::{PATIENCE, until};
use crate::node::NodeRequest;

/// A client of a `WebSocket`.
pub(super) struct Socket {
    stream: TcpStream,
}

impl Socket {
    /// Connects; returns the status if the handshake is refused.
    pub(super) fn open(address: SocketAddr, bearer: &str, query: &str) -> Result<Self, u16> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET /v1/watch{query} HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Authorization: {bearer}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 101 {
            return Err(status);
        }
        let accept = "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=";
        assert!(head.contains(accept), "{head}");
        Ok(Self { stream })
    }

    /// The next frame: kind and payload.
    pub(super) fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        let len = match head[1] {
            126 => {
                let mut len = [0; 2];
                self.stream.read_exact(&mut len).unwrap();
                usize::from(u16::from_be_bytes(len))
            }
            len => usize::from(len),
        };
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).unwrap();
        (head[0], payload)
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Value {
        loop {
            match self.frame() {
                (0x81, text) => return serde_json::from_slice(&text).unwrap(),
                (0x89, _) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// All messages up to the end of the snapshot, and its revision.
    pub(super) fn snapshot(&mut self) -> (Vec<Value>, String) {
        assert_eq!(self.next(), json!({"event": "reset"}));
        let mut all = Vec::new();
        loop {
            let message = self.next();
            if message["event"] == "complete" {
                return (all, message["revision"].as_str().unwrap().to_owned());
            }
            all.push(message);
        }
    }

    /// The code of the close frame that follows.
    pub(super) fn close_code(&mut self) -> u16 {
        loop {
            let (kind, payload) = self.frame();
            if kind == 0x88 {
                assert!(payload.len() > 2, "it gives a reason");
                return u16::from_be_bytes([payload[0], payload[1]]);
            }
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }
}

#[test]
fn ha3_a_watcher_gets_a_snapshot_changes_and_resumes_by_revision() {
    let api = Api::new();
    let (node, _) = api.holder(ClientId(1));
    let read = bearer(&api.net, "read");
    let mut socket = Socket::open(api.address, &read, "").ok().unwrap();
    let (all, revision) = socket.snapshot();
    let kinds: Vec<&Value> = all.iter().map(|message| &message["event"]).collect();
    assert_eq!(kinds, ["node", "player"]);
    node.tell(NodeRequest::Claim(ClientId(2)));
    let change = socket.next();
    assert_eq!(
        (&change["event"], &change["player"]),
        (&json!("player"), &json!("2"))
    );
    assert!(change["node"].is_string());
    let seen = change["revision"].as_str().unwrap().to_owned();
    drop(socket);

    // From the snapshot's revision: the change again. From the change's: only what follows.
    let query = format!("?from={revision}&kind=players");
    let mut socket = Socket::open(api.address, &read, &query).ok().unwrap();
    assert_eq!(socket.next(), change);
    let query = format!("?from={seen}");
    let mut socket = Socket::open(api.address, &read, &query).ok().unwrap();
    drop(node);
    let gone = socket.next();
    assert_eq!(gone["up"], json!(false));
    // An unknown revision: a new snapshot.
    let query = "?from=00000000-1";
    let mut socket = Socket::open(api.address, &read, query).ok().unwrap();
    socket.snapshot();
    assert_eq!(Socket::open(api.address, &read, "?from=x").err(), Some(400));
    assert_eq!(Socket::open(api.address, "Bearer x", "").err(), Some(401));
    let metrics = bearer(&api.net, "metrics");
    assert_eq!(Socket::open(api.address, &metrics, "").err(), Some(403));
}

#[test]
fn ha3_pings_are_answered_and_frames_that_break_the_protocol_close() {
    let api = Api::new();
    let read = bearer(&api.net, "read");
    let mut socket = Socket::open(api.address, &read, "").ok().unwrap();
    socket.snapshot();
    socket.send(&[0x89, 0x82, 0, 0, 0, 0, b'h', b'i']);
    loop {
        let (kind, payload) = socket.frame();
        if kind == 0x8a {
            assert_eq!(payload, b"hi");
            break;
        }
    }
    // Not masked, and too long.
    socket.send(&[0x81, 0x01, b'x']);
    assert_eq!(socket.close_code(), 1002);
    let mut socket = Socket::open(api.address, &read, "").ok().unwrap();
    socket.send(&[0x81, 0xfe, 0xff, 0xff]);
    assert_eq!(socket.close_code(), 1009);
    until("both are counted", || {
        (api.metric("tickwire_hub_http_watches_malformed_total") == 2).then_some(())
    });
}

#[test]
fn ha3_watches_max_and_ping_interval_are_limits() {
    let api = Api::with(|config| {
        config.watches_max = 1;
        config.ping_interval = Duration::from_millis(50);
    });
    let read = bearer(&api.net, "read");
    let mut first = Socket::open(api.address, &read, "").ok().unwrap();
    assert_eq!(Socket::open(api.address, &read, "").err(), Some(503));
    // It answers no ping.
    assert_eq!(first.close_code(), 1008);
    until("there is room for another", || {
        Socket::open(api.address, &read, "").ok()
    });
    assert!(api.metric("tickwire_hub_http_watches_too_slow_total") >= 1);
}

#[test]
fn ha3_a_watcher_that_reads_nothing_is_cut_and_counted() {
    let api = Api::with(|config| {
        config.write_timeout = Duration::from_millis(200);
        config.ping_interval = Duration::from_secs(3_600);
    });
    let (node, _) = api.holder(ClientId(1));
    let read = bearer(&api.net, "read");
    let _silent = Socket::open(api.address, &read, "").ok().unwrap();
    // The buffers of both systems take several MiB.
    let mut claimed = 0;
    until("the watcher is cut", || {
        for _ in 0..500 {
            claimed += 1;
            node.tell(NodeRequest::Claim(ClientId(1_000 + claimed % 60_000)));
        }
        while node.soon(Duration::ZERO).is_some() {}
        (api.metric("tickwire_hub_http_watches_too_slow_total") == 1).then_some(())
    });
    assert_eq!(api.metric("tickwire_hub_http_watches "), 0);
}

#[test]
fn ha3_a_key_that_is_removed_ends_its_watches() {
    let api = Api::with(|config| config.ping_interval = Duration::from_millis(200));
    let read = bearer(&api.net, "read");
    let mut socket = Socket::open(api.address, &read, "").ok().unwrap();
    let path = api.net.path("hub.keys");
    let keys = std::fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = keys
        .lines()
        .filter(|line| !line.contains(" read "))
        .collect();
    std::fs::write(&path, kept.join("\n")).unwrap();
    api.hub.as_ref().unwrap().reload_api().unwrap();
    assert_eq!(socket.close_code(), 1008);
    assert_eq!(api.ask("read", "GET /v1/presence", "").status, 401);
    assert_eq!(api.ask("write", "GET /v1/presence", "").status, 200);
}
