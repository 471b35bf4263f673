//! Per-second series: the differences between samples.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use servicer::Counters;
use udp_proto::{EndpointStats, SessionStats};
use wire::Instant;

use super::{Load, Report, Second, SessionReport, SessionSecond, Traffic};

const SECONDS_MAX: usize = 60;
/// Most sessions with a series; each takes 5 KiB.
const SERIES_MAX: usize = 256;
const SECOND: Duration = Duration::from_secs(1);

/// Keeps the series of a server or client; `K` identifies its sessions.
///
/// It samples once per second if the application polls. A sample costs about 100 ns per open
/// session.
#[derive(Debug)]
pub(crate) struct Recorder<K> {
    opened_at: Instant,
    sampled_at: Instant,
    last: Traffic,
    last_load: Load,
    /// Packets acknowledged and lost over all sessions, including closed ones, up to the last
    /// sample.
    total: Traffic,
    /// What the facade itself measures: ticks and the game's time.
    own: Load,
    series: VecDeque<Second>,
    sessions: BTreeMap<K, Track>,
    series_count: usize,
}

/// Inputs of a sample: the counters of an endpoint and its driver.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) now: Instant,
    pub(crate) endpoint: &'a EndpointStats,
    pub(crate) driver: Counters,
}

#[derive(Debug)]
struct Track {
    opened_at: Instant,
    last: Traffic,
    /// `None` if too many sessions had a series when this one opened.
    series: Option<VecDeque<SessionSecond>>,
}

impl<K: Ord + Copy + ToString> Recorder<K> {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            opened_at: now,
            sampled_at: now,
            last: Traffic::default(),
            last_load: Load::default(),
            total: Traffic::default(),
            own: Load::default(),
            series: VecDeque::new(),
            sessions: BTreeMap::new(),
            series_count: 0,
        }
    }

    /// Adds time spent in the game between two calls.
    pub(crate) fn on_game(&mut self, span: Duration) {
        self.own.game_us = self.own.game_us.saturating_add(micros(span));
    }

    /// Counts a tick, and the skipped ones before it.
    pub(crate) const fn on_tick(&mut self, missed: u64) {
        self.own.ticks = self.own.ticks.saturating_add(1);
        self.own.ticks_missed = self.own.ticks_missed.saturating_add(missed);
    }

    pub(crate) fn on_open(&mut self, now: Instant, session: K) {
        let has_series = self.series_count < SERIES_MAX;
        if has_series {
            self.series_count += 1;
        }
        let track = Track {
            opened_at: now,
            last: Traffic::default(),
            series: has_series.then(VecDeque::new),
        };
        self.sessions.insert(session, track);
    }

    /// Removes a session after adding its last changes.
    pub(crate) fn on_close(&mut self, session: K, stats: Option<&SessionStats>) {
        let Some(track) = self.sessions.remove(&session) else {
            return;
        };
        if track.series.is_some() {
            self.series_count = self.series_count.saturating_sub(1);
        }
        if let Some(stats) = stats {
            let change = traffic_of(stats).since(&track.last);
            self.total.add_outcomes(&change);
        }
    }

    pub(crate) fn has(&self, session: K) -> bool {
        self.sessions.contains_key(&session)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = K> {
        self.sessions.keys().copied()
    }

    pub(crate) fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.saturating_since(self.sampled_at) >= SECOND
    }

    /// Takes a sample, which ends a second.
    pub(crate) fn sample(
        &mut self,
        sample: &Sample<'_>,
        stats: impl Fn(K) -> Option<SessionStats>,
    ) {
        let since = self.sampled_at;
        self.sampled_at = sample.now;
        let mut paths = Paths::default();
        for (session, track) in &mut self.sessions {
            let Some(stats) = stats(*session) else {
                continue;
            };
            let now = traffic_of(&stats);
            let change = now.since(&track.last);
            track.last = now;
            self.total.add_outcomes(&change);
            paths.add(&now);
            if let Some(series) = &mut track.series {
                let second = SessionSecond {
                    end_ms: millis(self.opened_at, sample.now),
                    span_ms: millis(since.max(track.opened_at), sample.now),
                    traffic: change,
                };
                push(series, second);
            }
        }
        let total = self.total_at(sample, &paths);
        let load = self.load_at(sample);
        let second = Second {
            end_ms: millis(self.opened_at, sample.now),
            span_ms: millis(since, sample.now),
            sessions: count(self.sessions.len()),
            traffic: total.since(&self.last),
            load: load.since(&self.last_load),
        };
        push(&mut self.series, second);
        self.last = total;
        self.last_load = load;
    }

    pub(crate) fn report(
        &self,
        sample: &Sample<'_>,
        stats: impl Fn(K) -> Option<SessionStats>,
    ) -> Report {
        let mut total = self.total;
        let mut paths = Paths::default();
        let mut session = Vec::new();
        for (id, track) in &self.sessions {
            let Some(stats) = stats(*id) else {
                continue;
            };
            let now = traffic_of(&stats);
            total.add_outcomes(&now.since(&track.last));
            paths.add(&now);
            if let Some(series) = &track.series {
                session.push(SessionReport {
                    session: id.to_string(),
                    stats,
                    queueing_us: now.queueing_us,
                    series: series.iter().copied().collect(),
                });
            }
        }
        Report {
            schema: Report::SCHEMA,
            uptime_ms: millis(self.opened_at, sample.now),
            sessions: count(self.sessions.len()),
            endpoint: *sample.endpoint,
            driver: sample.driver,
            traffic: Self::combine(&total, sample, &paths),
            load: self.load_at(sample),
            series: self.series.iter().copied().collect(),
            session,
        }
    }

    fn total_at(&self, sample: &Sample<'_>, paths: &Paths) -> Traffic {
        Self::combine(&self.total, sample, paths)
    }

    /// Combines the endpoint's counters with the sums over its sessions.
    fn combine(total: &Traffic, sample: &Sample<'_>, paths: &Paths) -> Traffic {
        Traffic {
            packets_received: sample.endpoint.datagrams_received(),
            bytes_received: sample.endpoint.bytes_received,
            packets_sent: sample.endpoint.datagrams_sent,
            bytes_sent: sample.endpoint.bytes_sent,
            packets_acknowledged: total.packets_acknowledged,
            packets_lost: total.packets_lost,
            rtt_us: paths.mean(paths.rtt_us),
            queueing_us: paths.mean(paths.queueing_us),
        }
    }

    const fn load_at(&self, sample: &Sample<'_>) -> Load {
        Load {
            receive_us: sample.driver.receive_nanos / 1_000,
            send_us: sample.driver.send_nanos / 1_000,
            ..self.own
        }
    }
}

