use super::*;

const FULL: u32 = 262_144;
const ROUND_TRIP: Duration = Duration::from_millis(40);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Acknowledges one packet.
fn acked(breaker: &mut Breaker, millis: u64) {
    let summary = Summary {
        acked_packets: 1,
        ..Summary::default()
    };
    breaker.on_summary(at(millis), ROUND_TRIP, &summary);
}

/// One second with these counts, reported in 20 steps; returns the rate after it.
fn second(breaker: &mut Breaker, start: u64, acked: u32, lost: u32) -> u32 {
    for part in 0..20 {
        let summary = Summary {
            acked_packets: acked / 20,
            lost_packets: lost / 20,
            ..Summary::default()
        };
        breaker.on_summary(at(start * 1_000 + part * 50), ROUND_TRIP, &summary);
    }
    breaker.advance(at(start * 1_000 + 1_000));
    breaker.rate
}

#[test]
fn more_than_a_fifth_lost_in_three_seconds_halves_the_rate() {
    let mut breaker = Breaker::new(at(0), FULL);
    for start in 0..30 {
        assert_eq!(second(&mut breaker, start, 80, 20), FULL);
    }
    let mut breaker = Breaker::new(at(0), FULL);
    let mut rates = Vec::new();
    for start in 0..30 {
        rates.push(second(&mut breaker, start, 60, 20));
    }
    let halves: Vec<u32> = (1..=10).map(|step| (FULL >> step).max(FLOOR)).collect();
    let thirds: Vec<u32> = rates.iter().copied().skip(2).step_by(3).collect();
    assert_eq!(thirds, halves);
    // The rate does not grow in between.
    assert_eq!(
        &rates[..6],
        &[FULL, FULL, FULL / 2, FULL / 2, FULL / 2, FULL / 4]
    );
}

#[test]
fn each_second_without_loss_restores_a_tenth_of_the_rate() {
    let mut breaker = Breaker::new(at(0), FULL);
    for start in 0..3 {
        second(&mut breaker, start, 60, 40);
    }
    let mut expected = FULL / 2;
    assert_eq!(breaker.rate, expected);
    for second in 4..=13 {
        breaker.advance(at(second * 1_000 - 1));
        assert_eq!(breaker.rate, expected);
        expected = (expected + expected / 10).min(FULL);
        breaker.advance(at(second * 1_000));
        assert_eq!(breaker.rate, expected);
    }
    assert_eq!(breaker.rate, FULL);
}

#[test]
fn silence_halves_the_rate_down_to_its_minimum() {
    let mut breaker = Breaker::new(at(0), FULL);
    for _ in 0..20 {
        breaker.on_silence(at(10));
    }
    breaker.advance(at(60_000));
    assert_eq!(breaker.rate, FLOOR, "nothing was acknowledged");
    acked(&mut breaker, 60_000);
    breaker.advance(at(86_400_000));
    assert_eq!(breaker.rate, FULL);
    let mut small = Breaker::new(at(0), 1_000);
    small.on_silence(at(0));
    assert_eq!(small.rate, 1_000, "below the floor from the start");
}

#[test]
fn few_or_late_packets_change_no_rate() {
    let mut breaker = Breaker::new(at(0), FULL);
    let lost = Summary {
        lost_packets: 29,
        ..Summary::default()
    };
    breaker.on_summary(at(100), ROUND_TRIP, &lost);
    breaker.advance(at(3_000));
    assert_eq!(breaker.rate, FULL);
    let mut breaker = Breaker::new(at(0), FULL);
    let late = Summary {
        lost_packets: 100,
        spurious_packets: 100,
        ..Summary::default()
    };
    breaker.on_summary(at(100), ROUND_TRIP, &late);
    breaker.advance(at(3_000));
    assert_eq!(breaker.rate, FULL);
}

/// The path recovers: `lost` packets in the gap.
fn back(breaker: &mut Breaker, (from, to): (u64, u64), lost: u32) {
    let summary = Summary {
        acked_packets: 1,
        lost_packets: lost,
        lost_in_gap: lost,
        gap: Some((at(from), at(to))),
        ..Summary::default()
    };
    breaker.on_summary(at(to + 40), ROUND_TRIP, &summary);
}

#[test]
fn a_gap_restores_the_rate_in_a_round_trip_and_its_losses_do_not_count() {
    let mut breaker = Breaker::new(at(0), FULL);
    acked(&mut breaker, 1_000);
    breaker.on_silence(at(1_300));
    breaker.on_silence(at(4_300));
    assert_eq!(breaker.rate, FULL / 4);
    back(&mut breaker, (1_000, 5_000), 400);
    assert_eq!(breaker.rate, FULL / 4);
    breaker.advance(at(5_090));
    assert_eq!(breaker.rate, FULL);
    for start in 6..20 {
        assert_eq!(second(&mut breaker, start, 80, 0), FULL);
    }
}

#[test]
fn loss_after_a_gap_and_frequent_gaps_restore_no_rate() {
    let mut breaker = Breaker::new(at(0), FULL);
    breaker.on_silence(at(1_300));
    back(&mut breaker, (1_000, 2_000), 60);
    let lost = Summary {
        lost_packets: 1,
        ..Summary::default()
    };
    breaker.on_summary(at(2_060), ROUND_TRIP, &lost);
    breaker.advance(at(2_900));
    assert!(breaker.rate < FULL);
    // One second of total loss, then two without: more than a fifth is lost.
    let mut breaker = Breaker::new(at(0), FULL);
    for cycle in 0..10 {
        let start = cycle * 3_000;
        breaker.on_silence(at(start + 300));
        back(&mut breaker, (start, start + 1_000), 60);
        breaker.advance(at(start + 1_500));
        if cycle > 0 {
            assert!(breaker.rate < FULL, "{cycle}");
        }
    }
    assert!(breaker.rate <= FULL / 8, "{}", breaker.rate);
}
