//! Whether a path carries data as well as it carries probes.
//!
//! A relay knows which label is that of probes, so it can pass them and hold up or drop data. The sending end
//! therefore counts what data it sent before each probe, and the receiving end reports with the echo what had
//! arrived by then ([`DataReport`]); of sampled packets it reports the time.
//!
//! **The test.** Two one-sided CUSUM tests of Bernoulli trials (Page, Biometrika 1954): a packet is lost or not, and a
//! sampled packet is late or not. Lost packets are counted by size class. Each test adds the log-likelihood ratio of
//! "data is lost at `p0` + 20 % or more" to "data is lost at `p0`", and never falls below 0; at [`ALARM`] it decides.
//! `p0` is at least 3 % more than the upper bound, by one standard deviation, of what probes lose
//! ([`Row::for_loss`]). A sample is late if it took 25 ms more than the fastest fifth of the newest probes and than the
//! last few; `p0` of it is what probes show in the same way. A relay that delays data and the probes of its length thus
//! gains nothing: short probes are still fast.
//!
//! **False alarms.** If data is lost at exactly `p0`, so at 3 % more than probes at least, the mean number of packets
//! to a false alarm is at least e^8, 3,000 (Lorden, 1971). If data is lost as often as probes are, it is above e^14,
//! a million, even while probes have shown less loss than there is. That needs packets lost independently of each other,
//! so the packets between two probes count for [`WEIGHT_MAX`] at most, and for nothing if half of the probes between them
//! were lost too.
//!
//! **Detection.** A path that drops all data is found after 5 to 10 packets, one that drops 30 % after 25 on the
//! average, and one that delays all data after 12 reports with samples, or 37 if it delays six in ten probes as well. If
//! it delays more of them, the path is slower by its probes too; the choice then goes by what its data takes
//! ([`PathQuality::data_transit`]), since that is what players wait for.

#![warn(clippy::arithmetic_side_effects)]

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

mod figures;
mod whole_trial;

pub(crate) use figures::DataFigures;
pub(crate) use whole_trial::TRIAL_PACKETS;
use whole_trial::WholeTrial;

use crate::flow_key::FlowId;
use crate::path_probe::{
    DataReport, DataSample, PathEcho, SAMPLES_MAX, SIZE_CLASSES, Sampling, size_class,
};
use crate::pieces::{PIECE_MAX, WHOLE_MAX};

/// Judges one path by its data, at the sending end.
///
/// Bounded: [`MARKS_MAX`] probes and as many sampled packets are remembered.
#[derive(Debug)]
pub(crate) struct PathQuality {
    sampling: Sampling,
    /// Packets sent by size class; they wrap.
    sent: [u32; SIZE_CLASSES],
    /// Packets sent when the last probe left.
    sent_before: u32,
    /// Of each of the newest probes: its number, when it left, and what was sent before it.
    marks: VecDeque<Mark>,
    /// Sampled packets: id, and when it left.
    sampled: VecDeque<(u32, Instant)>,
    /// One-way times of the newest probes by two clocks, in nanoseconds.
    transits: VecDeque<i64>,
    /// One-way time of sampled packets by the same clocks, smoothed, and when the newest of them was reported.
    data_transit: Option<(i64, Instant)>,
    /// The newest report, except that `missing` is the most that was ever missing; `None` before the first.
    judged: Option<Report>,
    lost: [Cusum; SIZE_CLASSES],
    late: Cusum,
    /// Whether long datagrams are to travel in pieces.
    needs_pieces: bool,
    /// Whether they may travel whole again.
    trial: WholeTrial,
    figures: DataFigures,
    verdict: DataVerdict,
}

/// What the data of a path says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataVerdict {
    /// It does no worse than its probes, as far as is known.
    Good,
    /// It probably does worse.
    Suspect,
    /// Fewer packets arrive than probes do.
    Lossy,
    /// Packets arrive later than probes do.
    Late,
}

impl DataVerdict {
    /// Returns whether the path is to be left.
    pub(crate) const fn is_failing(self) -> bool {
        matches!(self, Self::Lossy | Self::Late)
    }
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    number: u32,
    at: Instant,
    sent: [u32; SIZE_CLASSES],
}

#[derive(Clone, Copy, Debug)]
struct Report {
    number: u32,
    probes: u32,
    sent: [u32; SIZE_CLASSES],
    /// Sent and not arrived; below 0 if the far end counted before.
    missing: [i32; SIZE_CLASSES],
}

