#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test's own numbers are small"
)]

use wire::{Generator, Seed};

use super::*;
use crate::path_probe::PathProbe;

const FLOW: FlowId = FlowId(7);

/// How a path treats packets.
#[derive(Clone, Copy)]
struct Line {
    /// Loss of probes and of data, in millionths.
    loss: (u32, u32),
    /// Extra delay of data in ms, and of this share of probes, in millionths.
    data_delay: u64,
    delayed_probes: u32,
    /// Maximum random delay, ms.
    jitter: u64,
    /// Longest payload that arrives.
    mtu: usize,
}

const HONEST: Line = Line {
    loss: (0, 0),
    data_delay: 0,
    delayed_probes: 0,
    jitter: 0,
    mtu: usize::MAX,
};

/// A probe, or a packet with its length.
type Sent = Result<PathProbe, (u64, usize)>;

/// A path with a delay of 30 ms each way, probed every 40 ms, in steps of 1 ms.
struct Harness {
    quality: PathQuality,
    remote: DataArrivals,
    draws: Generator,
    now: u64,
    probe: u32,
    packet: u64,
    probes_arrived: u32,
    /// Whether each of the newest probes was lost.
    lost: VecDeque<bool>,
    /// With the arrival time.
    on_way: Vec<(u64, Sent)>,
    back: Vec<(u64, PathEcho)>,
}

impl Harness {
    fn new(seed: u64) -> Self {
        Self {
            quality: PathQuality::new(5),
            remote: DataArrivals::default(),
            draws: Seed::from_number(seed).generator(1),
            now: 0,
            probe: 0,
            packet: 0,
            probes_arrived: 0,
            lost: VecDeque::new(),
            on_way: Vec::new(),
            back: Vec::new(),
        }
    }

    /// Runs for `span` ms with a packet of `len` bytes every `interval` ms, and stops early when
    /// `ends` is true.
    fn run(
        &mut self,
        (span, interval, len): (u64, u64, usize),
        line: Line,
        ends: impl Fn(&PathQuality) -> bool,
    ) -> Option<u64> {
        let start = self.now;
        while self.now < start + span {
            let now = Instant::from_millis(self.now);
            if self.now.is_multiple_of(interval) {
                let len = if self.quality.needs_pieces {
                    len.min(700)
                } else {
                    len
                };
                self.quality.on_data_sent(now, (FLOW, self.packet), len);
                if !self.draws.chance(line.loss.1) && len <= line.mtu {
                    let at = self.now + 30 + line.data_delay + self.draws.below(line.jitter + 1);
                    self.on_way.push((at, Err((self.packet, len))));
                }
                self.packet += 1;
            }
            if self.now.is_multiple_of(40) {
                let (sampling, _) = self.quality.on_probe_sent(now, self.probe);
                let probe = PathProbe {
                    path: 0,
                    number: self.probe,
                    clock: now.as_nanos(),
                    sampling,
                };
                let is_lost = self.draws.chance(line.loss.0);
                push_bounded(&mut self.lost, is_lost, 100);
                if !is_lost {
                    let is_delayed = self.draws.chance(line.delayed_probes);
                    let delay = line.data_delay * u64::from(is_delayed);
                    let at = self.now + 30 + delay + self.draws.below(line.jitter + 1);
                    self.on_way.push((at, Ok(probe)));
                }
                self.probe += 1;
            }
            self.arrive(now);
            if ends(&self.quality) {
                return Some(self.now - start);
            }
            self.now += 1;
        }
        None
    }

    fn arrive(&mut self, now: Instant) {
        let due = |(at, _): &mut (u64, _)| *at <= self.now;
        let arrived: Vec<_> = self.on_way.extract_if(.., due).collect();
        for (_, what) in arrived {
            match what {
                Ok(probe) => {
                    self.probes_arrived += 1;
                    let data = self.remote.on_probe(now, probe.sampling);
                    let echo = probe.answer(now, self.probes_arrived, data);
                    self.back.push((self.now + 30, echo));
                }
                Err((number, len)) => self.remote.on_data(now, (FLOW, number), len),
            }
        }
        let count = |lost: &VecDeque<bool>| u32::try_from(lost.len()).unwrap();
        let lost = self.lost.iter().filter(|lost| **lost).count();
        let loss = (u32::try_from(lost).unwrap(), count(&self.lost));
        let due = |(at, _): &mut (u64, _)| *at <= self.now;
        let echoes: Vec<_> = self.back.extract_if(.., due).collect();
        for (_, echo) in echoes {
            self.quality.on_echo(now, echo, loss);
        }
    }
}

