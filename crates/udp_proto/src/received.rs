//! Receiver's side of acknowledgement: what arrived, what to report, and when.

use core::time::Duration;

use wire::Instant;

use crate::frame::{AckFrame, Elicits, Frame};
use crate::nanos::Deadline;
use crate::nanos::Nanos;
use crate::packet::{Form, PacketNumber};
use crate::replay::{ReplayWindow, Verdict};

/// Packets that arrived: the replay window, and how far the peer knows of what is in it.
///
/// What is [withheld](Self::withhold) is in the window, and in no report.
///
/// Each is reported in every ACK until the peer has acknowledged a packet that carried one with
/// it, at most 1,023 below the largest. A number that leaves that window unreported is never
/// acknowledged: the peer may resend what arrived, but is never told that something arrived which
/// did not.
#[derive(Clone, Debug)]
pub struct Received {
    /// What opened; whoever opens what is marked here sees a replay.
    window: ReplayWindow,
    /// What our ACKs report, where that is not all of it.
    withholding: Option<Box<ReportedWindow>>,
    /// Numbers below are known to the peer.
    report_from: PacketNumber,
    /// Largest number the peer is known to have seen acknowledged, or the first of all.
    confirmed: PacketNumber,
    /// Largest number of the ACK for which the peer was last [asked](Self::asks_for_an_answer) to
    /// acknowledge it.
    asked: PacketNumber,
    /// Largest number of the last ACK written.
    reported: Option<PacketNumber>,
    /// ACKs written.
    sequence: u64,
    /// Arrivals below `reported` that no confirmed ACK holds yet; those of `late_next` came while
    /// `late` waited.
    late: Option<Late>,
    /// As `late`, for those that came after it was made.
    late_next: Option<Late>,
    /// When the largest arrived.
    largest_at: Instant,
    /// Packets since the last ACK that ask for one.
    eliciting: u32,
    /// When an ACK must leave, even alone; `None` where nothing waits for one.
    due: Deadline,
    /// Longest that an ACK waits for company.
    max_ack_delay: Nanos,
}

/// What one ACK said: all that had arrived, up to its largest number.
///
/// Kept with the packet that carried it, and handed to [`Received::on_confirmed`] when that packet
/// is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Largest number of the ACK.
    largest: PacketNumber,
    /// Which ACK it was, from 1.
    sequence: u64,
}

impl Described {
    /// Returns the one of the later ACK, which says all that the other did.
    #[must_use]
    pub const fn newer(self, other: Self) -> Self {
        if self.sequence < other.sequence {
            other
        } else {
            self
        }
    }
}

/// How much of the report an ACK held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it.
    Whole(Described),
    /// Its upper part; the rest waits for the next one.
    Cut,
}

/// Packets that arrived after an ACK had reported a larger number.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// The lowest of them.
    lowest: PacketNumber,
    /// ACKs written before the last of them came.
    after: u64,
}

impl Received {
    /// Eliciting packets that are acknowledged at once.
    pub const ELICITING_MAX: u32 = 10;
    /// Numbers that ACKs report on before the peer is asked to acknowledge one of them.
    pub const UNCONFIRMED_MAX: u64 = 128;

    /// Makes a record of nothing, for numbers from `first`.
    ///
    /// `max_ack_delay` is our own, as announced to the peer.
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

    /// Judges a number, without marking it.
    #[must_use]
    pub fn check(&self, number: PacketNumber) -> Verdict {
        self.window.check(number)
    }

    /// Returns the largest number marked.
    #[must_use]
    pub const fn largest(&self) -> Option<PacketNumber> {
        self.window.largest()
    }

    /// Returns the number that is next if nothing is lost: what truncated numbers are nearest to.
    #[must_use]
    pub fn expected(&self) -> PacketNumber {
        self.window.expected(self.report_from)
    }

