//! Backoff of relays whose paths carried data worse than probes.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use crate::choice::ChoiceConfig;
use crate::routes::Path;

/// Backs off relays of one path set, longer each time.
///
/// The remote end's reports count for its own set only. All relays of a path are backed off, since
/// the faulty one is unknown; a good relay is soon used again with others.
#[derive(Debug)]
pub(super) struct RelayBackoff {
    /// Whether relays are backed off at all.
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
    /// Starts without backoffs. If data is not judged, none is ever added.
    pub(super) const fn new(config: &ChoiceConfig) -> Self {
        Self {
            is_on: config.judges_data,
            relays: BTreeMap::new(),
        }
    }

    /// Backs off the relays of a failed path (or its direct path), if they are not yet.
    pub(super) fn add(&mut self, now: Instant, path: &Path) {
        if !self.is_on {
            return;
        }
        for node in nodes(path) {
            self.add_node(now, *node);
        }
    }

    fn add_node(&mut self, now: Instant, node: NodeId) {
        let before = self.relays.get(&node).copied();
        let span = match before {
            Some(before) if now < before.until => return,
            Some(before) if now < before.forgotten_at() => before.span.saturating_mul(2),
            Some(_) | None => FIRST,
        };
        let span = span.min(LONGEST);
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
    pub(super) fn holds(&self, now: Instant, path: &Path) -> bool {
        nodes(path).any(|node| self.relays.get(node).is_some_and(|held| now < held.until))
    }

    /// The backed-off relays in ascending order, with the remote node for the direct path; at most
    /// [`RELAYS_MAX`].
    pub(super) fn held(&self, now: Instant) -> Vec<NodeId> {
        let held = self.relays.iter().filter(|(_, held)| now < held.until);
        held.map(|(node, _)| *node).collect()
    }

    /// Whether a relay of the path, or its direct path, was backed off recently.
    pub(super) fn remembers(&self, now: Instant, path: &Path) -> bool {
        let mut held = nodes(path).filter_map(|node| self.relays.get(node));
        held.any(|held| now < held.forgotten_at())
    }
}

impl Backoff {
    fn forgotten_at(&self) -> Instant {
        self.until + self.span.saturating_mul(FORGOTTEN_SPANS).max(FORGOTTEN_MIN)
    }
}

/// The relays, or the remote node if there are none.
fn nodes(path: &Path) -> impl Iterator<Item = &NodeId> {
    let direct = path.relays.is_empty().then_some(&path.destination);
    path.relays.iter().chain(direct)
}

/// The first backoff.
const FIRST: Duration = Duration::from_secs(30);
/// Maximum backoff.
const LONGEST: Duration = Duration::from_secs(3_600);
/// A relay's failures are forgotten after this many times its last backoff, and at least 10 min.
const FORGOTTEN_SPANS: u32 = 10;
const FORGOTTEN_MIN: Duration = Duration::from_secs(600);
/// Relays remembered; they take less than 16 KiB.
const RELAYS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(relays: &[u8]) -> Path {
        Path {
            relays: relays.iter().map(|relay| NodeId([*relay; 32])).collect(),
            destination: NodeId([99; 32]),
        }
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
            !backoff.holds(now + FIRST, &path(&[1])),
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
