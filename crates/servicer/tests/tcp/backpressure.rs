//! A reader that stops blocks its writer; an idle servicer makes no turns.

use std::time::Duration;

use servicer::StreamConfig;
use wire::CloseCause;

use crate::harness::{
    Behaviour, HarnessRequest, Node, Setup, TIMEOUT, Talker, TalkerEvent, numbered,
};
use crate::raw_client::{RawIdentity, read_confirmation};

/// More than sockets hold: Linux grows both buffers to about 6 MiB each.
const FLOOD: u32 = 1_024;
const LEN: usize = 60_000;

#[test]
fn a_stopped_reader_blocks_the_writer_and_loses_nothing() {
    let (one, other) = (Node::start(), Node::start());
    let (here, there) = one.join(&other);
    other.pause();
    one.ask(HarnessRequest::Flood(here, FLOOD, LEN));
    let counters = one.wait_for(|counters| counters.writes_blocked > 0);
    let total = u64::from(FLOOD) * LEN as u64;
    assert!(counters.bytes_out < total / 2, "{counters:?}");
    // Other connections of the writer are not blocked.
    let third = Node::start();
    let (aside, remote) = one.join(&third);
    one.ask(HarnessRequest::Send(aside, b"aside".to_vec()));
    assert_eq!(third.next(), TalkerEvent::Frame(remote, b"aside".to_vec()));
    assert!(one.handle.counters().bytes_out < total / 2);
    assert!(other.events.is_empty(), "nothing was taken meanwhile");
    other.resume();
    for number in 0..FLOOD {
        let expected = numbered(number, LEN);
        assert!(
            other.next() == TalkerEvent::Frame(there, expected),
            "{number}"
        );
    }
    let taken = total + 5;
    assert_eq!(one.handle.counters().bytes_out, taken);
}

#[test]
fn queued_bytes_stay_within_the_credit() {
    let mut config = StreamConfig::default();
    config.credit_bytes = 200_000;
    let one = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let mut raw_client = RawIdentity::honest().dial(one.address);
    read_confirmation(&mut raw_client);
    let TalkerEvent::Opened(there, _) = one.next() else {
        panic!("nothing opened")
    };
    // Nobody reads; the machine stops by itself once three records are queued beyond the sockets.
    one.ask(HarnessRequest::Flood(there, FLOOD, LEN));
    one.wait_for(|counters| counters.writes_blocked > 0);
    let mut held = 0;
    loop {
        one.ping();
        let now = one.handle.counters().bytes_out;
        if now == held {
            break;
        }
        held = now;
    }
    assert!(held < u64::from(FLOOD) * LEN as u64 / 2);
    drop(raw_client);
    assert_eq!(one.next(), TalkerEvent::Closed(there, CloseCause::Failed));
}

#[test]
fn a_client_that_reads_nothing_is_closed_by_deadline() {
    let mut config = StreamConfig::default();
    config.stall_timeout = Duration::from_millis(100);
    let one = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let mut raw_client = RawIdentity::honest().dial(one.address);
    read_confirmation(&mut raw_client);
    let TalkerEvent::Opened(there, _) = one.next() else {
        panic!("nothing opened")
    };
    one.ask(HarnessRequest::Flood(there, FLOOD, LEN));
    assert_eq!(one.next(), TalkerEvent::Closed(there, CloseCause::Failed));
    assert_eq!(one.handle.counters().closed_stalled, 1);
}

#[test]
fn receive_deadlines_are_suspended_while_reads_are_paused() {
    let mut config = StreamConfig::default();
    config.idle_timeout = Duration::from_millis(60);
    config.record_timeout = Duration::from_millis(60);
    let server = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let one = Node::start();
    server.pause();
    let here = one.dial(server.address, server.id).unwrap();
    let TalkerEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    one.ask(HarnessRequest::Send(here, b"patience".to_vec()));
    one.wait_for(|counters| counters.records_out == 1);
    // Much longer than the silence timeout, on the clock of the deadlines.
    server.ask(HarnessRequest::Timer(Duration::from_millis(200)));
    assert_eq!(server.next(), TalkerEvent::Fired);
    server.resume();
    assert_eq!(
        server.next(),
        TalkerEvent::Frame(there, b"patience".to_vec())
    );
    // Now it counts again.
    assert_eq!(
        server.next(),
        TalkerEvent::Closed(there, CloseCause::Failed)
    );
}

#[test]
fn a_flood_blocks_no_other_sender() {
    let server = Setup {
        machine: Talker::of(Behaviour::Discard),
        ..Setup::default()
    }
    .start();
    let echo = Setup {
        machine: Talker::of(Behaviour::Echo),
        ..Setup::default()
    }
    .start();
    let flooder = Node::start();
    let (flood, _) = flooder.join(&server);
    flooder.ask(HarnessRequest::Flood(flood, u32::MAX, 1_000));
    flooder.wait_for(|counters| counters.records_out > 10_000);
    let (aside, _) = flooder.join(&echo);
    for number in 0..20 {
        let record = numbered(number, 20);
        flooder.ask(HarnessRequest::Send(aside, record.clone()));
        assert_eq!(flooder.next(), TalkerEvent::Frame(aside, record));
        // Timers keep running, and run after received data.
        server.ask(HarnessRequest::Timer(Duration::ZERO));
        while server.next() != TalkerEvent::Fired {}
    }
}

#[test]
fn a_turn_reads_at_most_its_share_and_the_next_turn_the_rest() {
    let mut config = StreamConfig::default();
    config.bytes_per_turn = 1.try_into().unwrap();
    let server = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let one = Node::start();
    let (here, there) = one.join(&server);
    server.pause();
    one.ask(HarnessRequest::Flood(here, 200, LEN));
    one.wait_for(|counters| counters.writes_blocked > 0 || counters.records_out == 200);
    let before = server.handle.counters();
    server.resume();
    for number in 0..200 {
        assert!(
            server.next() == TalkerEvent::Frame(there, numbered(number, LEN)),
            "{number}"
        );
    }
    let after = server.handle.counters();
    // One read of the socket takes up to 256 KiB, and is a turn's share here.
    let looks = (after.bytes_in - before.bytes_in) / (256 << 10);
    assert!(after.turns - before.turns >= looks, "{after:?}");
    // Writes are bounded alike: one record per turn.
    let before = server.handle.counters();
    server.ask(HarnessRequest::Flood(there, 100, 10));
    for number in 0..100 {
        assert_eq!(one.next(), TalkerEvent::Frame(here, numbered(number, 10)));
    }
    let after = server.handle.counters();
    assert!(after.turns - before.turns >= 100, "{after:?}");
}

#[test]
fn an_idle_stream_servicer_makes_no_turns() {
    let (one, other) = (Node::start(), Node::start());
    let (here, there) = one.join(&other);
    one.ask(HarnessRequest::Send(here, b"done".to_vec()));
    assert_eq!(other.next(), TalkerEvent::Frame(there, b"done".to_vec()));
    one.ping();
    // Another servicer measures the time.
    let clock = Node::start();
    let turns = || one.handle.counters().turns;
    let before = turns();
    for _ in 0..10 {
        clock.ask(HarnessRequest::Timer(Duration::from_millis(30)));
        assert_eq!(clock.next(), TalkerEvent::Fired);
    }
    let after = turns();
    assert!(after - before <= 2, "{before} to {after}");
    assert!(TIMEOUT > Duration::from_millis(300));
}
