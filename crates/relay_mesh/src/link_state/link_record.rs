//! Link record: measurements of an origin.

use crypto::{NoEntropy, Provider, PublicKey};
use wire::{NodeId, Reader, Writer};

use super::{NEIGHBOURS_MAX, Network};
use crate::cost::{Cost, LossCode};
use crate::measure::LinkReport;
use crate::message::DecodeError;

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
/// 112 + 3 × neighbours, at most 304 bytes. A node that holds the [`LinkDelta`](super::LinkDelta)
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
        let found = usize::from(reader.u8()?);
        if found > NEIGHBOURS_MAX {
            let max = NEIGHBOURS_MAX;
            return Err(DecodeError::OverLimit { found, max });
        }
        let follows = reader.u32()?;
        let mut reports = Vec::with_capacity(found);
        for _ in 0..found {
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
        if !reader.is_empty() {
            return Err(DecodeError::Trailing);
        }
        Ok(Self {
            origin,
            version,
            list,
            is_leaving: flags & LEAVING != 0,
            urgency: Urgency::from_flags(flags),
            follows,
            reports,
        })
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

/// Flag of an origin that is about to stop.
const LEAVING: u8 = 1;
/// Flag of a record that reports a link up or down, or new neighbours.
const NEWS: u8 = 2;
/// Flag of a record of the root of the tree.
const ROOT: u8 = 4;

fn signed(network: Network, list: &[u8; 32], body: &[u8]) -> Vec<u8> {
    [b"tw1 link state", &network.0[..], list, body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::LinkReport;
    use crypto::Identity;
    use netsim::provider::SimProvider;
    use proptest::prelude::*;
    use wire::Seed;

    const NETWORK: Network = Network([9; 16]);

    fn record(reports: usize) -> LinkRecord {
        LinkRecord {
            origin: NodeId([1; 32]),
            version: 0x0203,
            list: [4, 5],
            is_leaving: true,
            urgency: Urgency::RootNews,
            follows: 0x0607_0809,
            reports: (0..reports)
                .map(|index| LinkReport {
                    delay: Cost::from_units(u16::try_from(index).unwrap()),
                    loss: LossCode(7),
                })
                .collect(),
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut expected = vec![1; 32];
        expected.extend([
            0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 7, 2, 6, 7, 8, 9, 0, 0, 7, 0, 1, 7,
        ]);
        assert_eq!(record(2).body(), expected);
    }

    #[test]
    fn pg6_another_key_list_network_or_byte_is_refused() {
        let mut provider = SimProvider::new(Seed::from_number(1));
        let identity = Identity::generate(&mut provider).unwrap();
        let key = provider.signing_key(&identity).unwrap();
        let record = record(64);
        let list = [6; 32];
        let bytes = record.sign(&mut provider, &key, NETWORK, &list).unwrap();
        assert_eq!(bytes.len(), LinkRecord::LEN_MAX);
        assert_eq!(LinkRecord::decode(&bytes), Ok(record));
        let public = identity.public_key();
        let verify = |network, list: &[u8; 32], bytes: &[u8]| {
            LinkRecord::verify(&provider, public, network, list, bytes)
        };
        assert!(verify(NETWORK, &list, &bytes));
        assert!(!verify(Network([8; 16]), &list, &bytes));
        assert!(!verify(NETWORK, &[7; 32], &bytes));
        for index in (0..bytes.len()).step_by(13) {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert!(!verify(NETWORK, &list, &changed), "byte {index}");
        }
        assert!(!verify(NETWORK, &list, &[]));
    }

    /// A negative cost would make the route search loop for ever at every entry: P5 (and PG6, which
    /// lists values that integers cannot have).
    #[test]
    fn pg6_pgd_p5_a_cost_of_any_bits_is_none_below_nothing_or_is_refused() {
        let mut bytes = record(1).body();
        bytes.extend([0; 64]);
        let at = bytes.len() - 64 - 3;
        for units in 0..=u16::MAX {
            bytes[at..at + 2].copy_from_slice(&units.to_be_bytes());
            let told = LinkRecord::decode(&bytes).map(|record| record.reports[0].delay);
            let expected = if units <= Cost::UNROUTABLE.units() {
                Ok(Cost::from_units(units))
            } else {
                Err(DecodeError::BadValue)
            };
            assert_eq!(told, expected, "{units}");
            assert!(told.is_ok_and(|cost| cost.lane() >= 0) || units > 0x7fff);
        }
        let over = 1 + u8::try_from(NEIGHBOURS_MAX).unwrap();
        bytes[32 + 8 + 2 + 1] = over;
        let refused = DecodeError::OverLimit {
            found: over.into(),
            max: NEIGHBOURS_MAX,
        };
        assert_eq!(LinkRecord::decode(&bytes), Err(refused), "oversized");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..320), count in 0_u8..70) {
            let mut bytes = bytes;
            for (index, value) in [(42, count & 7), (43, count)] {
                if let Some(byte) = bytes.get_mut(index) {
                    *byte = value;
                }
            }
            bytes.truncate(112 + usize::from(count) * 3);
            if let Ok(record) = LinkRecord::decode(&bytes) {
                prop_assert_eq!(record.body(), &bytes[..bytes.len() - 64]);
            }
        }
    }
}
