//! Limits on connections, handshakes and writes.

use std::io::Write as _;
use std::time::Duration;

use servicer::{DialError, ListenError, StreamConfig, StreamListener};
use wire::CloseCause;

use crate::harness::{
    Behaviour, HarnessRequest, Node, Reporter, Setup, Talker, TalkerEvent, identity,
};
use crate::raw_client::{RawIdentity, client_hello, plain, read_confirmation, read_to_end};

fn limited(set: impl FnOnce(&mut StreamConfig)) -> Node {
    let mut config = StreamConfig::default();
    set(&mut config);
    Setup {
        config,
        ..Setup::default()
    }
    .start()
}

#[test]
fn half_open_handshakes_are_limited_and_free_their_slot() {
    let server = limited(|config| {
        config.handshakes_max = 3;
        config.handshake_grace = Duration::from_secs(60);
    });
    let held: Vec<_> = (0..3).map(|_| plain(server.address)).collect();
    server.wait_for(|counters| counters.accepted == 3);
    // A fourth is closed at once.
    assert!(read_to_end(plain(server.address)).is_empty());
    assert_eq!(server.handle.counters().refused_handshakes, 1);
    let one = Node::start();
    assert_eq!(one.dial(server.address, server.id), Err(DialError::Gone));
    drop(held);
    server.wait_for(|counters| counters.failed_gone == 3);
    // Open connections do not count as handshakes: more than three connect.
    for _ in 0..5 {
        one.join(&server);
    }
    assert_eq!(server.handle.counters().refused_handshakes, 2);
}

/// A connection from another loopback address that sends nothing.
pub(crate) fn silent(from: [u8; 4], to: std::net::SocketAddr) -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from = std::net::SocketAddr::from((from, 0));
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket
}

#[test]
fn silent_connections_of_many_sources_block_no_new_connection() {
    let server = limited(|config| {
        config.handshakes_max = 8;
        config.handshakes_per_source_max = 4;
    });
    let mut held: Vec<_> = (0..8)
        .map(|number| silent([127, 0, 0, 2 + number % 2], server.address))
        .collect();
    server.wait_for(|counters| counters.accepted == 8);
    // Its handshake makes progress and completes; a silent one was evicted.
    let one = Node::start();
    for opened in 1..=3 {
        one.join(&server);
        assert_eq!(server.handle.counters().failed_crowded, opened);
        // Its slot is used again.
        held.push(silent([127, 0, 0, 4], server.address));
        server.wait_for(|counters| counters.accepted == 8 + 2 * opened);
    }
    drop(held);
}

#[test]
fn silent_connections_of_a_source_block_no_other_source() {
    let server = limited(|config| {
        config.handshake_timeout = Duration::from_secs(60);
        config.handshake_grace = Duration::ZERO;
    });
    let share = StreamConfig::default().handshakes_per_source_max;
    let held: Vec<_> = (0..2 * share).map(|_| plain(server.address)).collect();
    server.wait_for(|counters| counters.accepted >= 64);
    let one = Node::start();
    for _ in 0..3 {
        one.join(&server);
    }
    let counters = server.handle.counters();
    assert_eq!(counters.refused_source, 0);
    // Half of the share stays, and each new connection replaces one.
    assert!(
        counters.failed_crowded >= 64 - 16,
        "{}",
        counters.failed_crowded
    );
    drop(held);
}

#[test]
fn a_flood_of_handshakes_is_spread_over_turns() {
    const HELLOS: usize = 64;
    let mut config = StreamConfig::default();
    config.handshakes_per_source_max = HELLOS;
    config.bytes_per_turn = (256 << 10).try_into().unwrap();
    let listener = StreamListener::bind(
        "127.0.0.1:0".parse().unwrap(),
        &identity(),
        servicer::Admission::AnyNode,
    )
    .unwrap();
    let address = listener.local_address();
    let (mut driver, _requests) = servicer::StreamDriver::new(
        vec![listener],
        None,
        Talker::of(Behaviour::Plain),
        Reporter::without_receiver(),
        config,
    )
    .unwrap();
    let raw_clients: Vec<_> = (0..HELLOS)
        .map(|_| {
            let mut raw_client = plain(address);
            raw_client.write_all(&client_hello(address)).unwrap();
            raw_client.set_nonblocking(true).unwrap();
            raw_client
        })
        .collect();
    let answered = || {
        let is_answered = |raw_client: &&std::net::TcpStream| raw_client.peek(&mut [0]).is_ok();
        raw_clients.iter().filter(is_answered).count()
    };
    let mut turns = 0;
    while answered() < HELLOS {
        assert!(driver.turn().is_continue());
        turns += 1;
        assert!(answered() <= 4 * turns, "{} in {turns} turns", answered());
        assert!(turns < 1_000_000, "{} of {HELLOS}", answered());
    }
}

