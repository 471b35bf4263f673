//! Node record: key, roles, addresses and neighbours of an origin.

use core::net::SocketAddr;

use crypto::{NoEntropy, Provider, PublicKey};
use wire::{NodeId, Reader, Writer};

use super::{NEIGHBOURS_MAX, Network, Roles, ShortId};
use crate::message::{DecodeError, at_most, read_address, whole, write_address};

/// Identity, addresses, roles and measured neighbours of an origin.
///
/// | size | field |
/// |---|---|
/// | 65 | public key of the origin, SEC1 uncompressed; its SHA-256 is the origin's id |
/// | 8 | version |
/// | 1 | roles |
/// | 1 + n | name: length (≤ 32), then of `A-Z a-z 0-9 . _ -` |
/// | 1 | address count (≤ 4) |
/// | 7 or 19 each | family (4 or 6), ip, port |
/// | 1 | neighbour count (≤ 64) |
/// | 8 each | short id of a neighbour, ascending, not the origin's own |
/// | 64 | signature |
///
/// 141 + name + addresses + 8 × neighbours, at most 761 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Key of the origin.
    pub key: PublicKey,
    /// Version in the origin's sequence.
    pub version: u64,
    /// The origin's profile.
    pub profile: Profile,
    /// Measured neighbours, ascending; link records follow this order.
    pub neighbours: Vec<ShortId>,
}

/// A node's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Roles that it offers.
    pub roles: Roles,
    /// Display name; at most 32 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// Addresses that it listens on, preferred first; at most 4.
    pub addresses: Vec<SocketAddr>,
}

impl Profile {
    /// Longest name, in bytes.
    pub const NAME_LEN_MAX: usize = 32;
    /// Maximum number of addresses.
    pub const ADDRESSES_MAX: usize = 4;

    /// Returns whether name and addresses are within the bounds of a record.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.name.len() <= Self::NAME_LEN_MAX
            && self.name.bytes().all(is_name_byte)
            && self.addresses.len() <= Self::ADDRESSES_MAX
    }
}

impl NodeRecord {
    /// Longest record, in bytes.
    pub const LEN_MAX: usize =
        65 + 8 + 1 + 1 + Profile::NAME_LEN_MAX + 1 + 4 * 19 + 1 + NEIGHBOURS_MAX * 8 + 64;

    /// Returns the id of the origin.
    #[must_use]
    pub fn origin(&self) -> NodeId {
        self.key.node_id()
    }

    /// Encodes and signs the record; lists are cut at their bounds.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider's source of randomness fails.
    pub fn sign<P: Provider>(
        &self,
        provider: &mut P,
        key: &P::SigningKey,
        network: Network,
    ) -> Result<Vec<u8>, NoEntropy> {
        let mut bytes = self.body();
        let signature = provider.sign(key, &signed(network, &bytes))?;
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
        let key = PublicKey(reader.array()?);
        let version = reader.u64()?;
        let roles = Roles::from_bits(reader.u8()?).ok_or(DecodeError::BadValue)?;
        let name = read_name(&mut reader)?;
        let count = at_most(reader.u8()?.into(), Profile::ADDRESSES_MAX)?;
        let addresses = (0..count)
            .map(|_| read_address(&mut reader))
            .collect::<Result<_, _>>()?;
        let count = at_most(reader.u8()?.into(), NEIGHBOURS_MAX)?;
        let own = ShortId::from(key.node_id());
        let mut neighbours: Vec<ShortId> = Vec::with_capacity(count);
        for _ in 0..count {
            let neighbour = ShortId(reader.array()?);
            if neighbour == own {
                return Err(DecodeError::BadValue);
            }
            if neighbours.last().is_some_and(|last| *last >= neighbour) {
                return Err(DecodeError::Unordered);
            }
            neighbours.push(neighbour);
        }
        reader.array::<64>()?;
        let record = Self {
            key,
            version,
            profile: Profile {
                roles,
                name,
                addresses,
            },
            neighbours,
        };
        whole(&reader, record)
    }

    /// Returns whether the origin signed `bytes`, from which this record was decoded.
    pub fn verify<P: Provider>(&self, provider: &P, network: Network, bytes: &[u8]) -> bool {
        let Some((body, signature)) = bytes.split_last_chunk() else {
            return false;
        };
        provider.verify(&self.key, &signed(network, body), signature)
    }

    /// Returns the hash that link records are bound to: SHA-256 of the bytes without signature.
    pub fn hash<P: Provider>(provider: &P, bytes: &[u8]) -> [u8; 32] {
        let parts = bytes.split_last_chunk::<64>();
        provider.sha256(&[parts.map_or(bytes, |(body, _)| body)])
    }

    fn body(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN_MAX);
        let mut writer = Writer::new(&mut bytes);
        writer.bytes(&self.key.0);
        writer.u64(self.version);
        writer.u8(self.profile.roles.bits());
        let name = self.profile.name.as_bytes();
        let name = name.get(..Profile::NAME_LEN_MAX).unwrap_or(name);
        writer.u8(count(name.len()));
        writer.bytes(name);
        let addresses = self.profile.addresses.iter().take(Profile::ADDRESSES_MAX);
        writer.u8(count(addresses.len()));
        for address in addresses {
            write_address(&mut writer, *address);
        }
        let neighbours = self.neighbours.iter().take(NEIGHBOURS_MAX);
        writer.u8(count(neighbours.len()));
        for neighbour in neighbours {
            writer.bytes(&neighbour.0);
        }
        bytes
    }
}

fn signed(network: Network, body: &[u8]) -> Vec<u8> {
    [b"tw1 node record", &network.0[..], body].concat()
}

fn read_name(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = at_most(reader.u8()?.into(), Profile::NAME_LEN_MAX)?;
    let name = reader.bytes(len)?;
    if !name.iter().copied().all(is_name_byte) {
        return Err(DecodeError::BadValue);
    }
    Ok(name.iter().copied().map(char::from).collect())
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn count(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests;
