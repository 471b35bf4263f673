//! Which batches of a node are applied.

use std::collections::BTreeSet;

use wire::{Encode, Reader, Writer};

use crate::field::{BatchSeq, Epoch};
use crate::stats::batch::{BatchError, VERSION};
use crate::stats::varint;

/// Most batches that are applied ahead of a missing one. A node sends its batches in order, so one
/// that is still missing then was refused, and does not follow.
const AHEAD_MAX: usize = 64;

/// Outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// It is in the figures of every level.
    Counted,
    /// It was applied before.
    Duplicate,
    /// A later run of the node has sent batches.
    Fenced,
    /// It is not applied: no room for another node.
    Full,
}

/// Batches of the newest run of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    epoch: Epoch,
    /// All batches up to this one are applied.
    upto: BatchSeq,
    /// Batches behind a missing one that are applied.
    ahead: BTreeSet<BatchSeq>,
}

impl Mark {
    /// Returns what [`apply`](Self::apply) would return.
    pub(super) fn check(&self, epoch: Epoch, batch: BatchSeq) -> Applied {
        if epoch < self.epoch {
            Applied::Fenced
        } else if epoch == self.epoch && (batch <= self.upto || self.ahead.contains(&batch)) {
            Applied::Duplicate
        } else {
            Applied::Counted
        }
    }

    pub(super) fn apply(&mut self, epoch: Epoch, batch: BatchSeq) -> Applied {
        let outcome = self.check(epoch, batch);
        if outcome != Applied::Counted {
            return outcome;
        }
        if epoch > self.epoch {
            *self = Self {
                epoch,
                ..Self::default()
            };
        }
        if batch == self.next() {
            self.upto = batch;
            while self.ahead.remove(&self.next()) {
                self.upto = self.next();
            }
        } else {
            self.ahead.insert(batch);
            if self.ahead.len() > AHEAD_MAX {
                self.give_up_first();
            }
        }
        Applied::Counted
    }

    /// Takes the first missing batches as applied.
    fn give_up_first(&mut self) {
        if let Some(first) = self.ahead.pop_first() {
            self.upto = first;
            while self.ahead.remove(&self.next()) {
                self.upto = self.next();
            }
        }
    }

    const fn next(&self) -> BatchSeq {
        BatchSeq(self.upto.0.saturating_add(1))
    }

    /// Encoding: `version 1, epoch 4, upto 8, count, distances of the batches ahead`.
    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        out.u8(VERSION);
        self.epoch.encode(out);
        self.upto.encode(out);
        varint::write_len(self.ahead.len(), out);
        let mut before = self.upto.0;
        for batch in &self.ahead {
            varint::write(batch.0.saturating_sub(before), out);
            before = batch.0;
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, BatchError> {
        match reader.u8()? {
            VERSION => {}
            version => return Err(BatchError::Version(version)),
        }
        let epoch = Epoch(reader.u32()?);
        let upto = BatchSeq(reader.u64()?);
        let count = varint::read_len(reader, AHEAD_MAX)?;
        let mut ahead = BTreeSet::new();
        let mut before = upto.0;
        for _ in 0..count {
            let step = varint::read(reader)?;
            let batch = before.checked_add(step).filter(|_| step > 0);
            before = batch.ok_or(BatchError::Number)?;
            ahead.insert(BatchSeq(before));
        }
        Ok(Self { epoch, upto, ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_applied_once_in_any_order() {
        let mut mark = Mark::default();
        let epoch = Epoch(1);
        for batch in [1, 3, 5, 2] {
            assert_eq!(mark.apply(epoch, BatchSeq(batch)), Applied::Counted);
            assert_eq!(mark.apply(epoch, BatchSeq(batch)), Applied::Duplicate);
        }
        assert_eq!(mark.upto, BatchSeq(3));
        let mut bytes = Vec::new();
        mark.encode(&mut Writer::new(&mut bytes));
        assert_eq!(Mark::decode(&mut Reader::new(&bytes)), Ok(mark));
    }

    #[test]
    fn a_later_run_fences_the_earlier_one() {
        let mut mark = Mark::default();
        assert_eq!(mark.apply(Epoch(2), BatchSeq(1)), Applied::Counted);
        assert_eq!(mark.apply(Epoch(1), BatchSeq(2)), Applied::Fenced);
        assert_eq!(mark.apply(Epoch(3), BatchSeq(1)), Applied::Counted);
    }

    #[test]
    fn a_batch_that_64_others_have_overtaken_is_given_up() {
        let mut mark = Mark::default();
        for batch in 2..=65 {
            assert_eq!(mark.apply(Epoch(1), BatchSeq(batch)), Applied::Counted);
        }
        assert_eq!((mark.upto, mark.ahead.len()), (BatchSeq(0), 64));
        assert_eq!(mark.apply(Epoch(1), BatchSeq(99)), Applied::Counted);
        assert_eq!((mark.upto, mark.ahead.len()), (BatchSeq(65), 1));
        for batch in [1, 2, 65, 99] {
            assert_eq!(mark.apply(Epoch(1), BatchSeq(batch)), Applied::Duplicate);
        }
    }
}
