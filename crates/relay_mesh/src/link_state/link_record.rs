//! Link record and delta: measurements of an origin.

use crypto::{NoEntropy, Provider, PublicKey};
use wire::{NodeId, Reader, Writer};

use super::{NEIGHBOURS_MAX, Network, ShortId};
use crate::cost::{Cost, LossCode};
use crate::measure::LinkReport;
use crate::message::{DecodeError, at_most, whole};

/// An origin's measurements to the neighbours of its node record, in that order.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 32 | id of the origin |
/// | 32 | 8 | version |
/// | 40 | 2 | list: first 2 bytes of SHA-256 of the node record's body |
/// | 42 | 1 | flags: 1 = the origin is leaving, route nothing new through it; 2 = news: forward it at once; 4 = the origin is the root of the tree |
/// | 43 | 1 | count (≤ 64) |
/// | 44 | 4 | follows: low half of the version of the origin's previous delta or record |
/// | 48 | 3 each | delay in 0.1 ms (≤ 32,767 = down), loss code |
/// | 48 + 3 n | 64 | signature |
///
/// 112 + 3 × neighbours, at most 304 bytes. A node that holds the [`LinkDelta`]
/// named by `follows` can verify it: each of its costs is in the record within max(2 ms, 5 %).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRecord {
    /// The origin's id.
    pub origin: NodeId,
    /// Version in the origin's sequence.
    pub version: u64,
    /// First bytes of the hash of its node record.
    pub list: [u8; 2],
    /// The origin is about to stop.
    pub is_leaving: bool,
    /// Whether it is forwarded at once, and why.
    pub urgency: Urgency,
    /// Low half of the version of the origin's previous delta or record; 0 if there is none.
    pub follows: u32,
    /// One report for each neighbour.
    pub reports: Vec<LinkReport>,
}

/// Whether a record is forwarded at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// It may wait, to be sent with others.
    #[default]
    None,
    /// A link came up or went down, or the list is new.
    News,
    /// It builds the tree of [`gossip`](crate::gossip).
    Root,
    /// Both.
    RootNews,
}

impl Urgency {
    /// Returns whether the origin is the root.
    #[must_use]
    pub const fn is_root(self) -> bool {
        matches!(self, Self::Root | Self::RootNews)
    }

    const fn from_flags(flags: u8) -> Self {
        match (flags & NEWS != 0, flags & ROOT != 0) {
            (false, false) => Self::None,
            (true, false) => Self::News,
            (false, true) => Self::Root,
            (true, true) => Self::RootNews,
        }
    }

    const fn flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::News => NEWS,
            Self::Root => ROOT,
            Self::RootNews => NEWS | ROOT,
        }
    }
}

impl LinkRecord {
    /// Longest record, in bytes.
    pub const LEN_MAX: usize = 48 + NEIGHBOURS_MAX * 3 + 64;

    /// Encodes and signs the record for the node record with hash `list`.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider's source of randomness fails.
    pub fn sign<P: Provider>(
        &self,
        provider: &mut P,
        key: &P::SigningKey,
        network: Network,
        list: &[u8; 32],
    ) -> Result<Vec<u8>, NoEntropy> {
        let mut bytes = self.body();
        let signature = provider.sign(key, &signed(network, list, &bytes))?;
        bytes.extend_from_slice(&signature);
        Ok(bytes)
    }

