//! Labels of a neighbour that were bound in one key epoch.

use std::collections::BTreeSet;

use crate::hop::LabelName;

/// Which labels have been sealed to, or may be, under one key: in it none of them is bound again.
///
/// Slot and generation stand as 5 bytes: there may be [`BOUND_MAX`](crate::hop_sealer::BOUND_MAX) of them.
#[derive(Debug, Default)]
pub(crate) struct BoundLabels {
    live: BTreeSet<[u8; 5]>,
    /// Given back, and used.
    released: BTreeSet<[u8; 5]>,
}

impl BoundLabels {
    /// Notes that a label is bound; nothing changes, and the answer is false, where it was before.
    pub(crate) fn insert(&mut self, name: LabelName) -> bool {
        !self.released.contains(&key(name)) && self.live.insert(key(name))
    }

    /// Notes that a label was given back.
    pub(crate) fn release(&mut self, name: LabelName) {
        if self.live.remove(&key(name)) {
            self.released.insert(key(name));
        }
    }

    /// Forgets a label that was given back and never used.
    pub(crate) fn forget(&mut self, name: LabelName) {
        self.live.remove(&key(name));
    }

    /// Forgets those that were given back: the key is another.
    pub(crate) fn next_epoch(&mut self) {
        self.released.clear();
    }

    /// Whether it is bound and not given back.
    pub(crate) fn holds(&self, name: LabelName) -> bool {
        self.live.contains(&key(name))
    }

    /// How many are bound and not given back.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// How many were given back.
    pub(crate) fn released(&self) -> usize {
        self.released.len()
    }

    /// How many cannot be bound.
    pub(crate) fn len(&self) -> usize {
        self.live.len().saturating_add(self.released.len())
    }
}

const fn key(name: LabelName) -> [u8; 5] {
    let [s0, s1, s2, s3] = name.slot.to_be_bytes();
    [s0, s1, s2, s3, name.generation]
}
