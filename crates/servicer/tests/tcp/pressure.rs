//! A reader that stops blocks its writer; an idle servicer makes no turns.

use std::time::Duration;

use servicer::StreamConfig;
use wire::CloseCause;

use crate::stranger::{Shown, greet};
use crate::toy::{Ask, Node, PATIENCE, Setup, Talker, Temper, ToyEvent, numbered};

/// More than sockets hold: Linux grows both buffers to about 6 MiB each.
const FLOOD: u32 = 1_024;
const LEN: usize = 60_000;

#[test]
fn a_reader_that_stops_makes_the_writer_wait_and_loses_nothing() {
    let (one, other) = (Node::start(), Node::start());
    let (here, there) = one.join(&other);
    other.pause();
    one.ask(Ask::Flood(here, FLOOD, LEN));
    let counters = one.wait_for(|counters| counters.writes_blocked > 0);
    let total = u64::from(FLOOD) * LEN as u64;
    assert!(counters.bytes_out < total / 2, "{counters:?}");
    // Other connections of the writer are not blocked.
    let third = Node::start();
    let (aside, far) = one.join(&third);
    one.ask(Ask::Send(aside, b"aside".to_vec()));
    assert_eq!(third.next(), ToyEvent::Frame(far, b"aside".to_vec()));
    assert!(one.handle.counters().bytes_out < total / 2);
    assert!(other.news.is_empty(), "nothing was taken meanwhile");
    other.resume();
    for number in 0..FLOOD {
        let expected = numbered(number, LEN);
        assert!(other.next() == ToyEvent::Frame(there, expected), "{number}");
    }
    let taken = total + 5;
    assert_eq!(one.handle.counters().bytes_out, taken);
}

#[test]
fn what_waits_to_be_written_stays_within_the_credit() {
    let mut config = StreamConfig::default();
    config.credit_bytes = 200_000;
    let one = Setup {
        config,
        ..Setup::default()
    }
    .start();
    let mut stranger = Shown::honest().dial(one.address);
    greet(&mut stranger);
    let ToyEvent::Opened(there, _) = one.next() else {
        panic!("nothing opened")
    };
    // Nobody reads; the machine stops by itself once three records are queued beyond the sockets.
    one.ask(Ask::Flood(there, FLOOD, LEN));
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
    drop(stranger);
    assert_eq!(one.next(), ToyEvent::Closed(there, CloseCause::Failed));
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
    let mut stranger = Shown::honest().dial(one.address);
    greet(&mut stranger);
    let ToyEvent::Opened(there, _) = one.next() else {
        panic!("nothing opened")
    };
    one.ask(Ask::Flood(there, FLOOD, LEN));
    assert_eq!(one.next(), ToyEvent::Closed(there, CloseCause::Failed));
    assert_eq!(one.handle.counters().closed_stalled, 1);
}

#[test]
fn no_time_runs_against_a_peer_that_is_not_listened_to() {
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
    let ToyEvent::Opened(there, _) = server.next() else {
        panic!("nothing opened")
    };
    one.ask(Ask::Send(here, b"patience".to_vec()));
    one.wait_for(|counters| counters.records_out == 1);
    // Much longer than the silence timeout, on the clock of the deadlines.
    server.ask(Ask::Timer(Duration::from_millis(200)));
    assert_eq!(server.next(), ToyEvent::Fired);
    server.resume();
    assert_eq!(server.next(), ToyEvent::Frame(there, b"patience".to_vec()));
    // Now it counts again.
    assert_eq!(server.next(), ToyEvent::Closed(there, CloseCause::Failed));
}

#[test]
fn a_flood_blocks_no_other_sender() {
    let server = Setup {
        machine: Talker::of(Temper::Mute),
        ..Setup::default()
    }
    .start();
    let echo = Setup {
        machine: Talker::of(Temper::Echo),
        ..Setup::default()
    }
    .start();
    let flooder = Node::start();
    let (flood, _) = flooder.join(&server);
    flooder.ask(Ask::Flood(flood, u32::MAX, 1_000));
    flooder.wait_for(|counters| counters.records_out > 10_000);
    let (aside, _) = flooder.join(&echo);
    for number in 0..20 {
        let record = numbered(number, 20);
        flooder.ask(Ask::Send(aside, record.clone()));
        assert_eq!(flooder.next(), ToyEvent::Frame(aside, record));
        // Timers keep running, and run after received data.
        server.ask(Ask::Timer(Duration::ZERO));
        while server.next() != ToyEvent::Fired {}
    }
}

#[test]
fn a_turn_takes_no_more_than_its_share_and_the_rest_is_not_forgotten() {
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
    one.ask(Ask::Flood(here, 200, LEN));
    one.wait_for(|counters| counters.writes_blocked > 0 || counters.records_out == 200);
    let before = server.handle.counters();
    server.resume();
    for number in 0..200 {
        assert!(
            server.next() == ToyEvent::Frame(there, numbered(number, LEN)),
            "{number}"
        );
    }
    let after = server.handle.counters();
    // One read of the socket takes up to 256 KiB, and is a turn's share here.
    let looks = (after.bytes_in - before.bytes_in) / (256 << 10);
    assert!(after.turns - before.turns >= looks, "{after:?}");
    // Writes are bounded alike: one record per turn.
    let before = server.handle.counters();
    server.ask(Ask::Flood(there, 100, 10));
    for number in 0..100 {
        assert_eq!(one.next(), ToyEvent::Frame(here, numbered(number, 10)));
    }
    let after = server.handle.counters();
    assert!(after.turns - before.turns >= 100, "{after:?}");
}

#[test]
fn a_servicer_at_rest_makes_no_turns() {
    let (one, other) = (Node::start(), Node::start());
    let (here, there) = one.join(&other);
    one.ask(Ask::Send(here, b"done".to_vec()));
    assert_eq!(other.next(), ToyEvent::Frame(there, b"done".to_vec()));
    one.ping();
    // Another servicer measures the time.
    let clock = Node::start();
    let turns = || one.handle.counters().turns;
    let before = turns();
    for _ in 0..10 {
        clock.ask(Ask::Timer(Duration::from_millis(30)));
        assert_eq!(clock.next(), ToyEvent::Fired);
    }
    let after = turns();
    assert!(after - before <= 2, "{before} to {after}");
    assert!(PATIENCE > Duration::from_millis(300));
}
