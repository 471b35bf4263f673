use super::*;

const PERIOD: u32 = 10_000_000;

fn millis(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn boundaries_follow_the_earliest_arrival() {
    let mut clock = TickClock::new(millis(1_050), PERIOD, Tick(100));
    assert_eq!(clock.deadline(), millis(1_060));
    assert_eq!(clock.pass(millis(1_059)), None);
    assert_eq!(clock.pass(millis(1_060)), Some(101));
    assert_eq!(clock.arrival(Tick(102)), millis(1_070));
    let held = Duration::from_millis(10);
    assert_eq!(clock.count_by(millis(1_079), held), Tick(102));
    assert_eq!(clock.count_by(millis(1_080), held), Tick(103));
    assert_eq!(clock.count_by(millis(20), held), Tick(0));
    // Tick 102 arrives 4 ms early: the clock runs 2 % faster.
    clock.on_arrival(millis(1_066), Tick(102));
    assert_eq!(clock.pass(millis(1_070)), Some(102));
    assert_eq!(clock.deadline(), Instant::from_nanos(1_079_800_000));
}

#[test]
fn late_arrivals_count_after_a_window_without_early_ones() {
    let mut clock = TickClock::new(millis(0), PERIOD, Tick(0));
    for tick in 1..=63 {
        clock.on_arrival(millis(u64::from(tick) * 10 + 5), Tick(tick));
        assert_eq!(clock.arrival(Tick(0)), millis(0));
    }
    clock.on_arrival(millis(645), Tick(64));
    clock.on_arrival(millis(655), Tick(65));
    assert_eq!(clock.arrival(Tick(0)), millis(5));
}

#[test]
fn arrivals_that_are_all_later_than_a_jump_count_after_48() {
    let mut clock = TickClock::new(millis(0), PERIOD, Tick(0));
    // The server waited for 6 s before tick 1; of the 48, two are faster than the others.
    for tick in 1..=48 {
        assert_eq!(clock.arrival(Tick(0)), millis(0), "{tick}");
        let jitter = if tick % 8 == 0 { 0 } else { 3 };
        let at = millis(6_000 + u64::from(tick) * 10 + jitter);
        clock.on_arrival(at, Tick(tick));
    }
    assert_eq!(clock.arrival(Tick(0)), millis(6_000));
    // It jumps back: numbers that were passed before occur again.
    while clock.pass(millis(6_170)).is_some() {}
    assert_eq!((clock.index, clock.jumps), (18, 1));
    // A single arrival in time restarts the count.
    for tick in (49..=400).filter(|tick| tick % 48 != 0) {
        clock.on_arrival(millis(9_000 + u64::from(tick) * 10), Tick(tick));
        clock.on_arrival(millis(6_000 + u64::from(tick) * 10), Tick(tick));
    }
    assert_eq!(clock.arrival(Tick(0)), millis(6_000));
}

#[test]
fn boundaries_move_later_slowly_and_earlier_at_once() {
    let mut clock = TickClock::new(millis(1_050), PERIOD, Tick(100));
    clock.set_phase(Duration::from_millis(1));
    assert_eq!(clock.pass(millis(1_060)), Some(101));
    assert_eq!(clock.deadline(), Instant::from_nanos(1_070_200_000));
    for (at, index) in (1_071..).step_by(10).zip(102..106) {
        assert_eq!(clock.pass(millis(at)), Some(index));
    }
    assert_eq!(clock.deadline(), millis(1_111));
    clock.set_phase(Duration::ZERO);
    assert_eq!(clock.deadline(), millis(1_110));
    // Before it reaches 9 ms it is set back to 1 ms, but not into the past.
    clock.set_phase(Duration::from_millis(9));
    assert_eq!(clock.pass(millis(1_110)), Some(106));
    clock.set_phase(Duration::from_millis(1));
    assert_eq!(clock.deadline(), Instant::from_nanos(1_120_200_000));
    clock.set_phase(Duration::MAX);
    assert!(clock.phase < PERIOD.into());
}

#[test]
fn after_a_long_pause_ticks_jump_and_after_a_short_one_catch_up() {
    let mut clock = TickClock::new(millis(0), PERIOD, Tick(0));
    let mut passed = 0;
    while clock.pass(millis(150)).is_some() {
        passed += 1;
    }
    assert_eq!((passed, clock.jumps), (15, 0));
    let mut passed = 0;
    while clock.pass(millis(60_000)).is_some() {
        passed += 1;
    }
    assert_eq!((passed, clock.jumps), (1, 1));
    assert_eq!(clock.index, 6_001);
    assert_eq!(clock.deadline(), millis(60_010));
}

#[test]
fn longer_ticks_move_no_boundary_by_more_than_2_percent_of_one() {
    let mut clock = TickClock::new(millis(1_000), PERIOD, Tick(100));
    let (mut at, mut before) = (1_000_000_000_u64, clock.deadline());
    let mut period = PERIOD;
    for tick in 101..1_000_u32 {
        at += u64::from(period);
        let now = Instant::from_nanos(at);
        while let Some(index) = clock.pass(now) {
            let gap = clock.deadline().saturating_since(before).as_nanos();
            assert!((9_800_000..=12_240_000).contains(&gap), "{index}: {gap}");
            before = clock.deadline();
        }
        clock.on_arrival(now, Tick(tick));
        // A fifth longer, and the usual length again.
        period = if tick < 500 { 12_000_000 } else { PERIOD };
        clock.set_period(period, Tick(tick));
        assert_eq!(clock.arrival(Tick(tick)), now);
        assert!(clock.index.abs_diff(tick) <= 1, "{tick}");
    }
    assert_eq!(clock.jumps, 0);
}

#[test]
fn ls_10_changing_tick_lengths_cause_no_extra_wakeups() {
    let mut clock = TickClock::new(millis(1_000), PERIOD, Tick(1_000));
    let mut passed = 0;
    for step in 1..10_000_u32 {
        let now = millis(1_000 + u64::from(step));
        // Each also of a tick far ahead.
        clock.set_period(
            PERIOD * (1 + step % 2),
            Tick(step.wrapping_mul(0x9e37_79b9)),
        );
        while clock.pass(now).is_some() {
            passed += 1;
        }
    }
    let (words, ticks) = (10_000, 1_021);
    assert!(passed <= words + ticks, "{passed}");
}

#[test]
fn the_last_tick_number_does_not_overflow() {
    let mut clock = TickClock::new(millis(1_000), 1_000_000, Tick(u32::MAX - 3));
    for later in [10, 100, 100_000, u64::MAX / 1_000_000] {
        let now = millis(1_000 + later.min(u64::MAX / 1_000_000 - 1_000));
        let passed = (0..100).take_while(|_| clock.pass(now).is_some()).count();
        assert!(passed <= usize::try_from(DUE_MAX).unwrap(), "{passed}");
    }
    assert_eq!(clock.index, u32::MAX);
}
