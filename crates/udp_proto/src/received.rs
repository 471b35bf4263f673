//! Acknowledgement, receiver's side: what arrived, and what and when to report.

use core::time::Duration;

use wire::Instant;

use crate::frame::{AckFrame, Elicits, Frame};
use crate::nanos::Deadline;
use crate::nanos::Nanos;
use crate::packet::{Form, PacketNumber};
use crate::replay::{ReplayWindow, Verdict};

/// Received packet numbers: the replay window, and how much of it the peer knows.
///
/// [Withheld](Self::withhold) numbers are never reported. Each other one is reported until the peer
/// has acknowledged such an ACK, if it is at most 1,023 below the largest. So the peer may
/// retransmit what arrived, but never believes that something arrived which did not.
#[derive(Clone, Debug)]
pub struct Received {
    /// Decrypted packets; a number marked here is a replay.
    window: ReplayWindow,
    /// What our ACKs report, if it differs.
    withholding: Option<Box<ReportedWindow>>,
    /// The peer knows of all numbers below.
    report_from: PacketNumber,
    /// Largest number whose acknowledgement the peer is known to have, or the first of all.
    confirmed: PacketNumber,
    /// Largest number of the ACK for which an [acknowledgement](Self::asks_for_an_answer) was last
    /// asked.
    asked: PacketNumber,
    /// Largest number of the last ACK.
    reported: Option<PacketNumber>,
    sequence: u64,
    /// Arrivals below `reported` that no confirmed ACK covers yet; `late_next` those since `late`
    /// waits.
    late: Option<Late>,
    late_next: Option<Late>,
    largest_at: Instant,
    /// Ack-eliciting packets since the last ACK.
    eliciting: u32,
    /// When an ACK must be sent, even alone.
    due: Deadline,
    max_ack_delay: Nanos,
}

/// Describes one complete ACK. Kept with the packet that carried it, for
/// [`Received::on_confirmed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Largest number of the ACK.
    largest: PacketNumber,
    /// Index of the ACK, from 1.
    sequence: u64,
}

impl Described {
    /// Returns the one of the later ACK, which covers the other.
    #[must_use]
    pub const fn newer(self, other: Self) -> Self {
        if self.sequence < other.sequence {
            other
        } else {
            self
        }
    }
}

/// How much of the report an ACK holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All.
    Whole(Described),
    /// The upper part; the rest waits for the next ACK.
    Cut,
}

/// Packets that arrived after an ACK with a larger number.
#[derive(Clone, Copy, Debug)]
struct Late {
    lowest: PacketNumber,
    /// ACKs written before the last of them arrived.
    after: u64,
}

impl Received {
    /// Ack-eliciting packets after which an ACK is sent at once.
    pub const ELICITING_MAX: u32 = 10;
    /// Numbers to report before the peer is asked to acknowledge an ACK.
    pub const UNCONFIRMED_MAX: u64 = 128;

    /// Creates an empty record for numbers from `first`; `max_ack_delay` is ours, as announced.
    #[must_use]
    pub const fn new(first: PacketNumber, max_ack_delay: Duration) -> Self {
        Self {
            window: ReplayWindow::new(),
            withholding: None,
            report_from: first,
            confirmed: first,
            asked: first,
            reported: None,
            sequence: 0,
            late: None,
            late_next: None,
            largest_at: Instant::ZERO,
            eliciting: 0,
            due: Deadline::NEVER,
            max_ack_delay: Nanos::of(max_ack_delay),
        }
    }

    /// Checks a number without marking it.
    #[must_use]
    pub fn check(&self, number: PacketNumber) -> Verdict {
        self.window.check(number)
    }

    /// Returns the largest number received.
    #[must_use]
    pub const fn largest(&self) -> Option<PacketNumber> {
        self.window.largest()
    }

    /// Returns the next number without loss, the reference for truncated numbers.
    #[must_use]
    pub fn expected(&self) -> PacketNumber {
        self.window.expected(self.report_from)
    }

