//! Loss recovery, sender's side: packets in flight, acknowledged and lost.

mod contents;
mod loss;
mod scan;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::byte_queue::deque_memory;
use crate::frame::{AckFrame, Elicits};
use crate::nanos::Deadline;
use crate::nanos::Nanos;
use crate::packet::PacketNumber;
use crate::received::Described;
use crate::replay::ReplayWindow;
use crate::rtt::RttEstimator;
use contents::{Chain, Contents, Flight};
use loss::LossDetector;
use scan::{AckReference, Evicted, Pass, Slot, State};

pub use contents::InFlight;

/// How long to wait for a late acknowledgement after a loss: longer than reordering on playable
/// paths.
pub(crate) const LATE_ACK_SPAN: Duration = Duration::from_millis(500);

/// Sent packets without an outcome, with what each held.
///
/// `C` identifies content. [`push`](Self::push) a packet's content before
/// [`on_sent`](Self::on_sent). Lost packets are remembered for three probe timeouts, at least half
/// a second: a late acknowledgement then prevents a retransmission. Memory grows in steps of at
/// most 64, and is kept until [`Self::shrink`].
#[derive(Clone, Debug)]
pub struct SentPackets<C> {
    /// One for each number from `base`.
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    base: u64,
    contents: Contents<C>,
    /// How many contents belong to lost packets.
    lost: usize,
    /// For how long lost and non-eliciting packets are remembered.
    memory_span: Nanos,
    /// Contents of the next packet.
    staged: Chain,
    /// Contents of packets evicted from a full ring: lost, and not reported yet.
    evicted: Evicted,
    /// The last 36 skipped numbers. An ACK of one is a protocol violation.
    skipped: VecDeque<u64>,
    /// Orders ACKs and widens their largest number.
    reference: AckReference,
    loss: LossDetector,
    /// Ack-eliciting packets in flight.
    flight: Flight,
    /// No packet below is in flight.
    open_from: u64,
    /// Packets sent up to this time do not affect the window; see [`Self::set_recovery`].
    recovery: Instant,
    /// Packets below it may have used another path, so they give no RTT sample.
    sample_from: u64,
}

impl<C: Copy> SentPackets<C> {
    /// Most ack-eliciting packets in flight.
    pub const IN_FLIGHT_MAX: usize = 1_024;
    /// Most of them with only unreliable messages: three quarters.
    pub const UNRELIABLE_IN_FLIGHT_MAX: usize = contents::UNRELIABLE_MAX;
    /// Packet numbers remembered. An ACK covers no more.
    pub const SLOTS_MAX: usize = 2_048;
    /// Contents of all packets in flight: 8 for each of 1,024.
    pub const CONTENTS_MAX: usize = contents::NODES_MAX;

    /// Creates an empty record for numbers from `first`.
    #[must_use]
    pub const fn new(first: PacketNumber) -> Self {
        Self {
            slots: VecDeque::new(),
            base: first.get(),
            contents: Contents::new(),
            lost: 0,
            memory_span: Nanos::of(LATE_ACK_SPAN),
            staged: Chain::EMPTY,
            evicted: Evicted::NONE,
            skipped: VecDeque::new(),
            reference: AckReference::new(first),
            loss: LossDetector::new(),
            flight: Flight::EMPTY,
            open_from: first.get(),
            recovery: Instant::ZERO,
            sample_from: 0,
        }
    }

    /// Adds content to the next packet.
    ///
    /// # Errors
    ///
    /// Returns `content` if [`Self::CONTENTS_MAX`] are held.
    #[inline]
    pub fn push(&mut self, content: C) -> Result<(), ContentsFull<C>> {
        if self.contents.room() == 0 {
            self.forget_lost();
        }
        self.contents
            .push(&mut self.staged, content)
            .map_err(ContentsFull)
    }

    /// Drops the pushed content of a packet that is not sent.
    pub fn discard(&mut self) {
        let staged = core::mem::take(&mut self.staged);
        self.contents.drain(staged, |_| ());
    }