#[derive(Debug, Default)]
struct Paths {
    count: u64,
    rtt_us: u64,
    queueing_us: u64,
}

impl Paths {
    const fn add(&mut self, traffic: &Traffic) {
        if traffic.rtt_us > 0 {
            self.count += 1;
            self.rtt_us = self.rtt_us.saturating_add(traffic.rtt_us);
            self.queueing_us = self.queueing_us.saturating_add(traffic.queueing_us);
        }
    }

    fn mean(&self, sum: u64) -> u64 {
        sum.checked_div(self.count).unwrap_or(0)
    }
}

impl Traffic {
    /// Counters since `earlier`, with the current path state.
    const fn since(&self, earlier: &Self) -> Self {
        Self {
            packets_received: self
                .packets_received
                .saturating_sub(earlier.packets_received),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
            packets_sent: self.packets_sent.saturating_sub(earlier.packets_sent),
            bytes_sent: self.bytes_sent.saturating_sub(earlier.bytes_sent),
            packets_acknowledged: self
                .packets_acknowledged
                .saturating_sub(earlier.packets_acknowledged),
            packets_lost: self.packets_lost.saturating_sub(earlier.packets_lost),
            rtt_us: self.rtt_us,
            queueing_us: self.queueing_us,
        }
    }

    const fn add_outcomes(&mut self, change: &Self) {
        self.packets_acknowledged = self
            .packets_acknowledged
            .saturating_add(change.packets_acknowledged);
        self.packets_lost = self.packets_lost.saturating_add(change.packets_lost);
    }
}

impl Load {
    const fn since(&self, earlier: &Self) -> Self {
        Self {
            ticks: self.ticks.saturating_sub(earlier.ticks),
            ticks_missed: self.ticks_missed.saturating_sub(earlier.ticks_missed),
            receive_us: self.receive_us.saturating_sub(earlier.receive_us),
            game_us: self.game_us.saturating_sub(earlier.game_us),
            send_us: self.send_us.saturating_sub(earlier.send_us),
        }
    }
}

fn traffic_of(stats: &SessionStats) -> Traffic {
    Traffic {
        packets_received: stats.packets_received,
        bytes_received: stats.bytes_received,
        packets_sent: stats.packets_sent,
        bytes_sent: stats.bytes_sent,
        packets_acknowledged: stats.packets_acknowledged,
        packets_lost: stats.packets_lost,
        rtt_us: micros(stats.rtt),
        queueing_us: micros(stats.rtt.saturating_sub(stats.rtt_min)),
    }
}

/// Appends an entry to a series; drops the oldest if it is full.
fn push<T>(series: &mut VecDeque<T>, second: T) {
    if series.len() >= SECONDS_MAX {
        series.pop_front();
    }
    series.push_back(second);
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

const fn millis(from: Instant, to: Instant) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos()) / 1_000_000
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
