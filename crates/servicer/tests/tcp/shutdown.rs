//! How a stream servicer ends, and what its peers receive.

use std::time::Duration;

use servicer::{DialError, End, RequestError};
use wire::{CloseCause, ConnectionId};

use crate::harness::{Behaviour, HarnessRequest, Node, Setup, TIMEOUT, Talker, TalkerEvent};
use crate::raw_client::{RawIdentity, plain, read_confirmation};

#[test]
fn a_shutdown_notifies_peers_closes_in_order_and_joins() {
    let one = Setup {
        farewell: Some((ConnectionId(1), b"farewell".to_vec())),
        ..Setup::default()
    }
    .start();
    let other = Node::start();
    let (here, there) = one.join(&other);
    assert_eq!(here, ConnectionId(1));
    let report = one.handle.shutdown(TIMEOUT);
    assert_eq!(report.end, End::Drained);
    assert_eq!(report.counters.closed_local, 1);
    assert!(
        report
            .to_string()
            .starts_with("talker: shut down in order after"),
        "{report}"
    );
    assert_eq!(
        other.next(),
        TalkerEvent::Frame(there, b"farewell".to_vec())
    );
    assert_eq!(
        other.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
    // The thread has ended: nothing holds the application's channel.
    while one.events.recv_timeout(TIMEOUT).is_ok() {}
    assert_eq!(
        one.events.try_recv(),
        Err(crossbeam_channel::TryRecvError::Disconnected)
    );
    // The port is closed, too.
    let again = other.dial(one.address, one.id);
    assert!(matches!(again, Err(DialError::Unreachable(_))), "{again:?}");
}

#[test]
fn a_shutdown_does_not_wait_for_an_unresponsive_peer() {
    let one = Node::start();
    // One that never closes, one in the handshake, one unanswered dial.
    let mut raw_client = RawIdentity::honest().dial(one.address);
    read_confirmation(&mut raw_client);
    let held = plain(one.address);
    one.wait_for(|counters| counters.accepted == 2);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let peer = one.id.into();
    one.ask(HarnessRequest::Dial(1, servicer::Dial { address, peer }));
    one.ping();
    one.wait_for(|counters| counters.dialled == 1);
    let report = one.handle.shutdown(TIMEOUT);
    assert_eq!(report.end, End::Drained);
    let counters = report.counters;
    assert_eq!((counters.closed_local, counters.failed_shutdown), (1, 2));
    let last = one.events.try_iter().last();
    assert!(last.is_some());
    drop((raw_client, held, silent));
}

#[test]
fn a_shutdown_ends_at_its_deadline_where_the_application_is_not_done() {
    let one = Setup {
        is_drained: false,
        ..Setup::default()
    }
    .start();
    let other = Node::start();
    let (_, there) = one.join(&other);
    let report = one.handle.shutdown(Duration::from_millis(20));
    assert_eq!(report.end, End::DeadlinePassed);
    assert_eq!(
        other.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
}

#[test]
fn a_lost_connection_is_distinguished_from_an_orderly_close() {
    let panicking = Setup {
        machine: Talker::of(Behaviour::PanicOnRecord),
        ..Setup::default()
    }
    .start();
    let one = Node::start();
    let (here, _) = one.join(&panicking);
    one.ask(HarnessRequest::Send(here, b"boom".to_vec()));
    assert_eq!(one.next(), TalkerEvent::Closed(here, CloseCause::Failed));
    assert_eq!(one.handle.counters().closed_reset, 1);
    let report = panicking.handle.shutdown(TIMEOUT);
    let End::Panicked(message) = report.end else {
        panic!("{}", report.end)
    };
    assert!(message.contains("the machine was told to"), "{message}");
}

#[test]
fn a_panic_of_the_application_is_reported_and_contained() {
    let one = Node::start();
    one.ask(HarnessRequest::Panic);
    let report = one.handle.shutdown(TIMEOUT);
    assert_eq!(
        report.end,
        End::Panicked("the application was told to".to_owned())
    );
}

#[test]
fn a_blocked_thread_is_abandoned_and_reported() {
    let one = Node::start();
    let (release, until) = crossbeam_channel::bounded(0);
    one.ask(HarnessRequest::Block(until));
    let report = one.handle.shutdown(Duration::ZERO);
    assert_eq!(report.end, End::Stuck);
    drop(release);
    while one.events.recv_timeout(TIMEOUT).is_ok() {}
}

#[test]
fn the_application_can_end_it() {
    let (one, other) = (Node::start(), Node::start());
    let (_, there) = one.join(&other);
    one.ask(HarnessRequest::Stop);
    assert_eq!(
        other.next(),
        TalkerEvent::Closed(there, CloseCause::Finished)
    );
    while one.events.recv_timeout(TIMEOUT).is_ok() {}
    assert!(matches!(
        one.handle.request(HarnessRequest::Stop),
        Err(RequestError::Ended(HarnessRequest::Stop))
    ));
    assert_eq!(one.handle.shutdown(TIMEOUT).end, End::Stopped);
}

#[test]
fn a_full_queue_hands_the_request_back() {
    let mut config = servicer::StreamConfig::default();
    config.requests_max = 3.try_into().unwrap();
    let one = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let (release, until) = crossbeam_channel::bounded(0);
    one.ask(HarnessRequest::Block(until));
    let refused = loop {
        if let Err(error) = one.handle.request(HarnessRequest::Timer(Duration::ZERO)) {
            break error;
        }
    };
    assert!(matches!(
        refused,
        RequestError::Full(HarnessRequest::Timer(_))
    ));
    assert_eq!(one.handle.counters().requests_refused, 1);
    drop(release);
}
