use proptest::prelude::*;

use super::*;

const ROUND_TRIP: Duration = Duration::from_millis(50);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn rtt(millis: u64) -> RttEstimator {
    let mut rtt = RttEstimator::new(Duration::ZERO);
    rtt.on_sample(Duration::from_millis(millis), Duration::ZERO);
    rtt
}

fn acked(bytes: u32) -> Summary {
    Summary {
        acked_packets: bytes / 1_200,
        acked_bytes: bytes,
        rtt_sample: Some(ROUND_TRIP),
        ..Summary::default()
    }
}

fn lost(sent_at: Instant) -> Summary {
    Summary {
        lost_packets: 1,
        lost_sent_at: Some(sent_at),
        ..Summary::default()
    }
}

/// A summary with nothing else in flight.
fn on_summary(congestion: &mut Congestion, now: Instant, summary: &Summary, rtt: &RttEstimator) {
    congestion.on_summary(now, (summary, InFlight::default()), rtt);
}

fn limited() -> Congestion {
    let mut congestion = Congestion::new(at(0));
    congestion.set_limit(Limit::Window);
    congestion
}

/// RFC 9002, sections 7.2, 7.3.1 to 7.3.3.
#[test]
fn the_window_doubles_halves_once_a_round_trip_and_grows_linearly() {
    let mut congestion = limited();
    let rtt = rtt(50);
    assert_eq!(congestion.window, 12_000);
    on_summary(&mut congestion, at(50), &acked(12_000), &rtt);
    assert_eq!(congestion.window, 24_000);
    on_summary(&mut congestion, at(100), &lost(at(60)), &rtt);
    assert_eq!((congestion.window, congestion.recovery), (12_000, at(100)));
    // Sent before the reduction: the same event.
    on_summary(&mut congestion, at(120), &lost(at(100)), &rtt);
    assert_eq!(congestion.window, 12_000);
    for step in 0..10 {
        on_summary(&mut congestion, at(150 + step), &acked(1_200), &rtt);
    }
    assert_eq!(congestion.window, 13_200);
    for round in 1..20 {
        on_summary(
            &mut congestion,
            at(200 * round),
            &lost(at(200 * round - 1)),
            &rtt,
        );
    }
    assert_eq!(congestion.window, MIN);
    congestion.on_silence(at(9_000));
    assert_eq!(congestion.window, MIN);
}

/// RFC 9002, section 7.8.
#[test]
fn an_unused_window_does_not_grow() {
    let mut congestion = Congestion::new(at(0));
    on_summary(&mut congestion, at(50), &acked(12_000), &rtt(50));
    assert_eq!(congestion.window, INITIAL);
}

#[test]
fn a_queue_stops_growth_then_ends_slow_start_then_shrinks_the_window() {
    let mut congestion = limited();
    on_summary(&mut congestion, at(50), &acked(12_000), &rtt(50));
    // 20 ms of queue: slow start waits one RTT to see whether it passes.
    on_summary(&mut congestion, at(100), &acked(12_000), &rtt(70));
    assert_eq!(congestion.window, 24_000);
    on_summary(&mut congestion, at(110), &acked(1_200), &rtt(51));
    assert_eq!(congestion.window, 25_200, "they did");
    on_summary(&mut congestion, at(120), &acked(1_200), &rtt(70));
    on_summary(&mut congestion, at(190), &acked(1_200), &rtt(70));
    assert_eq!(congestion.window, 25_200 * 50 / 70, "they did not");
    let window = congestion.window;
    on_summary(&mut congestion, at(300), &acked(100_000), &rtt(91));
    let yielded = window - window / 8;
    assert_eq!(congestion.window, yielded);
    on_summary(&mut congestion, at(320), &acked(100_000), &rtt(91));
    assert_eq!(congestion.window, yielded, "once in a round trip");
    on_summary(&mut congestion, at(392), &acked(100_000), &rtt(91));
    assert_eq!(congestion.window, yielded - yielded / 8);
}

