//! Sender's side of acknowledgement: what is in flight, what arrived, what is lost.

mod contents;
mod flight;
mod reference;
mod scan;
mod tolerance;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::channel::unreliable::STRAGGLERS;
use crate::frame::{AckFrame, Elicits};
use crate::nanos::Deadline;
use crate::nanos::Nanos;
use crate::packet::PacketNumber;
use crate::received::Described;
use crate::replay::ReplayWindow;
use crate::rtt::RttEstimator;
use contents::{Chain, Contents};
use flight::Flight;
use flight::Gaps;
use reference::AckReference;
use scan::{Evicted, Pass, Slot, State};
use tolerance::Tolerance;

pub use flight::InFlight;

/// Packets sent whose fate is open, with what each held.
///
/// `C` names something that was sent: a fragment, a message, a frame to repeat. What a packet held
/// is pushed first and goes with the next [`Self::on_sent`]. What counted as lost is remembered for
/// three probe timeouts, half a second at least, and while there is room, since it may have been
/// late: then it need not be sent again. Memory grows in steps of 64 or less up to
/// [`Self::SLOTS_MAX`] packets and [`Self::CONTENTS_MAX`] contents, and is kept until
/// [`Self::shrink`].
#[derive(Clone, Debug)]
pub struct SentPackets<C> {
    /// One for each number from `base` on.
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    base: u64,
    /// The direction's first number.
    first: u64,
    /// What the packets held.
    contents: Contents<C>,
    /// How many of them belong to packets that count as lost.
    lost: usize,
    /// How long a packet is remembered that counts as lost, or asked for nothing.
    memory_span: Nanos,
    /// Contents for the next packet.
    staged: Chain,
    /// What packets held that were pushed out of a full ring; lost, and not yet reported.
    evicted: Evicted,
    /// Numbers never sent, the last 36; an ACK of one is a lie.
    skipped: VecDeque<u64>,
    /// Orders ACKs and widens their largest number.
    reference: AckReference,
    /// Largest number acknowledged.
    largest_acked: Option<u64>,
    /// Finds outages.
    gaps: Gaps,
    /// Packets in flight that ask for an acknowledgement.
    flight: Flight,
    /// No packet below is in flight.
    open_from: u64,
    /// What of the path's reordering is borne.
    tolerance: Tolerance,
    /// When the next packet counts as lost without a further ACK.
    loss_deadline: Deadline,
    /// When the last eliciting packet left, or the last probe was asked for.
    probe_base: Instant,
    /// Probe timeouts since the last new acknowledgement.
    probes: u32,
    /// What was sent up to here says nothing about the window; see [`Self::set_recovery`].
    recovery: Instant,
    /// Packets before it went another way, or that way too, and measure nothing of this one.
    sample_from: u64,
}

impl<C: Copy> SentPackets<C> {
    /// Eliciting packets in flight; the sender waits at this many.
    pub const IN_FLIGHT_MAX: usize = 1_024;
    /// Those of them that may hold unreliable messages only: three quarters.
    pub const UNRELIABLE_IN_FLIGHT_MAX: usize = flight::UNRELIABLE_MAX;
    /// Packet numbers remembered. An ACK speaks of no more than that.
    pub const SLOTS_MAX: usize = 2_048;
    /// Contents of all packets in flight: 8 for each of 1,024.
    pub const CONTENTS_MAX: usize = contents::NODES_MAX;

    /// Makes an empty record for numbers from `first`.
    #[must_use]
    pub const fn new(first: PacketNumber) -> Self {
        Self {
            slots: VecDeque::new(),
            base: first.get(),
            first: first.get(),
            contents: Contents::new(),
            lost: 0,
            memory_span: Nanos::of(STRAGGLERS),
            staged: Chain::EMPTY,
            evicted: Evicted::NONE,
            skipped: VecDeque::new(),
            reference: AckReference::new(first),
            largest_acked: None,
            gaps: Gaps::NONE,
            flight: Flight::EMPTY,
            open_from: first.get(),
            tolerance: Tolerance::new(),
            loss_deadline: Deadline::NEVER,
            probe_base: Instant::ZERO,
            probes: 0,
            recovery: Instant::ZERO,
            sample_from: 0,
        }
    }

    /// Adds to what the next packet holds.
    ///
    /// # Errors
    ///
    /// Hands `content` back where [`Self::CONTENTS_MAX`] are held.
    #[inline]
    pub fn push(&mut self, content: C) -> Result<(), ContentsFull<C>> {
        if self.contents.room() == 0 {
            self.forget_lost();
        }
        self.contents
            .push(&mut self.staged, content)
            .map_err(ContentsFull)
    }

    /// Forgets what was pushed for a packet that is not sent.
    pub fn discard(&mut self) {
        let staged = core::mem::take(&mut self.staged);
        self.contents.drain(staged, |_| ());
    }

