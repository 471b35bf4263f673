use wire::{Generator, Seed};

use super::*;

/// A client that sends claims over an ordered channel with delays of up to 2 s.
struct Client {
    generator: Generator,
    check: Option<ElapsedTimeCheck>,
    /// Time of the client's clock, nanoseconds.
    clock: u64,
    /// Time of the server's clock, milliseconds.
    sent: u64,
    /// When the last message arrived, milliseconds.
    arrived: u64,
    /// How fast its clock runs, millionths.
    speed_ppm: u64,
}

impl Client {
    fn new(seed: u64, speed_ppm: u64) -> Self {
        Self {
            generator: Seed::from_number(seed).generator(0),
            check: None,
            clock: 0,
            sent: 1_000_000,
            arrived: 0,
            speed_ppm,
        }
    }

    fn pass(&mut self, millis: u64) {
        self.sent += millis;
        self.clock += millis * self.speed_ppm;
    }

    fn send(&mut self, delay: u64) -> Result<(), TimeViolation> {
        self.arrived = self.arrived.max(self.sent + delay);
        let now = Instant::from_millis(self.arrived);
        let claimed = Duration::from_nanos(self.clock);
        match &mut self.check {
            Some(check) => check.check(now, claimed),
            none => {
                let config = ElapsedTimeConfig::default();
                *none = Some(ElapsedTimeCheck::new(config, now, claimed));
                Ok(())
            }
        }
    }

    /// Sends a message each `gap` for `secs`. Returns when a violation was found, in seconds.
    fn play(&mut self, secs: u64, gap: u64) -> Result<(), (u64, TimeViolation)> {
        let begin = self.sent;
        while self.sent < begin + secs * 1_000 {
            let wait = self.generator.between(gap / 2, gap * 3 / 2);
            self.pass(wait);
            let delay = self.generator.below(2_001);
            self.send(delay)
                .map_err(|violation| ((self.arrived - begin) / 1_000, violation))?;
        }
        Ok(())
    }

    /// Sleeps with a message under way; the clock may or may not count the time.
    fn sleep(&mut self, secs: u64) -> Result<(), TimeViolation> {
        let is_counted = self.generator.chance(500_000);
        let before = self.clock;
        self.pass(secs * 1_000);
        let after = core::mem::replace(&mut self.clock, before);
        let delay = self.generator.below(2_001);
        self.send(delay)?;
        if is_counted {
            self.clock = after;
        }
        Ok(())
    }
}

#[test]
fn sim_h16_delays_drift_and_sleep_cause_no_violation() {
    netsim::for_each_seed(&netsim::test_site!(), 100, |seed| {
        let mut generator = seed.generator(1);
        let speed_ppm = generator.between(999_900, 1_000_100);
        let mut client = Client::new(generator.next_u64(), speed_ppm);
        let gap = generator.between(200, 10_000);
        let mut slept = 0;
        for _hour in 0..6 {
            client.play(generator.between(10, 1_200), gap).unwrap();
            // As long as the sum stays within the lag that is accepted.
            let sleep = generator.between(1, 60);
            if slept + sleep <= 115 {
                slept += sleep;
                client.sleep(sleep).unwrap();
            }
            client.play(generator.between(1, 600), gap).unwrap();
        }
        client.play(4 * 3_600, gap).unwrap();
    });
}

#[test]
fn sim_h16_a_clock_5_percent_fast_is_detected_within_150_s() {
    netsim::for_each_seed(&netsim::test_site!(), 200, |seed| {
        let mut generator = seed.generator(2);
        let mut client = Client::new(generator.next_u64(), 1_050_000);
        let gap = generator.between(100, 10_000);
        let (secs, _) = client.play(1_000, gap).unwrap_err();
        assert!(secs <= 150, "{secs}");
    });
}

