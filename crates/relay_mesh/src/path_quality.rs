//! Data quality of a path: whether it carries data as well as probes.
//!
//! A relay knows the label of probes, so it can forward them but delay or drop data. Therefore the
//! sending end counts the data that it sent before each probe, and the receiving end reports in the
//! echo what had arrived by then ([`DataReport`]), and for sampled packets when.
//!
//! **The test.** Two one-sided CUSUM tests of Bernoulli trials (Page, Biometrika 1954): each packet
//! is lost or not, by size class, and each sampled packet is late or not. Each test adds the
//! log-likelihood ratio of "data is lost at `p0` + 20 % or more" to "data is lost at `p0`", with a
//! minimum of 0, and decides at [`ALARM`]. `p0` is at least 3 % above the upper bound, by one
//! standard deviation, of the probes' loss ([`Row::for_loss`]). A sample is late if it took 25 ms
//! longer than the fastest fifth of the newest probes, and of the last few; its `p0` follows from
//! the probes' own lateness. A relay gains nothing by delaying long probes too: short ones stay
//! fast.
//!
//! **False alarms.** If data is lost at exactly `p0`, the mean number of packets to a false alarm
//! is at least e^8, 3,000 (Lorden, 1971). If it is lost as often as probes, it is above e^14, a
//! million. This assumes independent losses, so packets between two probes count for at most
//! [`WEIGHT_MAX`], and for nothing if half of the probes between them were lost too.
//!
//! **Detection.** A path that drops all data is detected after 5 to 10 packets, one that drops 30 %
//! after 25 on average, and one that delays all data after 12 reports with samples. If it delays
//! most probes too, the choice uses the data's one-way time ([`PathQuality::data_transit`]).

#![warn(clippy::arithmetic_side_effects)]

use core::time::Duration;
use std::collections::VecDeque;

use wire::Instant;

use crate::flow_key::FlowId;
use crate::path_probe::{
    DataReport, DataSample, PathEcho, SAMPLES_MAX, SIZE_CLASSES, Sampling, size_class,
};
use crate::pieces::{PIECE_MAX, WHOLE_MAX};

/// Judges one path by its data, at the sending end. Keeps at most [`MARKS_MAX`] probes and sampled
/// packets.
#[derive(Debug, Default)]
pub(crate) struct PathQuality {
    sampling: Sampling,
    /// Packets sent, by size class; wraps.
    sent: [u32; SIZE_CLASSES],
    sent_before: u32,
    /// Newest probes: number, send time, and the packets sent before.
    marks: VecDeque<Mark>,
    /// Ids and send times.
    sampled: VecDeque<(u32, Instant)>,
    /// One-way times of the newest probes, in nanoseconds, plus the clock offset.
    transits: VecDeque<i64>,
    /// Smoothed one-way time of sampled packets, with the same clock offset; when last reported.
    data_transit: Option<(i64, Instant)>,
    /// The newest report, but `missing` is the maximum so far; `None` before the first.
    judged: Option<Report>,
    lost: [Cusum; SIZE_CLASSES],
    late: Cusum,
    needs_pieces: bool,
    trial: WholeTrial,
    figures: DataFigures,
    verdict: DataVerdict,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DataVerdict {
    /// It does no worse than probes, as far as known.
    #[default]
    Good,
    /// It probably does worse.
    Suspect,
    /// More packets are lost than probes.
    Lossy,
    /// Packets arrive later than probes.
    Late,
}

impl DataVerdict {
    /// Returns whether flows must leave the path.
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
    /// Sent and not arrived; negative if the remote end counted earlier packets.
    missing: [i32; SIZE_CLASSES],
}

impl PathQuality {
    /// Starts without data; `key` must be random.
    pub(crate) fn new(key: u32) -> Self {
        Self {
            sampling: Sampling { key, shift: 0 },
            ..Self::default()
        }
    }

