//! How long packets are remembered of which nothing more is to be learnt, and what they measure.

use super::*;

/// A packet every 16 ms, of which the first is lost: half a second later nothing holds the record any more,
/// and until then a late acknowledgement is known for what it is.
#[test]
fn what_counts_as_lost_is_remembered_for_half_a_second_and_three_probe_timeouts() {
    for late_at in [450, 570] {
        let mut sender = Sender::new(0);
        let mut spurious = 0;
        for step in 0..40_u64 {
            let now = step * 16;
            sender.send(now, Elicits::Ack);
            if step == 0 {
                continue;
            }
            // All but the first, 10 ms later; and at last the first, too.
            let is_late = now + 10 >= late_at;
            let run = u16::try_from(step - u64::from(!is_late)).unwrap();
            let summary = sender.ack(now + 10, step, run, &[]).unwrap();
            spurious += summary.spurious_packets;
            let most = if now < 600 { 40 } else { 1 };
            assert!(sender.sent.slots.len() <= most, "{step}");
        }
        // It counts as lost with the fourth, at 58 ms at the latest.
        assert_eq!(spurious, u32::from(late_at < 558), "{late_at}");
        assert!(sender.sent.slots.capacity() <= 64);
        assert_eq!(sender.sent.lost, 0);
    }
}

/// The round trip grows after the loss, and with it the time for which a late acknowledgement is known
/// for what it is.
#[test]
fn what_counts_as_lost_is_remembered_as_long_as_the_round_trip_of_now_asks() {
    let mut sender = Sender::new(0);
    sender.send(0, Elicits::Ack);
    for step in 1..=4 {
        sender.send(step * 16, Elicits::Ack);
        let run = u16::try_from(step - 1).unwrap();
        sender.ack(step * 16 + 10, step, run, &[]).unwrap();
    }
    assert!(sender.told().contains(&(0, Outcome::Lost)));
    let last = sender.send(100, Elicits::Ack);
    let summary = sender.ack(700, last, 4, &[]).unwrap();
    assert_eq!((last, summary.lost_packets), (5, 0));
    assert!(sender.rtt.pto() * 3 > Duration::from_secs(1));
    let summary = sender.ack(710, last, 5, &[]).unwrap();
    assert_eq!(summary.spurious_packets, 1);
}

/// Nobody acknowledges what only acknowledges: it makes place for what follows, and nothing grows.
#[test]
fn packets_that_elicit_nothing_are_forgotten_where_nothing_is_acknowledged() {
    let mut sender = Sender::new(0);
    for step in 0..1_000 {
        sender.send(step * 100, Elicits::Nothing);
        assert_eq!(sender.sent.slots.capacity(), 8);
    }
    let last = sender.send(200_000, Elicits::Ack);
    sender.ack(200_010, last, 0, &[]).unwrap();
    assert_eq!(sender.told(), [(last, Outcome::Acked)]);
}

/// The path changes between a packet and its acknowledgement.
#[test]
fn a_packet_from_before_a_change_of_path_measures_nothing() {
    let mut sender = Sender::new(0);
    for millis in [0, 10, 20] {
        sender.send(millis, Elicits::Ack);
    }
    sender.ack(50, 0, 0, &[]).unwrap();
    assert_eq!(sender.rtt.latest(), Some(Duration::from_millis(50)));
    sender.sent.measure_anew();
    sender.rtt.reset(None);
    let summary = sender.ack(60, 2, 1, &[]).unwrap();
    assert_eq!((summary.acked_packets, summary.rtt_sample), (2, None));
    assert_eq!(sender.rtt.latest(), None);
    let first = sender.send(70, Elicits::Ack);
    let summary = sender.ack(90, first, 0, &[]).unwrap();
    assert_eq!(summary.rtt_sample, Some(Duration::from_millis(20)));
}
