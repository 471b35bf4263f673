use core::time::Duration;

use super::super::*;
use crate::message::{ChunkAck, decode_chunk_ack};

fn at(millis: u64) -> Instant {
    Instant::from_millis(1_000 + millis)
}

/// Handles a chunk of a snapshot of `total` bytes, in which each byte is its chunk's index.
fn take(incoming: &mut Incoming, now: u64, id: u8, total: u32, index: u32) {
    let bytes = vec![u8::try_from(index % 256).unwrap(); chunk_len(total, 2, index)];
    let chunk = Chunk {
        id,
        total,
        stride: 2,
        index,
        number: index,
        bytes: &bytes,
    };
    incoming.on_chunk(at(now), &chunk);
}

fn receiver() -> Incoming {
    Incoming::new(Direction::Up, 10_000)
}

/// The acknowledgement due at `now`: id, first missing, latest, and those received past it.
fn says(incoming: &mut Incoming, now: u64) -> Option<(u8, u32, u32, Vec<u32>)> {
    let mut out = Vec::new();
    if !incoming.poll_ack(at(now), &mut out) {
        return None;
    }
    let ack: ChunkAck<'_> = decode_chunk_ack(&out, Direction::Down).unwrap();
    Some((ack.id, ack.next, ack.latest, ack.arrived().collect()))
}

#[test]
fn acks_are_sent_after_20_ms_or_16_chunks_and_at_once_when_complete() {
    let mut incoming = receiver();
    assert_eq!(incoming.poll_timeout(), None);
    take(&mut incoming, 0, 1, 41, 0);
    take(&mut incoming, 5, 1, 41, 2);
    assert_eq!(incoming.poll_timeout(), Some(at(20)));
    assert_eq!(says(&mut incoming, 19), None);
    assert_eq!(says(&mut incoming, 20), Some((1, 1, 2, vec![2])));
    assert_eq!(says(&mut incoming, 100), None, "nothing came since");
    for index in 3..18 {
        take(&mut incoming, 101, 1, 41, index);
    }
    assert_eq!(says(&mut incoming, 101), None);
    take(&mut incoming, 102, 1, 41, 20);
    let past: Vec<_> = (2..18).chain([20]).collect();
    assert_eq!(says(&mut incoming, 102), Some((1, 1, 20, past)));
    take(&mut incoming, 103, 1, 41, 1);
    take(&mut incoming, 103, 1, 41, 18);
    assert_eq!(incoming.take(), None);
    take(&mut incoming, 103, 1, 41, 19);
    assert_eq!(says(&mut incoming, 103), Some((1, 21, 20, vec![])));
    let bytes = incoming.take().unwrap();
    let expected: Vec<_> = (0..41).map(|index| index / 2).collect();
    assert_eq!(bytes, expected);
    // A sender that missed the acknowledgement gets another, but not one per chunk.
    take(&mut incoming, 104, 1, 41, 7);
    assert_eq!(says(&mut incoming, 104), None);
    assert_eq!(says(&mut incoming, 124), Some((1, 21, 20, vec![])));
    assert_eq!((incoming.take(), incoming.stats().duplicate), (None, 1));
}

#[test]
fn the_missing_chunk_has_room_if_all_later_ones_arrived() {
    let mut incoming = receiver();
    let total = 2 * (AHEAD_MAX + 10);
    for index in 1..=AHEAD_MAX + 1 {
        take(&mut incoming, 0, 1, total, index);
    }
    assert_eq!(incoming.stats().too_far, 1, "1,025 past the missing one");
    let past: Vec<_> = (1..=AHEAD_MAX).collect();
    assert_eq!(says(&mut incoming, 0), Some((1, 0, AHEAD_MAX, past)));
    take(&mut incoming, 1, 1, total, 0);
    for index in AHEAD_MAX + 1..AHEAD_MAX + 10 {
        take(&mut incoming, 1, 1, total, index);
    }
    assert_eq!(
        incoming.take().unwrap().len(),
        usize::try_from(total).unwrap()
    );
}

#[test]
fn ls_14_a_later_snapshot_ends_the_one_under_way() {
    let mut incoming = receiver();
    take(&mut incoming, 0, 255, 6, 0);
    take(&mut incoming, 0, 255, 6, 2);
    // Id 0 follows 255.
    take(&mut incoming, 1, 0, 4, 1);
    assert_eq!(says(&mut incoming, 21), Some((0, 0, 1, vec![1])));
    take(&mut incoming, 22, 255, 6, 1);
    assert_eq!((incoming.stats().stale, incoming.take()), (1, None));
    take(&mut incoming, 23, 0, 4, 0);
    assert_eq!(incoming.take(), Some(vec![0, 0, 1, 1]));
    // A complete snapshot that was not taken is replaced too.
    take(&mut incoming, 24, 1, 2, 0);
    take(&mut incoming, 24, 100, 2, 0);
    assert_eq!(incoming.take(), Some(vec![0, 0]));
    take(&mut incoming, 25, 228, 2, 0);
    assert_eq!(incoming.stats().stale, 2, "128 ahead is as far behind");
    // No acknowledgement of the replaced transfer is sent.
    assert_eq!(says(&mut incoming, 25).map(|ack| ack.0), Some(100));
}

