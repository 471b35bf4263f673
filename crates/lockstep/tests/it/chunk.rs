//! Chunks that no honest sender sends, and their cost.

use core::time::Duration;
use std::sync::Arc;

use lockstep::message::{
    AHEAD_MAX, Chunk, Direction, chunk_count, chunk_len, decode_chunk, decode_chunk_ack,
};
use lockstep::transfer::{Incoming, Outgoing, TransferLimits};
use proptest::prelude::*;
use wire::{Instant, Seed};

use crate::alloc::{allocations, held};

const NOW: Instant = Instant::from_millis(1);

fn chunk(total: u32, index: u32, bytes: &[u8]) -> Chunk<'_> {
    Chunk {
        id: 1,
        total,
        stride: 1_000,
        index,
        number: index,
        bytes,
    }
}

#[test]
fn ls_10_an_announcement_costs_nothing_until_its_bytes_arrive() {
    let bytes = [7; 1_000];
    let before = held();
    let mut incoming = Incoming::new(Direction::Down, u32::MAX);
    let start = held();
    assert!(start - before <= 2_048, "{}", start - before);
    // A snapshot of 4 GiB, and its furthest accepted chunk.
    incoming.on_chunk(NOW, &chunk(u32::MAX, AHEAD_MAX, &bytes));
    assert!(held() - start <= 1_100, "{}", held() - start);
    incoming.on_chunk(NOW, &chunk(u32::MAX, AHEAD_MAX + 1, &bytes));
    incoming.on_chunk(NOW, &chunk(u32::MAX, 4_294_966, &bytes));
    assert_eq!(incoming.stats().too_far, 2);
    // Every second chunk: never complete, and at most twice the received bytes are held.
    let mut arrived = 1_000;
    for index in (2..AHEAD_MAX).step_by(2) {
        incoming.on_chunk(NOW, &chunk(u32::MAX, index, &bytes));
        arrived += 1_000;
        assert!(held() - start <= 2 * arrived + 2_100);
    }
    // All chunks from the start: those kept past the missing one and those before it, each at most
    // twice.
    for index in 0..3_000 {
        incoming.on_chunk(NOW, &chunk(u32::MAX, index, &bytes));
        arrived += 1_000;
        assert!(held() - start <= 2 * arrived + 4_100, "{index}");
    }
    // Another transfer frees all of that.
    let other = Chunk {
        id: 2,
        ..chunk(u32::MAX, 0, &bytes)
    };
    incoming.on_chunk(NOW, &other);
    assert!(held() - start <= 1_100, "{}", held() - start);
    // Over the limit, nothing is held.
    let mut incoming = Incoming::new(Direction::Down, 10_000);
    let start = (held(), allocations());
    incoming.on_chunk(NOW, &chunk(10_001, 0, &bytes));
    assert_eq!((held(), allocations()), start);
    assert_eq!(incoming.stats().oversize, 1);
}

#[test]
fn ls_9_a_transfer_allocates_at_its_start_and_for_received_bytes() {
    let len = 2_000_000;
    let bytes: Arc<[u8]> = vec![3; len].into();
    let start = held();
    let limits = TransferLimits::default();
    let outgoing = Outgoing::new(Direction::Up, 1, Arc::clone(&bytes), &limits, NOW);
    let mut outgoing = outgoing.unwrap();
    assert!(held() - start <= 60_000, "{}", held() - start);
    let mut incoming = Incoming::new(Direction::Up, 2_000_000);
    let mut datagram = Vec::with_capacity(2_000);
    let mut network = Seed::from_number(1).generator(0);
    let mut now = NOW;
    let (mut sender, mut receiver) = (0, 0);
    while !outgoing.is_done() {
        now += Duration::from_millis(1);
        loop {
            let before = allocations();
            let is_sent = outgoing.poll(now, &mut datagram);
            sender += allocations() - before;
            if !is_sent {
                break;
            }
            let before = allocations();
            let chunk = decode_chunk(&datagram, Direction::Up).unwrap();
            if !network.chance(50_000) {
                incoming.on_chunk(now, &chunk);
            }
            receiver += allocations() - before;
            datagram.clear();
        }
        if incoming.poll_ack(now, &mut datagram) {
            let ack = decode_chunk_ack(&datagram, Direction::Down).unwrap();
            let before = allocations();
            outgoing.on_ack(now, &ack);
            sender += allocations() - before;
            datagram.clear();
        }
    }
    assert_eq!(sender, 0);
    // Doublings from one chunk to 2 MB, and those of the chunks kept past a missing one.
    assert!(receiver < 40, "{receiver}");
    // The result takes exactly its length, and nothing else is held.
    let before = held();
    let snapshot = incoming.take().unwrap();
    assert_eq!((snapshot.len(), snapshot.capacity()), (len, len));
    assert_eq!(before, held());
}

#[test]
fn chunks_are_counted_and_measured_right_at_every_limit() {
    let limits = TransferLimits::default();
    let fits = |len: u32| chunk_count(len, limits.datagram_len_max);
    assert_eq!(fits(u32::MAX), 3_904_516);
    assert_eq!(
        (chunk_count(0, 9), chunk_count(9, 9), chunk_count(10, 9)),
        (1, 1, 2)
    );
    assert_eq!((chunk_count(7, 0), chunk_len(7, 0, 0)), (7, 0));
    assert_eq!(chunk_len(u32::MAX, u16::MAX, 65_537), 0);
    assert_eq!(chunk_len(u32::MAX, u16::MAX, u32::MAX), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn l8_ls_10_any_bytes_decode_to_a_chunk_or_not(kind in prop::sample::select(vec![0x05_u8, 0x0a, 0x87, 0x8c]), tail in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 0x80, 0xff]), 0..60)) {
        let datagram = [&[kind][..], &tail].concat();
        let before = allocations();
        for direction in [Direction::Up, Direction::Down] {
            if let Ok(chunk) = decode_chunk(&datagram, direction) {
                assert!(chunk.stride > 0 && chunk.index < chunk_count(chunk.total, chunk.stride));
                assert!(chunk.bytes.len() + 16 == datagram.len());
                let end = u64::from(chunk.stride) * u64::from(chunk.index) + chunk.bytes.len() as u64;
                assert!(end <= u64::from(chunk.total));
            }
            if let Ok(ack) = decode_chunk_ack(&datagram, direction) {
                let count = tail[9..].iter().map(|byte| byte.count_ones()).sum::<u32>();
                assert!(ack.arrived().count() == count as usize && count <= AHEAD_MAX);
                assert!(ack.arrived().is_sorted());
            }
        }
        prop_assert_eq!(allocations() - before, 0);
    }
}
