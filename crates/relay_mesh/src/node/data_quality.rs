//! Evaluates how paths treat data.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::flow_key::FlowId;
use crate::link::LinkId;
use crate::path_quality::DataVerdict;

impl<P: Provider> Node<P> {
    /// Backs off the relays of paths whose data fares worse than their probes; the choice then
    /// leaves such a path.
    pub(super) fn judge_data(&mut self, now: Instant, link: LinkId) {
        if !self.config.choice.judges_data {
            return;
        }
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let mut failed: u64 = 0;
        for path in &mut path_set.paths {
            let verdict = path.quality.verdict();
            if verdict == DataVerdict::Suspect && now >= path_set.suspect_until {
                (path_set.suspect_until, path_set.decide_at) = (now + SUSPECT, now);
            }
            if !verdict.is_failing() {
                continue;
            }
            failed = failed.saturating_add(1);
            path.failed_at = Some(now);
            path.quality.reset();
            path_set.backoff.add(now, &path.path);
            path_set.decide_at = now;
        }
        self.stats.paths_failed_data = self.stats.paths_failed_data.saturating_add(failed);
    }

    /// Handles a decrypted data packet of the far end.
    pub(super) fn on_data_arrived(
        &mut self,
        now: Instant,
        (far, path): (LinkId, u8),
        packet: (FlowId, u64),
        len: usize,
    ) {
        if let Some(path_set) = self.path_sets.get_mut(&far) {
            path_set.arrivals.data(path).on_data(now, packet, len);
            if self.config.choice.judges_data {
                path_set.note_data_len(len);
            }
        }
    }
}

impl<A> super::path_set::PathSet<A> {
    /// Notes the length of a payload, which determines that of padding; older lengths are replaced.
    pub(super) fn note_data_len(&mut self, len: usize) {
        self.data_len = len.max(self.data_len.saturating_sub(1));
    }
}

/// How long a second path is kept ready after one path's data was suspect.
const SUSPECT: Duration = Duration::from_secs(10);