impl PathQuality {
    /// Starts without data; `key` is drawn at random.
    pub(crate) const fn new(key: u32) -> Self {
        Self {
            sampling: Sampling { key, shift: 0 },
            sent: [0; SIZE_CLASSES],
            sent_before: 0,
            marks: VecDeque::new(),
            sampled: VecDeque::new(),
            transits: VecDeque::new(),
            data_transit: None,
            judged: None,
            lost: [Cusum(0); SIZE_CLASSES],
            late: Cusum(0),
            needs_pieces: false,
            trial: WholeTrial::NEW,
            figures: DataFigures::NEW,
            verdict: DataVerdict::Good,
        }
    }

    /// Takes a data packet of `len` bytes of payload that was sent over the path.
    pub(crate) fn on_data_sent(&mut self, now: Instant, (flow, number): (FlowId, u64), len: usize) {
        if let Some(sent) = self.sent.get_mut(size_class(len)) {
            *sent = sent.wrapping_add(1);
        }
        if let Some(id) = self.sampling.id(flow, number) {
            push_bounded(&mut self.sampled, (id, now), MARKS_MAX);
        }
    }

    /// Takes a probe that leaves now. Returns the sampling rule to send with it, and whether data was sent since the
    /// last one.
    pub(crate) fn on_probe_sent(&mut self, now: Instant, number: u32) -> (Sampling, bool) {
        let total = self
            .sent
            .iter()
            .fold(0_u32, |sum, sent| sum.wrapping_add(*sent));
        let since = total.wrapping_sub(self.sent_before);
        self.sent_before = total;
        // So that about as many are sampled as a report has room for.
        let wanted = (since / SAMPLES_WANTED).checked_ilog2().unwrap_or(0);
        let wanted = u8::try_from(wanted).unwrap_or(0);
        if wanted != self.sampling.shift {
            self.sampling.shift = wanted;
        }
        let sent = self.sent;
        push_bounded(
            &mut self.marks,
            Mark {
                number,
                at: now,
                sent,
            },
            MARKS_MAX,
        );
        (self.sampling, since > 0)
    }

    /// Takes the echo of a probe; `probe_loss` is how many of the newest probes were lost, and of how many.
    pub(crate) fn on_echo(&mut self, now: Instant, echo: PathEcho, probe_loss: (u32, u32)) {
        let Some(place) = self
            .marks
            .iter()
            .position(|mark| mark.number == echo.number)
        else {
            return;
        };
        // Reports come in the order of their probes; an older one says nothing more.
        let marks: Vec<Mark> = self.marks.drain(..=place).collect();
        let Some(mark) = marks.last() else {
            return;
        };
        let transit = echo.transit.cast_signed();
        push_bounded(&mut self.transits, transit, TRANSITS_MAX);
        self.take_samples(now, (mark.at, transit), echo.data);
        let [_, _, large] = echo.data.arrived;
        if self.trial.on_report(large) {
            self.needs_pieces = false;
            self.lost = [Cusum(0); SIZE_CLASSES];
        }
        let mut missing = [0; SIZE_CLASSES];
        let counts = mark.sent.iter().zip(echo.data.arrived);
        for (missing, (sent, arrived)) in missing.iter_mut().zip(counts) {
            *missing = sent.wrapping_sub(arrived).cast_signed();
        }
        let report = Report {
            number: echo.number,
            probes: echo.arrived,
            sent: mark.sent,
            missing,
        };
        self.judge(report, Row::for_loss(probe_loss));
        self.decide();
    }

    /// Returns what the data says.
    pub(crate) const fn verdict(&self) -> DataVerdict {
        self.verdict
    }

    /// Returns the longest datagram that is to travel whole, bytes: less where long ones are lost and shorter ones arrive.
    pub(crate) const fn whole_max(&self) -> usize {
        if self.needs_pieces {
            PIECE_MAX
        } else {
            WHOLE_MAX
        }
    }

    /// Takes that a datagram travelled in pieces which would travel whole elsewhere.
    pub(crate) const fn on_split(&mut self) {
        self.trial.is_wanted = true;
    }

    /// Returns the length of the [`TRIAL_PACKETS`] packets to send now, each to be taken by
    /// [`on_data_sent`](Self::on_data_sent), to learn whether long datagrams may travel whole again.
    pub(crate) fn poll_trial(&mut self, now: Instant) -> Option<usize> {
        (self.needs_pieces && self.trial.is_due(now)).then_some(WHOLE_MAX)
    }

    /// Returns the one-way time of data by two clocks, as that of a probe's echo, in nanoseconds; `None` where no sampled
    /// packet was reported for [`DATA_FRESH`].
    pub(crate) fn data_transit(&self, now: Instant) -> Option<i64> {
        let (took, at) = self.data_transit?;
        (now.saturating_since(at) < DATA_FRESH).then_some(took)
    }

