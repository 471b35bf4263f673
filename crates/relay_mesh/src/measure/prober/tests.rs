use super::*;
use crate::cost::LossCode;
use wire::Seed;

/// A link and its effect on probes.
struct World {
    now: Instant,
    prober: Prober,
    noise: Generator,
    /// Answers in flight.
    echoes: Vec<(Instant, Echo)>,
    delay_ms: u64,
    jitter_ms: u64,
    loss_ppm: u32,
    cut: bool,
    sent: u64,
}

impl World {
    fn new(seed: u64, delay_ms: u64) -> Self {
        let seed = Seed::from_number(seed);
        Self {
            now: Instant::ZERO,
            prober: Prober::new(Instant::ZERO, seed.generator(1)),
            noise: seed.generator(2),
            echoes: Vec::new(),
            delay_ms,
            jitter_ms: 2,
            loss_ppm: 0,
            cut: false,
            sent: 0,
        }
    }

    /// Runs until `span` has passed or `stop` returns true. Returns the time taken.
    fn run_until(&mut self, span: Duration, stop: impl Fn(&Prober) -> bool) -> Duration {
        let (start, end) = (self.now, self.now + span);
        loop {
            self.prober.handle_timeout(self.now);
            while let Some(probe) = self.prober.poll_probe(self.now) {
                self.sent += 1;
                if !self.cut && !self.noise.chance(self.loss_ppm) {
                    let extra = self.noise.below(self.jitter_ms * 1_000 + 1);
                    let delay = Duration::from_micros(self.delay_ms * 1_000 + extra);
                    self.echoes.push((self.now + delay, Echo(probe)));
                }
            }
            if stop(&self.prober) || self.now >= end {
                return self.now.saturating_since(start);
            }
            let echo = self.echoes.iter().map(|&(at, _)| at).min();
            let next = self.prober.poll_timeout().min(end);
            self.now = echo.map_or(next, |at| at.min(next)).max(self.now);
            let now = self.now;
            for (_, echo) in self.echoes.extract_if(.., |(at, _)| *at <= now) {
                assert!(self.prober.handle_echo(now, echo));
                assert!(!self.prober.handle_echo(now, echo), "a repeat counts once");
            }
        }
    }

    fn run(&mut self, secs: u64) {
        self.run_until(Duration::from_secs(secs), |_| false);
    }

    fn settle(&mut self, pace: ProbeRate) {
        self.prober.set_pace(self.now, pace);
        self.run(20);
        assert_eq!(self.prober.health(), Health::Up);
    }
}

