use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

const MILLI: u64 = 1_000_000;

/// The answer of an end where `arrived` probes have come, after a transit of `millis`.
fn echo(number: u32, arrived: u32, millis: u64) -> PathEcho {
    PathEcho {
        path: 0,
        number,
        transit: millis * MILLI,
        arrived,
    }
}

/// Probes for `span` ms with answers after `delay` ms, from time `from` on.
fn answered(watch: &mut PathWatch, from: u64, span: u64, delay: u64) {
    let all = |_| true;
    play(watch, (from, span, delay), (all, all));
}

/// The same, where only some numbers arrive and only some answers come back.
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
                watch.on_echo(at(now), echo(number, so_far, delay));
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
    let (thousandths, sent) = watch.lost(at(3_040));
    assert!((10..=20).contains(&thousandths), "{thousandths} of {sent}");
}

#[test]
fn loss_is_that_of_the_way_there() {
    let mut watch = PathWatch::new(at(0));
    play(
        &mut watch,
        (0, 8_000, 50),
        (|_| true, |number| number % 3 == 0),
    );
    let (thousandths, sent) = watch.lost(at(8_000));
    assert!(sent >= 95);
    assert_eq!(thousandths, 0, "two of three answers were lost");
    assert_eq!(watch.state(at(8_000)), PathState::Good);
    let mut watch = PathWatch::new(at(0));
    play(
        &mut watch,
        (0, 8_000, 50),
        (|number| number % 5 != 0, |_| true),
    );
    let (thousandths, _) = watch.lost(at(8_000));
    assert!((190..=210).contains(&thousandths), "{thousandths}");
}

#[test]
fn a_path_that_falls_silent_loses_all() {
    let mut watch = PathWatch::new(at(0));
    play(&mut watch, (0, 6_000, 50), (|_| false, |_| true));
    assert_eq!(watch.lost(at(6_000)).0, 1_000, "it never carried");
    let mut watch = PathWatch::new(at(0));
    answered(&mut watch, 0, 4_000, 50);
    play(&mut watch, (4_000, 2_000, 50), (|_| false, |_| true));
    let (thousandths, _) = watch.lost(at(6_000));
    assert!((450..=550).contains(&thousandths), "{thousandths}");
}

#[test]
fn an_end_that_miscounts_costs_itself_no_more_than_its_path() {
    for counts in [[9, 3], [0, u32::MAX], [5, 5]] {
        let mut watch = PathWatch::new(at(0));
        for (time, arrived) in [0, 1_000].into_iter().zip(counts) {
            let number = watch.poll_probe(at(time)).unwrap();
            watch.on_echo(at(time + 1), echo(number, arrived, 1));
        }
        assert!(watch.lost(at(2_000)).0 <= 1_000, "{counts:?}");
    }
}

#[test]
fn a_path_that_stands_by_is_probed_less() {
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
            watch.on_echo(at(now + there + back), echo);
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

#[test]
fn answers_that_nobody_asked_for_count_for_nothing() {
    let mut watch = PathWatch::new(at(0));
    for number in [0, 1, 7, u32::MAX] {
        watch.on_echo(at(1), echo(number, 1, 0));
    }
    assert!(!watch.is_proved());
    let number = watch.poll_probe(at(2)).unwrap();
    for _ in 0..9 {
        watch.on_echo(at(3), echo(number, 1, 0));
    }
    assert_eq!(watch.answers, 1);
}