const fn is_failing(quality: &PathQuality) -> bool {
    quality.verdict().is_failing()
}

/// The time to detect a fault for each of 20 seeds, ms, after 5 s without one.
fn found(interval: u64, line: Line) -> Vec<u64> {
    let found = (0..20).map(|seed| {
        let mut harness = Harness::new(seed);
        assert_eq!(
            harness.run((5_000, interval, 100), HONEST, is_failing),
            None
        );
        let after = harness.run((20_000, interval, 100), line, is_failing);
        after.unwrap_or_else(|| panic!("seed {seed} finds nothing"))
    });
    found.collect()
}

#[test]
fn a_path_that_drops_data_is_found_within_a_second() {
    let line = Line {
        loss: (0, 1_000_000),
        ..HONEST
    };
    for interval in [2, 16, 50] {
        let times = found(interval, line);
        assert!(
            times.iter().all(|time| *time <= 700),
            "{interval}: {times:?}"
        );
    }
    // A slow flow: within 20 packets.
    let times = found(500, line);
    assert!(times.iter().all(|time| *time <= 20 * 500), "{times:?}");
}

#[test]
fn a_path_that_thins_or_delays_data_is_found_within_seconds() {
    let lossy = Line {
        loss: (0, 300_000),
        ..HONEST
    };
    let mut times = found(16, lossy);
    times.sort_unstable();
    assert!(times[10] <= 1_500 && times[19] <= 3_000, "{times:?}");
    let mut times = found(50, lossy);
    times.sort_unstable();
    assert!(times[10] <= 3_000, "{times:?}");
    let late = Line {
        data_delay: 100,
        jitter: 5,
        ..HONEST
    };
    for interval in [2, 16, 50] {
        let times = found(interval, late);
        assert!(
            times.iter().all(|time| *time <= 1_500),
            "{interval}: {times:?}"
        );
    }
}

/// A relay cannot distinguish probes of data's length from data, so it delays these too.
#[test]
fn a_path_that_delays_data_and_probes_of_its_length_is_found_within_3_s() {
    for data_delay in [60, 100] {
        for delayed_probes in [100_000, 250_000, 400_000, 600_000] {
            let late = Line {
                data_delay,
                delayed_probes,
                jitter: 5,
                ..HONEST
            };
            for interval in [2, 16, 50] {
                let mut times = found(interval, late);
                times.sort_unstable();
                let what = (data_delay, delayed_probes, interval);
                // 18 of 20 within 3 s.
                assert!(
                    times[10] <= 2_000 && times[17] <= 3_000,
                    "{what:?}: {times:?}"
                );
            }
        }
    }
}

#[test]
fn honest_paths_with_loss_and_jitter_raise_no_alarm() {
    for loss in [0, 10_000, 50_000, 100_000] {
        for jitter in [0, 5, 30, 60] {
            let line = Line {
                loss: (loss, loss),
                jitter,
                ..HONEST
            };
            for (seed, interval) in [(1, 2), (2, 16), (3, 50)] {
                let mut harness = Harness::new(seed);
                let alarm = harness.run((120_000, interval, 100), line, is_failing);
                assert_eq!(alarm, None, "{loss} {jitter} {interval}");
                assert!(!harness.quality.needs_pieces);
            }
        }
    }
}

