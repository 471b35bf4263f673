//! One pass over the packets up to the largest acknowledged number, and the ring of packet numbers.

use core::time::Duration;

use wire::Instant;

use super::contents::Chain;
use super::{AckUnsent, ArrivedAck, Outcome, SentKind, SentPackets, Summary};
use super::{LATE_ACK_SPAN, loss::Run};
use crate::config::Mtu;
use crate::frame::AckFrame;
use crate::nanos::{Deadline, Nanos};
use crate::packet::{PacketNumber, TruncatedNumber};
use crate::received::Described;
use crate::replay::ReplayWindow;
use crate::rtt::RttEstimator;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pass<'a> {
    pub(super) now: Instant,
    /// RTT, including the ACK's own sample.
    pub(super) rtt: &'a RttEstimator,
    /// Largest acknowledged number, by this ACK or before.
    pub(super) largest: Option<u64>,
}

/// One packet number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Send time, or the time of loss.
    pub(super) at: Instant,
    pub(super) described: Option<Described>,
    /// Its content; empty unless in flight or lost.
    pub(super) contents: Chain,
    pub(super) len: u16,
    pub(super) kind: SentKind,
    /// Frames without a tracked outcome.
    pub(super) untracked_frames: u8,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    InFlight,
    /// Not ack-eliciting.
    Quiet,
    Acked,
    /// Declared lost; kept with its content to recognise a late acknowledgement.
    Lost,
    /// Never sent.
    Skipped,
}

/// Packets evicted from a full ring while in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evicted {
    pub(super) contents: Chain,
    pub(super) packets: u32,
    /// Their frames without a tracked outcome.
    pub(super) untracked_frames: u32,
}

impl Evicted {
    pub(super) const NONE: Self = Self {
        contents: Chain::EMPTY,
        packets: 0,
        untracked_frames: 0,
    };
}

impl<C: Copy> SentPackets<C> {
    /// Rejects an ACK that covers a number never sent.
    pub(super) fn check(
        &self,
        largest: PacketNumber,
        frame: &AckFrame<'_>,
    ) -> Result<(), AckUnsent> {
        let largest = largest.get();
        let lowest = largest
            .checked_sub(frame.lowest_below())
            .filter(|lowest| largest < self.next() && *lowest >= self.reference.first)
            .ok_or(AckUnsent)?;
        // Ascending, so those below the ACK are skipped.
        let skips = self
            .skipped
            .iter()
            .rev()
            .take_while(|number| **number >= lowest)
            .filter_map(|number| largest.checked_sub(*number))
            .any(|below| frame.reports(below));
        if skips { Err(AckUnsent) } else { Ok(()) }
    }

    /// The RTT sample of an ACK: of its largest number only, when first acknowledged, if
    /// ack-eliciting and on the current path.
    pub(super) fn sample(&self, ack: &ArrivedAck<'_>, largest: u64) -> Option<Duration> {
        let index = usize::try_from(largest.checked_sub(self.base)?).ok()?;
        let slot = self.slots.get(index)?;
        let is_here = largest >= self.sample_from && slot.kind != SentKind::OffPath;
        (slot.state == State::InFlight && slot.at <= ack.at && is_here)
            .then(|| ack.at.saturating_since(slot.at))
    }