    /// Returns what the data lost of late and how much later than probes it came, as the far end reports.
    pub(crate) const fn figures(&self) -> &DataFigures {
        &self.figures
    }

    /// Has long datagrams travel in pieces.
    pub(crate) const fn send_in_pieces(&mut self) {
        self.needs_pieces = true;
        self.trial.on_pieces();
        let [_, _, large] = &mut self.lost;
        *large = Cusum(0);
    }

    /// Forgets the evidence so far: it came while this node was late itself, or has been acted on.
    pub(crate) fn reset(&mut self) {
        self.lost = [Cusum(0); SIZE_CLASSES];
        self.late = Cusum(0);
        self.judged = None;
        self.data_transit = None;
        self.sampled.clear();
        self.marks.clear();
        self.verdict = DataVerdict::Good;
    }

    fn judge(&mut self, report: Report, row: Row) {
        let Some(before) = self.judged.as_mut() else {
            self.judged = Some(report);
            return;
        };
        let probes = report.number.wrapping_sub(before.number);
        let arrived = report.probes.wrapping_sub(before.probes).min(probes);
        let here = Row::for_share(probes.saturating_sub(arrived), probes);
        let row = row.max(here);
        let classes = report.sent.iter().zip(report.missing);
        let known = before.sent.iter_mut().zip(&mut before.missing);
        for ((test, (sent, missing)), (sent_before, most)) in
            self.lost.iter_mut().zip(classes).zip(known)
        {
            let all = sent.wrapping_sub(*sent_before);
            // What a probe overtook is missing for a moment, so only more than ever before is lost.
            let more = missing.wrapping_sub(*most);
            let lost = u32::try_from(more.max(0)).unwrap_or(0);
            *sent_before = *sent;
            if more > 0 {
                *most = missing;
            }
            self.figures.on_report(lost.min(all), all);
            if lost > all {
                // The far end began to count anew.
                *test = Cusum(0);
            } else {
                test.add(row, (lost, all), probes.saturating_mul(WEIGHT_MAX));
            }
        }
        (before.number, before.probes) = (report.number, report.probes);
    }

    fn take_samples(
        &mut self,
        now: Instant,
        (probe_at, transit): (Instant, i64),
        data: DataReport,
    ) {
        if data.sampled == 0 {
            return;
        }
        let limits = self.late_limits();
        let usual = self.transit_of(TRANSITS_MAX, 2).unwrap_or(transit);
        let (mut late, mut all) = (0, 0);
        for DataSample { id, age } in data.samples.into_iter().take(data.sampled.into()) {
            let place = self.sampled.iter().position(|(sent, _)| *sent == id);
            let Some((_, at)) = place.and_then(|place| self.sampled.remove(place)) else {
                continue;
            };
            let ahead = nanos(probe_at).wrapping_sub(nanos(at));
            let age = i64::from(age).wrapping_mul(1_000);
            let took = transit.wrapping_add(ahead).wrapping_sub(age);
            self.figures.on_sample(took.wrapping_sub(usual));
            // What was measured before a pause says nothing of now.
            let before = self.data_transit(now).unwrap_or(took);
            let step = took.wrapping_sub(before) / DATA_INERTIA;
            self.data_transit = Some((before.wrapping_add(step), now));
            let Some(limits) = &limits else {
                continue;
            };
            let is_late = took.wrapping_sub(limits.late) > 0;
            let is_good = took.wrapping_sub(limits.good) <= 0;
            late = u32::saturating_add(late, is_late.into());
            all = u32::saturating_add(all, (is_late || is_good).into());
        }
        // They took as long as their neighbours, so those of one probe are one piece of evidence.
        if let Some(limits) = limits {
            self.late.add(limits.row, (late, all), 1);
        }
    }

    /// Which packets are late; `None` before there are probes enough.
    fn late_limits(&self) -> Option<LateLimits> {
        if self.transits.len() < TRANSITS_MIN {
            return None;
        }
        // A path that began to jitter has no fast fifth any more; one that became slower, not two fast ones of five.
        let fast = self.transit_of(TRANSITS_MAX, 5)?;
        let fast = fast.max(self.transit_of(TRANSITS_LATELY, 5)?);
        let good = fast.saturating_add(LATE_BY);
        let of_newest = self.transit_of(TRANSITS_NEWEST, 5)?.saturating_add(LATE_BY);
        let late_of = |newest: usize| {
            let newest = self.transits.iter().rev().take(newest);
            let (mut late, mut all) = (0, 0);
            for took in newest {
                late = u32::saturating_add(late, (*took > good).into());
                all = u32::saturating_add(all, 1);
            }
            (late, all)
        };
        Some(LateLimits {
            good,
            late: good.max(of_newest),
            row: [TRANSITS_NEWEST, TRANSITS_LATELY]
                .map(|newest| Row::for_late_share(late_of(newest)))
                .into_iter()
                .fold(Row::for_late(late_of(TRANSITS_MAX)), Row::max),
        })
    }

