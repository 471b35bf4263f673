//! What a hub holds.

use super::Hub;
use super::call::OpenCall;
use super::claim::Claim;
use super::link::{Link, Member};
use crate::store::{NewMail, Settled};

/// What one entry of an ordered table takes besides its value, bytes.
const ENTRY: usize = 32;

impl Hub {
    /// Returns about how many bytes the hub holds: tables, queues and bodies.
    ///
    /// It looks at every link: for a report now and then, not for each turn.
    pub fn memory_bytes(&self) -> usize {
        const LINK: usize = size_of::<Link>() + size_of::<Member>() + ENTRY;
        const CALL: usize = size_of::<OpenCall>() + 4 * ENTRY;
        let outboxes: usize = self.links.values().map(Link::memory_bytes).sum();
        let sums = [
            self.links.len().saturating_mul(LINK),
            outboxes,
            self.claims.memory_bytes(),
            // Each call stands in four tables.
            self.calls.len().saturating_mul(CALL),
            self.ops.memory_bytes(),
            self.events
                .len()
                .saturating_mul(size_of::<super::HubEvent>()),
            self.services.len().saturating_mul(64 + ENTRY),
            self.parting.len().saturating_mul(16 + ENTRY),
            self.away.len().saturating_mul(64 + ENTRY),
        ];
        sums.into_iter().fold(0, usize::saturating_add)
    }
}

/// What a claim takes besides its note and its mails, bytes.
pub(super) const CLAIM: usize = size_of::<Claim>() + 4 * ENTRY;

/// What a command takes besides its mails, bytes.
pub(super) const OP: usize = 256 + ENTRY;

/// What a mail takes on its way to disk, besides its body, bytes.
pub(super) const MAIL: usize = size_of::<NewMail>() + size_of::<Settled>();