    /// Processes every packet up to the largest acknowledged.
    pub(super) fn scan(
        &mut self,
        pass: &Pass<'_>,
        reports: impl Fn(u64) -> bool,
        mut sink: impl FnMut(C, Outcome),
    ) -> Summary {
        let mut summary = Summary::default();
        self.report_evicted(&mut summary, &mut sink);
        self.loss.tolerance.decay(pass.now);
        self.loss.deadline = Deadline::NEVER;
        let Some(largest) = pass.largest else {
            return summary;
        };
        let (before, mut open_from) = (self.reference.largest.unwrap_or_default(), None);
        let count = self.slots_to(largest);
        let loss = &mut self.loss;
        let time_threshold = pass.rtt.loss_delay() + loss.tolerance.slack(pass.rtt);
        let mut run = Run::default();
        for (number, slot) in (self.base..).zip(self.slots.iter_mut().take(count)) {
            summary.slots_visited = summary.slots_visited.saturating_add(1);
            let outcome = if reports(number) {
                if summary.count_reported(slot) {
                    let overtaken = before.saturating_sub(number);
                    loss.tolerance.on_spurious(pass.now, overtaken, pass.rtt);
                }
                Outcome::Acked
            } else {
                Outcome::Lost
            };
            match (slot.state, outcome) {
                (State::InFlight, Outcome::Lost)
                    if largest.saturating_sub(number) < loss.tolerance.threshold
                        && slot.at + time_threshold > pass.now =>
                {
                    run.on_open();
                    loss.deadline = loss.deadline.or_at(slot.at + time_threshold);
                    open_from = open_from.or(Some(number));
                }
                (State::InFlight, Outcome::Acked) => {
                    loss.gaps.on_acked(number, slot.at, &mut run, &mut summary);
                    summary.count_acked(slot, self.recovery);
                    self.flight.remove(slot.kind, slot.len);
                    let contents = core::mem::take(&mut slot.contents);
                    self.contents
                        .drain(contents, |content| sink(content, outcome));
                    slot.state = State::Acked;
                }
                (State::InFlight, Outcome::Lost) => {
                    summary.count_lost(slot);
                    loss.gaps.on_lost(number, slot, &mut run, &mut summary);
                    self.flight.remove(slot.kind, slot.len);
                    for content in self.contents.iter(slot.contents) {
                        self.lost = self.lost.saturating_add(1);
                        sink(content, outcome);
                    }
                    (slot.state, slot.at) = (State::Lost, pass.now);
                }
                (State::Lost, Outcome::Acked) => {
                    let contents = core::mem::take(&mut slot.contents);
                    let lost = &mut self.lost;
                    self.contents.drain(contents, |content| {
                        *lost = lost.saturating_sub(1);
                        sink(content, outcome);
                    });
                    slot.state = State::Acked;
                }
                (State::Quiet, Outcome::Acked) => slot.state = State::Acked,
                _ => {}
            }
        }
        run.end(&mut summary);
        self.open_from = open_from.unwrap_or_else(|| largest.saturating_add(1));
        self.reference.largest = Some(largest);
        self.memory_span = pass.rtt.ptos(3).max(Nanos::of(LATE_ACK_SPAN));
        self.trim(pass.now);
        summary
    }

    /// Returns the number of slots up to `largest`, or more.
    fn slots_to(&self, largest: u64) -> usize {
        let count = largest.saturating_add(1).saturating_sub(self.base);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    fn report_evicted(&mut self, summary: &mut Summary, sink: &mut impl FnMut(C, Outcome)) {
        if self.evicted.packets == 0 {
            return;
        }
        let evicted = core::mem::replace(&mut self.evicted, Evicted::NONE);
        summary.lost_packets = summary.lost_packets.saturating_add(evicted.packets);
        summary.untracked_lost = summary
            .untracked_lost
            .saturating_add(evicted.untracked_frames);
        self.contents
            .drain(evicted.contents, |content| sink(content, Outcome::Lost));
    }

    pub(super) fn skip_next(&mut self) {
        let number = self.next();
        if self.skipped.len() == SKIPPED_LEN {
            self.skipped.pop_front();
        }
        self.skipped.push_back(number);
        self.append(Slot {
            at: self.slots.back().map_or(Instant::ZERO, |slot| slot.at),
            described: None,
            contents: Chain::EMPTY,
            len: 0,
            kind: SentKind::Other,
            untracked_frames: 0,
            state: State::Skipped,
        });
    }

    /// Appends a slot. If the ring is full, evicts the oldest, lost if in flight.
    pub(super) fn append(&mut self, slot: Slot) {
        if self.slots.len() == Self::SLOTS_MAX {
            self.evict();
        }
        if self.slots.len() == self.slots.capacity() {
            // Without acknowledgements, nothing else trims.
            self.trim(slot.at);
        }
        if self.slots.len() == self.slots.capacity() {
            let step = self.slots.capacity().clamp(GROWTH_MIN, GROWTH);
            self.slots.reserve_exact(step);
        }
        if self.skipped.capacity() == 0 {
            // Allocated with the first packet, since the first skip may happen long after warm-up.
            self.skipped.reserve_exact(SKIPPED_LEN);
        }
        self.slots.push_back(slot);
    }

    /// Removes the oldest slot. 2,048 newer numbers were sent, so an acknowledgement would no
    /// longer cover it.
    fn evict(&mut self) {
        let Some(slot) = self.pop_front() else {
            return;
        };
        if slot.state == State::InFlight {
            self.flight.remove(slot.kind, slot.len);
            self.contents
                .join(&mut self.evicted.contents, slot.contents);
            self.evicted.packets = self.evicted.packets.saturating_add(1);
            let untracked_frames = u32::from(slot.untracked_frames);
            self.evicted.untracked_frames = self
                .evicted
                .untracked_frames
                .saturating_add(untracked_frames);
            // At once.
            self.loss.deadline = Deadline::at(slot.at);
        }
    }

    /// Removes the oldest slot, with its content if lost.
    pub(super) fn pop_front(&mut self) -> Option<Slot> {
        let mut slot = self.slots.pop_front()?;
        self.base = self.base.saturating_add(1);
        if slot.state == State::Lost {
            let contents = core::mem::take(&mut slot.contents);
            let lost = &mut self.lost;
            self.contents
                .drain(contents, |_| *lost = lost.saturating_sub(1));
        }
        Some(slot)
    }

    /// Drops the content of lost packets; their late acknowledgement is then not reported.
    pub(super) fn forget_lost(&mut self) {
        if self.lost == 0 {
            return;
        }
        self.lost = 0;
        for slot in &mut self.slots {
            if slot.state == State::Lost {
                self.contents
                    .drain(core::mem::take(&mut slot.contents), |_| ());
            }
        }
    }

    pub(super) fn trim(&mut self, now: Instant) {
        let largest = self.reference.largest.unwrap_or(self.reference.first);
        while let Some(slot) = self.slots.front() {
            let done = match slot.state {
                State::Acked | State::Skipped => true,
                State::InFlight => false,
                // Reordering does not reach that far, or the peer's window has passed it.
                State::Quiet | State::Lost => {
                    slot.at + self.memory_span <= now
                        || largest.saturating_sub(self.base) >= ReplayWindow::LEN
                }
            };
            if !done {
                return;
            }
            self.pop_front();
        }
    }
}

impl Slot {
    /// Returns whether it exceeds the minimum MTU and is no probe.
    fn is_long(&self) -> bool {
        self.len > Mtu::MIN.get() && self.kind != SentKind::MtuProbe && !self.kind.is_retransmit()
    }
}

impl Summary {
    /// Counts an acknowledged packet. Returns whether its loss was spurious.
    fn count_reported(&mut self, slot: &Slot) -> bool {
        if matches!(slot.state, State::InFlight | State::Quiet | State::Lost) {
            self.described = newer(self.described, slot.described);
        }
        let is_spurious = slot.state == State::Lost && !slot.kind.is_retransmit();
        self.spurious_packets = self.spurious_packets.saturating_add(u32::from(is_spurious));
        is_spurious
    }

