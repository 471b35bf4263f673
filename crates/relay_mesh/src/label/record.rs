//! State of one label.

use core::time::Duration;
use wire::token_bucket::{Fill, Level};

use udp_proto::packet::PacketNumber;
use udp_proto::replay::{ReplayWindow, Verdict};
use wire::Instant;

use super::naming;
use crate::hop::LabelName;
use crate::hop_key::HopForm;
use crate::hop_sealer::Binding;
use crate::link::LinkId;

/// State of one label; 224 bytes.
#[derive(Debug)]
pub(crate) struct Label {
    pub(super) purpose: Purpose,
    /// Frames are accepted from this link only.
    pub(super) previous: LinkId,
    /// The peer that requested it.
    pub(super) owner: LinkId,
    /// Next hop of a transit label; stored here because it takes no extra space.
    pub(super) next: LinkId,
    /// Number of this use of the slot.
    pub(super) number: u32,
    /// Protection of its frames.
    pub(super) form: HopForm,
    /// Byte budget, within the limits of the slab, and the time of the last genuine frame.
    pub(super) level: Level,
}

/// Destination of a label's frames.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The slot is free.
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
    /// To the flow of this node with this index, on the path with this number; the window is the
    /// label's.
    Flow((u32, u8), &'a ReplayWindow),
}

impl Onward<'_> {
    /// Whether no frame with this number has arrived on the label.
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

    /// The link that frames must arrive from.
    pub(crate) const fn previous(&self) -> LinkId {
        self.previous
    }

    /// Protection of its frames.
    pub(crate) const fn form(&self) -> &HopForm {
        &self.form
    }

    /// Sets the protection of its frames.
    pub(crate) fn set_form(&mut self, form: HopForm) {
        self.form = form;
    }

    /// Whether it ends with the session of `link`.
    pub(crate) fn names(&self, link: LinkId) -> bool {
        self.previous == link || matches!(self.purpose, Purpose::Transit(_)) && self.next == link
    }

    /// All links that it names, and its owner's.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let next = matches!(self.purpose, Purpose::Transit(_)).then_some(self.next);
        [self.owner, self.previous].into_iter().chain(next)
    }

    /// Whether it has ended at `now`.
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

    /// Charges a genuine frame and extends the label's life; returns false if the budget is
    /// exhausted.
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
        !self.is_free() && self.number == naming::number(name)
    }
}

/// Life of a label without frames; three keep-alives of 10 s.
pub(crate) const LABEL_LIFE: Duration = Duration::from_secs(30);

// Goal F6: 256 bytes per label, with its entry among the bound ones.
const _: () = assert!(size_of::<Label>() <= 224);
