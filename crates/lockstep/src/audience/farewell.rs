//! Those who watched once, and what they are told.

use std::collections::{BTreeMap, VecDeque};

use crate::event::CloseReason;
use crate::tick::PeerId;

/// Who is out and may not know: each is told once, and again when it is heard from.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    /// Why each is out, and whether it is in `due`.
    reasons: BTreeMap<PeerId, (CloseReason, bool)>,
    /// Who is to be told now.
    due: VecDeque<PeerId>,
}

impl Farewells {
    /// Takes note that `peer` is out, and knows it; of more than `most`, one is forgotten.
    pub(super) fn add(&mut self, peer: PeerId, reason: CloseReason, most: usize) {
        if self.reasons.len() >= most {
            self.reasons.pop_first();
        }
        self.reasons.insert(peer, (reason, false));
    }

    pub(super) fn forget(&mut self, peer: PeerId) {
        if let Some((_, true)) = self.reasons.remove(&peer) {
            self.due.retain(|due| *due != peer);
        }
    }

    pub(super) fn knows(&self, peer: PeerId) -> bool {
        self.reasons.contains_key(&peer)
    }

    /// Has `peer` told; false where it is not known.
    pub(super) fn remind(&mut self, peer: PeerId) -> bool {
        let Some((_, is_due)) = self.reasons.get_mut(&peer) else {
            return false;
        };
        if !core::mem::replace(is_due, true) {
            self.due.push_back(peer);
        }
        true
    }

    /// Whom to tell, and why it is out.
    pub(super) fn poll(&mut self) -> Option<(PeerId, CloseReason)> {
        loop {
            let peer = self.due.pop_front()?;
            if let Some((reason, is_due)) = self.reasons.get_mut(&peer) {
                *is_due = false;
                return Some((peer, *reason));
            }
        }
    }

    /// Bytes that it holds.
    pub(super) fn memory_len(&self) -> usize {
        let reason = size_of::<(PeerId, (CloseReason, bool))>();
        let reasons = self.reasons.len().saturating_mul(reason);
        let due = self.due.capacity().saturating_mul(size_of::<PeerId>());
        reasons.saturating_add(due)
    }
}