    fn count_acked(&mut self, slot: &Slot, recovery: Instant) {
        self.acked_packets = self.acked_packets.saturating_add(1);
        if slot.at > recovery {
            self.acked_bytes = self.acked_bytes.saturating_add(u32::from(slot.len));
        }
        self.long_acked = self.long_acked.saturating_add(u32::from(slot.is_long()));
    }

    fn count_lost(&mut self, slot: &Slot) {
        self.lost_packets = self.lost_packets.saturating_add(1);
        self.untracked_lost = self
            .untracked_lost
            .saturating_add(u32::from(slot.untracked_frames));
        self.lost_retransmits = self
            .lost_retransmits
            .saturating_add(u32::from(slot.kind.is_retransmit()));
        self.long_lost = self.long_lost.saturating_add(u32::from(slot.is_long()));
    }
}

fn newer(a: Option<Described>, b: Option<Described>) -> Option<Described> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.newer(b)),
        _ => a.or(b),
    }
}

/// Skipped numbers remembered. They are at least 64 apart, and an ACK reaches 2,048 below its
/// largest.
const SKIPPED_LEN: usize = 36;

const GROWTH: usize = 64;
const GROWTH_MIN: usize = 8;

/// Widens the largest number of ACKs unambiguously, whatever the delay. The receiver's largest
/// number only grows, so the ACK of its newest packet is at or above the last one, and uses 2 bytes
/// only if less than 2^14 above a number that it knows to be acknowledged: the nearest number is
/// exact. The ACK of an older packet is widened only if the acknowledged number has advanced by
/// less than 2^14 since; otherwise later ACKs cover the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckReference {
    /// The newest packet that carried an ACK.
    newest: Mark,
    /// An earlier one, less than 2^13 acknowledged numbers before `newest`.
    middle: Mark,
    /// The former `middle`.
    oldest: Mark,
    /// The direction's first number.
    pub(super) first: u64,
    pub(super) largest: Option<u64>,
}

/// The largest acknowledged number as of one packet of the peer.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// `None` sorts before all packets.
    packet: Option<PacketNumber>,
    /// The number after the largest acknowledged.
    expected: PacketNumber,
}

impl AckReference {
    pub(super) const fn new(first: PacketNumber) -> Self {
        let start = Mark {
            packet: None,
            expected: first,
        };
        Self {
            newest: start,
            middle: start,
            oldest: start,
            first: first.get(),
            largest: None,
        }
    }

