//! State datagrams that no honest peer sends, and their cost.

use core::time::Duration;
use std::sync::Arc;

use lockstep::state_channel::{
    StateLimits, StateReceiver, StateSender, decode_state_ack, decode_state_part, part_range,
};
use proptest::prelude::*;
use wire::{Instant, Seed, Writer};

use crate::alloc::{allocations, held};

const NOW: Instant = Instant::from_millis(1);

/// A fragment that is as long as its header states.
fn fragment(number: u32, total: u32, count: u16, index: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.u8(0xc1);
    writer.u32(number);
    writer.u32(total);
    writer.u8(u8::try_from(count - 1).unwrap());
    writer.u8(u8::try_from(index).unwrap());
    let range = part_range(total, count, index);
    out.resize(
        out.len() + usize::try_from(range.end - range.start).unwrap(),
        9,
    );
    out
}

#[test]
fn l6_a_receiver_holds_at_most_three_longest_states() {
    const LEN_MAX: u32 = 20_000;
    let mut draw = Seed::from_number(1).generator(0);
    let before = held();
    let mut receiver = StateReceiver::new(LEN_MAX);
    assert_eq!(held(), before, "nothing until something comes");
    for _ in 0..20_000 {
        let count = u16::try_from(draw.between(2, 256)).unwrap();
        let total = u32::try_from(draw.between(256, 25_000)).unwrap();
        let index = u16::try_from(draw.below(count.into())).unwrap();
        let number = u32::try_from(draw.between(1, 2_000)).unwrap();
        let datagram = fragment(number, total, count, index);
        let own = i64::try_from(datagram.capacity()).unwrap();
        receiver.handle_datagram(NOW, &datagram);
        receiver.poll_state();
        assert!(held() - own <= before + 3 * 20_000);
    }
    let stats = receiver.stats();
    let counts = [
        stats.oversize,
        stats.stale,
        stats.contradicting,
        stats.overtaken,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{stats:?}");
    // Over the limit, nothing is held.
    let mut receiver = StateReceiver::new(LEN_MAX);
    let datagram = fragment(1, LEN_MAX + 1, 20, 0);
    let start = (held(), allocations());
    receiver.handle_datagram(NOW, &datagram);
    assert_eq!((held(), allocations()), start);
    assert_eq!(receiver.poll_timeout(), None, "nor an answer");
}

#[test]
fn l6_a_flood_is_acknowledged_at_most_50_times_a_second() {
    let mut receiver = StateReceiver::new(1_000);
    let (mut said, mut out) = (0, Vec::new());
    for micros in 0..1_000_000 / 50 {
        let now = NOW + Duration::from_micros(micros * 50);
        receiver.handle_datagram(now, &[0xc0, 0, 0, 0, 1]);
        said += u32::from(receiver.poll_ack(now, &mut out));
        out.clear();
    }
    assert_eq!(said, 50);
    assert_eq!(receiver.stats().stale, 19_999);
}

#[test]
fn l6_false_acks_affect_only_the_lying_receiver() {
    let mut sender = StateSender::new(&StateLimits::default(), NOW);
    let state: Arc<[u8]> = vec![1; 3_000].into();
    let number = sender.push(NOW, Arc::clone(&state)).unwrap();
    let refused = |sender: &mut StateSender, ack: &[u8]| {
        let before = sender.stats().refused;
        sender.handle_datagram(NOW, ack);
        sender.stats().refused > before
    };
    // Acknowledgements of states that were never sent.
    assert!(refused(&mut sender, &[0xc2, 0, 0, 0, 1]));
    assert!(refused(&mut sender, &[0xc2, 0, 0, 0, 0, 0, 0, 0, 1, 0x80]));
    assert!(refused(&mut sender, &[0xc0, 0, 0, 0, 1]));
    let mut datagram = Vec::new();
    assert!(sender.poll(NOW, &mut datagram));
    assert!(refused(&mut sender, &[0xc2, 0, 0, 0, 2]));
    assert_eq!(sender.acknowledged(), None);
    // Fragments not yet sent are sent although they were acknowledged.
    assert!(!refused(&mut sender, &[0xc2, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]));
    datagram.clear();
    assert!(sender.poll(NOW, &mut datagram));
    assert_eq!(decode_state_part(&datagram).unwrap().index, 1);
    // All fragments are acknowledged, but the state is not: the next state is sent.
    assert!(sender.poll(NOW, &mut datagram));
    assert!(!refused(&mut sender, &[0xc2, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]));
    let later = NOW + Duration::from_secs(20);
    assert!(!sender.poll(later, &mut datagram));
    sender.push(later, state).unwrap();
    datagram.clear();
    assert!(sender.poll(later, &mut datagram));
    assert_eq!(decode_state_part(&datagram).unwrap().number, number + 1);
}

#[test]
fn l6_both_ends_allocate_nothing_after_warm_up() {
    let limits = StateLimits::default();
    let mut sender = StateSender::new(&limits, NOW);
    let mut receiver = StateReceiver::new(10_000);
    let states: [Arc<[u8]>; 2] = [vec![1; 10_000].into(), vec![2; 100].into()];
    let mut datagram = Vec::with_capacity(2_000);
    let (mut now, mut start) = (NOW, None);
    for tick in 0..20_000_usize {
        if tick == 1_000 {
            start = Some((allocations(), held()));
        }
        now += Duration::from_millis(16);
        sender.push(now, Arc::clone(&states[tick / 3 % 2])).unwrap();
        while sender.poll(now, &mut datagram) {
            if tick % 7 > 0 {
                receiver.handle_datagram(now, &datagram);
            }
            datagram.clear();
        }
        receiver.poll_state();
        while receiver.poll_ack(now, &mut datagram) {
            sender.handle_datagram(now, &datagram);
            datagram.clear();
        }
    }
    assert_eq!(start, Some((allocations(), held())));
    assert!(receiver.newest() > Some(19_900));
}

proptest! {
    #[test]
    fn l6_any_bytes_decode_or_do_not(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0xbf_u8..0xc4) {
        let datagram = [&[kind][..], &bytes].concat();
        if let Ok(part) = decode_state_part(&datagram) {
            let range = part_range(part.total, part.count, part.index);
            prop_assert_eq!(part.bytes.len(), usize::try_from(range.end - range.start).unwrap());
            prop_assert!(part.index < part.count && part.number > 0);
        }
        if let Ok(ack) = decode_state_ack(&datagram) {
            prop_assert!(ack.arrived().count() <= 256);
            prop_assert!(ack.partial == 0 || ack.partial > ack.whole);
        }
        let mut receiver = StateReceiver::new(1_000);
        receiver.handle_datagram(NOW, &datagram);
        let mut sender = StateSender::new(&StateLimits::default(), NOW);
        sender.push(NOW, datagram.clone().into()).unwrap();
        sender.poll(NOW, &mut Vec::new());
        sender.handle_datagram(NOW, &datagram);
    }

    #[test]
    fn fragments_reassemble_in_any_order(total in any::<u32>(), count in 1_u16..=256) {
        let mut end = 0;
        for index in 0..count {
            let range = part_range(total, count, index);
            prop_assert_eq!(range.start, end);
            prop_assert!(range.end - range.start <= total.div_ceil(count.into()));
            end = range.end;
        }
        prop_assert_eq!(end, total);
        prop_assert!(part_range(total, count, count).is_empty());
    }
}
