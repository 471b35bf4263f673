//! Encoding of label names.

use crate::hop::LabelName;
use crate::shard::ShardId;

/// Returns the name of a use of a place. A name's slot has, from the highest bit, 3 bits of the
/// [shard](ShardId), 11 of the use's number, and 18 of the place; its generation is the lowest 8
/// bits of that number. Other nodes treat names as opaque.
pub(super) const fn name(shard: ShardId, place: u32, number: u32) -> LabelName {
    let [.., generation] = number.to_be_bytes();
    let high = (number >> 8) << PLACE_BITS;
    LabelName {
        slot: LabelName::high_bits(shard) | high | place,
        generation,
    }
}

/// Returns the place of a name.
pub(super) fn place(name: LabelName) -> usize {
    usize::try_from(name.slot & (PLACES - 1)).unwrap_or(usize::MAX)
}

/// Returns the number of the use.
pub(super) fn number(name: LabelName) -> u32 {
    let high = (name.slot >> PLACE_BITS) & (USES >> 8).saturating_sub(1);
    high << 8 | u32::from(name.generation)
}

/// Uses of a place, after which it is retired: names are never reused, so grants of ended labels
/// are useless.
pub(super) const USES: u32 = 1 << 19;
/// Number of places of a slab.
pub(super) const PLACES: u32 = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_shard_place_and_use() {
        for shard in [0, 5, 7] {
            for at in [0, 1, 65_536, PLACES - 1] {
                for use_of in [0, 255, 256, 0x1234, USES - 1] {
                    let name = name(ShardId(shard), at, use_of);
                    assert_eq!(name.shard(), ShardId(shard));
                    assert_eq!(place(name), usize::try_from(at).unwrap());
                    assert_eq!(number(name), use_of);
                }
            }
        }
    }
}