#[test]
fn sim_h16_a_lag_after_sleep_does_not_hide_a_fast_clock() {
    netsim::for_each_seed(&netsim::test_site!(), 200, |seed| {
        let mut generator = seed.generator(3);
        let mut client = Client::new(generator.next_u64(), 1_000_000);
        let gap = generator.between(100, 10_000);
        client.play(generator.between(20, 1_000), gap).unwrap();
        let before = client.clock;
        client.sleep(100).unwrap();
        client.clock = before;
        client.speed_ppm = 1_050_000;
        let (secs, violation) = client.play(1_000, gap).unwrap_err();
        let is_fast = matches!(
            violation,
            TimeViolation::Fast {
                ppm: 20_000..=70_000
            }
        );
        assert!(is_fast, "{violation:?}");
        assert!(secs <= 300, "{secs}");
    });
}

#[test]
fn h16_each_violation_is_distinct() {
    let config = ElapsedTimeConfig {
        drift_ppm: 0,
        ..ElapsedTimeConfig::default()
    };
    let start = Instant::from_millis(5_000);
    let begin = Duration::from_secs(1_000);
    let mut check = ElapsedTimeCheck::new(config, start, begin);
    let mut at = |secs: u64, claimed: u64| {
        let now = start + Duration::from_secs(secs);
        check.check(now, begin + Duration::from_secs(claimed))
    };
    assert_eq!(at(100, 105), Ok(()));
    let by = Duration::from_secs(6);
    assert_eq!(at(100, 106), Err(TimeViolation::Ahead { by }));
    let by = Duration::from_secs(1);
    assert_eq!(at(101, 105), Err(TimeViolation::Backwards { by }));
    assert_eq!(at(226, 106), Ok(()), "120 s behind");
    let by = Duration::from_secs(121);
    assert_eq!(at(229, 108), Err(TimeViolation::Behind { by }));
    assert_eq!(
        at(230, 109),
        Ok(()),
        "measured from the claim that was behind"
    );
}

#[test]
fn h16_tolerances_are_configured() {
    let config = ElapsedTimeConfig {
        lead_max: Duration::from_secs(1_000),
        lag_max: Duration::from_secs(1),
        window: Duration::from_secs(32),
        jitter: Duration::ZERO,
        fast_ppm: 100_000,
        drift_ppm: 0,
    };
    let mut check = ElapsedTimeCheck::new(config, Instant::ZERO, Duration::ZERO);
    let mut violation = Ok(());
    for secs in 1..100 {
        // 20 % fast from the 50th second on.
        let claimed = if secs < 50 {
            secs * 10
        } else {
            500 + (secs - 50) * 12
        };
        let now = Instant::from_millis(secs * 1_000);
        violation = check.check(now, Duration::from_millis(claimed * 100));
        assert!(secs > 50 || violation.is_ok());
        if violation.is_err() {
            break;
        }
    }
    assert!(
        matches!(violation, Err(TimeViolation::Fast { .. })),
        "{violation:?}"
    );
    let late = check.check(Instant::from_millis(500_000), Duration::from_secs(490));
    assert!(
        matches!(late, Err(TimeViolation::Behind { .. })),
        "{late:?}"
    );
}

#[test]
fn h16_invalid_claims_use_no_memory_and_cause_no_panic() {
    let config = ElapsedTimeConfig::default();
    let mut check = ElapsedTimeCheck::new(config.clone(), Instant::ZERO, Duration::ZERO);
    let mut generator = Seed::from_number(1).generator(0);
    for _claim in 0..100_000 {
        let now = Instant::from_nanos(generator.next_u64() >> generator.below(64));
        let claimed = Duration::from_millis(generator.next_u64() >> generator.below(64));
        check.check(now, claimed).ok();
        assert!(check.leads.len() <= 17);
    }
    let mut check = ElapsedTimeCheck::new(config, Instant::ZERO, Duration::MAX);
    check.check(Instant::ZERO, Duration::MAX).unwrap();
}
