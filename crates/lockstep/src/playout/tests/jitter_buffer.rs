#![expect(clippy::arithmetic_side_effects, reason = "numbers of tests are small")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Items returned up to `now`, with one poll per millisecond.
fn drain(buffer: &mut JitterBuffer<u64>, from: u64, now: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    for now in from..=now {
        while let Some((_, item)) = buffer.pop(at(now)) {
            out.push((now, item));
        }
    }
    out
}

#[test]
fn uneven_arrivals_are_played_evenly() {
    let mut buffer = JitterBuffer::new(Playout::Fixed(millis(30)), 64);
    for (now, sent) in [
        (1_010, 0),
        (1_055, 40),
        (1_031, 20),
        (1_031, 20),
        (1_070, 60),
    ] {
        buffer.push(at(now), at(sent), sent);
    }
    assert_eq!(buffer.delay(), millis(30));
    let out = drain(&mut buffer, 1_000, 1_200);
    assert_eq!(out, [(1_040, 0), (1_060, 20), (1_080, 40), (1_100, 60)]);
    let stats = buffer.stats();
    assert_eq!((stats.items, stats.dropped_duplicate), (4, 1));
    assert_eq!(buffer.next_at(), None);
}

#[test]
fn a_late_arrival_is_dropped_and_lengthens_the_delay() {
    let max = millis(200);
    let mut buffer = JitterBuffer::new(Playout::Adaptive { max }, 64);
    // One in ten is overtaken by the next two.
    let sent = (0..100).map(|number| number * 20);
    let arrivals = sent.map(|sent| (sent + if sent % 200 == 100 { 1_000 } else { 950 }, sent));
    let mut arrivals: Vec<_> = arrivals.collect();
    arrivals.sort_unstable();
    let (mut out, mut from) = (Vec::new(), 950);
    for (now, sent) in arrivals {
        out.extend(drain(&mut buffer, from, now));
        buffer.push(at(now), at(sent), sent);
        from = now;
    }
    let stats = *buffer.stats();
    // The first two raise the delay.
    assert!((1..=2).contains(&stats.dropped_late), "{stats:?}");
    assert!(buffer.delay() >= millis(50) && buffer.delay() <= max);
    assert!(out.is_sorted_by_key(|(_, sent)| *sent));
    // An item that was already returned arrives again: it is a duplicate, not late.
    let (_, newest) = *out.last().unwrap();
    buffer.push(at(4_000), at(newest), newest);
    assert_eq!(
        buffer.stats().dropped_duplicate,
        stats.dropped_duplicate + 1
    );
}

#[test]
fn the_buffer_is_bounded() {
    for (asked, held) in [(0, 1), (1, 1), (64, 64), (u16::MAX, 1_024)] {
        let mut buffer = JitterBuffer::new(Playout::NONE, asked);
        let slots = buffer.items.capacity();
        for sent in (0..3_000).rev() {
            buffer.push(at(5_000), at(sent), sent);
        }
        assert_eq!(buffer.items.len(), held);
        assert_eq!(buffer.items.capacity(), slots);
        assert_eq!(
            buffer.stats().dropped_full,
            3_000 - u64::try_from(held).unwrap()
        );
    }
}

#[test]
fn a_sender_with_a_stepped_clock_is_followed() {
    let mut buffer = JitterBuffer::new(Playout::Fixed(millis(10)), 64);
    buffer.push(at(1_000), at(100), 1);
    assert_eq!(buffer.pop(at(1_010)), Some((at(100), 1)));
    buffer.push(at(1_020), at(90_000), 2);
    assert_eq!(buffer.pop(at(1_030)), Some((at(90_000), 2)));
    for back in 0..33 {
        buffer.push(at(1_040 + back), at(140 + back), back);
    }
    assert_eq!(
        (buffer.stats().restarts, buffer.stats().dropped_late),
        (2, 32)
    );
    assert_eq!(buffer.pop(at(1_081)).map(|(_, back)| back), Some(31));
    assert_eq!(buffer.pop(at(1_082)).map(|(_, back)| back), Some(32));
}

proptest! {
    #[test]
    fn agrees_with_a_model_that_keeps_every_item(
        arrivals in proptest::collection::vec((0_u64..20, 0_u64..6), 0..60),
        delay in 0_u64..60,
    ) {
        let mut buffer = JitterBuffer::new(Playout::Fixed(millis(delay)), 1_024);
        // Waiting items, all seen items, the lowest latency, and the newest returned item.
        let (mut waiting, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let (mut base, mut popped) = (u64::MAX, None);
        let mut now = 1_000;
        for (number, (pause, ahead)) in (0..).zip(arrivals) {
            for look in now..=now + pause {
                while let Some((sent, item)) = waiting.first_key_value().map(|(a, b)| (*a, *b))
                    && sent + base + delay <= look
                {
                    prop_assert_eq!(buffer.pop(at(look)), Some((at(sent), item)));
                    waiting.pop_first();
                    popped = Some(sent);
                }
                prop_assert_eq!(buffer.pop(at(look)), None);
            }
            now += pause;
            let sent = (number + ahead) * 10;
            let is_taken = popped.is_none_or(|popped| sent > popped) && !waiting.contains_key(&sent);
            let is_second = waiting.contains_key(&sent) || popped == Some(sent);
            buffer.push(at(now), at(sent), now);
            if is_taken {
                waiting.insert(sent, now);
                seen.insert(sent);
            }
            if !is_second {
                base = base.min(now - sent);
            }
        }
        let stats = buffer.stats();
        prop_assert_eq!(stats.restarts, 0);
        prop_assert!(stats.items <= u64::try_from(seen.len()).unwrap());
    }
}
