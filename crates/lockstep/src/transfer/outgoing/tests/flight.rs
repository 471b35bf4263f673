use core::time::Duration;

use super::super::*;
use crate::message::{Direction, ack_of, decode_chunk_ack, write_chunk_ack};

fn at(millis: u64) -> Instant {
    Instant::from_millis(1_000 + millis)
}

/// Sends up to `most` due chunks; returns their indices.
fn send(flight: &mut Flight, now: u64, most: usize) -> Vec<u32> {
    let now = at(now);
    flight.judge(now);
    let mut sent = Vec::new();
    while sent.len() < most
        && let Some((index, purpose)) = flight.choose(now)
    {
        flight.on_sent(now, index, purpose);
        sent.push(index);
    }
    sent
}

/// Handles an acknowledgement of all chunks before `next` and of `arrived`.
fn hear(flight: &mut Flight, now: u64, next: u32, latest: u32, arrived: &[u32]) {
    let mut bytes = Vec::new();
    let ack = ack_of(0, next, latest);
    write_chunk_ack(&mut bytes, Direction::Up, &ack, arrived.iter().copied());
    let ack = decode_chunk_ack(&bytes, Direction::Up).unwrap();
    flight.on_ack(at(now), &ack);
    flight.judge(at(now));
}

#[test]
fn a_chunk_is_lost_when_three_later_ones_arrived() {
    let mut flight = Flight::new(100);
    (0..6).for_each(|now| assert_eq!(send(&mut flight, now, 1).len(), 1));
    hear(&mut flight, 13, 1, 3, &[2, 3]);
    assert_eq!(send(&mut flight, 13, 1), [6], "two came after 1");
    hear(&mut flight, 14, 1, 4, &[2, 3, 4]);
    assert_eq!(send(&mut flight, 14, 2), [1, 7]);
}

#[test]
fn an_ack_of_a_retransmission_is_not_taken_for_the_first() {
    let mut flight = Flight::new(100);
    (0..6).for_each(|now| assert_eq!(send(&mut flight, now, 1).len(), 1));
    hear(&mut flight, 10, 0, 5, &[1, 2, 3, 4, 5]);
    let sent = [10, 11, 12, 13].map(|now| send(&mut flight, now, 1));
    assert_eq!(sent, [[0], [6], [7], [8]], "0 is number 6 now");
    // Two transmissions sent after it have arrived; then three.
    hear(&mut flight, 20, 0, 8, &[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(send(&mut flight, 20, 1), [9]);
    hear(&mut flight, 21, 0, 9, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(send(&mut flight, 21, 2), [0, 10]);
    // A reordered, older acknowledgement changes nothing.
    hear(&mut flight, 22, 0, 5, &[1, 2, 3, 4, 5]);
    assert_eq!(send(&mut flight, 22, 1), [11]);
}

#[test]
fn reordering_within_an_eighth_of_the_round_trip_is_no_loss() {
    let mut flight = Flight::new(1_000);
    for now in 0..15 {
        send(&mut flight, now, 2);
    }
    // With a round trip of 80 ms, 9 ms of reordering are tolerated and 10 are not.
    hear(&mut flight, 80 + 9, 0, 19, &(1..20).collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 89, 1), [30]);
    hear(&mut flight, 80 + 10, 0, 20, &(1..21).collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 90, 1), [0]);
}

#[test]
fn on_a_reordering_path_loss_detection_waits_longer() {
    let mut flight = Flight::new(1_000);
    for now in 0..60 {
        send(&mut flight, now, 1);
    }
    // Chunk 0 is declared lost, but was only 31 ms late: its retransmission is in flight.
    hear(&mut flight, 71, 0, 31, &(1..32).collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 71, 1), [0]);
    hear(&mut flight, 72, 32, 32, &[]);
    assert_eq!(flight.reordering, Duration::from_millis(31));
    // The window is now 35 ms, an eighth more than the seen reordering: 34 ms are tolerated.
    hear(&mut flight, 98, 33, 58, &(34..59).collect::<Vec<_>>());
    hear(&mut flight, 99, 33, 59, &(34..60).collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 100, 8).first(), Some(&60));
    hear(&mut flight, 150, 33, 60, &(34..60).collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 150, 1), [33], "number 60, sent at 71");
}

#[test]
fn a_chunk_overtaken_by_a_round_trip_is_lost() {
    let mut flight = Flight::new(2_000);
    for now in 0..900 {
        send(&mut flight, now, 1);
        let last_received = u32::try_from(now).unwrap().checked_sub(20);
        if let Some(latest) = last_received.filter(|latest| *latest >= 100) {
            let arrived: Vec<_> = (101..=latest).collect();
            hear(&mut flight, now, 100, latest, &arrived);
        } else if let Some(latest) = last_received {
            hear(&mut flight, now, latest + 1, latest, &[]);
        }
    }
    let most = flight.trip.reorder_window(Duration::MAX);
    assert!(most < Duration::from_millis(25), "{most:?}");
    let again = flight.log.ring.iter().filter(|it| it.index == 100).count();
    assert!(again > 30, "as each is found lost in turn");
}

