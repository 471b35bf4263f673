//! Both ends of a state channel, with arbitrary datagrams.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::state_channel::{
    StateAck, StateLimits, StatePart, StateReceiver, StateSender, decode_state_ack,
    decode_state_part, part_range,
};
use wire::{Instant, Reader, Truncated};

/// Maximum length of a state at the receiver.
const LEN_MAX: u32 = 4_000;

/// Both ends, with the datagrams that the input selects.
struct World {
    now: Instant,
    limits: StateLimits,
    sender: StateSender,
    receiver: StateReceiver,
    /// Bytes sent.
    sent: u64,
    /// Time of the receiver's last acknowledgement.
    answered: Option<Instant>,
    pushed: BTreeMap<u32, Arc<[u8]>>,
    /// Whether a forged datagram reached the receiver.
    is_lied_to: bool,
    /// Numbers of the received states.
    out: Vec<u32>,
}

/// The handling of an honest datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Arrives,
    Lost,
}

/// Runs operations: advance the time, submit a state, deliver a forged datagram, deliver or lose an
/// honest one.
///
/// An accepted datagram is in canonical encoding. A received state is newer than the last, within
/// the length limit and, without forged datagrams, equal to a sent one. The sender stays within its
/// rate, the receiver acknowledges at most 50 times a second, and both ends become idle.
pub fn script(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> World {
    let mut reader = Reader::new(data);
    let mut limits = StateLimits::default();
    limits.datagram_len_max = 80;
    let now = Instant::from_millis(1);
    let mut world = World {
        now,
        limits,
        sender: StateSender::new(&limits, now),
        receiver: StateReceiver::new(LEN_MAX),
        sent: 0,
        answered: None,
        pushed: BTreeMap::new(),
        is_lied_to: false,
        out: Vec::new(),
    };
    while let Ok(op) = reader.u8() {
        if world.step(op, &mut reader).is_err() {
            break;
        }
        world.take_out();
    }
    world
}

impl World {
    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        match op & 7 {
            0 => self.now += Duration::from_millis(u64::from(op >> 3) * 8),
            1 => self.push(usize::from(reader.u8()?) * usize::from(op >> 3)),
            2 => {
                let len = usize::from(reader.u8()?);
                let head = reader.bytes(len.min(reader.len()))?;
                self.forged_part(head);
            }
            3 => {
                let len = usize::from(reader.u8()?);
                let ack = reader.bytes(len.min(reader.len()))?;
                if let Ok(said) = decode_state_ack(ack) {
                    assert_eq!(written_ack(&said), ack);
                }
                self.sender.handle_datagram(self.now, ack);
            }
            4 | 5 => self.parts(u32::from(op >> 3), Outcome::Arrives),
            6 => self.parts(u32::from(op >> 3), Outcome::Lost),
            _ if op >> 3 == 0 => self.answer(Outcome::Lost),
            _ => self.answer(Outcome::Arrives),
        }
        Ok(())
    }

    fn push(&mut self, len: usize) {
        let mark = u8::try_from(self.pushed.len() % 251).expect("below 251");
        let state: Arc<[u8]> = (mark..=250).cycle().take(len).collect();
        let number = self.sender.push(self.now, Arc::clone(&state));
        self.pushed.insert(number.expect("it is short"), state);
    }

    /// Delivers a part with an arbitrary header. Missing bytes are filled with zeros.
    fn forged_part(&mut self, head: &[u8]) {
        let mut datagram = head.to_vec();
        if let Some(([0xc1, _, _, _, _, a, b, c, d, last, index], _)) = head.split_first_chunk() {
            let total = u32::from_be_bytes([*a, *b, *c, *d]);
            let range = part_range(total, u16::from(*last) + 1, (*index).into());
            let len = usize::try_from(range.end - range.start).expect("64 bits");
            if len <= 2_000 {
                datagram.resize(datagram.len().max(11 + len), 0);
            }
        }
        if let Ok(part) = decode_state_part(&datagram) {
            assert!(part.number > 0 && part.index < part.count && part.count <= 256);
            assert_eq!(written_part(&part), datagram);
            self.is_lied_to = true;
        }
        let before = *self.receiver.stats();
        self.receiver.handle_datagram(self.now, &datagram);
        let is_counted = *self.receiver.stats() != before;
        assert!(is_counted || self.receiver.poll_timeout().is_some());
    }

    /// Sends up to `most` datagrams, which arrive or are lost.
    fn parts(&mut self, most: u32, fate: Outcome) {
        let mut datagram = Vec::new();
        let mut count = 0;
        while count < most && self.sender.poll(self.now, &mut datagram) {
            count += 1;
            self.sent += u64::try_from(datagram.len()).expect("it is short");
            assert!(datagram.len() <= usize::from(self.limits.datagram_len_max));
            let part = decode_state_part(&datagram).expect("we wrote it");
            assert_eq!(written_part(&part), datagram);
            if fate == Outcome::Arrives {
                self.receiver.handle_datagram(self.now, &datagram);
                self.take_out();
            }
            datagram.clear();
        }
        let elapsed = self.now.as_nanos();
        let rate = u64::from(self.limits.rate_bytes_per_s);
        let most_bytes = u64::from(self.limits.burst_bytes) + elapsed * rate / 1_000_000_000;
        assert!(self.sent <= most_bytes, "{} in {elapsed} ns", self.sent);
        if count < most {
            let due = self.sender.poll_timeout();
            assert!(due.is_none_or(|due| due > self.now), "it is at rest");
        }
    }

    /// Sends a due acknowledgement, which arrives or is lost.
    fn answer(&mut self, fate: Outcome) {
        let mut datagram = Vec::new();
        if self.receiver.poll_ack(self.now, &mut datagram) {
            let ack = decode_state_ack(&datagram).expect("we wrote it");
            assert_eq!(written_ack(&ack), datagram);
            let since = self.answered.map(|at| self.now.saturating_since(at));
            assert!(since.is_none_or(|since| since >= Duration::from_millis(20)));
            self.answered = Some(self.now);
            if fate == Outcome::Arrives {
                self.sender.handle_datagram(self.now, &datagram);
            }
        }
        let due = self.receiver.poll_timeout();
        assert!(due.is_none_or(|due| due > self.now), "it is at rest");
    }

    fn take_out(&mut self) {
        if let Some((number, bytes)) = self.receiver.poll_state() {
            assert!(bytes.len() <= usize::try_from(LEN_MAX).expect("64 bits"));
            assert!(self.out.last().is_none_or(|last| *last < number));
            if !self.is_lied_to {
                let sent = self.pushed.get(&number).expect("nobody lied");
                assert!(**sent == *bytes);
            }
            self.out.push(number);
        }
    }
}