    /// Returns the largest number of an ACK; `None` if it is ambiguous.
    pub(super) fn widen(&self, packet: PacketNumber, low: TruncatedNumber) -> Option<PacketNumber> {
        let number = self.newest.expected.widen(low);
        if Some(packet) > self.newest.packet {
            return Some(number);
        }
        let certain = [self.middle, self.oldest].into_iter().any(|mark| {
            Some(packet) > mark.packet
                && self.newest.expected.distance_from(mark.expected) < CERTAIN
        });
        (certain && number < self.newest.expected).then_some(number)
    }

    pub(super) fn advance(&mut self, packet: PacketNumber, largest: PacketNumber) {
        if Some(packet) <= self.newest.packet {
            return;
        }
        let after = largest.next().unwrap_or(largest);
        self.newest = Mark {
            packet: Some(packet),
            expected: after.max(self.newest.expected),
        };
        let moved = self.newest.expected.distance_from(self.middle.expected);
        if moved >= CERTAIN / 2 {
            self.oldest = self.middle;
            self.middle = self.newest;
        }
    }
}

/// Numbers that 2 bytes distinguish with a margin.
const CERTAIN: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Form;

    fn number(value: u64) -> PacketNumber {
        PacketNumber::new(value).unwrap()
    }

    proptest! {
        /// ACKs arrive in any order and with any delay; widened numbers are exact.
        #[test]
        fn twp_a1_no_delayed_ack_is_read_as_another_number(
            start in prop_oneof![Just(0), Just((1_u64 << 32) - 9_000), Just(1_u64 << 61)],
            steps in prop::collection::vec((0_u64..16_384, 0_usize..600), 1..300),
        ) {
            let mut reference = AckReference::new(number(start));
            let mut held: Vec<(u64, u64, TruncatedNumber)> = Vec::new();
            let (mut largest, mut known) = (start, start);
            for (packet, (step, pick)) in steps.into_iter().enumerate() {
                // The receiver's rule; `known` is the largest number that we have processed.
                largest += if pick % 2 == 0 { step * 3 } else { step / 64 };
                let form = number(largest).form_after(number(known)).unwrap();
                held.push((packet as u64, largest, number(largest).truncate(form)));
                // A third of the ACKs is delayed until drawn.
                let (packet, truth, low) = match step % 3 {
                    0 => continue,
                    1 => held.swap_remove(pick % held.len()),
                    _ => held.swap_remove(held.len() - 1),
                };
                if let Some(widened) = reference.widen(number(packet), low) {
                    prop_assert_eq!(widened, number(truth));
                    reference.advance(number(packet), widened);
                    known = known.max(truth);
                }
            }
        }
    }

    #[test]
    fn a_recent_older_ack_counts_and_an_ancient_one_does_not() {
        let mut reference = AckReference::new(PacketNumber::ZERO);
        let low = |value: u64| number(value).truncate(Form::Two);
        reference.advance(number(5), number(100));
        assert_eq!(reference.widen(number(3), low(90)), Some(number(90)));
        // An older packet cannot report more.
        assert_eq!(reference.widen(number(3), low(101)), None);
        for packet in 6..20 {
            reference.advance(number(packet), number(packet * 10_000));
        }
        // 90 below 2^16 plus 90, which is nearest to the current largest acknowledged.
        assert_eq!(reference.widen(number(3), low(90)), None);
        assert_eq!(
            reference.widen(number(20), low(190_001)),
            Some(number(190_001))
        );
    }

    #[test]
    fn certainty_ends_at_2_14_numbers_and_with_the_packet_itself() {
        let low = |value: u64| number(value).truncate(Form::Two);
        let of = |acks: &[(u64, u64)]| {
            let mut reference = AckReference::new(PacketNumber::ZERO);
            for &(packet, largest) in acks {
                reference.advance(number(packet), number(largest));
            }
            reference
        };
        // One packet carries one ACK.
        assert_eq!(of(&[(5, 100)]).widen(number(5), low(101)), None);
        assert_eq!(of(&[(5, 20_000)]).widen(number(5), low(19_990)), None);
        // 2^14 - 1 and 2^14 numbers behind the first.
        let behind = |largest| of(&[(5, largest)]).widen(number(3), low(100));
        assert_eq!(behind((1 << 14) - 2), Some(number(100)));
        assert_eq!(behind((1 << 14) - 1), None);
        // Small steps do not move the marks; a large one does.
        let small = of(&[(5, 100), (7, 5_000), (8, 6_000)]);
        assert_eq!(small.widen(number(6), low(4_000)), Some(number(4_000)));
        let great = of(&[(5, 10_000), (9, 20_000)]);
        assert_eq!(great.widen(number(7), low(15_000)), Some(number(15_000)));
    }
}