#[test]
fn ls_14_a_number_far_from_the_last_is_a_later_one_after_a_silence() {
    let mut incoming = receiver();
    take(&mut incoming, 0, 5, 2, 0);
    assert_eq!(incoming.take(), Some(vec![0, 0]));
    // The sender made 130 transfers to other receivers, or restarted its numbering.
    take(&mut incoming, 10_000, 135, 4, 0);
    assert_eq!(incoming.stats().stale, 1);
    take(&mut incoming, 10_001, 135, 4, 0);
    take(&mut incoming, 10_002, 135, 4, 1);
    assert_eq!(incoming.take(), Some(vec![0, 0, 1, 1]));
    // The same id is the same transfer, however late it is repeated.
    take(&mut incoming, 60_000, 135, 4, 1);
    assert_eq!((incoming.stats().duplicate, incoming.take()), (1, None));
    // An earlier transfer does not end one in progress.
    take(&mut incoming, 60_001, 136, 6, 0);
    take(&mut incoming, 69_000, 136, 6, 1);
    take(&mut incoming, 78_000, 135, 4, 0);
    take(&mut incoming, 78_001, 136, 6, 2);
    assert_eq!(incoming.take(), Some(vec![0, 0, 1, 1, 2, 2]));
}

#[test]
fn ls_10_chunks_that_contradict_the_first_change_nothing() {
    let mut incoming = receiver();
    take(&mut incoming, 0, 1, 10_001, 0);
    assert_eq!(incoming.stats().oversize, 1);
    assert_eq!(incoming.poll_timeout(), None, "and is not answered");
    take(&mut incoming, 0, 1, 6, 0);
    take(&mut incoming, 0, 1, 8, 1);
    take(&mut incoming, 0, 1, 4, 1);
    // A transfer over the limit does not end the one in progress.
    take(&mut incoming, 0, 2, 10_001, 0);
    assert_eq!(incoming.stats().contradicting, 2);
    assert_eq!(incoming.stats().oversize, 2);
    let mut other = Chunk {
        id: 1,
        total: 6,
        stride: 3,
        index: 1,
        number: u32::MAX,
        bytes: &[9; 3],
    };
    incoming.on_chunk(at(0), &other);
    assert_eq!(incoming.stats().contradicting, 3);
    // Different bytes for a chunk that is already there.
    other.stride = 2;
    other.index = 0;
    other.bytes = &[9; 2];
    incoming.on_chunk(at(0), &other);
    assert_eq!(incoming.stats().duplicate, 1);
    take(&mut incoming, 0, 1, 6, 2);
    other.index = 2;
    incoming.on_chunk(at(0), &other);
    assert_eq!(incoming.stats().duplicate, 2);
    take(&mut incoming, 0, 1, 6, 1);
    assert_eq!(incoming.take(), Some(vec![0, 0, 1, 1, 2, 2]));
}

#[test]
fn an_empty_snapshot_is_one_chunk() {
    let mut incoming = receiver();
    take(&mut incoming, 0, 9, 0, 0);
    assert_eq!(says(&mut incoming, 0), Some((9, 1, 0, vec![])));
    assert_eq!(incoming.take(), Some(vec![]));
    assert_eq!(incoming.take(), None);
    assert_eq!(ACK_WAIT, Duration::from_millis(20));
}

#[test]
fn received_bytes_are_returned_and_their_memory_reused() {
    let mut ahead = Ahead::new();
    for round in 0..100_u32 {
        let first = round * 700;
        for index in [first + 3, first + 1, first + 2] {
            ahead.put(index, 4, &index.to_be_bytes());
        }
        // A last chunk may be shorter.
        ahead.put(first + AHEAD_MAX, 4, &[9]);
        let past: Vec<_> = ahead.past(first).collect();
        assert_eq!(past, [first + 1, first + 2, first + 3, first + AHEAD_MAX]);
        let mut out = Vec::new();
        assert!(ahead.take(first + 2, 4, 4, &mut out));
        assert!(!ahead.take(first + 2, 4, 4, &mut out));
        assert!(ahead.take(first + AHEAD_MAX, 4, 1, &mut out));
        assert_eq!(out, [&(first + 2).to_be_bytes()[..], &[9]].concat());
        assert!(ahead.take(first + 1, 4, 4, &mut out) && ahead.take(first + 3, 4, 4, &mut out));
        assert_eq!(ahead.past(first).count(), 0);
        assert_eq!(ahead.bytes.len(), 16, "four slots, whatever passed through");
    }
}