#[test]
fn a_path_that_becomes_slower_or_stops_as_a_whole_raises_no_alarm() {
    let mut harness = Harness::new(1);
    assert_eq!(harness.run((5_000, 16, 100), HONEST, is_failing), None);
    for round in 0..20 {
        let silent = Line {
            loss: (1_000_000, 1_000_000),
            ..HONEST
        };
        let outage = harness.run((100 + round * 20, 16, 100), silent, is_failing);
        assert_eq!(outage, None);
        let jittery = Line {
            jitter: 100,
            ..HONEST
        };
        assert_eq!(harness.run((1_000, 16, 100), jittery, is_failing), None);
        assert_eq!(harness.run((3_000, 16, 100), HONEST, is_failing), None);
    }
}

#[test]
fn long_datagrams_that_are_dropped_travel_in_pieces() {
    let line = Line {
        mtu: 1_180,
        ..HONEST
    };
    let mut harness = Harness::new(1);
    assert_eq!(harness.run((5_000, 50, 1_230), HONEST, is_failing), None);
    let pieces = harness.run((5_000, 50, 1_230), line, |quality| quality.needs_pieces);
    assert!(pieces.is_some_and(|time| time <= 700), "{pieces:?}");
    assert_eq!(harness.run((60_000, 50, 1_230), line, is_failing), None);
}

#[test]
fn memory_is_bounded_whatever_the_remote_end_reports() {
    let mut quality = PathQuality::new(1);
    let mut remote = DataArrivals::default();
    for number in 0..10_000_u32 {
        let now = Instant::from_millis(number.into());
        for packet in 0..4 {
            quality.on_data_sent(now, (FLOW, u64::from(number) * 4 + packet), 100);
            remote.on_data(now, (FLOW, packet), 100);
        }
        let (sampling, _) = quality.on_probe_sent(now, number);
        let mut data = remote.on_probe(now, sampling);
        data.arrived = [number.wrapping_mul(0x9E37_79B9); SIZE_CLASSES];
        data.sampled = u8::MAX;
        let probe = PathProbe {
            path: 0,
            number,
            clock: 0,
            sampling,
        };
        if number.is_multiple_of(3) {
            quality.on_echo(now, probe.answer(now, number, data), (0, 100));
        }
        assert!(quality.marks.len() <= MARKS_MAX && quality.sampled.len() <= MARKS_MAX);
        assert!(quality.transits.len() <= TRANSITS_MAX);
    }
}

#[test]
fn figures_follow_what_is_reported_and_wait_for_enough_of_it() {
    let mut figures = DataFigures::default();
    figures.on_report(0, 0);
    figures.on_report(1, 10);
    assert_eq!((figures.lost_thousandths(), figures.later()), (None, None));
    for _ in 0..1_000 {
        figures.on_report(3, 10);
        figures.on_sample(40_000_000);
    }
    let lost = figures.lost_thousandths().unwrap();
    assert!((295..=300).contains(&lost), "{lost}");
    assert_eq!(figures.later(), Some(Duration::from_millis(40)));
    for _ in 0..500 {
        figures.on_report(0, 10);
        figures.on_sample(-3_000_000);
    }
    assert_eq!(figures.lost_thousandths(), Some(0));
    assert_eq!(figures.later(), Some(Duration::ZERO), "not later");
}

#[test]
fn trials_are_rarer_each_time_and_end_with_three_of_four_packets() {
    let mut trial = WholeTrial::default();
    trial.on_pieces();
    let mut now = Instant::ZERO;
    assert!(!trial.is_due(now));
    assert_eq!(trial.next_at, None, "nobody wants one");
    for secs in [30, 60, 120, 240, 480, 960, 960] {
        trial.is_wanted = true;
        assert!(!trial.is_due(now));
        now += Duration::from_secs(secs);
        assert!(trial.is_due(now), "{secs}");
        assert!(!trial.is_due(now), "once");
        assert!(!trial.on_report(trial.arrived.wrapping_add(2)));
        now += TRIAL_TIMEOUT;
    }
    trial.is_wanted = true;
    assert!(!trial.is_due(now));
    now += Duration::from_secs(960);
    assert!(trial.is_due(now));
    let before = trial.arrived;
    assert!(!trial.on_report(before.wrapping_sub(9)), "counted anew");
    assert!(trial.on_report(before.wrapping_add(3)));
    assert!(!trial.on_report(before.wrapping_add(4)), "it is over");
}
