//! Packets in flight, the share of unreliable messages, and outages.

use core::time::Duration;

use wire::Instant;

use super::scan::Slot;
use super::{SentKind, Summary};

/// Counts of ack-eliciting packets in flight.
///
/// Packets with only unreliable messages are counted separately and limited. Otherwise a flood on
/// an unreliable channel of high priority would fill every place that an acknowledgement frees, and
/// reliable messages would wait for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// All of them.
    packets: usize,
    /// Those that hold unreliable messages only.
    unreliable: usize,
    /// Contents of these.
    contents: usize,
    /// Bytes of all packets.
    bytes: InFlight,
}

/// Bytes in flight, of packets that ask for an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Of all packets, but for those that search for the path's size or went elsewhere.
    pub total: u64,
    /// Of packets with messages of bulk channels.
    pub bulk: u64,
}

impl Flight {
    /// Nothing.
    pub(super) const EMPTY: Self = Self {
        packets: 0,
        unreliable: 0,
        contents: 0,
        bytes: InFlight { total: 0, bulk: 0 },
    };

    /// Takes note of a packet of `len` bytes.
    pub(super) fn add(&mut self, kind: SentKind, len: u16) {
        self.packets = self.packets.saturating_add(1);
        let len = u64::from(len);
        match kind {
            SentKind::Unreliable(frames) | SentKind::Retransmit(frames) => {
                self.unreliable = self.unreliable.saturating_add(1);
                self.contents = self.contents.saturating_add(frames.into());
            }
            SentKind::Bulk => self.bytes.bulk = self.bytes.bulk.saturating_add(len),
            SentKind::MtuProbe | SentKind::OffPath => return,
            SentKind::Other => {}
        }
        self.bytes.total = self.bytes.total.saturating_add(len);
    }

    /// Takes note that the packet arrived or counts as lost.
    pub(super) fn remove(&mut self, kind: SentKind, len: u16) {
        self.packets = self.packets.saturating_sub(1);
        let len = u64::from(len);
        match kind {
            SentKind::Unreliable(frames) | SentKind::Retransmit(frames) => {
                self.unreliable = self.unreliable.saturating_sub(1);
                self.contents = self.contents.saturating_sub(frames.into());
            }
            SentKind::Bulk => self.bytes.bulk = self.bytes.bulk.saturating_sub(len),
            SentKind::MtuProbe | SentKind::OffPath => return,
            SentKind::Other => {}
        }
        self.bytes.total = self.bytes.total.saturating_sub(len);
    }

    /// Returns how many bytes there are.
    pub(super) const fn bytes(self) -> InFlight {
        self.bytes
    }

    /// Returns how many there are.
    pub(super) const fn packets(self) -> usize {
        self.packets
    }

    /// Returns whether no further packet with unreliable messages only may leave.
    pub(super) const fn is_full_for_unreliable(self) -> bool {
        self.unreliable >= UNRELIABLE_MAX || self.contents >= CONTENTS_MAX
    }
}

/// Three quarters of [`SentPackets::IN_FLIGHT_MAX`](super::SentPackets::IN_FLIGHT_MAX).
pub(super) const UNRELIABLE_MAX: usize = 768;

/// Three quarters of [`SentPackets::CONTENTS_MAX`](super::SentPackets::CONTENTS_MAX).
const CONTENTS_MAX: usize = 6_144;

/// Finds gaps.
///
/// Congestion loses packets among others that arrive. Where none of 300 ms arrives, the path was
/// gone: its losses say nothing about its capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    /// The newest packet acknowledged, and when it was sent.
    newest: Option<(u64, Instant)>,
    /// The numbers on either side of the last gap, which arrived.
    last: (u64, u64),
}

/// What one pass finds not to have arrived since the last packet that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    lost: u32,
    /// Some have not arrived and may be late.
    has_open: bool,
    sent_at: Option<Instant>,
}

/// The shortest gap.
const GAP_MIN: Duration = Duration::from_millis(300);

impl Gaps {
    /// Nothing was acknowledged.
    pub(super) const NONE: Self = Self {
        newest: None,
        last: (0, 0),
    };

    /// Takes note of a packet, sent at `at`, that is newly acknowledged.
    pub(super) fn on_acked(
        &mut self,
        number: u64,
        at: Instant,
        run: &mut Run,
        summary: &mut Summary,
    ) {
        let Some((before, before_at)) = self.newest else {
            self.newest = Some((number, at));
            return run.end(summary);
        };
        if number < before {
            return;
        }
        if run.is_any() && at.saturating_since(before_at) >= GAP_MIN {
            self.last = (before, number);
            summary.gap = Some((before_at, at));
            run.end_in_gap(summary);
        }
        run.end(summary);
        self.newest = Some((number, at));
    }