#[test]
fn the_last_chunks_are_probed_twice_at_most() {
    let mut flight = Flight::new(100);
    (0..10).for_each(|now| assert_eq!(send(&mut flight, now, 10).len(), 10));
    let copies = send(&mut flight, 10, 1_000);
    let tail = 100 - TAIL_MAX..100;
    assert_eq!(copies, tail.collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 11, 1_000), [0; 0]);
    // A chunk lost in the tail phase is sent twice as well: here 7, and none that arrived.
    let arrived: Vec<_> = (8..100).collect();
    hear(&mut flight, 50, 7, 163, &arrived);
    assert_eq!(send(&mut flight, 50, 1_000), [7, 7]);
    hear(&mut flight, 100, 100, 165, &[]);
    assert!(flight.is_done() && flight.timer().is_none());
}

#[test]
fn without_acks_two_chunks_are_sent_with_backoff() {
    let mut flight = Flight::new(100);
    send(&mut flight, 0, 10);
    hear(&mut flight, 100, 1, 0, &[]);
    let probe_timeout = flight.trip.probe_timeout();
    assert_eq!(probe_timeout, Duration::from_millis(100 + 4 * 50 + 40));
    assert_eq!(send(&mut flight, 100, 3), [10, 11, 12]);
    assert_eq!(send(&mut flight, 439, 1), [13]);
    // Nothing new is sent 340 ms after the last acknowledgement. The first probe is due 340 ms
    // after the last chunk.
    assert_eq!(send(&mut flight, 440, 9), [0; 0]);
    assert_eq!(flight.timer(), Some(at(439 + 340)));
    assert_eq!(send(&mut flight, 778, 9), [0; 0]);
    let mut waits = Vec::new();
    let mut now = 439;
    for _ in 0..7 {
        let due = flight.timer().unwrap().as_millis() - 1_000;
        waits.push(due - now);
        now = due;
        assert_eq!(send(&mut flight, now, 9), [1, 2]);
    }
    assert_eq!(waits, [340, 680, 1_000, 1_000, 1_000, 1_000, 1_000]);
    // After an answer, all that was in flight before is known to be lost.
    let latest = flight.log.next - 1;
    hear(&mut flight, now + 100, 3, latest, &[]);
    let lost: Vec<_> = (3..14).collect();
    assert_eq!(send(&mut flight, now + 100, 11), lost);
    assert_eq!(send(&mut flight, now + 100, 1), [14]);
}

#[test]
fn a_chunk_is_lost_by_time_once_a_later_one_is_acked() {
    let mut flight = Flight::new(5);
    assert_eq!(send(&mut flight, 0, 5).len(), 5);
    let copies = send(&mut flight, 0, 9);
    assert_eq!(copies, [0, 1, 2, 3, 4]);
    // Chunk 4 and its copy are lost; no later transmission arrived.
    hear(&mut flight, 100, 4, 8, &[]);
    assert_eq!(flight.timer(), Some(at(340)), "only silence would tell");
    // Chunk 3 and its copy are lost; one later transmission arrived.
    let mut flight = Flight::new(5);
    send(&mut flight, 0, 10);
    hear(&mut flight, 100, 3, 9, &[4]);
    assert_eq!(send(&mut flight, 339, 9), [0; 0]);
    assert_eq!(flight.timer(), Some(at(340)));
    assert_eq!(send(&mut flight, 340, 1), [3]);
}

#[test]
fn sending_stays_within_the_receivers_window() {
    let mut flight = Flight::new(u32::MAX);
    (0..41).for_each(|now| assert_eq!(send(&mut flight, now, 25).len(), 25));
    assert_eq!(send(&mut flight, 41, 5_000), [0; 0]);
    hear(&mut flight, 50, 0, 1_024, &(1..1_025).collect::<Vec<_>>());
    assert_eq!(send(&mut flight, 50, 5_000), [0]);
    hear(&mut flight, 60, 1_025, 1_025, &[]);
    assert_eq!(send(&mut flight, 60, 5_000).len(), 1_025);
}

#[test]
fn invalid_acks_change_nothing() {
    let mut flight = Flight::new(100);
    send(&mut flight, 0, 10);
    hear(&mut flight, 1, 11, 9, &[]);
    hear(&mut flight, 1, 0, 10, &[]);
    hear(&mut flight, 1, u32::MAX, u32::MAX, &[]);
    assert_eq!((flight.base, flight.latest), (0, None));
    // Chunks that were never sent are ignored.
    hear(&mut flight, 2, 0, 9, &[9, 10, 500, 1_023]);
    assert_eq!(flight.base, 0);
    hear(&mut flight, 3, 10, 9, &[]);
    assert_eq!((flight.base, flight.unsent), (10, 10));
    // An older acknowledgement does not move the base back.
    hear(&mut flight, 4, 3, 9, &[]);
    assert_eq!((flight.base, flight.unsent), (10, 10));
    // An acknowledgement of numbers without their chunks: all but the last ten are declared lost,
    // sent again and copied, and the last ten are copied; nothing more.
    (5..14).for_each(|now| assert_eq!(send(&mut flight, now, 10).len(), 10));
    hear(&mut flight, 14, 10, 99, &[]);
    assert_eq!(send(&mut flight, 14, 1_000).len(), 80 + 80 + 10);
    assert_eq!(send(&mut flight, 15, 1_000), [0; 0]);
}