#[test]
fn one_source_gets_its_share_and_no_more() {
    let server = limited(|config| {
        config.handshakes_per_source_max = 2;
        config.handshake_grace = Duration::from_secs(60);
    });
    let held: Vec<_> = (0..2).map(|_| plain(server.address)).collect();
    server.wait_for(|counters| counters.accepted == 2);
    assert!(read_to_end(plain(server.address)).is_empty());
    assert_eq!(server.handle.counters().refused_source, 1);
    drop(held);
    server.wait_for(|counters| counters.failed_gone == 2);
    Node::start().join(&server);

    let server = limited(|config| config.connections_per_source_max = 2);
    let one = Node::start();
    let (here, there) = one.join(&server);
    one.join(&server);
    assert_eq!(one.dial(server.address, server.id), Err(DialError::Gone));
    assert_eq!(server.handle.counters().refused_source, 1);
    // A slot is free once its connection is closed.
    one.ask(HarnessRequest::Close(here, Vec::new()));
    assert_eq!(one.next(), TalkerEvent::Closed(here, CloseCause::Local));
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
    one.join(&server);
}

#[test]
fn no_more_connections_than_allowed_either_way() {
    let server = limited(|config| config.connections_max = 2);
    let one = limited(|config| config.connections_max = 3);
    one.join(&server);
    one.join(&server);
    assert_eq!(one.dial(server.address, server.id), Err(DialError::Gone));
    assert_eq!(server.handle.counters().refused_full, 1);
    let third = Node::start();
    one.join(&third);
    assert_eq!(one.dial(third.address, third.id), Err(DialError::Full));
    let counters = one.handle.counters();
    assert_eq!((counters.dials_refused, counters.dialled), (1, 4));
}

#[test]
fn a_connection_that_exceeds_its_credit_is_closed() {
    let ignores_credit = Setup {
        machine: Talker::of(Behaviour::IgnoreCredit),
        ..Setup::default()
    }
    .start();
    let other = Node::start();
    other.pause();
    let (here, there) = ignores_credit.join(&other);
    ignores_credit.ask(HarnessRequest::Flood(here, 1_000, 60_000));
    assert_eq!(
        ignores_credit.next(),
        TalkerEvent::Closed(here, CloseCause::Failed)
    );
    let counters = ignores_credit.wait_for(|counters| counters.closed_overrun == 1);
    // Data written to a closed connection is dropped.
    assert_eq!(counters.bytes_out % 60_000, 0);
    other.resume();
    while other.next() != TalkerEvent::Closed(there, CloseCause::Failed) {}
}

#[test]
fn the_longest_record_is_as_configured() {
    let server = limited(|config| config.record_bytes_max = 10);
    let one = Node::start();
    let (here, there) = one.join(&server);
    one.ask(HarnessRequest::Send(here, vec![1; 10]));
    assert_eq!(server.next(), TalkerEvent::Frame(there, vec![1; 10]));
    one.ask(HarnessRequest::Send(here, vec![2; 11]));
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
    assert_eq!(server.handle.counters().closed_too_long, 1);
    assert_eq!(one.next(), TalkerEvent::Closed(here, CloseCause::Failed));
}

#[test]
fn a_peer_that_does_not_answer_a_close_gives_its_slot_back() {
    let server = limited(|config| {
        config.connections_max = 1;
        config.linger_timeout = Duration::from_millis(20);
    });
    let mut raw_client = RawIdentity::honest().dial(server.address);
    read_confirmation(&mut raw_client);
    let TalkerEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    server.ask(HarnessRequest::Close(there, b"bye".to_vec()));
    assert_eq!(server.next(), TalkerEvent::Closed(there, CloseCause::Local));
    let one = Node::start();
    while let Err(error) = one.dial(server.address, server.id) {
        assert_eq!(error, DialError::Gone);
    }
    assert_eq!(server.handle.counters().opened, 2);
    drop(raw_client);
}

#[test]
fn a_busy_port_is_one_sentence() {
    let node = Node::start();
    let error =
        StreamListener::bind(node.address, &identity(), servicer::Admission::AnyNode).unwrap_err();
    assert_eq!(
        error,
        ListenError {
            address: node.address,
            kind: std::io::ErrorKind::AddrInUse
        }
    );
    assert_eq!(
        error.to_string(),
        format!("TCP port {} is in use by another program", node.address)
    );
    // A freed port can be bound again at once, even if the system still has connections of it.
    let one = Node::start();
    one.join(&node);
    let address = node.address;
    drop(node);
    StreamListener::bind(address, &identity(), servicer::Admission::AnyNode).unwrap();
}