    /// The one-way time of one of the `newest` probes, than which one in `of` of them was faster.
    fn transit_of(&self, newest: usize, of: usize) -> Option<i64> {
        let mut sorted: Vec<i64> = self.transits.iter().rev().take(newest).copied().collect();
        sorted.sort_unstable();
        let place = sorted.len().checked_div(of)?;
        sorted.get(place).copied()
    }

    fn decide(&mut self) {
        if self.verdict.is_failing() {
            return;
        }
        let [small, medium, large] = self.lost;
        if large.is_alarm() && !self.needs_pieces {
            // Shorter datagrams may do well. If not, their own count says so soon.
            self.send_in_pieces();
        }
        let lossy = small.max(medium);
        self.verdict = if lossy.is_alarm() {
            DataVerdict::Lossy
        } else if self.late.is_alarm() {
            DataVerdict::Late
        } else if lossy.max(self.late).is_suspicion() {
            DataVerdict::Suspect
        } else {
            DataVerdict::Good
        };
    }
}

/// Which packets are late, by the probes of late.
struct LateLimits {
    /// A packet that took no longer than this is not, ns.
    good: i64,
    /// One that took longer than this is, ns; those between say nothing, since the path as a whole may have become
    /// slower.
    late: i64,
    /// By how many probes were late.
    row: Row,
}

/// Counts the data of one path, at the receiving end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataArrivals {
    sampling: Sampling,
    arrived: [u32; SIZE_CLASSES],
    samples: [(u32, Instant); SAMPLES_MAX],
    sampled: u8,
    /// When something last came.
    used: Instant,
}

impl DataArrivals {
    /// Takes a data packet of `len` bytes of payload that opened.
    pub(crate) fn on_data(&mut self, now: Instant, (flow, number): (FlowId, u64), len: usize) {
        self.used = now;
        if let Some(arrived) = self.arrived.get_mut(size_class(len)) {
            *arrived = arrived.wrapping_add(1);
        }
        if let Some(place) = self.samples.get_mut(usize::from(self.sampled))
            && let Some(id) = self.sampling.id(flow, number)
        {
            *place = (id, now);
            self.sampled = self.sampled.saturating_add(1);
        }
    }

    /// Returns when something last came.
    pub(crate) const fn used(&self) -> Instant {
        self.used
    }

    /// Takes the rule of a probe, and returns what to report with its echo.
    pub(crate) fn on_probe(&mut self, now: Instant, sampling: Sampling) -> DataReport {
        (self.sampling, self.used) = (sampling, now);
        let mut report = DataReport {
            arrived: self.arrived,
            sampled: core::mem::take(&mut self.sampled),
            ..DataReport::default()
        };
        for (sample, (id, at)) in report.samples.iter_mut().zip(self.samples) {
            let age = now.saturating_since(at).as_micros();
            let age = u32::try_from(age).unwrap_or(u32::MAX);
            *sample = DataSample { id, age };
        }
        for sample in report.samples.iter_mut().skip(report.sampled.into()) {
            *sample = DataSample::default();
        }
        report
    }
}

/// Evidence that data does worse than probes, in thousandths of a natural logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cusum(u32);

impl Cusum {
    /// Takes `bad` of `all` packets, which count for `weight_max` at most.
    fn add(&mut self, row: Row, (bad, all): (u32, u32), weight_max: u32) {
        let Some((gain, cost)) = row.evidence() else {
            return;
        };
        let (bad, good) = (i64::from(bad), i64::from(all.saturating_sub(bad)));
        let sum = bad
            .saturating_mul(gain.into())
            .saturating_sub(good.saturating_mul(cost.into()));
        let counted = all.min(weight_max);
        let sum = sum
            .saturating_mul(counted.into())
            .checked_div(all.into())
            .unwrap_or(0);
        let total = i64::from(self.0).saturating_add(sum).max(0);
        self.0 = u32::try_from(total).unwrap_or(u32::MAX).min(CUSUM_MAX);
    }

    const fn is_alarm(self) -> bool {
        self.0 >= ALARM
    }

    const fn is_suspicion(self) -> bool {
        self.0 >= ALARM / 2
    }
}

/// Which `p0` of [`ROWS`] a test goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row(usize);

