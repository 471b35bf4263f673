//! Getting a newer configuration from whichever neighbour has one.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use super::chain::HeldVersion;
use super::message::{ConfigMessage, Piece};

/// Fetches what neighbours say is newer: one transfer at a time, from one neighbour at a time.
///
/// It holds at most one bundle that is not whole, and a few numbers for each neighbour. A neighbour
/// has 5 s for each piece and 60 s for all; one that does not deliver, or whose bundle is refused,
/// is asked last and not before 30 s, then 60 s and so on up to 32 min: so a liar costs others' time
/// once, and one bundle's worth of signature checks each time. A version above the one that came to
/// nothing, or one of other keys, is asked for after 30 s whatever the wait was: it may be the one that
/// mends. That memory outlives its session.
#[derive(Debug, Default)]
pub struct Spread {
    neighbours: BTreeMap<NodeId, Neighbour>,
    transfer: Option<Transfer>,
}

#[derive(Debug)]
struct Neighbour {
    /// What it says it holds; version 0 where it has no session.
    says: HeldVersion,
    /// Transfers of it that came to nothing, since one that did not.
    failures: u8,
    /// The highest version asked for, of the keys asked for last.
    asked: HeldVersion,
    /// When it may be asked for a higher one, or one of other keys.
    higher_from: Instant,
    /// When it may be asked.
    from: Instant,
}

impl Neighbour {
    /// When what it says it has may be asked for.
    const fn due(&self) -> Instant {
        if self.says.version > self.asked.version || self.says.keys != self.asked.keys {
            self.higher_from
        } else {
            self.from
        }
    }
}

#[derive(Debug)]
struct Transfer {
    from: NodeId,
    version: u64,
    /// What came, in order; grows with each piece, and with none beyond the length first told.
    bytes: Vec<u8>,
    /// Length told by the first piece.
    len: Option<u32>,
    /// When the next piece is overdue.
    piece_due: Instant,
    /// When all is overdue.
    due: Instant,
}

impl Spread {
    /// Takes what a neighbour says it holds.
    pub fn on_version(&mut self, now: Instant, from: NodeId, held: HeldVersion) {
        if !self.neighbours.contains_key(&from) && self.neighbours.len() >= NEIGHBOURS_MAX {
            self.forget(now);
            if self.neighbours.len() >= NEIGHBOURS_MAX {
                return;
            }
        }
        let neighbour = self.neighbours.entry(from).or_insert(Neighbour {
            says: held,
            failures: 0,
            asked: HeldVersion {
                version: 0,
                keys: 0,
            },
            higher_from: now,
            from: now,
        });
        neighbour.says = held;
    }

    /// Takes the end of a neighbour's session.
    pub fn on_gone(&mut self, from: NodeId) {
        if let Some(neighbour) = self.neighbours.get_mut(&from) {
            neighbour.says.version = 0;
        }
        if self.is_from(from) {
            self.transfer = None;
        }
    }

    /// Ends what is overdue, and begins what is due; `wants` is [`Holder::wants`](super::Holder::wants). The
    /// request is to be sent to the node named.
    pub fn poll_request(
        &mut self,
        now: Instant,
        wants: impl Fn(HeldVersion) -> bool,
    ) -> Option<(NodeId, ConfigMessage<'static>)> {
        if let Some(transfer) = &self.transfer {
            if now < transfer.piece_due && now < transfer.due {
                return None;
            }
            let from = transfer.from;
            self.fail(now, from);
        }
        let (&from, neighbour) = self
            .neighbours
            .iter_mut()
            .filter(|(_, neighbour)| {
                neighbour.says.version > 0 && neighbour.due() <= now && wants(neighbour.says)
            })
            .min_by_key(|(node, neighbour)| (neighbour.failures, **node))?;
        let HeldVersion { version, keys } = neighbour.says;
        let highest = neighbour.asked.version;
        neighbour.asked = HeldVersion {
            version: if keys == neighbour.asked.keys {
                version.max(highest)
            } else {
                version
            },
            keys,
        };
        self.transfer = Some(Transfer {
            from,
            version,
            bytes: Vec::new(),
            len: None,
            piece_due: now + PIECE_DUE,
            due: now + TRANSFER_DUE,
        });
        Some((from, ConfigMessage::Request { version, offset: 0 }))
    }