#[test]
fn a_queue_shrinks_the_window_only_with_bulk_in_flight() {
    let mut congestion = Congestion::new(at(0));
    on_summary(&mut congestion, at(50), &acked(1_200), &rtt(50));
    for round in 1..10 {
        on_summary(&mut congestion, at(200 * round), &acked(1_200), &rtt(250));
    }
    assert_eq!(congestion.window, INITIAL);
    let in_flight = InFlight {
        total: 1_200,
        bulk: 1_200,
    };
    for round in 10..12 {
        let now = at(300 * round);
        congestion.on_summary(now, (&acked(1_200), in_flight), &rtt(250));
    }
    assert!(congestion.window < INITIAL);
}

#[test]
fn two_bulk_packets_may_be_in_flight_with_any_window() {
    let congestion = Congestion::new(at(0));
    let room = |total, bulk| congestion.has_room(InFlight { total, bulk }, 1_200);
    assert!(room(10_800, 10_800) && !room(10_801, 10_800));
    assert!(room(500_000, 1_200) && !room(500_000, 1_201));
}

/// RFC 9000, section 9.4.
#[test]
fn a_new_path_begins_with_the_initial_window() {
    let mut congestion = limited();
    on_summary(&mut congestion, at(50), &acked(12_000), &rtt(50));
    on_summary(&mut congestion, at(60), &lost(at(55)), &rtt(50));
    congestion.restart(at(100));
    on_summary(&mut congestion, at(150), &lost(at(99)), &rtt(90));
    assert_eq!(congestion.window, INITIAL);
    on_summary(&mut congestion, at(190), &acked(12_000), &rtt(90));
    assert_eq!(
        congestion.window,
        2 * INITIAL,
        "it starts slowly, and grows"
    );
}

proptest! {
    /// A receiver that acknowledges one packet at a time, or lies about the RTT, gets no more
    /// than one that acknowledges all at once: growth counts bytes, and doubles at most once
    /// per window.
    #[test]
    fn twp_p8_no_acknowledgements_grow_the_window_faster_than_the_bytes(
        parts in prop::collection::vec((0_u32..40, 1_u64..400), 1..200),
    ) {
        let mut congestion = limited();
        let (mut bytes, mut now) = (0, 0);
        for (packets, round_trip) in parts {
            now += 7;
            bytes += u64::from(packets) * 1_200;
            on_summary(&mut congestion, at(now), &acked(packets * 1_200), &rtt(round_trip));
            prop_assert!(congestion.window <= INITIAL + bytes);
            prop_assert!((MIN..=MAX).contains(&congestion.window));
        }
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_longer_path_is_detected_in_20_seconds_and_a_shorter_one_at_once() {
    let mut base = BaseDelay::new(Instant::ZERO);
    assert_eq!(base.get(), None);
    let mut turns = Vec::new();
    for second in 0..40 {
        let sample = if second < 5 { ms(40) } else { ms(140) };
        if base.on_sample(Instant::from_millis(second * 1_000), sample) {
            turns.push(second);
        }
        let expected = if second < 20 { ms(40) } else { ms(140) };
        assert_eq!(base.get(), Some(expected), "{second}");
    }
    assert_eq!(turns, [10, 20, 30]);
    base.on_sample(Instant::from_millis(40_000), ms(30));
    assert_eq!(base.get(), Some(ms(30)));
}

#[test]
fn after_a_long_silence_the_last_span_still_counts_until_another_is_over() {
    let mut base = BaseDelay::new(Instant::ZERO);
    base.on_sample(Instant::ZERO, ms(40));
    assert!(base.on_sample(Instant::from_millis(900_000), ms(70)));
    assert_eq!(base.get(), Some(ms(40)));
    assert!(base.on_sample(Instant::from_millis(910_000), ms(70)));
    assert_eq!(base.get(), Some(ms(70)));
}
