//! What becomes of records, and how often.

use serde::Serialize;

use super::ShortId;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new and genuine: send it on, as it came, to every neighbour but its sender.
    Accepted,
    /// Its version or a newer one is known; nothing to do.
    Stale,
    /// Its origin said more, was not heard for its [`lifetime`](super::TableConfig::lifetime), and
    /// now counts from below: show the sender what is held, that the origin goes on above.
    BelowExpired(ShortId),
    /// It is our own, genuine, from an earlier life, and newer than what we published: go on above
    /// this version ([`Publisher::raise`](super::Publisher::raise)) and publish.
    OwnFromBefore(u64),
    /// The link record's node record is not the one held: ask the sender for both.
    NeedsNodeRecord(ShortId),
    /// It was dropped and counted.
    Refused(Refusal),
}

/// What became of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// It is new: send it on.
    Accepted,
    /// It, or a newer one, is known.
    Stale,
    /// The record that it changes is not the one held; what it says comes with the next one.
    Unfit,
    /// The neighbour that told it is not believed for now.
    Ignored,
    /// The origin did not say it; the neighbour is not believed about it for a while.
    Forged,
}

/// Why a record was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It breaks the format.
    Malformed,
    /// Its origin is not admitted.
    NotAdmitted,
    /// The table is full of live origins, or another origin has the same short id.
    NoRoom,
    /// The neighbour has used up its signature checks.
    OverBudget,
    /// Its origin signs more of them than one that keeps to the intervals would.
    TooOften,
    /// The signature is not the origin's.
    Forged,
}

/// Counts of what came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableStats {
    /// Records taken.
    pub accepted: u64,
    /// Records known already.
    pub stale: u64,
    /// Link records whose node record was missing.
    pub unlisted: u64,
    /// Our own records, from an earlier life.
    pub own_from_before: u64,
    /// Refused as malformed.
    pub malformed: u64,
    /// Refused as not admitted.
    pub not_admitted: u64,
    /// Refused for want of room.
    pub no_room: u64,
    /// Refused over budget.
    pub over_budget: u64,
    /// Refused since their origin signs too many.
    pub too_often: u64,
    /// Refused as forged.
    pub forged: u64,
    /// Deltas taken.
    pub deltas_accepted: u64,
    /// Deltas known already.
    pub deltas_stale: u64,
    /// Deltas to a record that is not held.
    pub deltas_unfit: u64,
    /// Deltas of neighbours that are not believed.
    pub deltas_ignored: u64,
    /// Deltas that their origin did not say, by its own word.
    pub deltas_forged: u64,
}

impl TableStats {
    pub(super) const fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Accepted => &mut self.accepted,
            Outcome::Stale | Outcome::BelowExpired(_) => &mut self.stale,
            Outcome::OwnFromBefore(_) => &mut self.own_from_before,
            Outcome::NeedsNodeRecord(_) => &mut self.unlisted,
            Outcome::Refused(Refusal::Malformed) => &mut self.malformed,
            Outcome::Refused(Refusal::NotAdmitted) => &mut self.not_admitted,
            Outcome::Refused(Refusal::NoRoom) => &mut self.no_room,
            Outcome::Refused(Refusal::OverBudget) => &mut self.over_budget,
            Outcome::Refused(Refusal::TooOften) => &mut self.too_often,
            Outcome::Refused(Refusal::Forged) => &mut self.forged,
        };
        *counter = counter.saturating_add(1);
    }

    pub(super) const fn count_delta(&mut self, outcome: DeltaOutcome) {
        let counter = match outcome {
            DeltaOutcome::Accepted => &mut self.deltas_accepted,
            DeltaOutcome::Stale => &mut self.deltas_stale,
            DeltaOutcome::Unfit => &mut self.deltas_unfit,
            DeltaOutcome::Ignored => &mut self.deltas_ignored,
            DeltaOutcome::Forged => &mut self.deltas_forged,
        };
        *counter = counter.saturating_add(1);
    }
}