    /// Records a decrypted packet after its frames were all accepted; a replay changes nothing.
    /// Packets that are not ack-eliciting are reported, but never cause an ACK.
    pub fn on_packet(&mut self, now: Instant, number: PacketNumber, elicits: Elicits) {
        if self.check(number) != Verdict::Fresh {
            return;
        }
        let reportable = self.reportable();
        let in_order = number == reportable.expected(self.report_from);
        if reportable.largest().is_none_or(|largest| number > largest) {
            self.largest_at = now;
        }
        self.window.mark(number);
        if let Some(reportable) = &mut self.withholding {
            reportable.window.mark(number);
            if reportable.is_whole(&self.window) {
                self.withholding = None;
            }
        }
        if self.reported.is_some_and(|reported| number < reported) {
            self.on_late(number);
        }
        if elicits == Elicits::Nothing {
            return;
        }
        self.eliciting = self.eliciting.saturating_add(1);
        // RFC 9000, section 13.2.1: a gap that opens or closes is reported at once.
        let wait = if in_order && self.eliciting < Self::ELICITING_MAX {
            self.max_ack_delay
        } else {
            Nanos::ZERO
        };
        self.due_by(now + wait);
    }

    /// Records a decrypted packet that is to count as lost: copies are replays, and no ACK reports
    /// it.
    pub fn withhold(&mut self, number: PacketNumber) {
        if self.check(number) != Verdict::Fresh {
            return;
        }
        match &mut self.withholding {
            Some(reportable) => reportable.withhold(number),
            None => {
                self.withholding = Some(Box::new(ReportedWindow::without(number, &self.window)));
            }
        }
        self.window.mark(number);
    }

    /// Records that the peer acknowledged the packet that carried this ACK.
    pub fn on_confirmed(&mut self, described: Described) {
        for _ in 0..2 {
            if self
                .late
                .is_some_and(|late| described.sequence > late.after)
            {
                self.late = self.late_next.take();
            }
        }
        self.confirmed = self.confirmed.max(described.largest);
        let next = described.largest.next().unwrap_or(described.largest);
        let known = [self.late, self.late_next]
            .into_iter()
            .flatten()
            .fold(next, |known, late| known.min(late.lowest));
        self.report_from = self.report_from.max(known);
    }

    /// Appends an ACK of at most `room` bytes, without its oldest part if not all fits. Returns
    /// `None` and writes nothing if nothing has arrived or the shortest ACK does not fit.
    pub fn write_ack(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) -> Option<Written> {
        let largest = self.reportable().largest()?;
        let mut bits = [0; AckFrame::BITS_LEN_MAX];
        let (mut bare, full_len) = self.report(largest, &mut bits);
        bare.delay = AckFrame::delay_field(now.saturating_since(self.largest_at));
        let room = room.checked_sub(bare.encoded_len())?;
        let fitting = bits.get(..full_len.min(room)).unwrap_or_default();
        // The last byte of an ACK is nonzero, also if truncated.
        let len = fitting.len().saturating_sub(trailing_zeros(fitting));
        let frame = AckFrame {
            bits: fitting.get(..len).unwrap_or_default(),
            ..bare
        };
        Frame::Ack(frame).encode(out);

        self.sequence = self.sequence.saturating_add(1);
        self.reported = Some(largest);
        if len < full_len {
            self.due = Deadline::at(now + self.max_ack_delay);
            return Some(Written::Cut);
        }
        self.due = Deadline::NEVER;
        self.eliciting = 0;
        Some(Written::Whole(Described {
            largest,
            sequence: self.sequence,
        }))
    }

    /// Returns whether the packet of the last ACK should be ack-eliciting although it holds nothing
    /// else: once per [`Self::UNCONFIRMED_MAX`] numbers, or each ACK of an endpoint that only
    /// receives would report the whole window (RFC 9000, section 13.2.4).
    pub fn asks_for_an_answer(&mut self) -> bool {
        let known = self.confirmed.max(self.asked);
        let asks = self
            .reported
            .is_some_and(|largest| largest.distance_from(known) >= Self::UNCONFIRMED_MAX);
        if asks {
            self.asked = self.reported.unwrap_or(self.asked);
        }
        asks
    }

    /// Returns whether a complete ACK fits in `room` bytes.
    #[must_use]
    pub fn fits(&self, room: usize) -> bool {
        let Some(largest) = self.reportable().largest() else {
            return true;
        };
        // One byte of bits for eight numbers, and 10 for all else.
        let covered = largest.distance_from(self.lowest(largest));
        if covered / 8 < room.saturating_sub(11) as u64 {
            return true;
        }
        let mut bits = [0; AckFrame::BITS_LEN_MAX];
        let (bare, len) = self.report(largest, &mut bits);
        bare.encoded_len().saturating_add(len) <= room
    }

    /// Returns whether the next packet should carry an ACK.
    #[must_use]
    pub fn wants_ack(&self) -> bool {
        self.due != Deadline::NEVER
    }

    /// Returns whether an ACK must be sent now, even alone.
    #[must_use]
    pub const fn ack_due(&self, now: Instant) -> bool {
        self.due.is_due(now)
    }