    /// Counts a data packet sent over the path, with `len` bytes of payload.
    pub(crate) fn on_data_sent(&mut self, now: Instant, (flow, number): (FlowId, u64), len: usize) {
        if let Some(sent) = self.sent.get_mut(size_class(len)) {
            *sent = sent.wrapping_add(1);
        }
        if let Some(id) = self.sampling.id(flow, number) {
            push_bounded(&mut self.sampled, (id, now), MARKS_MAX);
        }
    }

    /// Records a probe sent now. Returns the sampling rule to send with it, and whether data was
    /// sent since the last probe.
    pub(crate) fn on_probe_sent(&mut self, now: Instant, number: u32) -> (Sampling, bool) {
        let sent = self.sent.iter();
        let total = sent.fold(0_u32, |sum, sent| sum.wrapping_add(*sent));
        let since = total.wrapping_sub(self.sent_before);
        self.sent_before = total;
        // Samples about as many packets as a report has room for.
        let wanted = (since / SAMPLES_WANTED).checked_ilog2().unwrap_or(0);
        self.sampling.shift = u8::try_from(wanted).unwrap_or(0);
        let mark = Mark {
            number,
            at: now,
            sent: self.sent,
        };
        push_bounded(&mut self.marks, mark, MARKS_MAX);
        (self.sampling, since > 0)
    }

