//! Fetches newer configurations from neighbours.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId};

use super::chain::HeldVersion;
use super::message::{ConfigMessage, Piece};

/// Fetches newer versions that neighbours advertise: one transfer at a time, from one neighbour.
///
/// It holds at most one incomplete bundle and a small record per neighbour. A neighbour has 5 s for
/// each piece and 60 s in total. If it does not deliver, or its bundle is refused, it is asked last
/// and not before 30 s, then 60 s and so on up to 32 min. So a lying neighbour delays others once,
/// and each attempt costs at most one bundle of signature checks. A version above the failed one,
/// or one of other keys, is requested after 30 s in any case, since it may be a correction. The
/// backoff outlives the neighbour's session.
#[derive(Debug, Default)]
pub struct Spread {
    neighbours: BTreeMap<NodeId, Neighbour>,
    transfer: Option<Transfer>,
}

#[derive(Debug)]
struct Neighbour {
    /// The version that it advertises; 0 without a session.
    says: HeldVersion,
    /// Consecutive failed transfers.
    failures: u8,
    /// The highest version requested, of the keys requested last.
    asked: HeldVersion,
    /// When a higher version, or one of other keys, may be requested.
    higher_from: Instant,
    /// When it may be asked again.
    from: Instant,
}

impl Neighbour {
    /// When its advertised version may be requested.
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
    /// Received bytes, in order; never more than the length in the first piece.
    bytes: Vec<u8>,
    /// Length in the first piece.
    len: Option<u32>,
    /// Deadline of the next piece.
    piece_due: Instant,
    /// Deadline of the transfer.
    due: Instant,
}

impl Spread {
    /// Handles the version that a neighbour advertises.
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

    /// Handles the end of a neighbour's session.
    pub fn on_gone(&mut self, from: NodeId) {
        if let Some(neighbour) = self.neighbours.get_mut(&from) {
            neighbour.says.version = 0;
        }
        if self.is_from(from) {
            self.transfer = None;
        }
    }

    /// Ends overdue transfers and starts the next; `wants` is
    /// [`Holder::wants`](super::Holder::wants). Send the request to the returned node.
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

    /// Handles a piece; drops unrequested ones.
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

    /// Handles the outcome of a neighbour's bundle. If it was refused, the neighbour is backed off,
    /// since it advertised a newer version.
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

    /// Returns when to call [`poll_request`](Self::poll_request) next, if at all.
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

    /// Removes neighbours without a session whose backoff has ended.
    fn forget(&mut self, now: Instant) {
        self.neighbours
            .retain(|_, neighbour| neighbour.says.version > 0 || neighbour.from > now);
    }
}

/// Outcome of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Send this request for the next piece to the same neighbour.
    More(ConfigMessage<'static>),
    /// The bundle is complete: offer it to the holder, and pass the outcome to
    /// [`Spread::on_judged`].
    Whole(Vec<u8>),
    /// It was not requested.
    Dropped,
}

/// Outcome of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is in force.
    Accepted,
    /// It was refused.
    Refused,
}

/// Timeout of one piece.
const PIECE_DUE: Duration = Duration::from_secs(5);
/// Timeout of a transfer, which has at most 128 pieces.
const TRANSFER_DUE: Duration = Duration::from_secs(60);
/// Backoff after the first failure.
const RETRY: Duration = Duration::from_secs(30);
/// Limits the backoff to 32 min.
const RETRY_DOUBLINGS: u8 = 6;
/// Maximum number of neighbours; sessions are limited far below.
const NEIGHBOURS_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
