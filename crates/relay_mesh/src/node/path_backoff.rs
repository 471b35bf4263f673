//! Backoff of paths that failed, and of the relays of paths that carried data worse than probes.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use crate::choice::ChoiceConfig;
use crate::routes::Path;

/// Backoffs of one path set.
#[derive(Debug)]
pub(super) struct Backoffs {
    paths: PathBackoff,
    relays: RelayBackoff,
}

impl Backoffs {
    pub(super) fn new(config: &ChoiceConfig) -> Self {
        Self {
            paths: PathBackoff::default(),
            relays: RelayBackoff::new(config),
        }
    }

    /// Backs off a path that could not be set up, or died.
    pub(super) fn on_failure(&mut self, now: Instant, path: Path) {
        self.paths.add(now, path, FAILED);
    }

    /// Backs off a path and its relays, which delay or drop data that link state does not explain.
    pub(super) fn on_degraded(&mut self, now: Instant, path: Path) {
        self.relays.add(now, &path);
        self.paths.add(now, path, DEGRADED);
    }

    /// Backs off the relays of a path that carries data worse than probes.
    pub(super) fn on_bad_data(&mut self, now: Instant, path: &Path) {
        self.relays.add(now, path);
    }

    /// Whether a path must not be set up.
    pub(super) fn is_blocked(&self, now: Instant, path: &Path) -> bool {
        self.paths.is_blocked(now, path)
    }

    pub(super) fn failed_recently(&self, now: Instant, path: &Path) -> bool {
        self.paths.failed_recently(now, path)
    }

    /// Whether a relay of the path, or its direct path, is backed off.
    pub(super) fn holds_relay_of(&self, now: Instant, path: &Path) -> bool {
        self.relays.holds(now, path)
    }

    /// Whether a relay of the path, or its direct path, was backed off recently.
    pub(super) fn remembers_relay_of(&self, now: Instant, path: &Path) -> bool {
        self.relays.remembers(now, path)
    }

    /// The backed-off relays in ascending order, with the remote node for the direct path.
    pub(super) fn held_relays(&self, now: Instant) -> Vec<NodeId> {
        self.relays.held(now)
    }
}

/// Backoff of the failed paths to one remote end, which may itself have failed.
#[derive(Debug, Default)]
struct PathBackoff {
    /// At most [`ENTRIES_MAX`].
    list: Vec<BackoffEntry>,
}

#[derive(Debug)]
struct BackoffEntry {
    path: Path,
    until: Instant,
    failures: u32,
}

impl PathBackoff {
    /// Backs off a path for `first`, doubled at each further failure up to 64 s.
    fn add(&mut self, now: Instant, path: Path, first: Duration) {
        self.list
            .retain(|entry| now < entry.until + FORGOTTEN_AFTER);
        let old = self.list.iter().position(|entry| entry.path == path);
        let failures = old.map_or(0, |place| self.list.swap_remove(place).failures);
        if self.list.len() >= ENTRIES_MAX {
            let first = (0..).zip(&self.list).min_by_key(|(_, entry)| entry.until);
            if let Some(first) = first.map(|(place, _)| place) {
                self.list.swap_remove(first);
            }
        }
        let span = first.saturating_mul(1 << failures.min(PATH_DOUBLINGS_MAX));
        self.list.push(BackoffEntry {
            path,
            until: now + span.min(PATH_BACKOFF_MAX),
            failures: failures.saturating_add(1),
        });
    }

    fn is_blocked(&self, now: Instant, path: &Path) -> bool {
        let mut entries = self.list.iter();
        entries.any(|entry| now < entry.until && entry.path == *path)
    }

    fn failed_recently(&self, now: Instant, path: &Path) -> bool {
        let mut entries = self.list.iter();
        entries.any(|entry| now < entry.until + FORGOTTEN_AFTER && entry.path == *path)
    }
}

/// Backs off the relays of one path set, if their path carried data worse than probes.
///
/// The remote end's reports count for its own set only. All relays of a path are backed off, since
/// the faulty one is unknown.
#[derive(Debug)]
struct RelayBackoff {
    /// Whether data is judged; otherwise no relay is backed off.
    is_on: bool,
    /// At most [`RELAYS_MAX`].
    relays: BTreeMap<NodeId, Backoff>,
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Instant,
    span: Duration,
}

impl RelayBackoff {
    const fn new(config: &ChoiceConfig) -> Self {
        Self {
            is_on: config.judges_data,
            relays: BTreeMap::new(),
        }
    }

    /// Backs off the relays of a failed path (or its direct path), if they are not yet.
    fn add(&mut self, now: Instant, path: &Path) {
        if !self.is_on {
            return;
        }
        for node in path.relays_or_destination() {
            self.add_node(now, *node);
        }
    }

    fn add_node(&mut self, now: Instant, node: NodeId) {
        let before = self.relays.get(&node).copied();
        let span = match before {
            Some(before) if now < before.until => return,
            Some(before) if now < before.forgotten_at() => before.span.saturating_mul(2),
            Some(_) | None => RELAY_BACKOFF_FIRST,
        };
        let span = span.min(RELAY_BACKOFF_MAX);
        if before.is_none() && self.relays.len() >= RELAYS_MAX {
            let first = self.relays.iter().min_by_key(|(_, held)| held.until);
            if let Some(first) = first.map(|(node, _)| *node) {
                self.relays.remove(&first);
            }
        }
        let until = now + span;
        self.relays.insert(node, Backoff { until, span });
    }

    /// Whether a relay of the path, or its direct path, is backed off.
    fn holds(&self, now: Instant, path: &Path) -> bool {
        path.relays_or_destination()
            .any(|node| self.relays.get(node).is_some_and(|held| now < held.until))
    }

