//! Paths that take longer than their links are said to: somebody on them says less than is true, or
//! holds up what it carries.

use core::time::Duration;

use wire::Instant;

use crate::cost::Cost;
use crate::routes::Path;

/// What one course holds against paths whose own probes refute link state.
///
/// A link that changed is told within seconds, and its median within 15 s; so what link state says is
/// refuted once a path took longer for half a minute without a break.
#[derive(Debug, Default)]
pub(super) struct LinkStateAudit {
    /// At most [`PATHS_MAX`].
    list: Vec<CostMismatch>,
}

#[derive(Debug)]
struct CostMismatch {
    path: Path,
    /// Since when it takes longer; `None` where it did not for a while.
    since: Option<Instant>,
    /// Since when it does not.
    matching_since: Option<Instant>,
    /// By how much.
    excess: Cost,
    /// Until when it costs that much more.
    until: Instant,
    /// How often it was refuted.
    times: u32,
    /// When something was last learnt of it.
    seen: Instant,
}

impl LinkStateAudit {
    /// Takes what a path costs by link state, the price of loss left out, and what its probes take;
    /// returns whether that refutes it now.
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
        let place = self.list.iter().position(|entry| entry.path == *path);
        let Some(place) = place.or_else(|| is_longer.then(|| self.insert(now, path))) else {
            return false;
        };
        let Some(entry) = self.list.get_mut(place) else {
            return false;
        };
        if entry.times == 0 && now.saturating_since(entry.seen) > STALE_AFTER {
            entry.since = None;
        }
        entry.seen = now;
        if !is_longer {
            // What it is said to cost is what it costs. For a moment, whoever lies may say so, too.
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

    /// What a path costs more than link state says.
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
            if let Some((place, _)) = oldest {
                self.list.swap_remove(place);
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

/// How much longer a path may take than it is said to; also in percent. Chosen so that who tells the truth is not
/// refuted on lines that change, with 3 ms of jitter and 1 % of loss
/// (`sim_pgx6_who_tells_the_truth_is_not_refuted`), and that a lie which is not found out costs no more than that.
const MARGIN: Cost = Cost::from_millis(15);
const MARGIN_PERCENT: u16 = 25;
/// How long it must take longer: twice the 15 s after which half of the 30 s that a link is measured by, and so
/// their median, is of the time since it changed.
const PROOF: Duration = Duration::from_secs(30);
/// How long it must not, for that to be over: chosen longer than a moment of truth between two lies, and shorter
/// than [`PROOF`].
const RECOVERED_AFTER: Duration = Duration::from_secs(10);
/// Time without a look after which what was seen before is no part of a proof: chosen as that of 25 looks, which
/// come each 200 ms while the path's probes are answered.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// How long it costs more; twice as long each time. Chosen so that who goes on as before has half a minute and
/// then none for ten: 5 % of the time, and then less.
const FIRST: Duration = Duration::from_secs(600);
/// Times that it is doubled: chosen so that it ends at 16 times [`FIRST`], two hours and two thirds.
const DOUBLINGS: u32 = 4;
/// Time after which nothing is held against it any more: chosen six times [`FIRST`].
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Paths remembered: chosen eight times as many as a course has at a time. With three relays each, they take less
/// than 8 KiB.
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
        // Taken up again and refuted again, it is out for twice as long.
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
        // And what nobody looked at for long is no proof.
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
