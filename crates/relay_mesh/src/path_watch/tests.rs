use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

const MILLI: u64 = 1_000_000;

/// The answer of an end at which `arrived` probes have arrived, after a transit of `millis`.
fn echo(number: u32, arrived: u32, millis: u64) -> PathEcho {
    PathEcho {
        path: 0,
        number,
        transit: millis * MILLI,
        arrived,
        data: crate::path_probe::DataReport::default(),
    }
}

/// Probes for `span` ms from time `from` on, with answers after `delay` ms.
fn answered(watch: &mut PathWatch, from: u64, span: u64, delay: u64) {
    let all = |_| true;
    play(watch, (from, span, delay), (all, all));
}

/// The same, but only some probes arrive and only some answers return.
fn play(
    watch: &mut PathWatch,
    (from, span, delay): (u64, u64, u64),
    (arrives, returns): (impl Fn(u32) -> bool, impl Fn(u32) -> bool),
) {
    let mut due: VecDeque<(u64, u32)> = VecDeque::new();
    let mut arrived = watch.probes.iter().rev().find_map(|sent| sent.arrived);
    let mut answer = |watch: &mut PathWatch, now, number| {
        if arrives(number) {
            let so_far = arrived.unwrap_or(0) + 1;
            arrived = Some(so_far);
            if returns(number) {
                watch.on_echo(at(now), echo(number, so_far, delay), EchoWay::Path);
            }
        }
    };
    for now in from..from + span {
        while due.front().is_some_and(|(when, _)| *when <= now) {
            let (_, number) = due.pop_front().unwrap();
            answer(watch, now, number);
        }
        if let Some(number) = watch.poll_probe(at(now)) {
            due.push_back((now + delay, number));
        }
    }
    for (_, number) in due {
        answer(watch, from + span, number);
    }
}

#[test]
fn mesh_m3_silence_is_suspect_within_160_ms_and_death_follows() {
    let mut watch = PathWatch::new(at(0));
    answered(&mut watch, 0, 2_000, 50);
    assert!(watch.is_proved());
    assert_eq!(watch.state(at(2_000)), PathState::Good);
    let mut states = Vec::new();
    for now in 2_000..3_000 {
        watch.poll_probe(at(now));
        let state = watch.state(at(now));
        if states.last().is_none_or(|(_, last)| *last != state) {
            states.push((now, state));
        }
    }
    let [
        (_, PathState::Good),
        (suspect, PathState::Suspect),
        (dead, PathState::Dead),
    ] = states[..]
    else {
        panic!("{states:?}");
    };
    assert!((2_100..=2_190).contains(&suspect), "{suspect}");
    assert!((2_320..=2_480).contains(&dead), "{dead}");
    answered(&mut watch, 3_000, 100, 50);
    assert_eq!(watch.state(at(3_100)), PathState::Good);
}

#[test]
fn one_lost_probe_of_many_is_no_reason() {
    let mut watch = PathWatch::new(at(0));
    answered(&mut watch, 0, 2_000, 50);
    let lost = (2_000..2_040).find_map(|now| watch.poll_probe(at(now)));
    assert!(lost.is_some());
    answered(&mut watch, 2_040, 1_000, 50);
    assert_eq!(watch.state(at(3_040)), PathState::Good);
    assert_eq!(watch.lost(at(3_040)).0, 1);
}

#[test]
fn pgx5_loss_is_that_of_the_way_there() {
    let mut watch = PathWatch::new(at(0));
    play(
        &mut watch,
        (0, 8_000, 50),
        (|_| true, |number| number % 3 == 0),
    );
    let (lost, sent) = watch.lost(at(8_000));
    assert_eq!(lost, 0, "two of three answers were lost");
    assert!(sent >= 98);
    assert_eq!(watch.state(at(8_000)), PathState::Good);
    let mut watch = PathWatch::new(at(0));
    play(
        &mut watch,
        (0, 8_000, 50),
        (|number| number % 5 != 0, |_| true),
    );
    let (lost, sent) = watch.lost(at(8_000));
    assert!((19..=21).contains(&lost) && sent <= 101, "{lost} of {sent}");
}