    /// Decodes a record without verifying its signature.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let origin = NodeId(reader.array()?);
        let version = reader.u64()?;
        let list = reader.array()?;
        let flags = reader.u8()?;
        if flags & !(LEAVING | NEWS | ROOT) != 0 {
            return Err(DecodeError::BadValue);
        }
        let count = at_most(reader.u8()?.into(), NEIGHBOURS_MAX)?;
        let follows = reader.u32()?;
        let mut reports = Vec::with_capacity(count);
        for _ in 0..count {
            let units = reader.u16()?;
            if units > Cost::UNROUTABLE.units() {
                return Err(DecodeError::BadValue);
            }
            reports.push(LinkReport {
                delay: Cost::from_units(units),
                loss: LossCode(reader.u8()?),
            });
        }
        reader.array::<64>()?;
        let record = Self {
            origin,
            version,
            list,
            is_leaving: flags & LEAVING != 0,
            urgency: Urgency::from_flags(flags),
            follows,
            reports,
        };
        whole(&reader, record)
    }

    /// Returns whether `key` signed `bytes` for the node record with hash `list`.
    pub fn verify<P: Provider>(
        provider: &P,
        key: &PublicKey,
        network: Network,
        list: &[u8; 32],
        bytes: &[u8],
    ) -> bool {
        let Some((body, signature)) = bytes.split_last_chunk() else {
            return false;
        };
        provider.verify(key, &signed(network, list, body), signature)
    }

    fn body(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN_MAX);
        let mut writer = Writer::new(&mut bytes);
        writer.bytes(&self.origin.0);
        writer.u64(self.version);
        writer.bytes(&self.list);
        let leaving = if self.is_leaving { LEAVING } else { 0 };
        writer.u8(leaving | self.urgency.flags());
        let reports = self.reports.iter().take(NEIGHBOURS_MAX);
        writer.u8(u8::try_from(reports.len()).unwrap_or(u8::MAX));
        writer.u32(self.follows);
        for report in reports {
            writer.u16(report.delay.units());
            writer.u8(report.loss.0);
        }
        bytes
    }
}

const LEAVING: u8 = 1;
const NEWS: u8 = 2;
const ROOT: u8 = 4;

fn signed(network: Network, list: &[u8; 32], body: &[u8]) -> Vec<u8> {
    [b"tw1 link state", &network.0[..], list, body].concat()
}

/// Changed measurements relative to an origin's link record.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | short id of the origin |
/// | 8 | 4 | base: low half of the version of the link record that it changes |
/// | 12 | 2 | after: how far this state is above that version, at least 1 |
/// | 14 | 1 | count (≤ 64) |
/// | 15 | 4 each | position in the list, ascending; delay in 0.1 ms (< 32,767); loss code (< 255) |
///
/// 15 + 4 × changed links. It lists all differences from the record, not from the previous delta,
/// so the newest is enough. It is not signed: sessions authenticate it hop by hop, and the next
/// link record verifies it. It changes only links that are up in the record and takes none down,
/// which needs a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDelta {
    /// The origin.
    pub origin: ShortId,
    /// Low half of the version of the record that it changes.
    pub base: u32,
    /// Versions above that record; at least 1.
    pub after: u16,
    /// Positions in the origin's list, ascending, and their current reports.
    pub changes: Vec<(u8, LinkReport)>,
}

impl LinkDelta {
    /// Longest delta, in bytes.
    pub const LEN_MAX: usize = 15 + NEIGHBOURS_MAX * 4;

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.origin.0);
        writer.u32(self.base);
        writer.u16(self.after);
        let changes = self.changes.iter().take(NEIGHBOURS_MAX);
        writer.u8(u8::try_from(changes.len()).unwrap_or(u8::MAX));
        for (position, report) in changes {
            writer.u8(*position);
            writer.u16(report.delay.units());
            writer.u8(report.loss.0);
        }
    }

    /// Decodes one delta; more may follow.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let origin = ShortId(reader.array()?);
        let base = reader.u32()?;
        let after = reader.u16()?;
        if after == 0 {
            return Err(DecodeError::BadValue);
        }
        let count = at_most(reader.u8()?.into(), NEIGHBOURS_MAX)?;
        let mut changes: Vec<(u8, LinkReport)> = Vec::with_capacity(count);
        for _ in 0..count {
            let position = reader.u8()?;
            let units = reader.u16()?;
            let report = LinkReport {
                delay: Cost::from_units(units),
                loss: LossCode(reader.u8()?),
            };
            if units > Cost::UNROUTABLE.units() || !report.is_up() {
                return Err(DecodeError::BadValue);
            }
            if changes.last().is_some_and(|(last, _)| *last >= position) {
                return Err(DecodeError::Unordered);
            }
            changes.push((position, report));
        }
        Ok(Self {
            origin,
            base,
            after,
            changes,
        })
    }
}

#[cfg(test)]
mod tests;
