use super::super::*;

#[test]
fn the_time_of_a_transfer_follows_its_bytes_and_the_rate() {
    let mut limits = TransferLimits::default();
    // Nine chunks with headers exceed the burst by one datagram.
    let len = 9 * usize::from(limits.stride());
    let datagram = Duration::from_micros(880) * 9 / 8;
    assert_eq!(limits.time_for(len), ROUND_TRIP + datagram);
    assert_eq!(limits.time_for(0), ROUND_TRIP);
    // A mebibyte with headers, at 10 Mbit/s.
    let mebibyte = limits.time_for(1 << 20).as_millis();
    assert!((1_195..1_200).contains(&mebibyte), "{mebibyte}");
    limits.rate_bytes_per_s = 0;
    assert_eq!(limits.time_for(8_000), ROUND_TRIP);
    assert_eq!(limits.time_for(9_000), Duration::MAX);
    limits.rate_bytes_per_s = 1;
    limits.datagram_len_max = 0;
    assert!(limits.time_for(1 << 30) > Duration::from_secs(1 << 30));
    let _ = limits.time_for(usize::MAX);
}
