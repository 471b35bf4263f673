//! Junk at the stream ports of hub and matchmaker.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use daemon::role::hub::{HubOptions, HubProcess};
use hub::NodeEvent;
use servicer::StreamCounters;

use super::{COUNT, KINDS, Kind, Source};
use crate::http::{ask, submit};
use crate::net::{Net, PATIENCE, edge, quick, until};
use crate::node::Talker;

/// Sends `bytes` on a new connection, closes the write half, and returns the answer.
fn offer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be closed before all is written.
    stream.write_all(bytes).ok();
    stream.shutdown(Shutdown::Write).ok();
    let mut answer = Vec::new();
    // A reset counts as an end.
    stream.read_to_end(&mut answer).ok();
    answer
}

/// Forwards connections to `to`, and records the clients' bytes.
fn record(listener: TcpListener, to: SocketAddr) -> Arc<Mutex<Vec<u8>>> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&said);
    let pass = |mut from: TcpStream, mut to: TcpStream, kept: Option<Arc<Mutex<Vec<u8>>>>| {
        let mut buffer = [0; 4_096];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if let Some(kept) = &kept {
                kept.lock().unwrap().extend_from_slice(&buffer[..len]);
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok();
    };
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            let remote = TcpStream::connect(to).unwrap();
            let (back, forth) = (remote.try_clone().unwrap(), near.try_clone().unwrap());
            let kept = Arc::clone(&kept);
            thread::spawn(move || pass(back, forth, None));
            thread::spawn(move || pass(near, remote, Some(kept)));
        }
    });
    said
}

fn refused(counters: &StreamCounters) -> u64 {
    counters.refused_full + counters.refused_handshakes + counters.refused_source
}

fn failed(counters: &StreamCounters) -> u64 {
    counters.failed_tls
        + counters.failed_identity
        + counters.failed_refused
        + counters.failed_timeout
        + counters.failed_gone
        + counters.failed_shutdown
}

#[test]
fn junk_at_the_hubs_port_is_counted_by_reason() {
    let mut net = Net::new();
    let listener = net.take_hub_port();
    let identity = net.identity("hub");
    let data = net.path("data");
    let mut options = HubOptions::new(&identity, net.join_file(), &data);
    options.listen = Some("127.0.0.1:0".parse().unwrap());
    let hub = HubProcess::start(options).unwrap();
    // A real session, recorded.
    let said = record(listener, hub.address());
    let one = Talker::start(&net, "server-0");
    one.wait_joined();
    let capture = said.lock().unwrap().clone();
    assert!(capture.len() > 500, "a handshake and a record");

    let before = hub.counters();
    let mut source = Source::new(1, vec![capture], 2_000);
    for kind in KINDS {
        for _ in 0..COUNT {
            let answer = offer(hub.address(), &source.next(kind));
            assert!(answer.len() < 2_000, "a flight of the handshake at most");
        }
    }
    let sent = 3 * COUNT;
    let after = until("all have been counted", || {
        let now = hub.counters();
        (failed(&now) + refused(&now) == sent).then_some(now)
    });
    assert_eq!(after.accepted - before.accepted, sent);
    assert_eq!((before.opened, after.opened), (1, 1), "nobody came in");
    assert!(after.failed_tls > COUNT, "{after:?}");
    assert!(hub.wait(std::time::Duration::ZERO).is_ok());
    // Joined nodes stay, and others can join.
    while let Some(event) = one.soon(std::time::Duration::ZERO) {
        assert_ne!(event, NodeEvent::HubDown);
    }
    Talker::start(&net, "server-1").wait_joined();
    assert_eq!(failed(&before) + refused(&before), 0);
}

#[test]
fn junk_at_the_matchmakers_port_is_answered_or_closed() {
    let net = Net::new();
    let mut config = edge();
    config.requests_per_second = 1_000_000;
    config.requests_burst = 1_000_000;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let held = submit(edge, 1);
    let body = r#"{"client_id":"1"}"#;
    let captures = vec![
        format!(
            "POST /v1/tickets HTTP/1.1\r\nHost: edge\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
        format!(
            "GET /v1/tickets/{}?wait=0 HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\n\r\n",
            held.ticket, held.resume_key
        ),
    ];
    let captures = captures.into_iter().map(String::into_bytes).collect();
    let mut source = Source::new(2, captures, 1_000);
    for kind in KINDS {
        // Responses by status; 0 for a closed connection.
        let mut fates = BTreeMap::<u16, u64>::new();
        for _ in 0..COUNT {
            let answer = offer(edge, &source.next(kind));
            *fates.entry(status(&answer)).or_default() += 1;
        }
        assert_eq!(fates.values().sum::<u64>(), COUNT);
        let taken: u64 = fates.range(200..300).map(|(_, count)| count).sum();
        let broken: u64 = fates.range(500..).map(|(_, count)| count).sum();
        let known = [
            0, 200, 201, 400, 401, 404, 405, 408, 409, 413, 415, 429, 431, 503, 505,
        ];
        assert!(fates.keys().all(|fate| known.contains(fate)), "{fates:?}");
        assert!(!fates.contains_key(&500), "{fates:?}");
        match kind {
            Kind::Random => assert_eq!(taken + broken, 0, "{fates:?}"),
            // The truncated or changed header may be an ignored one.
            Kind::Cut => assert!(taken < COUNT / 10, "{fates:?}"),
            Kind::Flipped => assert!(taken < COUNT, "{fates:?}"),
        }
    }
    assert_eq!(ask(edge, "GET /v1/status", &[], "").status, 200);
}

/// The status of a response; 0 for none.
fn status(answer: &[u8]) -> u16 {
    if answer.is_empty() {
        return 0;
    }
    let text = std::str::from_utf8(answer).expect("words");
    let rest = text
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| text.strip_prefix("HTTP/1.0 "))
        .unwrap_or_else(|| panic!("{text}"));
    rest[..3].parse().unwrap()
}