    /// Handles the echo of a probe. `probe_loss`: how many of the newest probes were lost, of how
    /// many.
    pub(crate) fn on_echo(&mut self, now: Instant, echo: PathEcho, probe_loss: (u32, u32)) {
        let mut marks = self.marks.iter();
        let place = marks.position(|mark| mark.number == echo.number);
        // Reports arrive in probe order; older ones add nothing.
        let Some(mark) = place.and_then(|place| self.marks.drain(..=place).next_back()) else {
            return;
        };
        let transit = echo.transit.cast_signed();
        push_bounded(&mut self.transits, transit, TRANSITS_MAX);
        self.take_samples(now, (mark.at, transit), echo.data);
        let [_, _, large] = echo.data.arrived;
        if self.trial.on_report(large) {
            self.needs_pieces = false;
            self.lost = Default::default();
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

    pub(crate) const fn verdict(&self) -> DataVerdict {
        self.verdict
    }

    /// Returns the maximum length of a datagram sent whole, in bytes; lower if long ones are lost.
    pub(crate) const fn whole_max(&self) -> usize {
        if self.needs_pieces {
            PIECE_MAX
        } else {
            WHOLE_MAX
        }
    }

    /// Records that a datagram was split which could be sent whole on another path.
    pub(crate) const fn on_split(&mut self) {
        self.trial.is_wanted = true;
    }

    /// Returns the length of the [`TRIAL_PACKETS`] packets to send now, if a trial is due. Count
    /// each with [`on_data_sent`](Self::on_data_sent).
    pub(crate) fn poll_trial(&mut self, now: Instant) -> Option<usize> {
        (self.needs_pieces && self.trial.is_due(now)).then_some(WHOLE_MAX)
    }

    /// Returns the one-way time of data in nanoseconds, with the same clock offset as a probe's
    /// echo. `None` if no sampled packet was reported for [`DATA_FRESH`].
    pub(crate) fn data_transit(&self, now: Instant) -> Option<i64> {
        let (took, at) = self.data_transit?;
        (now.saturating_since(at) < DATA_FRESH).then_some(took)
    }

    pub(crate) const fn figures(&self) -> &DataFigures {
        &self.figures
    }

    pub(crate) const fn send_in_pieces(&mut self) {
        self.needs_pieces = true;
        self.trial.on_pieces();
        let [_, _, large] = &mut self.lost;
        large.0 = 0;
    }

    /// Discards the evidence.
    pub(crate) fn reset(&mut self) {
        self.lost = Default::default();
        self.late = Cusum::default();
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
        let lost = u64::from(probes.saturating_sub(arrived));
        let here = Row::for_thousandths(thousandths(lost, probes).unwrap_or(0));
        let row = row.max(here);
        let classes = report.sent.iter().zip(report.missing);
        let known = before.sent.iter_mut().zip(&mut before.missing);
        for ((test, (sent, missing)), (sent_before, most)) in
            self.lost.iter_mut().zip(classes).zip(known)
        {
            let all = sent.wrapping_sub(*sent_before);
            // A packet that a probe overtook is missing only for a moment.
            let more = missing.wrapping_sub(*most);
            let lost = u32::try_from(more.max(0)).unwrap_or(0);
            *sent_before = *sent;
            if more > 0 {
                *most = missing;
            }
            self.figures.on_report(lost.min(all), all);
            if lost > all {
                // The remote end restarted its counters.
                *test = Cusum::default();
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
            // A measurement from before a pause is outdated.
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
        // Samples between two probes have similar times, so they count as one observation.
        if let Some(limits) = limits {
            self.late.add(limits.row, (late, all), 1);
        }
    }

    /// Returns the lateness limits, or `None` if there are too few probes.
    fn late_limits(&self) -> Option<LateLimits> {
        if self.transits.len() < TRANSITS_MIN {
            return None;
        }
        // If the path began to jitter, the fast fifth of the newest 15 probes is slower. If it
        // became slower as a whole, fewer than two of the newest five probes are fast.
        let fast = self.transit_of(TRANSITS_MAX, 5)?;
        let fast = fast.max(self.transit_of(TRANSITS_LATELY, 5)?);
        let good = fast.saturating_add(LATE_BY);
        let of_newest = self.transit_of(TRANSITS_NEWEST, 5)?.saturating_add(LATE_BY);
        let late_of = |newest: usize| {
            let newest = self.transits.iter().rev().take(newest);
            newest.fold((0_u32, 0_u32), |(late, all), took| {
                let late = late.saturating_add((*took > good).into());
                (late, all.saturating_add(1))
            })
        };
        let rows = [TRANSITS_NEWEST, TRANSITS_LATELY].map(|newest| {
            let (late, all) = late_of(newest);
            Row::find(&ROWS, thousandths(late.into(), all).unwrap_or(0))
        });
        let row = Row::for_late(late_of(TRANSITS_MAX));
        Some(LateLimits {
            good,
            late: good.max(of_newest),
            row: rows.into_iter().fold(row, Row::max),
        })
    }

    /// Returns the quantile 1/`of` of the `newest` one-way times of probes.
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
            // Shorter datagrams may still arrive. If not, their own counters show it soon.
            self.send_in_pieces();
        }
        let lossy = small.max(medium);
        self.verdict = if lossy.is_alarm() {
            DataVerdict::Lossy
        } else if self.late.is_alarm() {
            DataVerdict::Late
        } else if lossy.max(self.late).is_suspect() {
            DataVerdict::Suspect
        } else {
            DataVerdict::Good
        };
    }
}

/// Lateness limits, derived from recent probes.
struct LateLimits {
    /// A packet that took at most this long is not late, ns.
    good: i64,
    /// A packet that took longer than this is late, ns. Between the limits it counts as neither.
    late: i64,
    /// Derived from how many probes were late.
    row: Row,
}

/// Counts the data of one path, at the receiving end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataArrivals {
    sampling: Sampling,
    arrived: [u32; SIZE_CLASSES],
    samples: [(u32, Instant); SAMPLES_MAX],
    sampled: u8,
    used: Instant,
}

impl DataArrivals {
    /// Counts an authenticated data packet with `len` bytes of payload.
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

    pub(crate) const fn used(&self) -> Instant {
        self.used
    }

    /// Applies the sampling rule of a probe. Returns the report for its echo.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cusum(u32);

impl Cusum {
    /// Adds `bad` of `all` packets, which count for at most `weight_max`.
    fn add(&mut self, row: Row, (bad, all): (u32, u32), weight_max: u32) {
        let Some((gain, cost)) = row.evidence() else {
            return;
        };
        let (bad, good) = (i64::from(bad), i64::from(all.saturating_sub(bad)));
        let (for_bad, for_good) = (
            bad.saturating_mul(gain.into()),
            good.saturating_mul(cost.into()),
        );
        let counted = i64::from(all.min(weight_max));
        let sum = for_bad.saturating_sub(for_good).saturating_mul(counted);
        let sum = sum.checked_div(all.into()).unwrap_or(0);
        let total = i64::from(self.0).saturating_add(sum).max(0);
        self.0 = u32::try_from(total).unwrap_or(u32::MAX).min(CUSUM_MAX);
    }