fn written_part(part: &StatePart<'_>) -> Vec<u8> {
    let is_split = part.count > 1;
    let mut out = vec![if is_split { 0xc1 } else { 0xc0 }];
    out.extend_from_slice(&part.number.to_be_bytes());
    if is_split {
        out.extend_from_slice(&part.total.to_be_bytes());
        let [last, index] = [part.count - 1, part.index];
        out.extend([last, index].map(|number| u8::try_from(number).expect("below 256")));
    }
    out.extend_from_slice(part.bytes);
    out
}

fn written_ack(ack: &StateAck<'_>) -> Vec<u8> {
    let mut out = vec![0xc2];
    out.extend_from_slice(&ack.whole.to_be_bytes());
    if ack.partial > 0 {
        assert!(ack.partial > ack.whole);
        out.extend_from_slice(&ack.partial.to_be_bytes());
        let mut bits = Vec::new();
        for index in ack.arrived() {
            let byte = usize::from(index / 8);
            bits.resize(bits.len().max(byte + 1), 0);
            if let Some(byte) = bits.get_mut(byte) {
                *byte |= 0x80 >> (index % 8);
            }
        }
        assert!((1..=32).contains(&bits.len()));
        out.extend_from_slice(&bits);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_the_cases_they_are_named_for() {
        let world = run(include_bytes!("../corpus/lockstep_state/seed_loses"));
        assert_eq!(world.out, [2, 3]);
        assert_eq!(world.sender.acknowledged(), Some(3));
        assert!(world.sender.stats().repeated > 0 && world.sender.stats().replaced == 1);
        let world = run(include_bytes!("../corpus/lockstep_state/seed_forged_parts"));
        let stats = world.receiver.stats();
        assert_eq!((stats.oversize, stats.contradicting), (1, 1));
        assert_eq!(world.out, [258]);
        let world = run(include_bytes!("../corpus/lockstep_state/seed_forged_ack"));
        assert_eq!(world.sender.stats().refused, 1);
        assert_eq!(world.sender.acknowledged(), None);
    }
}
