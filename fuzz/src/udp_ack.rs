//! The sender's packet tracker, with arbitrary acknowledgements.

use std::collections::BTreeMap;

use core::time::Duration;

use udp_proto::frame::{AckFrame, Elicits};
use udp_proto::packet::{PacketNumber, TruncatedNumber};
use udp_proto::rtt::RttEstimator;
use udp_proto::sent::{ArrivedAck, Outcome, SentKind, SentPacket, SentPackets, Timeout};
use wire::{Instant, Reader, Truncated};

/// Sends, skips, waits and applies ACKs as the input says. Only sent contents are reported, each
/// once, except one reported lost that then arrives. A skipped packet number never counts as
/// acknowledged, and work is bounded.
pub fn apply(data: &[u8]) {
    let mut sender = Sender::new();
    let mut reader = Reader::new(data);
    while let Ok(op) = reader.u8() {
        if sender.step(op, &mut reader).is_err() {
            break;
        }
        sender.check();
    }
}

struct Sender {
    sent: SentPackets<u64>,
    rtt: RttEstimator,
    now: Instant,
    /// Number of contents pushed; they are numbered.
    pushed: u64,
    /// Contents reported as lost or acknowledged, the latter maybe after a loss.
    reported: BTreeMap<u64, Outcome>,
    /// Number of the peer's packets which carried an ACK.
    packets: u64,
}

impl Sender {
    fn new() -> Self {
        Self {
            sent: SentPackets::new(PacketNumber::ZERO),
            rtt: RttEstimator::new(Duration::from_millis(25)),
            now: Instant::ZERO,
            pushed: 0,
            reported: BTreeMap::new(),
            packets: 0,
        }
    }

    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        let argument = op >> 3;
        self.now += Duration::from_millis(1);
        match op & 7 {
            0 | 1 => (0..=argument).for_each(|_| self.send(Elicits::Ack)),
            2 => self.send(Elicits::Nothing),
            3 => self.sent.skip(),
            4 => self.wait(Duration::from_millis(u64::from(argument) * 40)),
            // A full ring at once.
            5 => (0..u16::from(argument) * 80).for_each(|_| self.send(Elicits::Ack)),
            _ => self.ack(argument, reader)?,
        }
        Ok(())
    }

    fn send(&mut self, elicits: Elicits) {
        let Some(number) = self.sent.next_number() else {
            return;
        };
        if elicits == Elicits::Ack && self.sent.push(self.pushed).is_ok() {
            self.pushed += 1;
        }
        self.sent.on_sent(&SentPacket {
            number,
            at: self.now,
            len: 100,
            elicits,
            kind: SentKind::Other,
            described: None,
            untracked_frames: 0,
        });
    }

    fn wait(&mut self, span: Duration) {
        self.now += span;
        let reported = &mut self.reported;
        let timeout = self
            .sent
            .on_timeout(self.now, &self.rtt, |content, outcome| {
                assert_eq!(outcome, Outcome::Lost);
                assert_eq!(reported.insert(content, outcome), None, "told twice");
            });
        if let Timeout::Checked(summary) = timeout {
            assert!(summary.slots_visited <= 2_049);
        }
    }

    /// Applies an ACK from a newer packet or, depending on `argument`, from an older one.
    fn ack(&mut self, argument: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        let largest = if argument & 1 == 0 {
            TruncatedNumber::Two(reader.u16()?)
        } else {
            TruncatedNumber::Four(reader.u32()?)
        };
        let delay = reader.u16()?;
        let run = reader.u16()? % (AckFrame::RUN_MAX + 1);
        let len = usize::from(reader.u8()?).min(AckFrame::BITS_LEN_MAX);
        let bits = reader.bytes(len)?;
        // The decoder guarantees that the last byte is not zero.
        let used = bits.iter().rposition(|byte| *byte != 0);
        let bits = bits
            .get(..used.map_or(0, |last| last + 1))
            .unwrap_or_default();
        let packet = if argument & 2 == 0 {
            self.packets += 1;
            self.packets
        } else {
            self.packets.saturating_sub(u64::from(argument))
        };
        let ack = ArrivedAck {
            at: self.now,
            packet: PacketNumber::new(packet).unwrap_or(PacketNumber::ZERO),
            frame: AckFrame {
                largest,
                delay,
                run,
                bits,
            },
        };
        let (reported, pushed) = (&mut self.reported, self.pushed);
        let result = self.sent.on_ack(ack, &mut self.rtt, |content, outcome| {
            assert!(content < pushed, "{content} was never sent");
            let before = reported.insert(content, outcome);
            let is_late = (before, outcome) == (Some(Outcome::Lost), Outcome::Acked);
            assert!(before.is_none() || is_late, "{content} was told twice");
        });
        if let Ok(summary) = result {
            assert!(summary.slots_visited <= 2_049);
        }
        Ok(())
    }

    fn check(&self) {
        for content in self.sent.in_flight() {
            assert!(
                !self.reported.contains_key(&content),
                "{content} is told and flies"
            );
        }
        let settled = u64::try_from(self.reported.len()).unwrap_or(u64::MAX);
        assert!(settled <= self.pushed);
        assert!(self.sent.largest_acked() < self.sent.next_number());
        let deadline = self.sent.pto_deadline(&self.rtt);
        assert_eq!(deadline.is_some(), self.sent.in_flight_packets() > 0);
    }
}