    /// Takes note of a packet, which held what was pushed since the last one.
    ///
    /// A number below [`Self::next_number`] is a caller's mistake; the packet is not noted.
    pub fn on_sent(&mut self, packet: &SentPacket) {
        let mut number = self.next();
        debug_assert!(packet.number.get() >= number, "numbers go up");
        if packet.number.get() < number {
            self.discard();
            return;
        }
        // Numbers that were taken and never sealed.
        while number < packet.number.get() {
            self.skip_next();
            number = number.saturating_add(1);
        }
        let state = match packet.elicits {
            Elicits::Ack => {
                if self.flight.packets() == 0 {
                    self.open_from = number;
                }
                self.probe_base = self.probe_base.max(packet.at);
                State::InFlight
            }
            Elicits::Nothing => State::Quiet,
        };
        let mut contents = core::mem::take(&mut self.staged);
        if state == State::InFlight {
            self.flight.add(packet.kind, packet.len);
        } else {
            debug_assert!(contents.is_empty(), "contents elicit an acknowledgement");
            let staged = core::mem::take(&mut contents);
            self.contents.drain(staged, |_| ());
        }
        self.append(Slot {
            at: packet.at,
            described: packet.described,
            contents,
            len: packet.len,
            kind: packet.kind,
            untracked_frames: packet.untracked_frames,
            state,
        });
    }

    /// Takes note that [`Self::next_number`] is never sent.
    ///
    /// Whoever acknowledges it acknowledges what it did not see: an optimistic acker
    /// (RFC 9000, section 21.4).
    pub fn skip(&mut self) {
        self.skip_next();
    }

    /// Applies an ACK, and tells `sink` what arrived and what counts as lost, oldest first.
    ///
    /// An ACK from a packet so old that its largest number is ambiguous is ignored. Work is
    /// bounded by [`Self::SLOTS_MAX`] slots and what the packets held.
    ///
    /// # Errors
    ///
    /// [`AckUnsent`], with nothing changed, where the ACK reports a number never sent.
    pub fn on_ack(
        &mut self,
        ack: ArrivedAck<'_>,
        rtt: &mut RttEstimator,
        sink: impl FnMut(C, Outcome),
    ) -> Result<Summary, AckUnsent> {
        let Some(largest) = self.reference.widen(ack.packet, ack.frame.largest) else {
            return Ok(Summary::default());
        };
        self.check(largest, &ack.frame)?;
        self.reference.advance(ack.packet, largest);

        let largest = largest.get();
        let sample = self.sample(&ack, largest);
        if let Some(sample) = sample {
            rtt.on_sample(sample, ack.frame.delay().unwrap_or_default());
        }
        let pass = Pass {
            now: ack.at,
            rtt,
            largest: self.largest_acked.max(Some(largest)),
        };
        let reports = |number: u64| {
            largest
                .checked_sub(number)
                .is_some_and(|below| ack.frame.reports(below))
        };
        let mut summary = self.scan(&pass, reports, sink);
        summary.rtt_sample = sample;
        // The slot of the largest was looked at for the sample, too.
        summary.slots_visited = summary.slots_visited.saturating_add(1);
        if summary.acked_packets > 0 {
            self.probes = 0;
        }
        Ok(summary)
    }

