//! Samples at times chosen by the test, with numbers as sessions.

use super::*;

/// The counters of a test's endpoint.
#[derive(Default)]
struct EndpointCounters {
    endpoint: EndpointStats,
    driver: Counters,
    sessions: BTreeMap<u32, SessionStats>,
}

impl EndpointCounters {
    fn session(&mut self, id: u32) -> &mut SessionStats {
        self.sessions.entry(id).or_default()
    }

    fn look(&self, recorder: &mut Recorder<u32>, millis: u64) {
        recorder.sample(&self.sample(millis), |id| self.sessions.get(&id).copied());
    }

    fn report(&self, recorder: &Recorder<u32>, millis: u64) -> Report {
        recorder.report(&self.sample(millis), |id| self.sessions.get(&id).copied())
    }

    fn sample(&self, millis: u64) -> Sample<'_> {
        Sample {
            now: Instant::from_millis(millis),
            endpoint: &self.endpoint,
            driver: self.driver,
        }
    }
}

#[test]
fn u18_an_entry_contains_the_changes_of_its_second() {
    let mut recorder = Recorder::new(Instant::ZERO);
    let mut counters = EndpointCounters::default();
    for second in 1..=3 {
        counters.endpoint.packets += 10 * second;
        counters.endpoint.bytes_sent += 1_000;
        counters.driver.receive_nanos += 2_000_000;
        counters.driver.send_nanos += 3_000_999;
        recorder.on_game(Duration::from_millis(second));
        recorder.on_tick(second - 1);
        counters.look(&mut recorder, second * 1_000);
    }
    let series = counters.report(&recorder, 3_500).series;
    let received: Vec<_> = series
        .iter()
        .map(|second| second.traffic.packets_received)
        .collect();
    assert_eq!(received, [10, 20, 30]);
    assert_eq!(series[2].end_ms, 3_000);
    assert_eq!(series[2].span_ms, 1_000);
    assert_eq!(series[2].traffic.bytes_sent, 1_000);
    let load = series[1].load;
    assert_eq!((load.ticks, load.ticks_missed), (1, 1));
    assert_eq!((load.receive_us, load.game_us), (2_000, 2_000));
    // At 3,000.999 us per second, whole microseconds are reported, and no remainder is lost over
    // time.
    assert_eq!(load.send_us, 3_001);
}

#[test]
fn u18_a_series_holds_the_last_60_seconds_however_long_it_runs() {
    let mut recorder = Recorder::new(Instant::ZERO);
    let mut counters = EndpointCounters::default();
    recorder.on_open(Instant::ZERO, 7);
    for second in 1..=200 {
        counters.session(7).packets_sent += second;
        counters.look(&mut recorder, second * 1_000);
    }
    let report = counters.report(&recorder, 200_000);
    assert_eq!(report.series.len(), 60);
    assert_eq!(report.series[0].end_ms, 141_000);
    assert_eq!(report.session[0].series.len(), 60);
    assert_eq!(report.session[0].series[59].traffic.packets_sent, 200);
}

#[test]
fn u18_the_round_trip_excludes_queueing() {
    let mut recorder = Recorder::new(Instant::ZERO);
    let mut counters = EndpointCounters::default();
    for (id, rtt, min) in [(1, 50, 40), (2, 130, 100), (3, 0, 0)] {
        recorder.on_open(Instant::ZERO, id);
        counters.session(id).rtt = Duration::from_millis(rtt);
        counters.session(id).rtt_min = Duration::from_millis(min);
    }
    let report = counters.report(&recorder, 10);
    assert_eq!(report.session[0].queueing_us, 10_000);
    assert_eq!(report.session[1].queueing_us, 30_000);
    // Means over the two sessions that have a sample.
    assert_eq!(report.traffic.rtt_us, 90_000);
    assert_eq!(report.traffic.queueing_us, 20_000);
}

#[test]
fn u18_losses_of_ended_sessions_stay_counted() {
    let mut recorder = Recorder::new(Instant::ZERO);
    let mut counters = EndpointCounters::default();
    for id in [1, 2] {
        recorder.on_open(Instant::ZERO, id);
        counters.session(id).packets_lost = 5;
        counters.session(id).packets_acknowledged = 100;
    }
    counters.look(&mut recorder, 1_000);
    counters.session(1).packets_lost = 8;
    let last = counters.sessions.remove(&1).unwrap();
    recorder.on_close(1, Some(&last));
    assert_eq!(counters.report(&recorder, 1_100).traffic.packets_lost, 13);
    counters.look(&mut recorder, 2_000);
    let report = counters.report(&recorder, 2_000);
    assert_eq!(report.sessions, 1);
    assert_eq!(report.traffic.packets_lost, 13);
    assert_eq!(report.traffic.packets_acknowledged, 200);
    let lost: Vec<_> = report
        .series
        .iter()
        .map(|second| second.traffic.packets_lost)
        .collect();
    assert_eq!(lost, [10, 3]);
}

#[test]
fn u18_256_sessions_have_a_series_and_a_slot_is_reused() {
    let mut recorder = Recorder::new(Instant::ZERO);
    let mut counters = EndpointCounters::default();
    for id in 0..1_000 {
        recorder.on_open(Instant::ZERO, id);
        counters.session(id).packets_lost = 1;
    }
    counters.look(&mut recorder, 1_000);
    let report = counters.report(&recorder, 1_000);
    assert_eq!(report.session.len(), 256);
    assert_eq!(report.sessions, 1_000);
    assert_eq!(report.traffic.packets_lost, 1_000);

    // One session without a series ends, and one with: one place is free.
    for id in [999, 0] {
        recorder.on_close(id, None);
    }
    for id in [1_001, 1_002] {
        recorder.on_open(Instant::from_millis(1_500), id);
        counters.session(id);
    }
    counters.look(&mut recorder, 2_000);
    let report = counters.report(&recorder, 2_000);
    assert_eq!(report.session.len(), 256);
    let newest = report.session.last().unwrap();
    assert_eq!(newest.session, "1001");
    // It opened in the middle of the second.
    assert_eq!(newest.series[0].span_ms, 500);
}
