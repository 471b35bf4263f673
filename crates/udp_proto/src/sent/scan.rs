//! One pass over the packets up to the largest acknowledged: which arrived, which are lost.

use core::time::Duration;

use wire::Instant;

use super::contents::Chain;
use super::flight::Run;
use super::{AckUnsent, ArrivedAck, Outcome, SentKind, SentPackets, Summary};
use crate::channel::unreliable::STRAGGLERS;
use crate::config::Mtu;
use crate::frame::AckFrame;
use crate::nanos::Deadline;
use crate::nanos::Nanos;
use crate::packet::PacketNumber;
use crate::received::Described;
use crate::replay::ReplayWindow;
use crate::rtt::RttEstimator;

/// What a pass judges by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass<'a> {
    /// The time.
    pub(super) now: Instant,
    /// The path's round trip, the ACK's own sample included.
    pub(super) rtt: &'a RttEstimator,
    /// Largest number acknowledged, by this ACK or before.
    pub(super) largest: Option<u64>,
}

/// One packet number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// When it was sent; of one that counts as lost, since when it does.
    pub(super) at: Instant,
    /// The ACK it carried.
    pub(super) described: Option<Described>,
    /// What it held; empty unless it is in flight or counts as lost.
    pub(super) contents: Chain,
    /// Its length, bytes.
    pub(super) len: u16,
    /// What sort of messages it holds.
    pub(super) kind: SentKind,
    /// Frames in it of which nobody wants to hear.
    pub(super) untracked_frames: u8,
    /// How it stands.
    pub(super) state: State,
}

/// How a packet number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Sent, eliciting, fate open.
    InFlight,
    /// Sent, eliciting nothing.
    Quiet,
    /// Acknowledged.
    Acked,
    /// Counted as lost; kept with what it held, so that a late acknowledgement is known for what it
    /// is.
    Lost,
    /// Never sent.
    Skipped,
}

/// Packets that a full ring pushed out while in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evicted {
    /// What they held.
    pub(super) contents: Chain,
    /// How many.
    pub(super) packets: u32,
    /// What they held of which nobody wants to hear.
    pub(super) untracked_frames: u32,
}

impl Evicted {
    /// No packets.
    pub(super) const NONE: Self = Self {
        contents: Chain::EMPTY,
        packets: 0,
        untracked_frames: 0,
    };
}

impl<C: Copy> SentPackets<C> {
    /// Refuses an ACK that reports a number never sent.
    pub(super) fn check(
        &self,
        largest: PacketNumber,
        frame: &AckFrame<'_>,
    ) -> Result<(), AckUnsent> {
        let largest = largest.get();
        let lowest = largest
            .checked_sub(frame.lowest_below())
            .filter(|lowest| largest < self.next() && *lowest >= self.first)
            .ok_or(AckUnsent)?;
        // They go up, and what lies below the ACK need not be looked at.
        let skips = self
            .skipped
            .iter()
            .rev()
            .take_while(|number| **number >= lowest)
            .filter_map(|number| largest.checked_sub(*number))
            .any(|below| frame.reports(below));
        if skips { Err(AckUnsent) } else { Ok(()) }
    }

    /// The round trip that an ACK measures: only its largest number says when it was sent, only
    /// at the first report, only an eliciting packet is answered in time, and only one that went by
    /// the path of now measures it.
    pub(super) fn sample(&self, ack: &ArrivedAck<'_>, largest: u64) -> Option<Duration> {
        let index = usize::try_from(largest.checked_sub(self.base)?).ok()?;
        let slot = self.slots.get(index)?;
        let is_here = largest >= self.sample_from && slot.kind != SentKind::OffPath;
        (slot.state == State::InFlight && slot.at <= ack.at && is_here)
            .then(|| ack.at.saturating_since(slot.at))
    }