    /// Takes note of a packet that counts as lost.
    pub(super) fn on_lost(&self, number: u64, slot: &Slot, run: &mut Run, summary: &mut Summary) {
        if slot.kind.signals_congestion() {
            self.on_lost_at(number, slot.at, run, summary);
        }
    }

    fn on_lost_at(&self, number: u64, at: Instant, run: &mut Run, summary: &mut Summary) {
        run.lost = run.lost.saturating_add(1);
        run.sent_at = run.sent_at.max(Some(at));
        let (first, last) = self.last;
        if first < number && number < last {
            run.end_in_gap(summary);
        } else if self.newest.is_some_and(|(newest, _)| number < newest) {
            run.end(summary);
        }
    }
}

impl Run {
    /// Takes note of a packet that has not arrived, and does not count as lost yet.
    pub(super) const fn on_open(&mut self) {
        self.has_open = true;
    }

    const fn is_any(&self) -> bool {
        self.lost > 0 || self.has_open
    }

    /// Counts what it holds as lost among packets that arrived.
    pub(super) fn end(&mut self, summary: &mut Summary) {
        summary.lost_sent_at = summary.lost_sent_at.max(self.sent_at);
        *self = Self::default();
    }

    fn end_in_gap(&mut self, summary: &mut Summary) {
        summary.lost_in_gap = summary.lost_in_gap.saturating_add(self.lost);
        summary.gap_lost_sent_at = summary.gap_lost_sent_at.max(self.sent_at);
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreliable_messages_leave_a_quarter_of_packets_and_contents() {
        for (packets, contents) in [(768, 1), (6_144 / 30 + 1, 30)] {
            let mut flight = Flight::EMPTY;
            let unreliable = SentKind::Unreliable(contents);
            for _ in 0..packets {
                assert!(!flight.is_full_for_unreliable());
                flight.add(unreliable, 100);
                flight.add(SentKind::Other, 100);
            }
            assert!(flight.is_full_for_unreliable());
            flight.remove(SentKind::Other, 100);
            assert!(flight.is_full_for_unreliable());
            flight.remove(unreliable, 100);
            assert!(!flight.is_full_for_unreliable());
            assert_eq!(flight.packets(), 2 * (packets - 1));
        }
    }

    #[test]
    fn bytes_are_counted_by_kind_without_probes() {
        let mut flight = Flight::EMPTY;
        let all = [
            (SentKind::Other, 10),
            (SentKind::Unreliable(2), 200),
            (SentKind::Bulk, 1_000),
            (SentKind::MtuProbe, 1_452),
            (SentKind::OffPath, 40),
        ];
        for (kind, len) in all {
            flight.add(kind, len);
        }
        let bytes = InFlight {
            total: 1_210,
            bulk: 1_000,
        };
        assert_eq!((flight.packets(), flight.bytes()), (5, bytes));
        for (kind, len) in all {
            flight.remove(kind, len);
        }
        assert_eq!(flight, Flight::EMPTY);
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_gap_needs_a_packet_that_did_not_arrive_and_three_tenths_of_a_second() {
        let (mut gaps, mut run) = (Gaps::NONE, Run::default());
        let mut summary = Summary::default();
        gaps.on_acked(1, at(0), &mut run, &mut summary);
        // Numbers that were skipped, or asked for no answer.
        gaps.on_acked(9, at(1_000), &mut run, &mut summary);
        assert_eq!(summary, Summary::default());
        gaps.on_lost_at(10, at(1_100), &mut run, &mut summary);
        gaps.on_acked(11, at(1_299), &mut run, &mut summary);
        assert_eq!((summary.gap, summary.lost_in_gap), (None, 0));
        assert_eq!(summary.lost_sent_at, Some(at(1_100)));
        let mut summary = Summary::default();
        gaps.on_lost_at(12, at(1_400), &mut run, &mut summary);
        run.on_open();
        gaps.on_acked(15, at(1_599), &mut run, &mut summary);
        assert_eq!(summary.gap, Some((at(1_299), at(1_599))));
        assert_eq!((summary.lost_in_gap, summary.lost_sent_at), (1, None));
        // What counts as lost later, in the gap and behind it.
        let (mut summary, mut run) = (Summary::default(), Run::default());
        gaps.on_lost_at(13, at(1_500), &mut run, &mut summary);
        gaps.on_lost_at(16, at(1_610), &mut run, &mut summary);
        run.end(&mut summary);
        assert_eq!(summary.lost_in_gap, 1);
        assert_eq!(summary.gap_lost_sent_at, Some(at(1_500)));
        assert_eq!(summary.lost_sent_at, Some(at(1_610)));
    }
}