    /// Records a sent packet with the content pushed since the last one. Numbers must go up.
    pub fn on_sent(&mut self, packet: &SentPacket) {
        let mut number = self.next();
        debug_assert!(packet.number.get() >= number, "numbers go up");
        if packet.number.get() < number {
            self.discard();
            return;
        }
        // Numbers that were taken but never sealed.
        while number < packet.number.get() {
            self.skip_next();
            number = number.saturating_add(1);
        }
        let state = match packet.elicits {
            Elicits::Ack => {
                if self.flight.packets == 0 {
                    self.open_from = number;
                }
                self.loss.probe_base = self.loss.probe_base.max(packet.at);
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

    /// Skips [`Self::next_number`]. A peer that acknowledges it is an optimistic acker (RFC 9000,
    /// section
    /// 21.4).
    pub fn skip(&mut self) {
        self.skip_next();
    }

    /// Applies an ACK, and calls `sink` for acknowledged and lost content, oldest first. Ignores
    /// one from a packet so old that its largest number is ambiguous.
    ///
    /// # Errors
    ///
    /// [`AckUnsent`] if the ACK covers a number that was never sent; nothing changes.
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
            largest: self.reference.largest.max(Some(largest)),
        };
        let reports = |number: u64| {
            largest
                .checked_sub(number)
                .is_some_and(|below| ack.frame.reports(below))
        };
        let mut summary = self.scan(&pass, reports, sink);
        summary.rtt_sample = sample;
        // The sample also read the slot of the largest number.
        summary.slots_visited = summary.slots_visited.saturating_add(1);
        if summary.acked_packets > 0 {
            self.loss.probes = 0;
        }
        Ok(summary)
    }

    /// Declares overdue packets lost and calls `sink`, or requests a probe.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        sink: impl FnMut(C, Outcome),
    ) -> Timeout {
        if self.loss.deadline.is_due(now) {
            let pass = Pass {
                now,
                rtt,
                largest: self.reference.largest,
            };
            return Timeout::Checked(self.scan(&pass, |_| false, sink));
        }
        if self.loss.deadline == Deadline::NEVER
            && self.pto_deadline(rtt).is_some_and(|at| at <= now)
        {
            self.loss.probes = self.loss.probes.saturating_add(1);
            self.loss.probe_base = now;
            return Timeout::Probe;
        }
        Timeout::Checked(Summary::default())
    }