    /// Counts as lost what is due, and tells `sink`; or asks for a probe.
    ///
    /// Before [`Self::poll_timeout`] nothing changes.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        sink: impl FnMut(C, Outcome),
    ) -> Timeout {
        if self.loss_deadline.is_due(now) {
            let pass = Pass {
                now,
                rtt,
                largest: self.largest_acked,
            };
            return Timeout::Checked(self.scan(&pass, |_| false, sink));
        }
        if self.loss_deadline == Deadline::NEVER
            && self.pto_deadline(rtt).is_some_and(|at| at <= now)
        {
            self.probes = self.probes.saturating_add(1);
            self.probe_base = now;
            return Timeout::Probe;
        }
        Timeout::Checked(Summary::default())
    }

    /// Returns when [`Self::on_timeout`] is next needed.
    #[must_use]
    pub fn poll_timeout(&self, rtt: &RttEstimator) -> Option<Instant> {
        self.loss_deadline().or_else(|| self.pto_deadline(rtt))
    }

    /// Returns when the next packet counts as lost without a further ACK.
    #[must_use]
    pub const fn loss_deadline(&self) -> Option<Instant> {
        self.loss_deadline.get()
    }

    /// Returns when a probe is due; `None` where nothing in flight asks for an acknowledgement.
    ///
    /// Doubles with each probe up to [`RttEstimator::BACKOFF_MAX`]; RFC 9002, section 6.2.
    #[must_use]
    pub fn pto_deadline(&self, rtt: &RttEstimator) -> Option<Instant> {
        (self.flight.packets() > 0).then(|| self.probe_base + rtt.pto_after(self.probes))
    }

    /// Returns the probes since the last new acknowledgement.
    #[cfg(test)]
    const fn probes(&self) -> u32 {
        self.probes
    }

    /// Returns what the packets in flight hold, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = C> + '_ {
        self.slots
            .iter()
            .filter(|slot| slot.state == State::InFlight)
            .flat_map(|slot| self.contents.iter(slot.contents))
    }

    /// Returns how many packets are in flight that ask for an acknowledgement.
    #[must_use]
    pub const fn in_flight_packets(&self) -> usize {
        self.flight.packets()
    }

    /// Returns how many bytes these have.
    #[must_use]
    pub const fn in_flight_bytes(&self) -> InFlight {
        self.flight.bytes()
    }

    /// Says that the congestion window was cut at `at`: acknowledgements of what was sent until then
    /// are left out of [`Summary::acked_bytes`]; RFC 9002, section 7.3.2.
    pub const fn set_recovery(&mut self, at: Instant) {
        self.recovery = at;
    }

    /// Says that the packets sent so far measure nothing of the path: they went another way, or that
    /// way too; RFC 9000, section 9.4.
    pub fn reset_rtt_sampling(&mut self) {
        self.sample_from = self.next();
    }

    /// Returns whether no further eliciting packet may leave, but for probes.
    ///
    /// So many are in flight; or the oldest of them is so far behind that an ACK of the next one
    /// would no longer speak of it, and it would be sent again although it may have arrived.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let span = self.next().saturating_sub(self.open_from);
        let packets = self.flight.packets();
        packets >= Self::IN_FLIGHT_MAX || packets > 0 && span >= ReplayWindow::LEN
    }

    /// Returns whether no further packet may leave that holds unreliable messages only.
    ///
    /// They take at most [`Self::UNRELIABLE_IN_FLIGHT_MAX`] of the places in flight, and as large a
    /// part of the record of contents: the rest is left to what is reliable.
    #[must_use]
    pub const fn is_full_for_unreliable(&self) -> bool {
        self.flight.is_full_for_unreliable()
    }

    /// Returns how many more contents [`push`](Self::push) takes.
    #[must_use]
    pub const fn contents_room(&self) -> usize {
        self.contents.room().saturating_add(self.lost)
    }

    /// Forgets what is in flight, and gives back its memory; for a session that has ended. Numbers
    /// go on as before.
    pub fn forget(&mut self) {
        self.base = self.next();
        self.slots = VecDeque::new();
        self.contents = Contents::new();
        self.lost = 0;
        self.staged = Chain::EMPTY;
        self.evicted = Evicted::NONE;
        self.flight = Flight::EMPTY;
        self.loss_deadline = Deadline::NEVER;
    }

    /// Gives back the memory that the packets in flight do not need, for a session that has fallen
    /// quiet. Late acknowledgements of what came before them say nothing any more.
    pub fn shrink(&mut self) {
        while let Some(slot) = self.slots.front()
            && slot.state != State::InFlight
        {
            self.pop_front();
        }
        self.shrink_memory();
    }

    /// Gives back the memory that what is remembered does not need.
    pub fn shrink_memory(&mut self) {
        self.slots.shrink_to_fit();
        if self.flight.packets() == 0 {
            // Whoever acknowledges them gains nothing any more.
            self.skipped = VecDeque::new();
        }
        self.contents.shrink();
    }

    /// Returns the heap memory it keeps, bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let slots = self.slots.capacity().saturating_mul(size_of::<Slot>());
        let skipped = self.skipped.capacity().saturating_mul(size_of::<u64>());
        slots
            .saturating_add(skipped)
            .saturating_add(self.contents.memory())
    }

    /// Returns the number that is sent or skipped next; `None` where all are used.
    #[must_use]
    pub fn next_number(&self) -> Option<PacketNumber> {
        PacketNumber::new(self.next())
    }

    /// Returns what [`PacketNumber::form_after`] of the next packet refers to: the largest number
    /// acknowledged, or the first of all.
    #[must_use]
    pub fn form_reference(&self) -> PacketNumber {
        let reference = self.largest_acked.unwrap_or(self.first);
        PacketNumber::new(reference).unwrap_or(PacketNumber::MAX)
    }

    /// Returns the largest number acknowledged.
    #[must_use]
    pub fn largest_acked(&self) -> Option<PacketNumber> {
        self.largest_acked.and_then(PacketNumber::new)
    }

    /// Returns how far packets may arrive out of order without counting as lost, in numbers.
    #[cfg(test)]
    const fn reorder_threshold(&self) -> u64 {
        self.tolerance.threshold()
    }

    /// The number after the last slot; one above the largest packet number where all are used.
    fn next(&self) -> u64 {
        self.base.saturating_add(self.slots.len() as u64)
    }
}

