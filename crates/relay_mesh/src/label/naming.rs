//! How a slab names its labels.

use crate::hop::LabelName;
use crate::shard::ShardId;

/// Names a use of a place. The slot of a name is, from the highest bit, 3 of the [shard](ShardId), 11 of the
/// number of the use, and 18 of the place; the generation is the lowest 8 of that number. Whoever is
/// given a name need not know.
pub(super) const fn name(shard: ShardId, place: u32, number: u32) -> LabelName {
    let [.., generation] = number.to_be_bytes();
    let high = (number >> 8) << PLACE_BITS;
    LabelName {
        slot: LabelName::high_bits(shard) | high | place,
        generation,
    }
}

/// The place of a name.
pub(super) fn place(name: LabelName) -> usize {
    usize::try_from(name.slot & (PLACES - 1)).unwrap_or(usize::MAX)
}

/// The number of the use that it names.
pub(super) fn number(name: LabelName) -> u32 {
    let high = (name.slot >> PLACE_BITS) & (USES >> 8).saturating_sub(1);
    high << 8 | u32::from(name.generation)
}

/// Uses of a place, after which it is used no more: a name never comes twice, so that what was granted for one
/// that ended is of no use to anybody.
pub(super) const USES: u32 = 1 << 19;
/// Places of a slab.
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