    /// Returns when an ACK must be sent.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due.get()
    }

    /// Reports a number below the last report again, even if ACKs without it are confirmed later.
    fn on_late(&mut self, number: PacketNumber) {
        self.report_from = self.report_from.min(number);
        let entry = if self.late.is_none() {
            &mut self.late
        } else {
            &mut self.late_next
        };
        let lowest = entry.map_or(number, |late| late.lowest.min(number));
        *entry = Some(Late {
            lowest,
            after: self.sequence,
        });
    }

    pub(crate) fn memory(&self) -> usize {
        self.withholding
            .as_ref()
            .map_or(0, |_| size_of::<ReportedWindow>())
    }

    fn reportable(&self) -> &ReplayWindow {
        match &self.withholding {
            Some(reportable) => &reportable.window,
            None => &self.window,
        }
    }

    fn due_by(&mut self, when: Instant) {
        self.due = self.due.or_at(when);
    }

    /// The complete report: an ACK without its delay and bits, and the bits with their length.
    fn report(
        &self,
        largest: PacketNumber,
        bits: &mut [u8; AckFrame::BITS_LEN_MAX],
    ) -> (AckFrame<'static>, usize) {
        let lowest = self.lowest(largest);
        let run = self.run(largest, lowest);
        let len = self.fill_bits(largest, run, lowest, bits);
        let form = largest.form_after(self.confirmed).unwrap_or(Form::Four);
        let bare = AckFrame {
            largest: largest.truncate(form),
            delay: AckFrame::delay_field(Duration::ZERO),
            run,
            bits: &[],
        };
        (bare, len)
    }

    /// Lowest number that an ACK covers.
    fn lowest(&self, largest: PacketNumber) -> PacketNumber {
        let edge = ReplayWindow::LEN.saturating_sub(1);
        largest
            .checked_sub(edge)
            .map_or(self.report_from, |edge| edge.max(self.report_from))
    }

    /// Length of the run of received numbers directly below `largest`, down to `lowest`.
    fn run(&self, largest: PacketNumber, lowest: PacketNumber) -> u16 {
        // Below `largest` and in the window, so at most 1,023.
        let most = largest.distance_from(lowest);
        let mut run = 0;
        while run < most
            && let Some(next) = largest.checked_sub(run.saturating_add(1))
        {
            let arrived = self.reportable().downwards(next).trailing_ones();
            run = run.saturating_add(arrived.into());
            if arrived < 64 {
                break;
            }
        }
        u16::try_from(run.min(most)).unwrap_or(AckFrame::RUN_MAX)
    }

    /// Sets a bit for each received number below the gap. Returns the bytes used.
    fn fill_bits(
        &self,
        largest: PacketNumber,
        run: u16,
        lowest: PacketNumber,
        bits: &mut [u8],
    ) -> usize {
        let mut top = largest.checked_sub(u64::from(run).saturating_add(2));
        let mut used = 0_usize;
        for (index, bytes) in bits.chunks_exact_mut(8).enumerate() {
            let Some(first) = top.filter(|first| *first >= lowest) else {
                break;
            };
            let covered = first.distance_from(lowest).saturating_add(1);
            let mut word = self.reportable().downwards(first);
            if covered < 64 {
                word &= (1_u64 << covered).wrapping_sub(1);
            }
            if word != 0 {
                let len = 8_usize.saturating_sub(word.leading_zeros() as usize / 8);
                used = index.saturating_mul(8).saturating_add(len);
            }
            bytes.copy_from_slice(&word.to_le_bytes());
            top = first.checked_sub(64);
        }
        used
    }
}

fn trailing_zeros(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

#[cfg(test)]
mod tests;

/// The replay window without withheld numbers; exists only while the window contains any.
#[derive(Clone, Debug)]
struct ReportedWindow {
    window: ReplayWindow,
    last: PacketNumber,
}

impl ReportedWindow {
    /// Copies `window`, in which `number` is not marked.
    fn without(number: PacketNumber, window: &ReplayWindow) -> Self {
        Self {
            window: window.clone(),
            last: number,
        }
    }

    /// Withholds another number.
    fn withhold(&mut self, number: PacketNumber) {
        self.last = self.last.max(number);
    }

    /// Returns whether it equals `all`, and will stay equal.
    fn is_whole(&self, all: &ReplayWindow) -> bool {
        let largest = all.largest();
        largest == self.window.largest()
            && largest.is_some_and(|largest| largest.distance_from(self.last) >= ReplayWindow::LEN)
    }
}