#[test]
fn a_path_that_falls_silent_loses_all() {
    let mut watch = PathWatch::new(at(0));
    play(&mut watch, (0, 6_000, 50), (|_| false, |_| true));
    let (lost, sent) = watch.lost(at(6_000));
    assert!(lost == sent && sent > 80, "it never carried");
    let mut watch = PathWatch::new(at(0));
    answered(&mut watch, 0, 4_000, 50);
    play(&mut watch, (4_000, 2_000, 50), (|_| false, |_| true));
    let (lost, sent) = watch.lost(at(6_000));
    assert!((45..=50).contains(&lost), "{lost} of {sent}");
    // It carries again: earlier losses still count.
    answered(&mut watch, 6_000, 1_000, 50);
    let (lost, _) = watch.lost(at(7_000));
    assert!((49..=51).contains(&lost), "{lost}");
    answered(&mut watch, 7_000, 1_500, 50);
    let (lost, sent) = watch.lost(at(8_500));
    assert!((35..=51).contains(&lost) && sent <= 150, "{lost} of {sent}");
    answered(&mut watch, 8_500, 4_000, 50);
    let (lost, sent) = watch.lost(at(12_500));
    assert!(lost == 0 && sent <= 101, "forgotten: {lost} of {sent}");
}

#[test]
fn probes_that_overtake_each_other_are_not_lost() {
    let mut watch = PathWatch::new(at(0));
    let numbers: Vec<u32> = (0..60)
        .map(|round| watch.poll_probe(at(round * 40)).unwrap())
        .collect();
    // Each third probe overtakes the two before it.
    let order = numbers.chunks(3).flat_map(|three| three.iter().rev());
    for (arrived, number) in (1..).zip(order) {
        watch.on_echo(at(2_400), echo(*number, arrived, 30), EchoWay::Path);
    }
    let (lost, sent) = watch.lost(at(2_400));
    assert!(lost <= 2 && sent == 59, "{lost} of {sent}");
}

#[test]
fn a_footer_with_wrong_counts_reports_all_or_nothing_as_lost() {
    for (counts, lost) in [([9, 3], 1), ([0, u32::MAX], 1), ([5, 5], 1), ([5, 99], 0)] {
        let mut watch = PathWatch::new(at(0));
        for (time, arrived) in [0, 1_000].into_iter().zip(counts) {
            let number = watch.poll_probe(at(time)).unwrap();
            watch.on_echo(at(time + 1), echo(number, arrived, 1), EchoWay::Path);
        }
        assert_eq!(watch.lost(at(1_001)), (lost, 1), "{counts:?}");
    }
}

#[test]
fn a_standby_path_is_probed_less() {
    let mut watch = PathWatch::new(at(0));
    answered(&mut watch, 0, 1_000, 30);
    watch.set_pace(at(1_000), PathPace::Idle);
    let before = watch.next_number;
    answered(&mut watch, 1_000, 2_000, 30);
    assert!((7..=9).contains(&(watch.next_number - before)));
    assert_eq!(watch.probes.len().min(PROBES_MAX), watch.probes.len());
}

#[test]
fn a_slower_path_shows_whatever_the_clocks_and_the_way_back() {
    for offset in [0, u64::MAX - 5_000_000, 1 << 63] {
        let mut watch = PathWatch::new(at(0));
        let mut probe = |now: u64, there: u64, back: u64| {
            let number = watch.poll_probe(at(now)).unwrap();
            let mut echo = echo(number, number, there);
            echo.transit = echo.transit.wrapping_add(offset);
            watch.on_echo(at(now + there + back), echo, EchoWay::Path);
            watch.excess().as_millis()
        };
        for round in 0..50 {
            assert_eq!(probe(round * 300, 30, 30), 0);
        }
        for round in 50..100 {
            assert_eq!(probe(round * 300, 30, 130), 0, "the way back is slow");
        }
        let excess = (100..120).map(|round| probe(round * 300, 130, 30)).last();
        assert!(
            excess.is_some_and(|excess| (75..=100).contains(&excess)),
            "{excess:?}"
        );
    }
}