#[cfg(test)]
mod tests;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Its number, [`super::SentPackets::next_number`] or above it; numbers passed over count as
    /// skipped.
    pub number: PacketNumber,
    /// When it left.
    pub at: Instant,
    /// Its length, bytes of UDP payload.
    pub len: u16,
    /// Whether it asks for an acknowledgement; one that does not is never lost.
    pub elicits: Elicits,
    /// What sort of messages it holds.
    pub kind: SentKind,
    /// The ACK it carried, where that was whole.
    pub described: Option<Described>,
    /// Frames in it of which nobody wants to hear; their loss is counted.
    pub untracked_frames: u8,
}

/// What sort of messages a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentKind {
    /// So many frames of unreliable ones, at least one, and no other.
    Unreliable(u8),
    /// A reliable one of a bulk channel, whatever else it holds.
    Bulk,
    /// Padding that asks what size the path carries; its loss says nothing about congestion.
    MtuProbe,
    /// None; it went to another address than the session's, and says nothing about the path there.
    OffPath,
    /// So many parts of one unreliable message that is split, sent again, and nothing else. A peer who has
    /// given the message up never acknowledges them: their loss says nothing about the path.
    Retransmit(u8),
    /// Another reliable one, or none.
    Other,
}

impl SentKind {
    /// Returns whether the loss of such a packet may come from congestion of the path.
    const fn signals_congestion(self) -> bool {
        !matches!(self, Self::MtuProbe | Self::OffPath | Self::Retransmit(_))
    }

    const fn is_retransmit(self) -> bool {
        matches!(self, Self::Retransmit(_))
    }
}

/// An ACK that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedAck<'a> {
    /// When it arrived.
    pub at: Instant,
    /// The packet that carried it.
    pub packet: PacketNumber,
    /// What it says.
    pub frame: AckFrame<'a>,
}

/// What became of something sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrived.
    Acked,
    /// It counts as lost. Should it arrive after all, [`Acked`](Self::Acked) may follow.
    Lost,
}

/// What one call learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Eliciting packets newly acknowledged.
    pub acked_packets: u32,
    /// Packets newly counted as lost.
    pub lost_packets: u32,
    /// Of these, how many of [`SentKind::Retransmit`].
    pub lost_retransmits: u32,
    /// Of the newly lost ones, how many belong to the newest gap, those of [`SentKind::Retransmit`] left out.
    pub lost_in_gap: u32,
    /// The gap that ended: when the packets on either side of it were sent, which arrived.
    pub gap: Option<(Instant, Instant)>,
    /// Packets acknowledged that had been counted as lost, those of [`SentKind::Retransmit`] left out.
    pub spurious_packets: u32,
    /// The newest ACK of ours that the peer now has, for [`crate::received::Received`].
    pub described: Option<Described>,
    /// The round trip measured.
    pub rtt_sample: Option<Duration>,
    /// Bytes of packets newly acknowledged that were sent after
    /// [`super::SentPackets::set_recovery`]'s time.
    pub acked_bytes: u32,
    /// When the newest of the packets newly counted as lost was sent, those of [`SentKind::MtuProbe`],
    /// [`SentKind::OffPath`] and [`SentKind::Retransmit`] left out.
    pub lost_sent_at: Option<Instant>,
    /// The same of those in the gap, which [`Self::lost_sent_at`] leaves out.
    pub gap_lost_sent_at: Option<Instant>,
    /// Of those newly acknowledged, how many were longer than every path must carry, probes not
    /// counted.
    pub long_acked: u32,
    /// The same of those newly counted as lost.
    pub long_lost: u32,
    /// The [`SentPacket::untracked_frames`] of those newly counted as lost, all together.
    pub untracked_lost: u32,
    /// Slots looked at; at most 2,049.
    pub slots_visited: u32,
}

/// What a timeout asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing was due, or packets were counted as lost.
    Checked(Summary),
    /// Up to 2 packets shall leave: the oldest unacknowledged reliable data, or a PING. They may
    /// go over [`super::SentPackets::IN_FLIGHT_MAX`].
    Probe,
}

/// An ACK of a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckUnsent;

/// No room for further contents; the packet under way must leave without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentsFull<C>(pub C);

impl fmt::Display for AckUnsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("acknowledgement of a packet that was never sent")
    }
}

impl core::error::Error for AckUnsent {}

impl<C> fmt::Display for ContentsFull<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packets in flight hold as much as is remembered")
    }
}

impl<C: fmt::Debug> core::error::Error for ContentsFull<C> {}