    /// Takes note of a packet that opened, and of what its frames, all accepted, ask for: no copy of
    /// it is let in, and ACKs report it.
    ///
    /// One that was noted before, or that lies below the window, changes nothing. Packets that
    /// elicit nothing are reported along with others, and never make an ACK leave.
    pub fn on_packet(&mut self, now: Instant, number: PacketNumber, elicits: Elicits) {
        if self.check(number) != Verdict::Fresh {
            return;
        }
        let told = self.told();
        let in_order = number == told.expected(self.report_from);
        if told.largest().is_none_or(|largest| number > largest) {
            self.largest_at = now;
        }
        self.window.mark(number);
        if let Some(told) = &mut self.withholding {
            told.window.mark(number);
            if told.is_whole(&self.window) {
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
        // RFC 9000, section 13.2.1: a gap that opens or closes is told at once.
        let wait = if in_order && self.eliciting < Self::ELICITING_MAX {
            self.max_ack_delay
        } else {
            Nanos::ZERO
        };
        self.due_by(now + wait);
    }

    /// Takes note of a packet that opened and counts as lost: no copy of it is let in, and no ACK
    /// reports it.
    pub fn withhold(&mut self, number: PacketNumber) {
        if self.check(number) != Verdict::Fresh {
            return;
        }
        match &mut self.withholding {
            Some(told) => told.withhold(number),
            None => {
                self.withholding = Some(Box::new(ReportedWindow::without(number, &self.window)));
            }
        }
        self.window.mark(number);
    }

    /// Takes word that the peer acknowledged a packet which carried that ACK.
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

    /// Appends an ACK of at most `room` bytes; `None`, and nothing is written, where nothing has
    /// arrived or not even the shortest fits.
    ///
    /// Cuts the oldest part where not all fits. Work is bounded by the window, of which it reads
    /// 34 words.
    pub fn write_ack(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) -> Option<Written> {
        let largest = self.told().largest()?;
        let mut bits = [0; AckFrame::BITS_LEN_MAX];
        let (mut bare, full_len) = self.report(largest, &mut bits);
        bare.delay = AckFrame::delay_field(now.saturating_since(self.largest_at));
        let room = room.checked_sub(bare.encoded_len())?;
        let fitting = bits.get(..full_len.min(room)).unwrap_or_default();
        // The last byte of an ACK is not zero, also where it was cut.
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

    /// Returns whether the packet of the ACK just written, which else elicits nothing, shall ask for
    /// an acknowledgement; true once for every [`Self::UNCONFIRMED_MAX`] numbers.
    ///
    /// Whoever only receives would else learn of none, and each of its ACKs would report on all of
    /// the window (RFC 9000, section 13.2.4).
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

    /// Returns whether an ACK of the whole report takes at most `room` bytes.
    #[must_use]
    pub fn fits(&self, room: usize) -> bool {
        let Some(largest) = self.told().largest() else {
            return true;
        };
        // A byte of bits for eight numbers, and 10 for all else.
        let spoken_of = largest.distance_from(self.lowest(largest));
        if spoken_of / 8 < room.saturating_sub(11) as u64 {
            return true;
        }
        let mut bits = [0; AckFrame::BITS_LEN_MAX];
        let (bare, len) = self.report(largest, &mut bits);
        bare.encoded_len().saturating_add(len) <= room
    }

    /// Returns whether the next packet, whatever it is for, shall carry an ACK.
    #[must_use]
    pub fn wants_ack(&self) -> bool {
        self.due != Deadline::NEVER
    }

    /// Returns whether an ACK must leave now, even alone.
    #[must_use]
    pub const fn ack_due(&self, now: Instant) -> bool {
        self.due.is_due(now)
    }

    /// Returns when an ACK must leave.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due.get()
    }

    /// Makes sure that a number below the last report is reported, also where the ACKs under way
    /// that left it out are confirmed later.
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

    /// Returns the heap memory it keeps, bytes.
    pub(crate) fn memory(&self) -> usize {
        self.withholding
            .as_ref()
            .map_or(0, |_| size_of::<ReportedWindow>())
    }

    /// What ACKs report.
    fn told(&self) -> &ReplayWindow {
        match &self.withholding {
            Some(told) => &told.window,
            None => &self.window,
        }
    }

    /// Makes an ACK leave by `when`.
    fn due_by(&mut self, when: Instant) {
        self.due = self.due.or_at(when);
    }

    /// The whole report: an ACK without its delay and its bits, and the bits with their length.
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

    /// Lowest number that an ACK speaks of.
    fn lowest(&self, largest: PacketNumber) -> PacketNumber {
        let edge = ReplayWindow::LEN.saturating_sub(1);
        largest
            .checked_sub(edge)
            .map_or(self.report_from, |edge| edge.max(self.report_from))
    }

    /// How many numbers directly below `largest` arrived, down to `lowest`.
    fn run(&self, largest: PacketNumber, lowest: PacketNumber) -> u16 {
        // Below `largest` and in the window, so 1,023 at most.
        let most = largest.distance_from(lowest);
        let mut run = 0;
        while run < most
            && let Some(next) = largest.checked_sub(run.saturating_add(1))
        {
            let arrived = self.told().downwards(next).trailing_ones();
            run = run.saturating_add(arrived.into());
            if arrived < 64 {
                break;
            }
        }
        u16::try_from(run.min(most)).unwrap_or(AckFrame::RUN_MAX)
    }

    /// Sets a bit for each number below the gap that arrived; returns the bytes used.
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
            let spoken_of = first.distance_from(lowest).saturating_add(1);
            let mut word = self.told().downwards(first);
            if spoken_of < 64 {
                word &= (1_u64 << spoken_of).wrapping_sub(1);
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

/// Zero bytes at the end.
fn trailing_zeros(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

#[cfg(test)]
mod tests;

/// The replay window without what is withheld from the peer. There is one only while numbers that are
/// withheld lie in the window.
#[derive(Clone, Debug)]
struct ReportedWindow {
    /// What is told.
    window: ReplayWindow,
    /// The largest number that is not.
    last: PacketNumber,
}

impl ReportedWindow {
    /// Tells of all in `window`, and not of `number`, which is not marked there.
    fn without(number: PacketNumber, window: &ReplayWindow) -> Self {
        Self {
            window: window.clone(),
            last: number,
        }
    }

    /// Takes note of a further number that is withheld.
    fn withhold(&mut self, number: PacketNumber) {
        self.last = self.last.max(number);
    }

    /// Returns whether it is the same as `all`, what opened, and stays so.
    fn is_whole(&self, all: &ReplayWindow) -> bool {
        let largest = all.largest();
        largest == self.window.largest()
            && largest.is_some_and(|largest| largest.distance_from(self.last) >= ReplayWindow::LEN)
    }
}
