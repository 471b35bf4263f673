//! Backoff of paths that failed recently.

use core::time::Duration;

use wire::Instant;

use crate::routes::Path;

/// Backoff of one set's failed paths, which are removed by then.
///
/// It is kept for each remote end, since the remote end and not a relay may have failed.
#[derive(Debug, Default)]
pub(super) struct PathBackoff {
    /// At most [`ENTRIES_MAX`].
    list: Vec<BackoffEntry>,
}

#[derive(Debug)]
struct BackoffEntry {
    path: Path,
    until: Instant,
    /// Failures in a row.
    failures: u32,
}

impl PathBackoff {
    /// Backs off a path that failed: for `first`, doubled at each further failure up to
    /// [`LONGEST`].
    pub(super) fn add(&mut self, now: Instant, path: Path, first: Duration) {
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
        let span = first
            .saturating_mul(1 << failures.min(DOUBLINGS))
            .min(LONGEST);
        self.list.push(BackoffEntry {
            path,
            until: now + span,
            failures: failures.saturating_add(1),
        });
    }

    /// Whether a path is not to be tried yet.
    pub(super) fn is_blocked(&self, now: Instant, path: &Path) -> bool {
        self.list
            .iter()
            .any(|entry| now < entry.until && entry.path == *path)
    }

    /// Whether a path failed recently, so that another is the better standby.
    pub(super) fn failed_recently(&self, now: Instant, path: &Path) -> bool {
        let mut entries = self.list.iter();
        entries.any(|entry| now < entry.until + FORGOTTEN_AFTER && entry.path == *path)
    }
}

/// First backoff of a path that could not be set up, or died.
pub(super) const FAILED: Duration = Duration::from_secs(1);
/// First backoff of a degraded path that link state does not explain. If it does, the path's relays
/// are penalised for as long.
pub(super) const DEGRADED: Duration = Duration::from_secs(15);
/// Maximum backoff.
const LONGEST: Duration = Duration::from_secs(64);
/// Maximum number of doublings.
const DOUBLINGS: u32 = 6;
/// Time without a failure after which earlier ones no longer count.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Paths remembered: more than a set tries within one backoff.
const ENTRIES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::NodeId;

    fn path(relay: u8) -> Path {
        Path {
            relays: vec![NodeId([relay; 32])],
            destination: NodeId([99; 32]),
        }
    }

    #[test]
    fn each_failure_bars_twice_as_long_up_to_64_s_until_it_is_forgotten() {
        let mut path_backoff = PathBackoff::default();
        let mut now = Instant::ZERO;
        for secs in [1, 2, 4, 8, 16, 32, 64, 64] {
            path_backoff.add(now, path(1), FAILED);
            let end = now + Duration::from_secs(secs);
            let last = end.saturating_sub(Duration::from_nanos(1));
            assert!(path_backoff.is_blocked(last, &path(1)), "{secs}");
            assert!(!path_backoff.is_blocked(end, &path(1)), "{secs}");
            assert!(path_backoff.failed_recently(end, &path(1)), "{secs}");
            assert!(!path_backoff.is_blocked(now, &path(2)));
            now = end;
        }
        now += FORGOTTEN_AFTER;
        assert!(!path_backoff.failed_recently(now, &path(1)));
        path_backoff.add(now, path(1), FAILED);
        assert!(
            !path_backoff.is_blocked(now + FAILED, &path(1)),
            "as the first time"
        );
    }

    #[test]
    fn what_ends_first_makes_room() {
        let mut path_backoff = PathBackoff::default();
        for relay in 0..100 {
            path_backoff.add(Instant::from_millis(relay.into()), path(relay), FAILED);
        }
        let now = Instant::from_millis(99);
        assert_eq!(path_backoff.list.len(), ENTRIES_MAX);
        assert!(path_backoff.is_blocked(now, &path(99)) && !path_backoff.is_blocked(now, &path(0)));
    }
}