    const fn is_alarm(self) -> bool {
        self.0 >= ALARM
    }

    const fn is_suspect(self) -> bool {
        self.0 >= ALARM / 2
    }
}

/// Index of the `p0` in [`ROWS`] that a test uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row(usize);

impl Row {
    /// Minimum for samples, since probes at first show too little of a jitter that begins.
    const LATE_MIN: Self = Self(4);

    /// The row for `lost` of the newest `all` probes: 3 % above the upper bound of their loss.
    fn for_loss(lost_of: (u32, u32)) -> Self {
        Self::for_thousandths(Self::bound(lost_of).saturating_add(MARGIN))
    }

    /// The row for samples: 3 % above the upper bound of the share of late probes.
    fn for_late(probes: (u32, u32)) -> Self {
        let share = Self::bound(probes).saturating_add(MARGIN);
        Self::find(&ROWS, share).max(Self::LATE_MIN)
    }

    /// The upper bound of a share by one standard deviation, in thousandths.
    fn bound((some, all): (u32, u32)) -> u64 {
        let deviation = u64::from(some.isqrt());
        let bound = u64::from(some).saturating_add(1).saturating_add(deviation);
        thousandths(bound, all).unwrap_or(1_000)
    }

    /// The row for a share of lost probes; none above 45 %.
    fn for_thousandths(share: u64) -> Self {
        let (rows, _) = ROWS.split_at(LOSS_ROWS);
        Self::find(rows, share)
    }

    fn find(rows: &[[u32; 3]], share: u64) -> Self {
        let fits = |row: &[u32; 3]| row.first().is_some_and(|p0| share <= u64::from(*p0));
        Self(rows.iter().position(fits).unwrap_or(ROWS.len()))
    }

    /// Returns the evidence of a bad packet and of a good one; `None` if too many probes are bad.
    fn evidence(self) -> Option<(u32, u32)> {
        ROWS.get(self.0).map(|[_, gain, cost]| (*gain, *cost))
    }
}

/// The share of `some` in `all`; `None` if there are none.
fn thousandths(some: u64, all: u32) -> Option<u64> {
    some.saturating_mul(1_000).checked_div(all.into())
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

/// Figures from the remote end's reports, dominated by about the newest 1,000 packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataFigures {
    /// Packets sent and lost, in 1,024ths. Each report with data decays both by 1/64.
    sent: u64,
    lost: u64,
    /// How much later than the median probe sampled packets were, in nanoseconds, smoothed.
    later: Option<i64>,
}

impl DataFigures {
    fn on_report(&mut self, lost: u32, sent: u32) {
        if sent == 0 {
            return;
        }
        for (sum, more) in [(&mut self.sent, sent), (&mut self.lost, lost)] {
            let more = u64::from(more).saturating_mul(SCALE);
            *sum = sum.saturating_sub(*sum / FADING).saturating_add(more);
        }
    }

    fn on_sample(&mut self, later: i64) {
        self.later = Some(self.later.map_or(later, |before| {
            before.saturating_add(later.saturating_sub(before) / 8)
        }));
    }

    /// Returns the share lost, in thousandths; `None` if there was too little data.
    pub(crate) fn lost_thousandths(&self) -> Option<u32> {
        if self.sent < SENT_MIN.saturating_mul(SCALE) {
            return None;
        }
        let share = self.lost.saturating_mul(1_000).checked_div(self.sent)?;
        u32::try_from(share).ok()
    }