#[test]
fn a_new_link_is_up_within_two_seconds() {
    let mut world = World::new(1, 40);
    assert_eq!(world.prober.report(world.now), LinkReport::DOWN);
    let took = world.run_until(Duration::from_secs(5), |prober| {
        prober.health() == Health::Up
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    let report = world.prober.report(world.now);
    assert!(report.is_up() && report.loss == LossCode(0), "{report:?}");
    assert!((400..=430).contains(&report.delay.units()), "{report:?}");
}

#[test]
fn pgx5_the_reported_delay_is_median_and_jitter_in_tenths_of_a_ms() {
    for jitter_ms in [0, 1, 10, 60] {
        let mut world = World::new(1, 40);
        world.jitter_ms = jitter_ms;
        world.settle(ProbeRate::InUse);
        let now = world.now;
        let summary = world.prober.window().summary(now).unwrap();
        // Evenly spread: the median is half of it, and the 95th percentile another 45 % above.
        let spread = u32::try_from(jitter_ms * 1_000).unwrap();
        assert!(summary.median.abs_diff(40_000 + spread / 2) <= spread / 5);
        assert!(summary.jitter().abs_diff(spread * 9 / 20) <= spread / 5);
        let reported = summary.median + summary.jitter();
        let units = u16::try_from(reported.div_ceil(100)).unwrap();
        let delay = world.prober.report(now).delay;
        assert_eq!(delay, Cost::from_units(units), "{jitter_ms}");
    }
}

#[test]
fn paces_are_five_and_one_a_second() {
    for (pace, expected) in [(ProbeRate::InUse, 480..=520), (ProbeRate::Idle, 96..=104)] {
        let mut world = World::new(2, 40);
        world.settle(pace);
        let before = world.sent;
        world.run(100);
        let sent = world.sent - before;
        assert!(expected.contains(&sent), "{pace:?}: {sent}");
    }
}

#[test]
fn death_in_use_is_seen_well_within_a_second() {
    for (rtt, bound_ms) in [(10, 450), (50, 500), (100, 560), (150, 650), (200, 750)] {
        for seed in 0..20 {
            let mut world = World::new(seed, rtt);
            world.settle(ProbeRate::InUse);
            world.run_until(Duration::from_millis(seed * 10), |_| false);
            world.cut = true;
            let took = world.run_until(Duration::from_secs(9), |prober| {
                prober.health() == Health::Dead
            });
            // Packets in flight at the cut still arrive.
            assert!(
                took <= Duration::from_millis(bound_ms + rtt),
                "{rtt}: {took:?}"
            );
            assert!(!world.prober.report(world.now).is_up());
        }
    }
}

#[test]
fn an_idle_link_is_dead_within_two_seconds_and_then_asked_once_a_second() {
    let mut world = World::new(3, 50);
    world.settle(ProbeRate::Idle);
    world.cut = true;
    let took = world.run_until(Duration::from_secs(9), |prober| {
        prober.health() == Health::Dead
    });
    assert!(took <= Duration::from_secs(2), "{took:?}");
    // Probed four times per second at first, since it may recover soon.
    let before = world.sent;
    world.run(16);
    assert!(
        (50..=70).contains(&(world.sent - before)),
        "{}",
        world.sent - before
    );
    let before = world.sent;
    world.run(60);
    assert!(world.sent - before <= 66, "{}", world.sent - before);

    world.cut = false;
    let took = world.run_until(Duration::from_secs(9), |prober| {
        prober.health() != Health::Dead
    });
    assert!(took <= Duration::from_secs(2), "{took:?}");
}

#[test]
fn mesh_a8_a_link_that_died_recently_is_up_500_ms_after_its_return() {
    for outage in 1..=14 {
        let mut world = World::new(20 + outage, 20);
        world.settle(ProbeRate::InUse);
        world.cut = true;
        world.run(outage);
        assert_eq!(world.prober.health(), Health::Dead);
        world.cut = false;
        let took = world.run_until(Duration::from_secs(9), |prober| {
            prober.health() != Health::Dead
        });
        assert!(
            took <= Duration::from_millis(500),
            "{took:?} after {outage} s"
        );
    }
}

/// A new session on the same path needs three answers instead of ten, and keeps old round trips.
#[test]
fn mesh_a8_a_link_is_up_again_after_three_answers_of_its_next_session() {
    let mut world = World::new(40, 20);
    world.settle(ProbeRate::InUse);
    world.cut = true;
    world.run(12);
    assert!(world.prober.was_up());
    world.prober.renew(world.now);
    world.cut = false;
    assert_eq!(world.prober.health(), Health::New);
    let before = (world.now, world.prober.window().summary(world.now).unwrap());
    let took = world.run_until(Duration::from_secs(5), |prober| {
        prober.health() == Health::Up
    });
    assert!(took <= Duration::from_millis(200), "{took:?}");
    let after = world.prober.window().summary(world.now).unwrap();
    assert!(before.1.samples > 50 && after.samples > 50, "{after:?}");
    // A link that was never up needs all ten.
    let mut other = World::new(41, 20);
    other.run_until(Duration::from_millis(250), |_| false);
    assert!(!other.prober.was_up());
    other.prober.renew(other.now);
    other.echoes.clear();
    let took = other.run_until(Duration::from_secs(5), |prober| {
        prober.health() == Health::Up
    });
    assert!(took >= Duration::from_millis(400), "{took:?}");
}

#[test]
fn a_step_of_100_ms_degrades_and_does_not_kill() {
    let mut world = World::new(4, 50);
    world.settle(ProbeRate::InUse);
    world.delay_ms = 150;
    let took = world.run_until(Duration::from_secs(9), |prober| {
        assert_ne!(prober.health(), Health::Dead);
        prober.health() == Health::Degraded
    });
    assert!(took <= Duration::from_secs(1), "{took:?}");
    world.run(1);
    assert!(world.prober.report(world.now).delay >= Cost::from_millis(150));
    world.run(60);
    assert_eq!(world.prober.health(), Health::Up, "it is the new normal");
}

#[test]
fn ten_percent_of_loss_each_way_degrades_within_ten_seconds() {
    for seed in 0..20 {
        let mut world = World::new(seed, 50);
        world.settle(ProbeRate::InUse);
        world.loss_ppm = 190_000;
        let took = world.run_until(Duration::from_secs(60), |prober| {
            prober.health() == Health::Degraded
        });
        assert!(took <= Duration::from_secs(10), "{seed}: {took:?}");
        world.run(30);
        let loss = world.prober.loss();
        assert!((50_000..300_000).contains(&loss.ppm()), "{loss:?}");
    }
}

#[test]
fn one_percent_of_loss_is_no_alarm_for_most_of_an_hour() {
    let mut world = World::new(6, 50);
    world.settle(ProbeRate::InUse);
    world.loss_ppm = 10_000;
    let mut alarms = 0;
    for _ in 0..3_600 {
        world.run(1);
        assert_ne!(world.prober.health(), Health::Dead);
        alarms += u32::from(world.prober.health() == Health::Degraded);
    }
    assert!(alarms < 72, "{alarms} s of 3,600 s");
}

#[test]
fn an_answer_that_was_not_asked_counts_nothing() {
    let mut world = World::new(7, 50);
    world.run(1);
    let forged = Echo(Probe {
        id: 1,
        sent_nanos: 0,
    });
    assert!(!world.prober.handle_echo(world.now, forged));
}

#[test]
fn hours_of_silence_hold_no_more_memory_than_a_second() {
    let mut world = World::new(8, 50);
    world.cut = true;
    world.run(7_200);
    assert_eq!(world.prober.probes.len(), Prober::PROBES_MAX);
    assert_eq!(world.prober.health(), Health::New);
}
