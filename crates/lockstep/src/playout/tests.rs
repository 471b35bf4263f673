mod jitter_buffer;
mod second_largest;

use super::*;

const TICK: Duration = Duration::from_nanos(16_666_667);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn adaptive(max: u64) -> PlayoutDelay {
    PlayoutDelay::new(Playout::Adaptive { max: millis(max) })
}

/// Handles `count` arrivals with the same lateness, one per tick.
fn run(delay: &mut PlayoutDelay, now: &mut Instant, count: u32, late: Duration) {
    for _ in 0..count {
        *now += TICK;
        delay.on_late(*now, late);
    }
}

#[test]
fn a_fixed_delay_stays() {
    let mut delay = PlayoutDelay::new(Playout::Fixed(millis(7)));
    run(&mut delay, &mut Instant::ZERO.clone(), 2_000, millis(90));
    assert_eq!(delay.get(), millis(7));
    assert_eq!(PlayoutDelay::new(Playout::NONE).get(), Duration::ZERO);
}

#[test]
fn the_delay_rises_at_once_and_falls_slowly() {
    let (mut delay, mut now) = (adaptive(200), Instant::ZERO);
    run(&mut delay, &mut now, 2, millis(30));
    assert!(delay.get() >= millis(30));
    run(&mut delay, &mut now, 598, millis(30));
    // Two arrivals are later: from the second on, the delay covers them.
    run(&mut delay, &mut now, 2, millis(60));
    let high = delay.get();
    assert!(high >= millis(60) && high <= millis(80), "{high:?}");
    // Two windows later it no longer counts, and the delay falls by 4 ms per second.
    run(&mut delay, &mut now, 1_190, millis(10));
    let before = delay.get();
    assert!(before >= millis(60), "{before:?}");
    run(&mut delay, &mut now, 60, millis(10));
    let after = delay.get();
    let down = before.saturating_sub(after);
    assert!(
        (millis(3)..=millis(5)).contains(&down),
        "{before:?} {after:?}"
    );
    run(&mut delay, &mut now, 60 * 1_500, millis(10));
    assert_eq!(delay.get(), millis(10));
}

#[test]
fn an_outage_barely_changes_the_delay() {
    let (mut delay, mut now) = (adaptive(100), Instant::ZERO);
    run(&mut delay, &mut now, 2_000, millis(10));
    assert_eq!(delay.get(), millis(10));
    // No arrival for 500 ms, then all at once. The last of these are less late, but part of the
    // same outage.
    for late in (0..30).map(|tick| millis(500).saturating_sub(TICK * tick)) {
        delay.on_late(now, late);
    }
    assert!(delay.get() <= millis(12), "{:?}", delay.get());
    run(&mut delay, &mut now, 600, millis(10));
    assert!(delay.get() <= millis(12), "{:?}", delay.get());
    // If the path stays slower, it is no outage.
    delay.on_late(now, millis(900));
    run(&mut delay, &mut now, 3, millis(80));
    assert!(delay.get() >= millis(80), "{:?}", delay.get());
    run(&mut delay, &mut now, 60 * 60, millis(10));
    // Late arrivals after an outage count as usual.
    run(&mut delay, &mut now, 2, millis(50));
    assert!(delay.get() >= millis(50), "{:?}", delay.get());
    // A single late arrival is an outlier, and so is one later than the maximum delay.
    let (mut delay, mut now) = (adaptive(100), Instant::ZERO);
    run(&mut delay, &mut now, 2_000, millis(10));
    run(&mut delay, &mut now, 1, millis(90));
    run(&mut delay, &mut now, 1, Duration::MAX);
    assert!(delay.get() <= millis(18), "{:?}", delay.get());
}

#[test]
fn the_delay_never_exceeds_its_maximum() {
    for max in [0, 1, 25, 1_000] {
        let (mut delay, mut now) = (adaptive(max), Instant::ZERO);
        for late in 0..3_000 {
            run(&mut delay, &mut now, 1, millis(late % 300));
            assert!(delay.get() <= millis(max));
        }
    }
    let mut delay = PlayoutDelay::new(Playout::Adaptive { max: Duration::MAX });
    for at in [0, u64::MAX / 2, u64::MAX] {
        delay.on_late(Instant::from_nanos(at), Duration::MAX);
        delay.on_late(Instant::from_nanos(at), Duration::from_nanos(u64::MAX / 2));
    }
    assert!(delay.get() > Duration::ZERO);
}

#[test]
fn long_run_misses_cost_a_tenth_of_a_millisecond_a_second() {
    // 2 % of datagrams are lost and each tick is in four of them: one tick in 50 arrives one tick
    // late, one in 2,500 two ticks late, each with up to 10 ms of jitter.
    let mut generator = wire::Seed::from_number(1).generator(0);
    let (mut delay, mut now) = (adaptive(200), Instant::ZERO);
    let (mut missed, mut held, mut played) = (0, Duration::ZERO, Duration::ZERO);
    let count = 60 * 60 * 60;
    for tick in 0..count + 3_600 {
        now += TICK;
        let ticks = (0..3).take_while(|_| generator.chance(20_000)).count();
        let jitter = Duration::from_nanos(generator.below(10_000_000));
        let late = TICK * u32::try_from(ticks).unwrap() + jitter;
        if tick >= 3_600 {
            let at = late.max(delay.get());
            missed += at.saturating_sub(played.max(delay.get())).as_nanos();
            held += delay.get();
            played = at;
        }
        delay.on_late(now, late);
    }
    let missed_a_second = missed / 3_600;
    let held = held / count;
    assert!(
        (50_000..=100_000).contains(&missed_a_second),
        "{missed_a_second} ns"
    );
    assert!((millis(30)..=millis(40)).contains(&held), "{held:?}");
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn play_times_follow_the_fastest_recent_arrival() {
    let mut clock = PlayoutClock::new(Playout::Fixed(Duration::from_millis(10)));
    assert_eq!((clock.played(at(9)), clock.play_at(at(9))), (None, None));
    clock.on_arrival(at(5_060), at(1_000));
    clock.on_arrival(at(5_150), at(1_100));
    clock.on_arrival(at(5_260), at(1_200));
    assert_eq!(clock.play_at(at(1_300)), Some(at(5_360)));
    assert_eq!(clock.played(at(5_360)), Some(at(1_300)));
    assert_eq!(clock.lead(at(5_000), at(1_000)), Duration::from_millis(50));
    // The path gets 20 ms slower, which counts after a whole window.
    for sent in (1_300..).step_by(100).take(128) {
        clock.on_arrival(at(sent + 4_070), at(sent));
    }
    assert_eq!(clock.play_at(at(1_300)), Some(at(5_380)));
    clock.restart();
    assert_eq!(clock.play_at(at(1_300)), None);
    clock.on_arrival(at(20_000), at(3));
    assert_eq!(clock.play_at(at(4)), Some(at(20_011)));
}

#[test]
fn extreme_values_do_not_overflow() {
    let latest = Instant::from_nanos(u64::MAX);
    for sent in [Instant::ZERO, latest] {
        for now in [Instant::ZERO, latest] {
            let max = Duration::MAX;
            let mut clock = PlayoutClock::new(Playout::Adaptive { max });
            clock.on_arrival(now, sent);
            clock.on_ready(latest, Instant::ZERO);
            clock.on_ready(latest, Instant::ZERO);
            assert!(clock.played(now).is_some() && clock.play_at(sent).is_some());
        }
    }
}
