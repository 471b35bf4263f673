//! Tasks of a hub that are no messages: the room of its store, its time of running, and access.

use core::time::Duration;

use wire::Instant;

use super::access::Access;
use super::room::Room;

/// State of a hub's upkeep.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    pub(super) room: Room,
    pub(super) run: RunTime,
    pub(super) access: Access,
    /// Events of players that were taken over that are queued.
    pub(super) takes_queued: usize,
}

/// When the time of running is recorded, and reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTime {
    recorded: Option<Instant>,
    reported: Option<Instant>,
}

const RECORD: Duration = Duration::from_secs(60);

const REPORT: Duration = Duration::from_secs(600);

impl RunTime {
    /// Returns the time to record, if that is due, and whether to report.
    pub(super) fn next(&mut self, now: Instant, ran: Option<Duration>) -> (Option<Duration>, bool) {
        let Some(ran) = ran else {
            *self = Self::default();
            return (None, false);
        };
        let is_due = |last: Option<Instant>, pause| last.is_none_or(|last| last + pause <= now);
        let report = is_due(self.reported, REPORT);
        if report {
            self.reported = Some(now);
        }
        let record = is_due(self.recorded, RECORD);
        if record {
            self.recorded = Some(now);
        }
        (record.then_some(ran), report)
    }
}