impl Row {
    /// Of samples: that 30 % are late is chance, 60 % are not. While a path as a whole begins to jitter, probes show
    /// less than there is.
    const LATE_MIN: Self = Self(4);

    /// The row of `lost` probes of the newest `all`: 3 % above the upper bound of their loss.
    fn for_loss(lost_of: (u32, u32)) -> Self {
        Self::for_thousandths(Self::bound(lost_of).saturating_add(MARGIN))
    }

    /// The row of samples by how many probes were late, of how many: 3 % above the upper bound of that.
    fn for_late(probes: (u32, u32)) -> Self {
        let share = Self::bound(probes).saturating_add(MARGIN);
        Self::find(&ROWS, share).max(Self::LATE_MIN)
    }

    /// The row of samples by a few probes, as they were.
    fn for_late_share((late, all): (u32, u32)) -> Self {
        let share = u64::from(late)
            .saturating_mul(1_000)
            .checked_div(all.into());
        Self::find(&ROWS, share.unwrap_or(0))
    }

    /// The upper bound of a share, by one standard deviation, in thousandths.
    fn bound((some, all): (u32, u32)) -> u64 {
        let bound = u64::from(some)
            .saturating_add(1)
            .saturating_add(u64::from(some.isqrt()));
        let share = bound.saturating_mul(1_000).checked_div(all.into());
        share.unwrap_or(1_000)
    }

    /// The row of the loss of a few probes, as it is.
    fn for_share(lost: u32, all: u32) -> Self {
        let share = u64::from(lost)
            .saturating_mul(1_000)
            .checked_div(all.into());
        Self::for_thousandths(share.unwrap_or(0))
    }

    /// The row of a share of lost probes; none from 45 % on.
    fn for_thousandths(share: u64) -> Self {
        let (rows, _) = ROWS.split_at(LOSS_ROWS);
        Self::find(rows, share)
    }

    fn find(rows: &[[u32; 3]], share: u64) -> Self {
        let fits = |row: &[u32; 3]| row.first().is_some_and(|p0| share <= u64::from(*p0));
        Self(rows.iter().position(fits).unwrap_or(ROWS.len()))
    }

    /// What a packet that is lost or late, and one that is not, say; `None` if so many probes are lost or late that the
    /// path is left for that.
    fn evidence(self) -> Option<(u32, u32)> {
        ROWS.get(self.0).map(|[_, gain, cost]| (*gain, *cost))
    }
}

const fn nanos(at: Instant) -> i64 {
    at.as_nanos().cast_signed()
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T, max: usize) {
    if list.len() >= max {
        list.pop_front();
    }
    list.push_back(item);
}

/// `p0` in thousandths, then ln(p1 / p0) and ln((1 - p0) / (1 - p1)) in thousandths; `p1` is 18 % to 30 % more.
const ROWS: [[u32; 3]; 8] = [
    [50, 1_609, 236],
    [100, 1_253, 325],
    [150, 981, 348],
    [200, 916, 470],
    [300, 693, 560],
    [450, 511, 788],
    [600, 348, 981],
    [750, 215, 1_273],
];
/// Rows by which loss is judged.
const LOSS_ROWS: usize = 6;
/// What data may lose more than probes, in thousandths.
const MARGIN: u64 = 30;
/// Evidence at which a test decides: ln of the packets between false alarms at `p0`.
const ALARM: u32 = 8_000;
/// The largest sum, so that a path that has mended is trusted again after as many packets.
const CUSUM_MAX: u32 = 2 * ALARM;
/// Packets that those between two probes count for at most.
const WEIGHT_MAX: u32 = 2;
/// Probes and sampled packets remembered: those of 5 s.
const MARKS_MAX: usize = 128;
/// Probes whose one-way times are remembered: those of 2 s.
const TRANSITS_MAX: usize = 50;
/// The least of them to judge by.
const TRANSITS_MIN: usize = 10;
/// Of them, those that show that the path as a whole became slower, 200 ms, or began to jitter, 600 ms.
const TRANSITS_NEWEST: usize = 5;
const TRANSITS_LATELY: usize = 15;
/// How much later than probes a packet may be, ns.
const LATE_BY: i64 = 25_000_000;
/// Sampled packets over which the time that data takes is averaged: as many as probes that tell what is newest.
const DATA_INERTIA: i64 = 8;
/// How old a report of a sampled packet may be for the time of data to count.
const DATA_FRESH: Duration = Duration::from_secs(1);
/// Packets between two probes for each that is sampled.
const SAMPLES_WANTED: u32 = 3;

#[cfg(test)]
mod tests;
