//! Detects paths that are slower than their link state: a node on them reports too low a cost, or
//! delays traffic.

use core::time::Duration;

use wire::Instant;

use crate::cost::Cost;
use crate::routes::Path;

/// Mismatches between link state and the probes of one set's paths.
///
/// A changed link is published within seconds, and its median follows within 15 s. So link state is
/// wrong about a path that was slower for [`PROOF`] without a break.
#[derive(Debug, Default)]
pub(super) struct LinkStateAudit {
    list: Vec<CostMismatch>,
}

#[derive(Debug)]
struct CostMismatch {
    path: Path,
    since: Option<Instant>,
    /// Since when it matches link state.
    matching_since: Option<Instant>,
    excess: Cost,
    /// Until when `excess` is added to its cost.
    until: Instant,
    times: u32,
    seen: Instant,
}

impl LinkStateAudit {
    /// Compares a path's advertised cost, without the price of loss, with its measured one. Returns
    /// whether this proves a new mismatch.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        path: &Path,
        advertised: Cost,
        measured: Cost,
    ) -> bool {
        if !advertised.is_routable() {
            return false;
        }
        let margin = MARGIN.max(advertised.percent(MARGIN_PERCENT));
        let is_longer = measured > advertised.plus(margin);
        let index = self.list.iter().position(|entry| entry.path == *path);
        let Some(index) = index.or_else(|| is_longer.then(|| self.insert(now, path))) else {
            return false;
        };
        let Some(entry) = self.list.get_mut(index) else {
            return false;
        };
        if entry.times == 0 && now.saturating_since(entry.seen) > STALE_AFTER {
            entry.since = None;
        }
        entry.seen = now;
        if !is_longer {
            // A short match proves nothing: a node may report the true cost for a moment.
            let matching_since = *entry.matching_since.get_or_insert(now);
            if now.saturating_since(matching_since) >= RECOVERED_AFTER {
                (entry.since, entry.until) = (None, entry.until.min(now));
            }
            if now.saturating_since(entry.until) >= FORGOTTEN_AFTER {
                entry.times = 0;
            }
            return false;
        }
        entry.matching_since = None;
        let since = *entry.since.get_or_insert(now);
        entry.excess = measured.less(advertised);
        let is_new = now >= entry.until;
        if now.saturating_since(since) < PROOF || !is_new {
            return false;
        }
        let span = FIRST.saturating_mul(1 << entry.times.min(DOUBLINGS));
        entry.until = now + span;
        entry.times = entry.times.saturating_add(1);
        true
    }

    pub(super) fn excess(&self, now: Instant, path: &Path) -> Cost {
        let mut entry = self.list.iter().filter(|entry| now < entry.until);
        entry
            .find(|entry| entry.path == *path)
            .map_or(Cost::ZERO, |entry| entry.excess)
    }

    fn insert(&mut self, now: Instant, path: &Path) -> usize {
        self.list
            .retain(|entry| now.saturating_since(entry.seen.max(entry.until)) < FORGOTTEN_AFTER);
        if self.list.len() >= PATHS_MAX {
            let by_worth = |(_, entry): &(usize, &CostMismatch)| (now < entry.until, entry.seen);
            let oldest = (0..).zip(&self.list).min_by_key(by_worth);
            if let Some((index, _)) = oldest {
                self.list.swap_remove(index);
            }
        }
        self.list.push(CostMismatch {
            path: path.clone(),
            since: None,
            matching_since: None,
            excess: Cost::ZERO,
            until: now,
            times: 0,
            seen: now,
        });
        self.list.len().saturating_sub(1)
    }
}

/// Tolerated excess, also in percent. True reports on links with 3 ms of jitter and 1 % of loss
/// stay below it (`sim_pgx6_a_truthful_node_is_not_refuted`); a lie below it costs no more.
const MARGIN: Cost = Cost::from_millis(15);
const MARGIN_PERCENT: u16 = 25;
/// How long a path must be slower: twice the 15 s after which half of a link's 30 s measurement
/// window, and so its median, is newer than the change.
const PROOF: Duration = Duration::from_secs(30);
/// How long a path must match before the mismatch ends: longer than a moment of truth between lies.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);
/// Gap after which earlier observations no longer count: 25 observations.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// First duration of the excess, doubled each time. A node that continues is used for half a minute
/// in ten at first.
const FIRST: Duration = Duration::from_secs(600);
const DOUBLINGS: u32 = 4;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Eight times the paths of a set; less than 8 KiB.
const PATHS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use wire::NodeId;

    use super::*;

    const NEVER: [u64; 0] = [];

    fn path(relay: u8) -> Path {
        Path {
            relays: vec![NodeId([relay; 32])],
            destination: NodeId([99; 32]),
        }
    }

    /// Looks each second, from second to second; returns when the path was refuted.
    fn looks(audit: &mut LinkStateAudit, span: core::ops::Range<u64>, millis: u16) -> Vec<u64> {
        span.filter(|second| {
            let now = Instant::from_millis(second * 1_000);
            let measured = Cost::from_millis(millis);
            audit.observe(now, &path(1), Cost::from_millis(60), measured)
        })
        .collect()
    }

    #[test]
    fn pgx6_a_path_is_refuted_after_half_a_minute_without_a_break() {
        let mut audit = LinkStateAudit::default();
        assert_eq!(looks(&mut audit, 0..100, 75), NEVER, "within the margin");
        assert_eq!(looks(&mut audit, 100..118, 160), NEVER);
        assert_eq!(
            looks(&mut audit, 118..131, 60),
            NEVER,
            "link state caught up"
        );
        assert_eq!(looks(&mut audit, 131..200, 160), [161]);
        let at = |second: u64| Instant::from_millis(second * 1_000);
        assert_eq!(audit.excess(at(200), &path(1)), Cost::from_millis(100));
        assert_eq!(audit.excess(at(200), &path(2)), Cost::ZERO);
        assert_eq!(audit.excess(at(761), &path(1)), Cost::ZERO);
        // If it is used and refuted again, the excess lasts twice as long.
        assert_eq!(
            looks(&mut audit, 800..840, 160),
            [800],
            "since the first time"
        );
        assert_eq!(audit.excess(at(1_999), &path(1)), Cost::from_millis(100));
        assert_eq!(looks(&mut audit, 2_000..2_011, 62), NEVER, "it has mended");
        assert_eq!(audit.excess(at(2_010), &path(1)), Cost::ZERO);
    }

    #[test]
    fn pgx6_a_moment_of_truth_each_25_s_saves_no_liar() {
        let mut audit = LinkStateAudit::default();
        let mut found = Vec::new();
        for round in 0..4 {
            found.extend(looks(&mut audit, round * 25..round * 25 + 24, 160));
            found.extend(looks(&mut audit, round * 25 + 24..round * 25 + 25, 60));
        }
        assert_eq!(found, [30]);
        // Observations before a long gap do not count.
        let mut audit = LinkStateAudit::default();
        assert_eq!(looks(&mut audit, 0..3, 160), NEVER);
        assert_eq!(looks(&mut audit, 1_200..1_203, 160), NEVER);
    }

    #[test]
    fn pgx6_so_many_paths_are_remembered() {
        let mut audit = LinkStateAudit::default();
        for relay in 0..200 {
            let now = Instant::from_millis(relay.into());
            audit.observe(now, &path(relay), Cost::ZERO, Cost::from_millis(100));
        }
        assert_eq!(audit.list.len(), PATHS_MAX);
    }
}
