//! Shards: several hubs that share the load of one network.

use core::fmt;

use wire::{ClientId, Encode, InstanceId, NodeId, Reader, Writer};

use crate::field::{Addr, DecodeError, Name};

/// The part of one hub among all hubs of a join file.
///
/// The hubs of a join file, in its order, are the shards. Each player belongs to one of them by a hash of
/// its id: that hub has its mailbox, its claim and its memberships of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    index: u8,
    count: u8,
}

impl Shard {
    /// Most shards of one network: each node has a link to every one.
    pub const COUNT_MAX: u8 = 16;

    /// The only hub.
    pub const ONLY: Self = Self { index: 0, count: 1 };

    /// Creates the part with `index`, from 0, of `count` parts. Returns `None` if there is no such part,
    /// or more than [`COUNT_MAX`](Self::COUNT_MAX).
    #[must_use]
    pub const fn new(index: u8, count: u8) -> Option<Self> {
        if index < count && count <= Self::COUNT_MAX {
            Some(Self { index, count })
        } else {
            None
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (index, count) = (reader.u8()?, reader.u8()?);
        Self::new(index, count).ok_or(DecodeError::Count)
    }

    /// Returns its number, from 0.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.index
    }

    /// Returns the number of shards.
    #[must_use]
    pub const fn count(self) -> u8 {
        self.count
    }

    /// Returns whether there are other shards.
    #[must_use]
    pub const fn is_partial(self) -> bool {
        self.count > 1
    }

    /// Returns whether `player` belongs to this shard.
    #[must_use]
    pub fn has_player(self, player: ClientId) -> bool {
        !self.is_partial() || Self::of_player(player, self.count) == self.index
    }

    /// Returns the number of the shard, of `count`, that `player` belongs to.
    ///
    /// It does not change between releases. Shard `i` of `n` becomes the shards `2i` and `2i + 1` of
    /// `2n`.
    #[must_use]
    pub fn of_player(player: ClientId, count: u8) -> u8 {
        pick(mix(player.0), count)
    }

    /// Returns the number of the shard that forwards calls to `to`: of a player its own, and else one that
    /// spreads the load.
    #[must_use]
    pub(crate) fn of_address(to: Addr, count: u8) -> u8 {
        match to {
            Addr::Player(player) => Self::of_player(player, count),
            Addr::Node(node) => pick(hash(&node.0), count),
            Addr::Service(name) | Addr::Topic(name) => Self::of_name(name, count),
            Addr::Group(group) => pick(mix(group.0), count),
        }
    }

    /// Returns the number of the shard that forwards messages to `topic`.
    #[must_use]
    pub fn of_topic(topic: Name, count: u8) -> u8 {
        Self::of_name(topic, count)
    }

    fn of_name(name: Name, count: u8) -> u8 {
        pick(hash(name.as_str().as_bytes()), count)
    }

    /// Returns the number of the shard that forwards the broadcasts of a run of a node.
    pub(crate) fn of_instance(instance: InstanceId, count: u8) -> u8 {
        pick(mix(instance.0), count)
    }
}

impl Encode for Shard {
    /// `index 1, count 1`
    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&self.index, &self.count]);
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self::ONLY
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {} (from 0)", self.index, self.count)
    }
}

/// What a node or a hub takes from its join file about the shards; both ends of a link must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// The hub's part.
    pub shard: Shard,
    /// A hash of the ids of all hubs in order.
    pub hubs: u64,
}

impl ShardView {
    /// Creates the view of `shard` by a join file that lists `hubs` in this order.
    #[must_use]
    pub fn new(shard: Shard, hubs: impl IntoIterator<Item = NodeId>) -> Self {
        let ids: Vec<u8> = hubs.into_iter().flat_map(|hub| hub.0).collect();
        let hubs = hash(&ids);
        Self { shard, hubs }
    }
}

/// Maps a hash to one of `count` parts: each gets a range of hashes of the same size.
fn pick(hash: u64, count: u8) -> u8 {
    let product = u128::from(hash).saturating_mul(count.into());
    u8::try_from(product >> 64).unwrap_or_default()
}

/// The finalizer of `SplitMix64`: each bit of the result depends on each bit of `value`.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a with 64 bits, mixed: its upper bits alone are not uniform.
fn hash(bytes: &[u8]) -> u64 {
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_of_a_player_never_changes() {
        // From the definition; other software may depend on these, and stored mail does.
        let of = |player, count| Shard::of_player(ClientId(player), count);
        let shards: Vec<_> = (0..12).map(|player| of(player, 3)).collect();
        assert_eq!(shards, SHARDS_OF_3);
        assert_eq!(of(u64::MAX, 16), OF_16);
        assert!((0..100).all(|player| of(player, 1) == 0));
    }

    const SHARDS_OF_3: [u8; 12] = [0, 1, 2, 0, 2, 2, 2, 0, 2, 1, 0, 0];
    const OF_16: u8 = 11;

    #[test]
    fn players_are_spread_evenly_and_doubling_splits_each_shard_in_two() {
        for count in [2_u8, 3, 8, 16] {
            let mut sizes = vec![0_u32; count.into()];
            for player in 0..16_000 {
                let shard = Shard::of_player(ClientId(player), count);
                sizes[usize::from(shard)] += 1;
                if count <= 8 {
                    let half = Shard::of_player(ClientId(player), count * 2);
                    assert_eq!(half / 2, shard);
                }
            }
            let fair = 16_000 / u32::from(count);
            assert!(
                sizes
                    .iter()
                    .all(|size| size.abs_diff(fair) < fair / 8 + 100)
            );
        }
    }

    #[test]
    fn a_shard_is_one_of_1_to_16() {
        assert_eq!(Shard::new(0, 1), Some(Shard::ONLY));
        assert_eq!(Shard::new(1, 1), None);
        assert!(Shard::new(15, 16).is_some());
        assert_eq!(Shard::new(0, 17), None);
        assert_eq!(Shard::new(0, 0), None);
    }
}
