//! State and name of one label.

use core::time::Duration;

use udp_proto::packet::PacketNumber;
use udp_proto::replay::{ReplayWindow, Verdict};
use wire::Instant;
use wire::token_bucket::{Fill, Level};

use crate::hop::{HopForm, LabelName, ShardId};
use crate::hop_seal::Binding;
use crate::link::LinkId;

/// State of one label; 224 bytes.
#[derive(Debug)]
pub(crate) struct Label {
    pub(super) purpose: Purpose,
    /// Frames are accepted from this link only.
    pub(crate) previous: LinkId,
    pub(super) owner: LinkId,
    /// Next hop of a transit label; stored here because it takes no extra space.
    pub(super) next: LinkId,
    /// Number of this use of the slot.
    pub(super) number: u32,
    pub(crate) form: HopForm,
    /// Byte budget, within the limits of the slab, and the time of the last genuine frame.
    pub(super) level: Level,
}

/// Destination of a label's frames.
#[derive(Debug)]
pub(super) enum Purpose {
    Free,
    /// Assigned but not bound: frames are dropped.
    Reserved,
    /// The next hop. The binding has the replay window of this label.
    Transit(Binding),
    /// A flow of this node.
    Terminal {
        flow: u32,
        /// Number of the path at the sending end.
        path: u8,
        /// Replay window: repeated frames consume no budget.
        window: ReplayWindow,
    },
}

/// Where a frame is forwarded.
#[derive(Debug)]
pub(crate) enum Onward<'a> {
    /// To the next hop, sealed with the binding.
    Next(LinkId, &'a mut Binding),
    /// To the flow of this node with this index, on this path; the window is the label's.
    Flow((u32, u8), &'a ReplayWindow),
}

impl Onward<'_> {
    pub(crate) fn is_fresh(&self, number: u64) -> bool {
        match self {
            Self::Next(_, binding) => binding.is_fresh(number),
            Self::Flow(_, window) => PacketNumber::new(number)
                .is_some_and(|number| window.check(number) == Verdict::Fresh),
        }
    }
}

impl Label {
    pub(super) const fn vacant(now: Instant) -> Self {
        Self {
            purpose: Purpose::Free,
            previous: LinkId(0),
            owner: LinkId(0),
            next: LinkId(0),
            number: 0,
            form: HopForm::Sealed,
            level: Level::full(Fill { rate: 0, burst: 0 }, now),
        }
    }

    pub(crate) fn names(&self, link: LinkId) -> bool {
        self.previous == link || matches!(self.purpose, Purpose::Transit(_)) && self.next == link
    }

    /// All links that it names, and its owner's.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let next = matches!(self.purpose, Purpose::Transit(_)).then_some(self.next);
        [self.owner, self.previous].into_iter().chain(next)
    }

    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.level.as_of() + LABEL_LIFE <= now
    }

    /// Whether it leads to this node's flow with index `wanted`.
    pub(crate) const fn leads_to(&self, wanted: u32) -> bool {
        matches!(self.purpose, Purpose::Terminal { flow, .. } if flow == wanted)
    }

    /// The owner of a label that leads to another node, or may be bound to one.
    pub(crate) fn transit_owner(&self) -> Option<LinkId> {
        matches!(self.purpose, Purpose::Reserved | Purpose::Transit(_)).then_some(self.owner)
    }

    /// Returns where to forward a frame, if the label is bound.
    pub(crate) const fn onward(&mut self) -> Option<Onward<'_>> {
        match &mut self.purpose {
            Purpose::Transit(binding) => Some(Onward::Next(self.next, binding)),
            Purpose::Terminal { flow, path, window } => Some(Onward::Flow((*flow, *path), window)),
            Purpose::Free | Purpose::Reserved => None,
        }
    }

    /// Marks the number of a genuine frame if the label ends here; a binding marks what it seals.
    pub(crate) fn arrive(&mut self, number: u64) {
        if let (Purpose::Terminal { window, .. }, Some(number)) =
            (&mut self.purpose, PacketNumber::new(number))
        {
            window.mark(number);
        }
    }

    /// Charges a genuine frame and extends the label's life; false if the budget is exhausted.
    pub(crate) fn charge(&mut self, fill: Fill, now: Instant, len: usize) -> bool {
        let units = u32::try_from(len).unwrap_or(u32::MAX);
        self.level.take(fill, now, units)
    }

    pub(super) const fn is_free(&self) -> bool {
        matches!(self.purpose, Purpose::Free)
    }

    pub(super) const fn is_bound(&self) -> bool {
        matches!(self.purpose, Purpose::Transit(_) | Purpose::Terminal { .. })
    }

    pub(super) fn is(&self, name: LabelName) -> bool {
        !self.is_free() && self.number == number_of(name)
    }
}

/// Life of a label without frames; three keep-alives of 10 s.
pub(crate) const LABEL_LIFE: Duration = Duration::from_secs(30);

// Goal F6: 256 bytes per label, with its entry among the bound ones.
const _: () = assert!(size_of::<Label>() <= 224);

/// Returns the name of a use of a place. A name's slot has, from the highest bit, 3 bits of the
/// [shard](ShardId), 11 of the use's number, and 18 of the place; its generation is the lowest 8
/// bits of that number. Other nodes treat names as opaque.
pub(super) const fn name_of(shard: ShardId, place: u32, number: u32) -> LabelName {
    let [.., generation] = number.to_be_bytes();
    let high = (number >> 8) << PLACE_BITS;
    LabelName {
        slot: LabelName::high_bits(shard) | high | place,
        generation,
    }
}

pub(super) fn place_of(name: LabelName) -> usize {
    usize::try_from(name.slot & (PLACES - 1)).unwrap_or(usize::MAX)
}

fn number_of(name: LabelName) -> u32 {
    let high = (name.slot >> PLACE_BITS) & (USES >> 8).saturating_sub(1);
    high << 8 | u32::from(name.generation)
}

/// Uses of a place, then retired: names are never reused, so grants of ended labels are useless.
pub(super) const USES: u32 = 1 << 19;
pub(super) const PLACES: u32 = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_shard_slot_and_use() {
        for shard in [0, 5, 7] {
            for at in [0, 1, 65_536, PLACES - 1] {
                for use_of in [0, 255, 256, 0x1234, USES - 1] {
                    let name = name_of(ShardId(shard), at, use_of);
                    assert_eq!(name.shard(), ShardId(shard));
                    assert_eq!(place_of(name), usize::try_from(at).unwrap());
                    assert_eq!(number_of(name), use_of);
                }
            }
        }
    }
}
