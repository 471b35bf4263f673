//! Shards: parts of a node that forward frames in parallel, each with its own labels.

use crate::hop::LabelName;
use crate::trunk;

/// Id of one of a node's shards. The first is the node itself; the others only forward frames.
///
/// A label belongs to one shard, named by the high 3 bits of its slot, so each datagram names its
/// shard. Each sealing shard has a separate key for each opening shard of a neighbour, so no two
/// threads share a nonce counter or a replay window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardId(pub(crate) u8);

impl ShardId {
    /// The node itself.
    pub const FIRST: Self = Self(0);
    /// Maximum number of shards of a node, including the first.
    pub const COUNT_MAX: u8 = 8;

    /// Creates the id with this index; `None` from [`COUNT_MAX`](Self::COUNT_MAX) on.
    #[must_use]
    pub const fn new(place: u8) -> Option<Self> {
        if place < Self::COUNT_MAX {
            Some(Self(place))
        } else {
            None
        }
    }

    /// Returns its index among the shards of its node.
    #[must_use]
    pub const fn place(self) -> u8 {
        self.0
    }

    /// Returns the shard of a received datagram: that of its first frame's label, or the first
    /// shard if it is no frame.
    #[must_use]
    pub fn of_datagram(datagram: &[u8]) -> Self {
        let place = STEERING.iter().find_map(|rule| {
            let claims = datagram.first() == Some(&rule.first);
            claims.then(|| datagram.get(rule.at)).flatten()
        });
        place.map_or(Self::FIRST, |byte| Self(byte >> STEERING_SHIFT))
    }
}

impl LabelName {
    /// Returns the shard that it belongs to.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        let [high, ..] = self.slot.to_be_bytes();
        ShardId(high >> STEERING_SHIFT)
    }

    /// Bits that all slots of a shard share.
    pub(crate) const fn high_bits(shard: ShardId) -> u32 {
        u32::from_be_bytes([shard.0 << STEERING_SHIFT, 0, 0, 0])
    }
}

/// Location of the shard in datagrams with a given first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The first byte.
    pub first: u8,
    /// Offset of the byte whose high bits name the shard; shorter datagrams belong to the first
    /// shard.
    pub at: usize,
}

/// Right shift of the byte that [`Steering`] names.
pub const STEERING_SHIFT: u32 = 5;

/// Rules for a socket filter that distributes datagrams; all others belong to the first shard.
pub const STEERING: [Steering; 3] = [
    Steering {
        first: 0x80,
        at: LABEL_AT,
    },
    Steering {
        first: 0x81,
        at: LABEL_AT,
    },
    Steering {
        first: trunk::KIND,
        at: trunk::HEAD_LEN + trunk::PREFIX_LEN + LABEL_AT,
    },
];

/// Offset of the label in a frame.
const LABEL_AT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::{HopHeader, HopKind, Phase, Piece};

    #[test]
    fn a_datagram_tells_whose_it_is_by_the_label_of_its_first_frame() {
        for place in 0..ShardId::COUNT_MAX {
            let shard = ShardId::new(place).unwrap();
            let label = LabelName {
                slot: (u32::from(place) << 29) | 0x4D,
                generation: 1,
            };
            assert_eq!(label.shard(), shard);
            for kind in [HopKind::Sealed, HopKind::TagOnly] {
                let header = HopHeader {
                    kind,
                    epoch: 1,
                    from: ShardId::FIRST,
                    hops_left: 2,
                    label,
                    phase: Phase {
                        key: 0,
                        piece: Piece::Whole,
                    },
                    number: u64::MAX >> 8,
                };
                let frame = header.encode();
                assert_eq!(ShardId::of_datagram(&frame), shard);
                let mut trunk = vec![trunk::KIND];
                trunk::append(&frame, &mut trunk);
                trunk::append(&[0xFF; 20], &mut trunk);
                assert_eq!(ShardId::of_datagram(&trunk), shard);
            }
        }
        assert_eq!(ShardId::new(ShardId::COUNT_MAX), None);
    }

    #[test]
    fn what_is_no_frame_or_cut_short_is_the_first_ones() {
        for datagram in [
            &[][..],
            &[0x81],
            &[0x81, 0, 0, 0],
            &[0x82, 0, 20, 0x81, 0, 0, 0],
            &[0x40, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0x83, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        ] {
            assert_eq!(
                ShardId::of_datagram(datagram),
                ShardId::FIRST,
                "{datagram:?}"
            );
        }
    }
}