    /// The backed-off relays in ascending order, with the remote node for the direct path.
    fn held(&self, now: Instant) -> Vec<NodeId> {
        let held = self.relays.iter().filter(|(_, held)| now < held.until);
        held.map(|(node, _)| *node).collect()
    }

    /// Whether a relay of the path, or its direct path, was backed off recently.
    fn remembers(&self, now: Instant, path: &Path) -> bool {
        let mut held = path
            .relays_or_destination()
            .filter_map(|node| self.relays.get(node));
        held.any(|held| now < held.forgotten_at())
    }
}

impl Backoff {
    fn forgotten_at(&self) -> Instant {
        self.until + self.span.saturating_mul(FORGOTTEN_SPANS).max(FORGOTTEN_MIN)
    }
}

/// First backoff of a path that could not be set up, or died.
const FAILED: Duration = Duration::from_secs(1);
/// First backoff of a degraded path that link state does not explain. If it does, the path's relays
/// are penalised for as long.
const DEGRADED: Duration = Duration::from_secs(15);
const PATH_BACKOFF_MAX: Duration = Duration::from_secs(64);
const PATH_DOUBLINGS_MAX: u32 = 6;
/// Time without a failure after which earlier ones no longer count.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Paths remembered: more than a set tries within one backoff.
const ENTRIES_MAX: usize = 32;
const RELAY_BACKOFF_FIRST: Duration = Duration::from_secs(30);
const RELAY_BACKOFF_MAX: Duration = Duration::from_secs(3_600);
/// A relay's failures are forgotten after this many times its last backoff, and at least 10 min.
const FORGOTTEN_SPANS: u32 = 10;
const FORGOTTEN_MIN: Duration = Duration::from_secs(600);
/// Relays remembered; they take less than 16 KiB.
const RELAYS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::NodeId;

    fn path(relays: &[u8]) -> Path {
        Path {
            relays: relays.iter().map(|relay| NodeId([*relay; 32])).collect(),
            destination: NodeId([99; 32]),
        }
    }

    #[test]
    fn each_failure_bars_twice_as_long_up_to_64_s_until_it_is_forgotten() {
        let mut path_backoff = PathBackoff::default();
        let mut now = Instant::ZERO;
        for secs in [1, 2, 4, 8, 16, 32, 64, 64] {
            path_backoff.add(now, path(&[1]), FAILED);
            let end = now + Duration::from_secs(secs);
            let last = end.saturating_sub(Duration::from_nanos(1));
            assert!(path_backoff.is_blocked(last, &path(&[1])), "{secs}");
            assert!(!path_backoff.is_blocked(end, &path(&[1])), "{secs}");
            assert!(path_backoff.failed_recently(end, &path(&[1])), "{secs}");
            assert!(!path_backoff.is_blocked(now, &path(&[2])));
            now = end;
        }
        now += FORGOTTEN_AFTER;
        assert!(!path_backoff.failed_recently(now, &path(&[1])));
        path_backoff.add(now, path(&[1]), FAILED);
        assert!(
            !path_backoff.is_blocked(now + FAILED, &path(&[1])),
            "as the first time"
        );
    }

    #[test]
    fn what_ends_first_makes_room() {
        let mut path_backoff = PathBackoff::default();
        for relay in 0..100 {
            path_backoff.add(Instant::from_millis(relay.into()), path(&[relay]), FAILED);
        }
        let now = Instant::from_millis(99);
        assert_eq!(path_backoff.list.len(), ENTRIES_MAX);
        assert!(
            path_backoff.is_blocked(now, &path(&[99]))
                && !path_backoff.is_blocked(now, &path(&[0]))
        );
    }

    #[test]
    fn each_failure_backs_a_relay_off_twice_as_long_in_any_path() {
        let mut backoff = RelayBackoff::new(&ChoiceConfig::default());
        let mut now = Instant::ZERO;
        for secs in [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            backoff.add(now, &path(&[1, 2]));
            let end = now + Duration::from_secs(secs);
            let last = end.saturating_sub(Duration::from_nanos(1));
            for other in [&[1][..], &[2], &[3, 1]] {
                assert!(backoff.holds(last, &path(other)), "{secs}");
                assert!(!backoff.holds(end, &path(other)), "{secs}");
            }
            assert!(!backoff.holds(now, &path(&[3])) && !backoff.holds(now, &path(&[])));
            // Failures during a backoff do not extend it.
            backoff.add(last, &path(&[1, 2]));
            now = end;
        }
        now += Duration::from_secs(36_001);
        backoff.add(now, &path(&[1]));
        assert!(
            !backoff.holds(now + RELAY_BACKOFF_FIRST, &path(&[1])),
            "as the first time"
        );
    }

    #[test]
    fn nothing_is_backed_off_where_data_is_not_judged() {
        let config = ChoiceConfig {
            judges_data: false,
            ..ChoiceConfig::default()
        };
        let mut backoff = RelayBackoff::new(&config);
        backoff.add(Instant::ZERO, &path(&[1]));
        assert!(!backoff.holds(Instant::ZERO, &path(&[1])));
    }

    #[test]
    fn the_direct_way_is_backed_off_by_itself() {
        let mut backoff = RelayBackoff::new(&ChoiceConfig::default());
        backoff.add(Instant::ZERO, &path(&[]));
        assert!(backoff.holds(Instant::ZERO, &path(&[])));
        assert!(!backoff.holds(Instant::ZERO, &path(&[1])));
    }

    #[test]
    fn memory_is_bounded() {
        let mut backoff = RelayBackoff::new(&ChoiceConfig::default());
        for relay in 0..=255 {
            backoff.add(Instant::from_millis(relay.into()), &path(&[relay]));
        }
        assert_eq!(backoff.relays.len(), RELAYS_MAX);
    }
}
