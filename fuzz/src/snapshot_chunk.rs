//! Both ends of a snapshot transfer, with arbitrary chunks and acknowledgements.

use core::time::Duration;
use std::sync::Arc;

use lockstep::message::{
    AHEAD_MAX, Chunk, ChunkAck, Direction, chunk_count, chunk_len, decode_chunk, decode_chunk_ack,
};
use lockstep::transfer::{Incoming, Outgoing, TransferLimits};
use wire::{Instant, Reader, Truncated};

/// Maximum length of a snapshot at the receiver.
const LEN_MAX: u32 = 1 << 20;

/// Two ends which send to each other, with the datagrams that the input selects.
struct World {
    now: Instant,
    limits: TransferLimits,
    outgoing: Outgoing,
    incoming: Incoming,
    sent: u64,
    /// Received snapshots, oldest first.
    whole: Vec<Vec<u8>>,
}

/// The handling of an honest datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Arrives,
    Lost,
}

/// Runs operations: advance the time, deliver a forged datagram, deliver or lose an honest one.
///
/// An accepted datagram is in canonical encoding. No snapshot exceeds its announced length, the
/// sender stays within its rate, and both ends become idle.
pub fn script(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> Option<World> {
    let mut reader = Reader::new(data);
    let (Ok(id), Ok(chunks)) = (reader.u8(), reader.u8()) else {
        return None;
    };
    let mut limits = TransferLimits::default();
    limits.datagram_len_max = 80;
    let bytes: Arc<[u8]> = (0_u8..=250)
        .cycle()
        .take(usize::from(chunks) * 50)
        .collect();
    let now = Instant::from_millis(1);
    let outgoing = Outgoing::new(Direction::Down, id, bytes, &limits, now);
    let mut world = World {
        now,
        limits,
        outgoing: outgoing.expect("it is short"),
        incoming: Incoming::new(Direction::Down, LEN_MAX),
        sent: 0,
        whole: Vec::new(),
    };
    while let Ok(op) = reader.u8() {
        if world.step(op, &mut reader).is_err() {
            break;
        }
        if let Some(snapshot) = world.incoming.take() {
            let len = u32::try_from(snapshot.len()).expect("within the limit");
            assert!(len <= LEN_MAX);
            world.whole.push(snapshot);
        }
    }
    Some(world)
}

impl World {
    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        match op & 7 {
            0 | 1 => self.now += Duration::from_millis(u64::from(op >> 3) * 3),
            2 => {
                let len = usize::from(reader.u8()?);
                let head = reader.bytes(len.min(reader.len()))?;
                self.forged_chunk(head);
            }
            3 => {
                let len = usize::from(reader.u8()?);
                let ack = reader.bytes(len.min(reader.len()))?;
                self.forged_ack(ack);
            }
            4 | 5 => self.chunks(u32::from(op >> 3), Outcome::Arrives),
            6 => self.chunks(u32::from(op >> 3), Outcome::Lost),
            _ if op >> 3 == 0 => self.acks(Outcome::Lost),
            _ => self.acks(Outcome::Arrives),
        }
        Ok(())
    }

    /// Delivers a chunk with an arbitrary header. Missing bytes are filled with zeros.
    fn forged_chunk(&mut self, head: &[u8]) {
        let mut datagram = head.to_vec();
        if let Some(([_, _, a, b, c, d, e, f, g, h, i, j], _)) = head.split_first_chunk() {
            let total = u32::from_be_bytes([*a, *b, *c, *d]);
            let stride = u16::from_be_bytes([*e, *f]);
            let len = chunk_len(total, stride, u32::from_be_bytes([*g, *h, *i, *j]));
            datagram.resize(datagram.len().max(16 + len), 0);
        }
        for direction in [Direction::Up, Direction::Down] {
            let Ok(chunk) = decode_chunk(&datagram, direction) else {
                continue;
            };
            assert!(chunk.index < chunk_count(chunk.total, chunk.stride));
            let len = chunk_len(chunk.total, chunk.stride, chunk.index);
            assert_eq!(chunk.bytes.len(), len);
            assert_eq!(written(direction, &chunk), datagram);
            let before = *self.incoming.stats();
            self.incoming.on_chunk(self.now, &chunk);
            if chunk.total > LEN_MAX {
                assert_eq!(self.incoming.stats().oversize, before.oversize + 1);
            }
        }
    }

    fn forged_ack(&mut self, datagram: &[u8]) {
        for direction in [Direction::Up, Direction::Down] {
            if let Ok(ack) = decode_chunk_ack(datagram, direction) {
                check(direction, &ack, datagram);
                self.outgoing.on_ack(self.now, &ack);
            }
        }
    }

    /// Sends up to `most` chunks, which arrive or are lost.
    fn chunks(&mut self, most: u32, fate: Outcome) {
        let mut datagram = Vec::new();
        let mut count = 0;
        while count < most && self.outgoing.poll(self.now, &mut datagram) {
            count += 1;
            self.sent += u64::try_from(datagram.len()).expect("it is short");
            assert!(datagram.len() <= usize::from(self.limits.datagram_len_max));
            let chunk = decode_chunk(&datagram, Direction::Down).expect("we wrote it");
            assert!(decode_chunk(&datagram, Direction::Up).is_err());
            if fate == Outcome::Arrives {
                self.incoming.on_chunk(self.now, &chunk);
            }
            datagram.clear();
        }
        let elapsed = self.now.as_nanos();
        let rate = u64::from(self.limits.rate_bytes_per_s);
        let most_bytes = u64::from(self.limits.burst_bytes) + elapsed * rate / 1_000_000_000;
        assert!(self.sent <= most_bytes, "{} in {elapsed} ns", self.sent);
        if count < most {
            let due = self.outgoing.poll_timeout();
            assert!(due.is_none_or(|due| due > self.now), "it is at rest");
            assert_eq!(due.is_none(), self.outgoing.is_done());
        }
    }

    /// Sends a due acknowledgement, which arrives or is lost.
    fn acks(&mut self, fate: Outcome) {
        let mut datagram = Vec::new();
        if self.incoming.poll_ack(self.now, &mut datagram) {
            let ack = decode_chunk_ack(&datagram, Direction::Up).expect("we wrote it");
            check(Direction::Up, &ack, &datagram);
            if fate == Outcome::Arrives {
                self.outgoing.on_ack(self.now, &ack);
            }
        }
        let due = self.incoming.poll_timeout();
        assert!(due.is_none_or(|due| due > self.now), "it is at rest");
    }
}