    /// Settles every packet up to the largest acknowledged.
    pub(super) fn scan(
        &mut self,
        pass: &Pass<'_>,
        reports: impl Fn(u64) -> bool,
        mut sink: impl FnMut(C, Outcome),
    ) -> Summary {
        let mut summary = Summary::default();
        self.report_evicted(&mut summary, &mut sink);
        self.tolerance.decay(pass.now);
        self.loss_deadline = Deadline::NEVER;
        let Some(largest) = pass.largest else {
            return summary;
        };
        let mut open_from = None;
        let patience = pass.rtt.loss_delay() + self.tolerance.slack(pass.rtt);
        let count = self.slots_to(largest);
        let mut run = Run::default();
        for (number, slot) in (self.base..).zip(self.slots.iter_mut().take(count)) {
            summary.slots_visited = summary.slots_visited.saturating_add(1);
            let outcome = if reports(number) {
                if summary.count_reported(slot) {
                    let overtaken = self
                        .largest_acked
                        .map_or(0, |before| before.saturating_sub(number));
                    self.tolerance.on_spurious(pass.now, overtaken, pass.rtt);
                }
                Outcome::Acked
            } else {
                Outcome::Lost
            };
            match (slot.state, outcome) {
                (State::InFlight, Outcome::Lost)
                    if largest.saturating_sub(number) < self.tolerance.threshold()
                        && slot.at + patience > pass.now =>
                {
                    run.on_open();
                    self.loss_deadline = self.loss_deadline.or_at(slot.at + patience);
                    open_from = open_from.or(Some(number));
                }
                (State::InFlight, Outcome::Acked) => {
                    self.gaps.on_acked(number, slot.at, &mut run, &mut summary);
                    summary.count_acked(slot, self.recovery);
                    self.flight.remove(slot.kind, slot.len);
                    let contents = core::mem::take(&mut slot.contents);
                    self.contents
                        .drain(contents, |content| sink(content, outcome));
                    slot.state = State::Acked;
                }
                (State::InFlight, Outcome::Lost) => {
                    summary.count_lost(slot);
                    self.gaps.on_lost(number, slot, &mut run, &mut summary);
                    self.flight.remove(slot.kind, slot.len);
                    for content in self.contents.iter(slot.contents) {
                        self.lost = self.lost.saturating_add(1);
                        sink(content, outcome);
                    }
                    slot.lose(pass.now);
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
        self.largest_acked = Some(largest);
        self.trim_after(pass);
        summary
    }

    /// Removes what nothing is to be learnt about any more.
    fn trim_after(&mut self, pass: &Pass<'_>) {
        self.memory_span = pass.rtt.ptos(3).max(Nanos::of(STRAGGLERS));
        self.trim(pass.now);
    }

    /// How many slots there are for numbers up to `largest`, or more.
    fn slots_to(&self, largest: u64) -> usize {
        let count = largest.saturating_add(1).saturating_sub(self.base);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Reports what a full ring pushed out.
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
}

impl Slot {
    /// Takes note that it counts as lost.
    const fn lose(&mut self, now: Instant) {
        self.state = State::Lost;
        self.at = now;
    }

    /// Returns whether it is longer than what every path must carry, and no probe.
    fn is_long(&self) -> bool {
        self.len > Mtu::MIN.get() && self.kind != SentKind::MtuProbe && !self.kind.is_retransmit()
    }
}

impl Summary {
    /// Takes note of a packet that is reported; returns whether it wrongly counted as lost.
    fn count_reported(&mut self, slot: &Slot) -> bool {
        if matches!(slot.state, State::InFlight | State::Quiet | State::Lost) {
            self.described = newer(self.described, slot.described);
        }
        let is_spurious = slot.state == State::Lost && !slot.kind.is_retransmit();
        self.spurious_packets = self.spurious_packets.saturating_add(u32::from(is_spurious));
        is_spurious
    }

    /// Counts a packet that was acknowledged.
    fn count_acked(&mut self, slot: &Slot, recovery: Instant) {
        self.acked_packets = self.acked_packets.saturating_add(1);
        if slot.at > recovery {
            self.acked_bytes = self.acked_bytes.saturating_add(u32::from(slot.len));
        }
        self.long_acked = self.long_acked.saturating_add(u32::from(slot.is_long()));
    }

    /// Counts a packet that counts as lost.
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

/// The newer of two ACKs of ours.
fn newer(a: Option<Described>, b: Option<Described>) -> Option<Described> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.newer(b)),
        _ => a.or(b),
    }
}

impl<C: Copy> SentPackets<C> {
    /// Appends a slot for a number that is never sent.
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

    /// Appends a slot; where the ring is full the oldest goes, lost if it was in flight.
    pub(super) fn append(&mut self, slot: Slot) {
        if self.slots.len() == Self::SLOTS_MAX {
            self.evict();
        }
        if self.slots.len() == self.slots.capacity() {
            // Where nobody acknowledges anything, nothing else does.
            self.trim(slot.at);
        }
        if self.slots.len() == self.slots.capacity() {
            let step = self.slots.capacity().clamp(GROWTH_MIN, GROWTH);
            self.slots.reserve_exact(step);
        }
        if self.skipped.capacity() == 0 {
            // With the first packet: the first number left out may come long after a session is warm.
            self.skipped.reserve_exact(SKIPPED_LEN);
        }
        self.slots.push_back(slot);
    }

    /// Removes the oldest slot.
    ///
    /// 2,048 numbers were sent after it without its being acknowledged or lost: the peer's
    /// acknowledgements do not reach us, and would no longer reach down to it.
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
            self.loss_deadline = Deadline::at(slot.at);
        }
    }

    /// Removes the oldest slot, and what it still held of a packet that counts as lost.
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

    /// Forgets what packets held that count as lost: should one arrive after all, that is not told.
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

    /// Removes the oldest slots as far as nothing is to be learnt about them any more.
    pub(super) fn trim(&mut self, now: Instant) {
        let largest = self.largest_acked.unwrap_or(self.first);
        while let Some(slot) = self.slots.front() {
            let done = match slot.state {
                State::Acked | State::Skipped => true,
                State::InFlight => false,
                // Packets do not overtake each other by that much; or the peer's window has passed it.
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

/// Numbers never sent that are remembered. Deliberate skips are 64 or more apart, so these cover
/// 2,240 numbers, and an ACK reaches 2,048 below its largest.
const SKIPPED_LEN: usize = 36;

/// Slots by which the ring grows at most, and at least.
const GROWTH: usize = 64;
const GROWTH_MIN: usize = 8;
