//! Records arrive in both directions, complete and in order.

use std::io::Read;

use servicer::{Admission, StreamConfig};
use wire::{CloseCause, PeerIdentity};

use crate::harness::{
    Behaviour, HarnessRequest, Node, Setup, TIMEOUT, Talker, TalkerEvent, numbered,
};
use crate::raw_client::{RawIdentity, read_confirmation, write_partial_record};

#[test]
fn ten_thousand_records_arrive_both_ways_with_both_identities_proved() {
    const COUNT: u32 = 10_000;
    let (one, other) = (Node::start(), Node::start());
    let (here, there) = one.join(&other);
    one.ask(HarnessRequest::Flood(here, COUNT, 100));
    other.ask(HarnessRequest::Flood(there, COUNT, 200));
    for number in 0..COUNT {
        let expected = numbered(number, 100);
        assert_eq!(other.next(), TalkerEvent::Frame(there, expected));
        let expected = numbered(number, 200);
        assert_eq!(one.next(), TalkerEvent::Frame(here, expected));
    }
    let counters = one.handle.counters();
    assert_eq!(counters.records_in, u64::from(COUNT));
    assert_eq!(counters.records_out, u64::from(COUNT));
    assert_eq!(counters.bytes_in, u64::from(COUNT) * 200);
    assert_eq!(counters.bytes_out, u64::from(COUNT) * 100);
    assert_eq!((counters.dialled, counters.opened), (1, 1));
    assert_eq!(other.handle.counters().accepted, 1);
}

#[test]
fn records_of_every_size_are_echoed_unchanged() {
    let echo = Setup {
        machine: Talker::of(Behaviour::Echo),
        ..Setup::default()
    }
    .start();
    let one = Node::start();
    let (here, _) = one.join(&echo);
    for len in [
        0, 1, 3, 4, 5, 16_379, 16_380, 16_384, 16_385, 65_536, 66_560,
    ] {
        let record = numbered(0x0102_0304, len);
        one.ask(HarnessRequest::Send(here, record.clone()));
        assert_eq!(one.next(), TalkerEvent::Frame(here, record));
    }
}

#[test]
fn a_dialler_may_be_anonymous_if_the_listener_allows_it() {
    let open = Setup {
        admission: Admission::Anyone,
        ..Setup::default()
    }
    .start();
    let anonymous = Setup {
        is_anonymous: true,
        ..Setup::default()
    }
    .start();
    let here = anonymous.dial(open.address, open.id).unwrap();
    let TalkerEvent::Opened(there, PeerIdentity::Anonymous) = open.next() else {
        panic!("opened under a name")
    };
    anonymous.ask(HarnessRequest::Send(here, b"who?".to_vec()));
    assert_eq!(open.next(), TalkerEvent::Frame(there, b"who?".to_vec()));
    // A client with a name is known by it at the server, too.
    Node::start().join(&open);
}

#[test]
fn the_last_record_arrives_before_the_close() {
    let (one, other) = (Node::start(), Node::start());
    let (here, there) = one.join(&other);
    other.ask(HarnessRequest::Flood(there, 500, 1_000));
    one.ask(HarnessRequest::Close(here, b"farewell".to_vec()));
    let event = loop {
        let event = one.next();
        if !matches!(event, TalkerEvent::Frame(..)) {
            break event;
        }
    };
    assert_eq!(event, TalkerEvent::Closed(here, CloseCause::Local));
    assert_eq!(
        other.next(),
        TalkerEvent::Frame(there, b"farewell".to_vec())
    );
    assert_eq!(
        other.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
    assert_eq!(one.handle.counters().closed_local, 1);
    assert_eq!(other.handle.counters().closed_finished, 1);
    // An empty record with a close is only the close.
    let (here, there) = one.join(&other);
    one.ask(HarnessRequest::Close(here, Vec::new()));
    assert_eq!(one.next(), TalkerEvent::Closed(here, CloseCause::Local));
    assert_eq!(
        other.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
}

#[test]
fn many_connections_keep_their_records_apart() {
    let server = Setup {
        machine: Talker::of(Behaviour::Echo),
        ..Setup::default()
    }
    .start();
    let one = Node::start();
    let links: Vec<_> = (0..20).map(|_| one.join(&server).0).collect();
    for (number, id) in (0..).zip(&links) {
        let record = numbered(number, 1_000);
        one.ask(HarnessRequest::Send(*id, record));
    }
    let mut answers: Vec<_> = links.iter().map(|_| one.next()).collect();
    answers.sort_by_key(|event| {
        let TalkerEvent::Frame(id, _) = event else {
            panic!("{event:?}")
        };
        *id
    });
    for ((number, id), answer) in (0..).zip(&links).zip(answers) {
        let record = numbered(number, 1_000);
        assert_eq!(answer, TalkerEvent::Frame(*id, record));
    }
}

#[test]
fn unread_bytes_cause_no_reset_before_the_last_records() {
    const LEN: usize = 60_000;
    let mut config = StreamConfig::default();
    config.linger_timeout = TIMEOUT;
    let server = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let mut raw_client = RawIdentity::honest().dial(server.address);
    read_confirmation(&mut raw_client);
    let TalkerEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    // The server no longer reads: the bytes stay in the socket that is about to be closed.
    server.pause();
    write_partial_record(&mut raw_client, 5, b"hello");
    // More than a socket takes if its peer does not read, so that some is queued.
    server.ask(HarnessRequest::Flood(there, 4, LEN));
    server.ask(HarnessRequest::Close(there, b"farewell".to_vec()));
    assert_eq!(server.next(), TalkerEvent::Closed(there, CloseCause::Local));
    server.ping();
    let mut bytes = Vec::new();
    // An end without close_notify would be an error.
    raw_client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 4 * (LEN + 4) + 4 + 8);
    assert!(bytes.ends_with(b"farewell"));
}
