mod body;

use super::*;
use crate::bundle::Shape;
use crate::input::Width;

const PERIOD: u64 = 10_000_000;

const LIMITS: RepairLimits = RepairLimits {
    ticks: 4,
    period_nanos: PERIOD,
    report_ticks: 1,
    len_max: 20,
    reserved_len: 0,
    len_small: 0,
    burst: 40,
    gain: 5,
};

/// A chain of one-byte bundles.
fn chain(end: u32) -> Chain {
    let mut chain = Chain::new(Shape {
        seats: 1,
        width: Width::bits::<8>(),
    });
    (0..end).for_each(|tick| chain.put(Tick(tick), &[0]));
    chain
}

fn at(tick: u32) -> Instant {
    Instant::from_nanos(u64::from(tick) * PERIOD)
}

#[expect(clippy::fn_params_excessive_bools, reason = "what the client says")]
fn ack(repair: &mut Repair, now: u32, next: u32, is_gap: bool) {
    let ack = Ack {
        next: Tick(next),
        is_gap,
        sent_at: next.checked_sub(1).map(at),
    };
    repair.on_ack(at(now), &ack);
}

fn slice(repair: &mut Repair, now: u32) -> (Range<u32>, bool) {
    slice_with(repair, now, &LIMITS)
}

fn slice_with(repair: &mut Repair, now: u32, limits: &RepairLimits) -> (Range<u32>, bool) {
    let chain = chain(now);
    let closed = Closed {
        chain: &chain,
        end: Tick(now),
        next_at: Some(at(repair.next.0)),
    };
    let slice = repair.slice(at(now), &closed, limits);
    (slice.ticks, slice.is_catch_up)
}

#[test]
fn the_last_few_ticks_are_sent_unless_acknowledged() {
    let mut repair = Repair::new(&LIMITS);
    assert_eq!(slice(&mut repair, 3), (0..3, false));
    ack(&mut repair, 4, 2, false);
    assert_eq!(slice(&mut repair, 4), (2..4, false));
    assert_eq!(slice(&mut repair, 7), (3..7, false));
}

#[test]
fn a_short_run_includes_older_unacknowledged_ticks() {
    let limits = RepairLimits {
        reserved_len: 0,
        len_small: 6,
        ..LIMITS
    };
    let mut repair = Repair::new(&limits);
    assert_eq!(slice_with(&mut repair, 4, &limits), (0..4, false));
    assert_eq!(
        slice_with(&mut repair, 7, &limits),
        (1..7, false),
        "6 bytes"
    );
    ack(&mut repair, 8, 3, false);
    assert_eq!(slice_with(&mut repair, 8, &limits), (3..8, false));
    // Unsent ticks are sent regardless of size, and then without older ones.
    assert_eq!(slice_with(&mut repair, 20, &limits), (8..20, false));
}

#[test]
fn ticks_closed_in_a_burst_are_all_sent() {
    let mut repair = Repair::new(&LIMITS);
    assert_eq!(slice(&mut repair, 2), (0..2, false));
    assert_eq!(slice(&mut repair, 10), (2..10, false), "more than four");
}

#[test]
fn a_gap_is_repaired_oldest_first_once_a_round_trip() {
    let mut repair = Repair::new(&LIMITS);
    ack(&mut repair, 12, 10, false);
    // A round trip of 3 ticks is measured, and all ticks were sent once.
    repair.unsent = Tick(60);
    ack(&mut repair, 60, 10, true);
    assert_eq!(slice(&mut repair, 60), (10..30, true), "as many as fit");
    assert_eq!(slice(&mut repair, 61), (30..50, true));
    assert_eq!(
        slice(&mut repair, 62),
        (58..62, false),
        "the budget is spent"
    );
    (0..8).for_each(|_| repair.on_tick(&LIMITS));
    assert_eq!(slice(&mut repair, 63), (50..63, true));
    (0..8).for_each(|_| repair.on_tick(&LIMITS));
    assert_eq!(slice(&mut repair, 64), (60..64, false), "all is on its way");
    ack(&mut repair, 65, 10, true);
    assert_eq!(slice(&mut repair, 65), (10..30, true), "and was lost");
}

#[test]
fn an_old_acknowledgement_is_a_gap_even_if_the_client_is_silent() {
    let mut repair = Repair::new(&LIMITS);
    ack(&mut repair, 12, 10, false);
    // 3 ticks of round trip, 2 of margin, 4 of copies.
    repair.unsent = Tick(19);
    ack(&mut repair, 18, 10, false);
    assert_eq!(slice(&mut repair, 19), (15..19, false));
    assert_eq!(slice(&mut repair, 20), (10..20, true));
}

#[test]
fn a_silent_client_gets_no_more_than_its_share() {
    let mut repair = Repair::new(&LIMITS);
    ack(&mut repair, 12, 10, true);
    repair.unsent = Tick(60);
    assert_eq!(slice(&mut repair, 60), (56..60, false));
    ack(&mut repair, 60, 10, false);
    assert_eq!(slice(&mut repair, 60), (10..30, true));
}

#[test]
fn an_old_vote_changes_nothing() {
    let mut repair = Repair::new(&LIMITS);
    ack(&mut repair, 12, 10, false);
    ack(&mut repair, 13, 5, true);
    assert_eq!(repair.next, Tick(10));
    assert_eq!(slice(&mut repair, 13), (10..13, false));
}

/// A chain of which one bundle fills a datagram.
fn wide_chain(end: u32) -> Chain {
    let mut chain = Chain::new(Shape {
        seats: 1,
        width: Width::bits::<128>(),
    });
    (0..end).for_each(|tick| chain.put(Tick(tick), &[0; 15]));
    chain
}

#[test]
fn a_gap_of_wide_turns_does_not_displace_the_newest() {
    let mut repair = Repair::new(&LIMITS);
    ack(&mut repair, 12, 10, false);
    repair.unsent = Tick(60);
    ack(&mut repair, 61, 10, true);
    let mut sent = Vec::new();
    for now in [61, 62] {
        let chain = wide_chain(now);
        let closed = Closed {
            chain: &chain,
            end: Tick(now),
            next_at: Some(at(repair.next.0)),
        };
        loop {
            sent.push(repair.slice(at(now), &closed, &LIMITS).ticks);
            if !repair.is_newest_due {
                break;
            }
        }
    }
    assert_eq!(sent, [10..11, 60..61, 11..12, 61..62]);
    // One-byte turns wait for the next datagram.
    let mut repair = Repair::new(&LIMITS);
    ack(&mut repair, 12, 10, false);
    repair.unsent = Tick(60);
    ack(&mut repair, 61, 10, true);
    assert_eq!(slice(&mut repair, 61), (10..30, true));
    assert!(!repair.is_newest_due);
}
