//! Shards: parts of a node that pass frames on beside each other, each with labels of its own.

use crate::hop::LabelName;
use crate::trunk;

/// Names one of a node's shards. The first is the node itself; the others only pass frames on.
///
/// A label belongs to one shard, which the high 3 bits of its slot name, so that a datagram tells by itself
/// whose it is. And each shard that seals for a neighbour has a key for each shard of it that opens: no
/// two threads share what makes a nonce or a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardId(pub(crate) u8);

impl ShardId {
    /// The node itself.
    pub const FIRST: Self = Self(0);
    /// Shards of a node, itself among them.
    pub const COUNT_MAX: u8 = 8;

    /// Names one by its place; `None` from [`COUNT_MAX`](Self::COUNT_MAX) on.
    #[must_use]
    pub const fn new(place: u8) -> Option<Self> {
        if place < Self::COUNT_MAX {
            Some(Self(place))
        } else {
            None
        }
    }

    /// Returns its place among the shards of its node.
    #[must_use]
    pub const fn place(self) -> u8 {
        self.0
    }

    /// Returns whose a datagram is that came to a node: that of the label of its first frame, and the node's
    /// own where it is no frame.
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
    /// Returns which shard of its node it belongs to.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        let [high, ..] = self.slot.to_be_bytes();
        ShardId(high >> STEERING_SHIFT)
    }

    /// What all slots of a shard have in common.
    pub(crate) const fn high_bits(shard: ShardId) -> u32 {
        u32::from_be_bytes([shard.0 << STEERING_SHIFT, 0, 0, 0])
    }
}

/// Where a datagram that begins with some byte says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Its first byte.
    pub first: u8,
    /// Offset of the byte whose high bits name the shard; a shorter one is the first shard's.
    pub at: usize,
}

/// How far the byte that [`Steering`] names is shifted to the right.
pub const STEERING_SHIFT: u32 = 5;

/// Whose a datagram is, for whoever divides what comes to a port; all others are the first shard's.
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