fn written(direction: Direction, chunk: &Chunk<'_>) -> Vec<u8> {
    let kind = if direction == Direction::Up {
        0x0a
    } else {
        0x87
    };
    let mut out = vec![kind, chunk.id];
    out.extend_from_slice(&chunk.total.to_be_bytes());
    out.extend_from_slice(&chunk.stride.to_be_bytes());
    out.extend_from_slice(&chunk.index.to_be_bytes());
    out.extend_from_slice(&chunk.number.to_be_bytes());
    out.extend_from_slice(chunk.bytes);
    out
}

/// Checks that an acknowledgement is ordered and bounded, and covers no more than its bytes encode.
fn check(direction: Direction, ack: &ChunkAck<'_>, datagram: &[u8]) {
    let kind = if direction == Direction::Up {
        0x05
    } else {
        0x8c
    };
    let mut out = vec![kind, ack.id];
    out.extend_from_slice(&ack.next.to_be_bytes());
    out.extend_from_slice(&ack.latest.to_be_bytes());
    let mut count = 0;
    for (place, index) in ack.arrived().enumerate() {
        count += 1;
        // All indices past the maximum are equal to it, and no snapshot has so many chunks.
        if index == u32::MAX {
            return;
        }
        let bit = index - ack.next - 1;
        assert!(bit < AHEAD_MAX && u32::try_from(place).expect("few") <= bit);
        let byte = usize::try_from(bit / 8).expect("few") + 10;
        out.resize(out.len().max(byte + 1), 0);
        if let Some(byte) = out.get_mut(byte) {
            *byte |= 0x80 >> (bit % 8);
        }
    }
    assert!(count <= AHEAD_MAX);
    if ack.next < u32::MAX - AHEAD_MAX {
        assert_eq!(out, datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_the_cases_they_are_named_for() {
        let world = run(include_bytes!("../corpus/snapshot_chunk/seed_loses")).unwrap();
        assert!(world.outgoing.is_done());
        let bytes: Vec<_> = (0_u8..=250).cycle().take(2_000).collect();
        assert_eq!(world.whole, [bytes]);
        let forged = include_bytes!("../corpus/snapshot_chunk/seed_forged_chunks");
        let world = run(forged).unwrap();
        assert_eq!(world.incoming.stats().oversize, 1);
        let expected = [&[0; 64][..], &[64, 65, 66, 67, 68, 69]].concat();
        assert_eq!(world.whole, [expected]);
        let forged = include_bytes!("../corpus/snapshot_chunk/seed_forged_ack");
        let world = run(forged).unwrap();
        assert!(world.outgoing.is_done(), "lies do not stop it");
        assert_eq!(world.whole.len(), 1);
    }
}
