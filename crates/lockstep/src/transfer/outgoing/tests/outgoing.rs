use super::super::*;

#[test]
fn the_probe_timeout_follows_the_round_trip() {
    let mut trip = RoundTrip::new();
    assert_eq!(trip.probe_timeout(), Duration::from_millis(333 + 666 + 40));
    let start = Instant::from_millis(5);
    let at = |millis| start + Duration::from_millis(millis);
    trip.on_sample(at(100), start);
    assert_eq!(trip.probe_timeout(), Duration::from_millis(100 + 200 + 40));
    (0..100).for_each(|_| trip.on_sample(at(100), start));
    assert_eq!(trip.probe_timeout(), Duration::from_millis(100 + 1 + 40));
    // An acknowledgement from before the transmission, and one after centuries.
    trip.on_sample(Instant::ZERO, start);
    trip.on_sample(Instant::from_nanos(u64::MAX), start);
    trip.on_sample(Instant::from_nanos(u64::MAX), start);
    assert!(trip.probe_timeout() > Duration::from_secs(1 << 30));
}

#[test]
fn the_rate_is_exact_and_saves_up_no_more_than_a_burst() {
    let mut rate = Rate::new(3, 10, Instant::ZERO);
    rate.spend(10);
    assert_eq!(rate.holds_at(1), Some(Instant::from_nanos(333_333_334)));
    rate.refill(Instant::from_nanos(333_333_333));
    assert!(!rate.holds(1));
    rate.refill(Instant::from_nanos(333_333_334));
    assert!(rate.holds(1));
    // A clock that steps back adds nothing.
    rate.refill(Instant::ZERO);
    rate.refill(Instant::from_nanos(333_333_334));
    assert!(!rate.holds(2));
    rate.refill(Instant::from_nanos(u64::MAX));
    assert!(rate.holds(10) && !rate.holds(11));
    assert_eq!(rate.holds_at(11), None);
    assert_eq!(Rate::new(0, 0, Instant::ZERO).holds_at(1), None);
}