    /// Takes a piece; what nobody asked for is dropped.
    pub fn on_piece(&mut self, now: Instant, from: NodeId, piece: Piece<'_>) -> Taken {
        let Some(transfer) = self
            .transfer
            .as_mut()
            .filter(|transfer| transfer.from == from)
        else {
            return Taken::Dropped;
        };
        let len = *transfer.len.get_or_insert(piece.len);
        let offset = u32::try_from(transfer.bytes.len()).unwrap_or(u32::MAX);
        if piece.version != transfer.version || piece.len != len || piece.offset != offset {
            return Taken::Dropped;
        }
        transfer.bytes.extend_from_slice(piece.bytes);
        transfer.piece_due = now + PIECE_DUE;
        let offset = u32::try_from(transfer.bytes.len()).unwrap_or(u32::MAX);
        if offset < len {
            let version = transfer.version;
            return Taken::More(ConfigMessage::Request { version, offset });
        }
        let transfer = self.transfer.take();
        Taken::Whole(transfer.map(|transfer| transfer.bytes).unwrap_or_default())
    }

    /// Takes what became of a neighbour's bundle: one that brought nothing new is not asked again
    /// for a while, since it had said that it had more.
    pub fn on_judged(&mut self, now: Instant, from: NodeId, outcome: Judged) {
        match outcome {
            Judged::Accepted => {
                if let Some(neighbour) = self.neighbours.get_mut(&from) {
                    neighbour.failures = 0;
                }
            }
            Judged::Refused => self.fail(now, from),
        }
    }

    /// Returns when [`poll_request`](Self::poll_request) is next of use, where it is.
    #[must_use]
    pub fn poll_timeout(&self, wants: impl Fn(HeldVersion) -> bool) -> Option<Instant> {
        if let Some(transfer) = &self.transfer {
            return Some(transfer.piece_due.min(transfer.due));
        }
        let askable = self.neighbours.values();
        askable
            .filter(|neighbour| neighbour.says.version > 0 && wants(neighbour.says))
            .map(Neighbour::due)
            .min()
    }

    fn is_from(&self, from: NodeId) -> bool {
        self.transfer
            .as_ref()
            .is_some_and(|transfer| transfer.from == from)
    }

    fn fail(&mut self, now: Instant, from: NodeId) {
        if self.is_from(from) {
            self.transfer = None;
        }
        if let Some(neighbour) = self.neighbours.get_mut(&from) {
            let doublings = neighbour.failures.min(RETRY_DOUBLINGS);
            neighbour.from = now + RETRY.saturating_mul(1 << doublings);
            neighbour.higher_from = now + RETRY;
            neighbour.failures = neighbour.failures.saturating_add(1);
        }
    }

    /// Drops those without a session that may be asked again anyway.
    fn forget(&mut self, now: Instant) {
        self.neighbours
            .retain(|_, neighbour| neighbour.says.version > 0 || neighbour.from > now);
    }
}

/// What a piece came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The next one is to be asked for, of the same neighbour.
    More(ConfigMessage<'static>),
    /// The bundle is whole: offer it to the holder, and tell [`Spread::on_judged`].
    Whole(Vec<u8>),
    /// It was not asked for.
    Dropped,
}

/// What became of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is in force.
    Accepted,
    /// It is not.
    Refused,
}

/// Time for one piece.
const PIECE_DUE: Duration = Duration::from_secs(5);
/// Time for all pieces: 128 of them at most.
const TRANSFER_DUE: Duration = Duration::from_secs(60);
/// Time without questions after a first failure.
const RETRY: Duration = Duration::from_secs(30);
/// The longest is 32 min.
const RETRY_DOUBLINGS: u8 = 6;
/// Neighbours remembered; sessions bound them far below.
const NEIGHBOURS_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