    /// Returns when [`Self::on_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self, rtt: &RttEstimator) -> Option<Instant> {
        self.loss_deadline().or_else(|| self.pto_deadline(rtt))
    }

    /// Returns when the next packet is declared lost without another ACK.
    #[must_use]
    pub const fn loss_deadline(&self) -> Option<Instant> {
        self.loss.deadline.get()
    }

    /// Returns when a probe is due; `None` if nothing ack-eliciting is in flight. Doubles with each
    /// probe up to [`RttEstimator::BACKOFF_MAX`]; RFC 9002, section 6.2.
    #[must_use]
    pub fn pto_deadline(&self, rtt: &RttEstimator) -> Option<Instant> {
        (self.flight.packets > 0).then(|| self.loss.probe_base + rtt.pto_after(self.loss.probes))
    }

    #[cfg(test)]
    const fn probes(&self) -> u32 {
        self.loss.probes
    }

    /// Returns the content of the packets in flight, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = C> + '_ {
        self.slots
            .iter()
            .filter(|slot| slot.state == State::InFlight)
            .flat_map(|slot| self.contents.iter(slot.contents))
    }

    /// Returns the number of ack-eliciting packets in flight.
    #[must_use]
    pub const fn in_flight_packets(&self) -> usize {
        self.flight.packets
    }

    /// Returns their bytes.
    #[must_use]
    pub const fn in_flight_bytes(&self) -> InFlight {
        self.flight.bytes
    }

    /// Records that the congestion window was reduced at `at`. [`Summary::acked_bytes`] excludes
    /// packets sent before; RFC 9002, section 7.3.2.
    pub const fn set_recovery(&mut self, at: Instant) {
        self.recovery = at;
    }

    /// Excludes the packets sent so far from RTT samples, since they may have used another path;
    /// RFC 9000, section 9.4.
    pub fn reset_rtt_sampling(&mut self) {
        self.sample_from = self.next();
    }

    /// Returns whether no ack-eliciting packet may be sent except probes: too many are in flight,
    /// or an ACK of the next one could not cover the oldest.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let span = self.next().saturating_sub(self.open_from);
        let packets = self.flight.packets;
        packets >= Self::IN_FLIGHT_MAX || packets > 0 && span >= ReplayWindow::LEN
    }

    /// Returns whether no packet with only unreliable messages may be sent: these use at most
    /// [`Self::UNRELIABLE_IN_FLIGHT_MAX`] packets and the same share of the contents.
    #[must_use]
    pub const fn is_full_for_unreliable(&self) -> bool {
        self.flight.is_full_for_unreliable()
    }

    /// Returns how many more contents [`push`](Self::push) accepts.
    #[must_use]
    pub const fn contents_room(&self) -> usize {
        self.contents.room().saturating_add(self.lost)
    }

    /// Drops the packets in flight of a session that has ended. Numbers continue.
    pub fn forget(&mut self) {
        self.base = self.next();
        self.slots = VecDeque::new();
        self.contents = Contents::new();
        self.lost = 0;
        self.staged = Chain::EMPTY;
        self.evicted = Evicted::NONE;
        self.flight = Flight::EMPTY;
        self.loss.deadline = Deadline::NEVER;
    }

    /// Releases the memory that the packets in flight do not need. Late acknowledgements of earlier
    /// packets are then ignored.
    pub fn shrink(&mut self) {
        while let Some(slot) = self.slots.front()
            && slot.state != State::InFlight
        {
            self.pop_front();
        }
        self.shrink_memory();
    }

    /// Releases unused capacity.
    pub fn shrink_memory(&mut self) {
        self.slots.shrink_to_fit();
        if self.flight.packets == 0 {
            // A false acknowledgement of them no longer gains anything.
            self.skipped = VecDeque::new();
        }
        self.contents.shrink();
    }

    /// Returns the heap memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let (slots, skipped) = (deque_memory(&self.slots), deque_memory(&self.skipped));
        [slots, skipped, self.contents.memory()].into_iter().sum()
    }

    /// Returns the number to send or skip next; `None` if all are used.
    #[must_use]
    pub fn next_number(&self) -> Option<PacketNumber> {
        PacketNumber::new(self.next())
    }

    /// Returns the reference of [`PacketNumber::form_after`] for the next packet: the largest
    /// acknowledged number, or the first of all.
    #[must_use]
    pub fn form_reference(&self) -> PacketNumber {
        let reference = self.reference.largest.unwrap_or(self.reference.first);
        PacketNumber::new(reference).unwrap_or(PacketNumber::MAX)
    }

    /// Returns the largest acknowledged number.
    #[must_use]
    pub fn largest_acked(&self) -> Option<PacketNumber> {
        self.reference.largest.and_then(PacketNumber::new)
    }

    #[cfg(test)]
    const fn reorder_threshold(&self) -> u64 {
        self.loss.tolerance.threshold
    }

    /// The number after the last slot; one above the largest packet number if all are used.
    fn next(&self) -> u64 {
        self.base.saturating_add(self.slots.len() as u64)
    }
}