/// The long-term mean is kept until flows have left a slightly worse route, but no longer, since
/// link state reflects the change by then.
#[test]
fn a_path_that_became_slower_is_compared_with_what_was_usual_for_5_s() {
    let mut watch = PathWatch::new(at(0));
    let mut probe = |now: u64, there: u64, data: Option<u64>| {
        let number = watch.poll_probe(at(now)).unwrap();
        watch.on_echo(at(now + there), echo(number, number, there), EchoWay::Path);
        let data = data.map(|millis| i64::try_from(millis).unwrap() * 1_000_000);
        let later = data.map_or_else(|| watch.excess(), |data| watch.data_excess(data));
        later.as_millis()
    };
    for round in 0..100 {
        assert_eq!(probe(round * 40, 30, Some(30)), 0);
    }
    assert_eq!(probe(4_000, 30, Some(90)), 60, "data alone takes longer");
    assert_eq!(
        probe(4_040, 30, Some(20)),
        0,
        "data that is early is no gain"
    );
    let grown: Vec<u128> = (102..300)
        .map(|round| probe(round * 40, 130, None))
        .collect();
    let (held, after) = grown.split_at(5_000 / 40);
    assert!(
        held.iter()
            .skip(40)
            .all(|excess| (99..=100).contains(excess)),
        "{held:?}"
    );
    assert!(
        after.last().is_some_and(|excess| *excess <= 75),
        "{after:?}"
    );
    for round in 300..1_800 {
        probe(round * 40, 30, None);
    }
    let again = (1_800..1_920).map(|round| probe(round * 40, 130, None));
    let again = again.last();
    assert!(
        again.is_some_and(|excess| (99..=100).contains(&excess)),
        "{again:?}"
    );
}

#[test]
fn unrequested_answers_count_for_nothing() {
    let mut watch = PathWatch::new(at(0));
    for number in [0, 1, 7, u32::MAX] {
        watch.on_echo(at(1), echo(number, 1, 0), EchoWay::Path);
    }
    assert!(!watch.is_proved());
    let number = watch.poll_probe(at(2)).unwrap();
    for _ in 0..9 {
        watch.on_echo(at(3), echo(number, 1, 0), EchoWay::Path);
    }
    assert_eq!(watch.answers, 1);
}

#[test]
fn pgx3_answers_by_the_session_make_a_path_no_more_patient_at_once() {
    let mut watch = PathWatch::new(at(0));
    let answer = |watch: &mut PathWatch, time: u64, took: u64, way| {
        let number = watch.poll_probe(at(time)).unwrap();
        watch.on_echo(at(time + took), echo(number, number + 1, 30), way);
    };
    for round in 0..50 {
        answer(&mut watch, round * 40, 60, EchoWay::Path);
    }
    let timeout = watch.answer_timeout();
    let asked = watch.poll_probe(at(2_000));
    assert_eq!(asked, Some(50));
    assert!(!watch.is_overdue(at(2_079)));
    assert!(watch.is_overdue(at(2_080)));
    assert_eq!(watch.state(at(2_080)), PathState::Good);
    watch.on_echo(at(2_110), echo(50, 51, 30), EchoWay::Session);
    assert!(!watch.is_overdue(at(2_110)));
    for round in 51..57 {
        answer(&mut watch, round * 40, 110, EchoWay::Session);
        assert_eq!(watch.answer_timeout(), timeout);
    }
    // If answers keep arriving this way, the timeout adapts.
    answer(&mut watch, 57 * 40, 110, EchoWay::Session);
    let more = watch.answer_timeout().saturating_sub(timeout);
    assert!(more > Duration::from_millis(30), "{more:?}");
    for round in 58..150 {
        answer(&mut watch, round * 40, 110, EchoWay::Session);
    }
    let trip = watch.round_trip().unwrap();
    assert!(trip > Duration::from_millis(105), "{trip:?}");
}

#[test]
fn probes_leave_at_random_times_that_a_seed_decides() {
    let times = |seed: u64| {
        let mut watch = PathWatch::new(at(0)).with_jitter(seed);
        let mut times = Vec::new();
        for micros in (0..4_000_000).step_by(100) {
            let now = Instant::from_nanos(micros * 1_000);
            if watch.poll_probe(now).is_some() {
                times.push(micros);
            }
        }
        times
    };
    let drawn = times(7);
    assert_eq!(drawn, times(7));
    assert_ne!(drawn, times(8));
    let gaps: Vec<u64> = drawn.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        gaps.iter().all(|gap| (30_000..=50_100).contains(gap)),
        "{gaps:?}"
    );
    let distinct: std::collections::BTreeSet<&u64> = gaps.iter().collect();
    assert!(distinct.len() > gaps.len() / 2, "{gaps:?}");
}
