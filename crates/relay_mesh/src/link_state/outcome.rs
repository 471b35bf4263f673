//! Outcomes of records and deltas, and their counters.

use serde::Serialize;

use super::ShortId;

/// Outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new and genuine: forward it unchanged to every neighbour except its sender.
    Accepted,
    /// Its version or a newer one is known.
    Stale,
    /// It is older than the origin's last record, which has expired after its
    /// [`lifetime`](super::TableConfig::lifetime): send the held record back, so that the origin
    /// continues above it.
    BelowExpired(ShortId),
    /// It is this node's own genuine record of an earlier run, newer than those published: continue
    /// above its version ([`Publisher::raise`](super::Publisher::raise)) and publish.
    OwnFromBefore(u64),
    /// The link record needs a node record that is not held: request both from the sender.
    NeedsNodeRecord(ShortId),
    /// It was dropped and counted.
    Refused(Refusal),
}

/// Outcome of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// It is new: forward it.
    Accepted,
    /// It, or a newer one, is known.
    Stale,
    /// Its base record is not the one held; the next record includes it.
    Unfit,
    /// Deltas of this origin are currently not accepted from this neighbour.
    Ignored,
    /// The origin did not send it; deltas of this origin are not accepted from the neighbour for a
    /// while.
    Forged,
}

/// Why a record was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is malformed.
    Malformed,
    /// Its origin is not admitted.
    NotAdmitted,
    /// The table is full of live origins, or another origin has the same short id.
    NoRoom,
    /// The neighbour's budget of signature checks is exhausted.
    OverBudget,
    /// Its origin publishes more often than the intervals allow.
    TooOften,
    /// The signature is not the origin's.
    Forged,
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableStats {
    /// Accepted records.
    pub accepted: u64,
    /// Records that were known.
    pub stale: u64,
    /// Link records whose node record was missing.
    pub unlisted: u64,
    /// This node's records of an earlier run.
    pub own_from_before: u64,
    /// Records refused as malformed.
    pub malformed: u64,
    /// Records refused because their origin is not admitted.
    pub not_admitted: u64,
    /// Records refused because the table is full.
    pub no_room: u64,
    /// Records refused because of the neighbour's budget.
    pub over_budget: u64,
    /// Records refused because their origin publishes too often.
    pub too_often: u64,
    /// Records refused as forged.
    pub forged: u64,
    /// Accepted deltas.
    pub deltas_accepted: u64,
    /// Deltas that were known.
    pub deltas_stale: u64,
    /// Deltas whose base record is not held.
    pub deltas_unfit: u64,
    /// Deltas of neighbours that are currently not accepted.
    pub deltas_ignored: u64,
    /// Deltas that the origin's next record disproved.
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