#[cfg(test)]
mod tests;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// At least [`SentPackets::next_number`]; numbers in between count as skipped.
    pub number: PacketNumber,
    /// When it was sent.
    pub at: Instant,
    /// UDP payload in bytes.
    pub len: u16,
    /// Whether it is ack-eliciting; other packets are never declared lost.
    pub elicits: Elicits,
    /// What it holds.
    pub kind: SentKind,
    /// The ACK that it carried, if complete.
    pub described: Option<Described>,
    /// Frames without a tracked outcome; their loss is counted.
    pub untracked_frames: u8,
}

/// What a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentKind {
    /// Only unreliable messages, in this many frames, at least one.
    Unreliable(u8),
    /// At least one reliable message of a bulk channel.
    Bulk,
    /// An MTU probe; its loss does not indicate congestion.
    MtuProbe,
    /// No message; it was sent to an address other than the session's, and does not affect the
    /// path's state.
    OffPath,
    /// Only this many retransmitted fragments of one split unreliable message. A peer that gave it
    /// up never acknowledges them, so their loss does not indicate congestion.
    Retransmit(u8),
    /// Other reliable messages, or only control frames.
    Other,
}

impl SentKind {
    const fn signals_congestion(self) -> bool {
        !matches!(self, Self::MtuProbe | Self::OffPath | Self::Retransmit(_))
    }

    const fn is_retransmit(self) -> bool {
        matches!(self, Self::Retransmit(_))
    }
}

/// A received ACK.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedAck<'a> {
    /// When it arrived.
    pub at: Instant,
    /// The packet that carried it.
    pub packet: PacketNumber,
    /// The frame.
    pub frame: AckFrame<'a>,
}

/// The outcome of sent content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrived.
    Acked,
    /// It counts as lost. [`Acked`](Self::Acked) may follow if it arrives late.
    Lost,
}

/// The result of an ACK or a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Newly acknowledged ack-eliciting packets.
    pub acked_packets: u32,
    /// Newly lost packets.
    pub lost_packets: u32,
    /// Those of kind [`SentKind::Retransmit`].
    pub lost_retransmits: u32,
    /// Newly lost packets in the newest gap, without [`SentKind::Retransmit`].
    pub lost_in_gap: u32,
    /// The gap that ended: send times of the acknowledged packets on either side.
    pub gap: Option<(Instant, Instant)>,
    /// Acknowledged packets that had been declared lost, without [`SentKind::Retransmit`].
    pub spurious_packets: u32,
    /// The newest ACK of ours that the peer has received, for [`crate::received::Received`].
    pub described: Option<Described>,
    /// The RTT sample.
    pub rtt_sample: Option<Duration>,
    /// Newly acknowledged bytes sent after the time of [`SentPackets::set_recovery`].
    pub acked_bytes: u32,
    /// Send time of the newest newly lost packet, without [`SentKind::MtuProbe`],
    /// [`SentKind::OffPath`] and [`SentKind::Retransmit`].
    pub lost_sent_at: Option<Instant>,
    /// The same for the packets in the gap, which [`Self::lost_sent_at`] excludes.
    pub gap_lost_sent_at: Option<Instant>,
    /// Newly acknowledged packets longer than the minimum MTU, without probes.
    pub long_acked: u32,
    /// The same for newly lost packets.
    pub long_lost: u32,
    /// Sum of [`SentPacket::untracked_frames`] of newly lost packets.
    pub untracked_lost: u32,
    /// Slots visited; at most 2,049.
    pub slots_visited: u32,
}

/// What a timeout requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing, or packets were declared lost.
    Checked(Summary),
    /// Send up to 2 packets, with the oldest unacknowledged reliable data or a PING. They may
    /// exceed [`SentPackets::IN_FLIGHT_MAX`].
    Probe,
}

/// An ACK of a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckUnsent;

/// No room for more content; the current packet must be sent without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentsFull<C>(pub C);

wire::error_text! { AckUnsent {
    Self => "acknowledgement of a packet that was never sent",
}}

impl<C> fmt::Display for ContentsFull<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packets in flight hold as much as is remembered")
    }
}

impl<C: fmt::Debug> core::error::Error for ContentsFull<C> {}
