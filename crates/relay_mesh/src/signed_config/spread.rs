//! Spreads configurations: messages between neighbours, and fetching newer versions.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NodeId, Reader, Writer};

use super::holder::{BUNDLE_LEN_MAX, HeldVersion};
use crate::message::{DecodeError, at_most, code, whole};

/// Fetches newer versions that neighbours advertise: one transfer at a time, from one neighbour.
///
/// It holds at most one incomplete bundle. A neighbour has 5 s for each piece and 60 s in total. If
/// it does not deliver, or its bundle is refused, it is asked last and not before 30 s, then 60 s
/// and so on up to 32 min, also in later sessions. So a lying neighbour delays others once, and
/// each attempt costs at most one bundle of signature checks. A version above the failed one, or
/// one of other keys, is requested after 30 s in any case, since it may be a correction.
#[derive(Debug, Default)]
pub struct Spread {
    neighbours: BTreeMap<NodeId, Neighbour>,
    transfer: Option<Transfer>,
}

#[derive(Debug)]
struct Neighbour {
    /// The version that it advertises; 0 without a session.
    advertised: HeldVersion,
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
    const fn due(&self) -> Instant {
        if self.advertised.version > self.asked.version || self.advertised.keys != self.asked.keys {
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
            // Those without a session make room once their backoff has ended.
            self.neighbours
                .retain(|_, held| held.advertised.version > 0 || held.from > now);
            if self.neighbours.len() >= NEIGHBOURS_MAX {
                return;
            }
        }
        let neighbour = self.neighbours.entry(from).or_insert_with(|| Neighbour {
            advertised: held,
            failures: 0,
            asked: HeldVersion::default(),
            higher_from: now,
            from: now,
        });
        neighbour.advertised = held;
    }

    /// Handles the end of a neighbour's session.
    pub fn on_gone(&mut self, from: NodeId) {
        if let Some(neighbour) = self.neighbours.get_mut(&from) {
            neighbour.advertised.version = 0;
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
                neighbour.advertised.version > 0
                    && neighbour.due() <= now
                    && wants(neighbour.advertised)
            })
            .min_by_key(|(node, neighbour)| (neighbour.failures, **node))?;
        let HeldVersion { version, keys } = neighbour.advertised;
        if keys == neighbour.asked.keys {
            neighbour.asked.version = neighbour.asked.version.max(version);
        } else {
            neighbour.asked = neighbour.advertised;
        }
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
    pub fn on_piece(&mut self, now: Instant, from: NodeId, piece: Piece<'_>) -> PieceOutcome {
        let transfer = self.transfer.as_mut();
        let Some(transfer) = transfer.filter(|transfer| transfer.from == from) else {
            return PieceOutcome::Dropped;
        };
        let len = *transfer.len.get_or_insert(piece.len);
        let offset = u32::try_from(transfer.bytes.len()).unwrap_or(u32::MAX);
        if piece.version != transfer.version || piece.len != len || piece.offset != offset {
            return PieceOutcome::Dropped;
        }
        transfer.bytes.extend_from_slice(piece.bytes);
        transfer.piece_due = now + PIECE_DUE;
        let offset = u32::try_from(transfer.bytes.len()).unwrap_or(u32::MAX);
        if offset < len {
            let version = transfer.version;
            return PieceOutcome::More(ConfigMessage::Request { version, offset });
        }
        let bytes = core::mem::take(&mut transfer.bytes);
        self.transfer = None;
        PieceOutcome::Whole(bytes)
    }

    /// Handles the outcome of a neighbour's bundle; a refusal backs the neighbour off.
    pub fn on_judged(&mut self, now: Instant, from: NodeId, outcome: Judged) {
        if outcome == Judged::Refused {
            self.fail(now, from);
        } else if let Some(neighbour) = self.neighbours.get_mut(&from) {
            neighbour.failures = 0;
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
            .filter(|neighbour| neighbour.advertised.version > 0 && wants(neighbour.advertised))
            .map(Neighbour::due)
            .min()
    }

    fn is_from(&self, from: NodeId) -> bool {
        let transfer = self.transfer.as_ref();
        transfer.is_some_and(|transfer| transfer.from == from)
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
}

/// Outcome of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceOutcome {
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

/// A message about configuration; reliable channel.
///
/// | type | message | body |
/// |---|---|---|
/// | 0x30 | version, at the start of a session and after each change | version 8, tag of the admin keys 8 |
/// | 0x31 | request for one piece | version 8, offset 4 |
/// | 0x32 | piece | version 8, length of the bundle 4 (≤ 1,048,576), offset 4, 1 to 8,192 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigMessage<'a> {
    /// The version that the sender holds; unproven until the bundle is verified.
    Version(HeldVersion),
    /// Requests the piece at an offset.
    Request {
        /// Version of the bundle.
        version: u64,
        /// Offset of the piece, in bytes.
        offset: u32,
    },
    /// A piece of a bundle.
    Piece(Piece<'a>),
}

/// A piece of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Version of the bundle.
    pub version: u64,
    /// Length of the whole bundle, in bytes.
    pub len: u32,
    /// Offset of the piece, in bytes.
    pub offset: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> ConfigMessage<'a> {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match *self {
            Self::Version(held) => {
                writer.u8(code::CONFIG_VERSION);
                writer.u64(held.version);
                writer.u64(held.keys);
            }
            Self::Request { version, offset } => {
                writer.u8(code::CONFIG_REQUEST);
                writer.u64(version);
                writer.u32(offset);
            }
            Self::Piece(piece) => {
                writer.u8(code::CONFIG);
                writer.u64(piece.version);
                writer.u32(piece.len);
                writer.u32(piece.offset);
                writer.bytes(piece.bytes);
            }
        }
    }

    /// Decodes a whole message.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            code::CONFIG_VERSION => Self::Version(HeldVersion {
                version: reader.u64()?,
                keys: reader.u64()?,
            }),
            code::CONFIG_REQUEST => Self::Request {
                version: reader.u64()?,
                offset: reader.u32()?,
            },
            code::CONFIG => Self::Piece(Piece::decode(&mut reader)?),
            other => return Err(DecodeError::UnknownType(other)),
        };
        whole(&reader, message)
    }
}

impl<'a> Piece<'a> {
    /// Longest piece, in bytes.
    pub const LEN_MAX: usize = 8_192;

    /// Returns the piece of `bundle` at `offset`; `None` past its end.
    #[must_use]
    pub fn cut(version: u64, bundle: &'a [u8], offset: u32) -> Option<Self> {
        let rest = bundle.get(usize::try_from(offset).ok()?..)?;
        let bytes = rest.get(..Self::LEN_MAX).unwrap_or(rest);
        (!bytes.is_empty()).then_some(Self {
            version,
            len: u32::try_from(bundle.len()).ok()?,
            offset,
            bytes,
        })
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let version = reader.u64()?;
        let len = reader.u32()?;
        let offset = reader.u32()?;
        let bytes = reader.take_rest();
        at_most(usize::try_from(len).unwrap_or(usize::MAX), BUNDLE_LEN_MAX)?;
        at_most(bytes.len(), Self::LEN_MAX)?;
        let end = u32::try_from(bytes.len())
            .ok()
            .and_then(|count| offset.checked_add(count));
        if bytes.is_empty() || end.is_none_or(|end| end > len) {
            return Err(DecodeError::BadValue);
        }
        Ok(Self {
            version,
            len,
            offset,
            bytes,
        })
    }
}