    /// Returns how much later than probes data arrives; `None` before the first sample.
    pub(crate) fn later(&self) -> Option<Duration> {
        let later = u64::try_from(self.later?.max(0)).ok()?;
        Some(Duration::from_nanos(later))
    }
}

/// Decides when to test whether a path that lost long datagrams carries them again.
///
/// If all but one packet of a trial arrive, datagrams are sent whole again. Each failed trial, and
/// each new loss of long datagrams, doubles the time to the next trial.
#[derive(Clone, Copy, Debug, Default)]
struct WholeTrial {
    /// Whether a datagram was split since the last trial.
    is_wanted: bool,
    next_at: Option<Instant>,
    /// Failed trials, plus the times that long datagrams were lost.
    failures: u32,
    /// When the current trial began, and how many long packets had arrived before it.
    began: Option<(Instant, u32)>,
    /// Long packets that have arrived so far; wraps.
    arrived: u32,
}

impl WholeTrial {
    const fn on_pieces(&mut self) {
        (self.next_at, self.began) = (None, None);
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns whether to send the packets of a trial now.
    fn is_due(&mut self, now: Instant) -> bool {
        if let Some((at, _)) = self.began
            && now.saturating_since(at) >= TRIAL_TIMEOUT
        {
            self.on_pieces();
        }
        if self.began.is_some() || !self.is_wanted {
            return false;
        }
        let next_at = *self.next_at.get_or_insert_with(|| {
            let doublings = self.failures.saturating_sub(1).min(TRIAL_DOUBLINGS_MAX);
            now + TRIAL_DELAY_FIRST.saturating_mul(2_u32.saturating_pow(doublings))
        });
        if now < next_at {
            return false;
        }
        (self.is_wanted, self.began) = (false, Some((now, self.arrived)));
        true
    }

    /// Updates how many long packets have arrived. Returns whether a trial succeeded.
    fn on_report(&mut self, arrived: u32) -> bool {
        self.arrived = arrived;
        let Some((_, before)) = self.began else {
            return false;
        };
        let since = arrived.wrapping_sub(before);
        let is_over = (TRIAL_PACKETS - 1..=TRIAL_PACKETS).contains(&since);
        if is_over {
            (self.next_at, self.began) = (None, None);
        }
        is_over
    }
}

/// `p0` in thousandths, then ln(p1 / p0) and ln((1 - p0) / (1 - p1)) in thousandths. `p1` is 18 to
/// 30 percentage points above `p0`.
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
const LOSS_ROWS: usize = 6;
/// Loss of data allowed beyond that of probes, in thousandths.
const MARGIN: u64 = 30;
/// Evidence at which a test decides: ln of the packets between false alarms at `p0`.
const ALARM: u32 = 8_000;
/// Maximum sum. It bounds the number of packets until a recovered path is good again.
const CUSUM_MAX: u32 = 2 * ALARM;
/// Maximum weight of the packets between two probes.
const WEIGHT_MAX: u32 = 2;
/// Probes and sampled packets kept: 5 s.
const MARKS_MAX: usize = 128;
/// One-way times of probes kept: 2 s.
const TRANSITS_MAX: usize = 50;
const TRANSITS_MIN: usize = 10;
/// Newest one-way times that show that the whole path became slower, or began to jitter.
const TRANSITS_NEWEST: usize = 5;
const TRANSITS_LATELY: usize = 15;
/// How much later than probes a packet may be, ns.
const LATE_BY: i64 = 25_000_000;
/// Smoothing factor of the data's one-way time, in samples; as for probes.
const DATA_INERTIA: i64 = 8;
const DATA_FRESH: Duration = Duration::from_secs(1);
/// Packets between two probes per sampled packet.
const SAMPLES_WANTED: u32 = 3;
const SCALE: u64 = 1_024;
/// Number of reports after which an older one counts for about a third.
const FADING: u64 = 64;
const SENT_MIN: u64 = 20;
/// Packets of a trial; one may be lost.
pub(crate) const TRIAL_PACKETS: u32 = 4;
const TRIAL_DELAY_FIRST: Duration = Duration::from_secs(30);
/// The time doubles this many times, to 16 min.
const TRIAL_DOUBLINGS_MAX: u32 = 5;
/// Time after which a trial has failed.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
