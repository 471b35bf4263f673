//! Labels of one shard. A label is one direction of a flow on one path, at one node.

mod record;

use core::ops::Range;
use std::collections::VecDeque;

use udp_proto::replay::ReplayWindow;
use wire::token_bucket::{Fill, Level};
use wire::{Instant, TokenBucket};

use crate::hop::{HopForm, LabelName, ShardId};
use crate::hop_seal::Binding;
use crate::link::{LinkId, LinkSet};
pub(crate) use record::{Label, Onward};
use record::{PLACES, Purpose, USES, name_of, place_of};

/// Destination of a label, for its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    /// The flow of this node with this index.
    Flow(u32),
    /// Another node, or none yet.
    Elsewhere,
}

/// Labels of one shard in a slab: a lookup is an index and a comparison.
#[derive(Debug)]
pub(crate) struct LabelSlab {
    shard: ShardId,
    labels: Vec<Label>,
    /// Free slots, oldest first.
    free: VecDeque<u32>,
    /// Slots that have no uses left.
    retired: u32,
    /// Usage per owner, by link; kept after the owner's labels end.
    owners: Vec<LabelUsage>,
    limits: LabelLimits,
    taken: u32,
    /// Start of the next sweep.
    swept_to: u32,
}

/// A neighbour's usage of a slab.
#[derive(Debug)]
struct LabelUsage {
    held: u32,
    /// Byte budget of all its labels.
    bucket: TokenBucket,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelLimits {
    pub(crate) labels_max: u32,
    pub(crate) per_owner_max: u32,
    /// Bytes per second and label.
    pub(crate) rate: u32,
    /// Burst bytes per label.
    pub(crate) burst: u32,
    /// Bytes per second of all labels of one owner; the burst is a quarter of it.
    pub(crate) owner_rate: u32,
}

impl LabelSlab {
    pub(crate) const fn new(shard: ShardId, limits: LabelLimits) -> Self {
        Self {
            shard,
            labels: Vec::new(),
            free: VecDeque::new(),
            retired: 0,
            owners: Vec::new(),
            limits,
            taken: 0,
            swept_to: 0,
        }
    }

    /// Assigns a label for frames from `previous`, as requested by `owner`.
    pub(crate) fn reserve(
        &mut self,
        now: Instant,
        owner: LinkId,
        previous: LinkId,
    ) -> Result<LabelName, LabelRefusal> {
        let held = self.owner_mut(now, owner)?.held;
        if held >= self.limits.per_owner_max || self.taken >= self.limits.labels_max {
            return Err(LabelRefusal::Full);
        }
        let place = self.take_place(now)?;
        let fill = self.fill();
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        let label = self.labels.get_mut(at).ok_or(LabelRefusal::Unknown)?;
        label.purpose = Purpose::Reserved;
        label.previous = previous;
        label.owner = owner;
        label.form = HopForm::Sealed;
        label.level = Level::full(fill, now);
        let number = label.number;
        self.owner_mut(now, owner)?.held = held.saturating_add(1);
        self.taken = self.taken.saturating_add(1);
        Ok(name_of(self.shard, place, number))
    }

    /// Checks that `name` was assigned to `owner` and is not bound yet.
    pub(crate) fn check_reserved(
        &self,
        name: LabelName,
        owner: LinkId,
    ) -> Result<(), LabelRefusal> {
        match self.owned_label(name, owner).map(|label| &label.purpose) {
            Some(Purpose::Reserved) => Ok(()),
            Some(_) => Err(LabelRefusal::Bound),
            None => Err(LabelRefusal::Unknown),
        }
    }

    /// Binds a reserved label to the next hop; returns the binding if it is not reserved.
    pub(crate) fn bind_transit(
        &mut self,
        name: LabelName,
        next: LinkId,
        binding: Binding,
    ) -> Option<Binding> {
        match self.get_mut(name) {
            Some(label) if matches!(label.purpose, Purpose::Reserved) => {
                label.purpose = Purpose::Transit(binding);
                label.next = next;
                None
            }
            _ => Some(binding),
        }
    }

    /// Binds a reserved label to a flow of this node, for the remote end's path with this number.
    pub(crate) fn bind_terminal(&mut self, name: LabelName, (flow, path): (u32, u8)) {
        if let Some(label) = self.get_mut(name)
            && matches!(label.purpose, Purpose::Reserved)
        {
            label.purpose = Purpose::Terminal {
                flow,
                path,
                window: ReplayWindow::new(),
            };
        }
    }

    /// Finds the label of a frame; `None` if the slot is free or in another use.
    pub(crate) fn get_mut(&mut self, name: LabelName) -> Option<&mut Label> {
        let place = self.place(name)?;
        let label = self.labels.get_mut(place);
        label.filter(|label| label.is(name))
    }

    pub(crate) fn get_with_owner(
        &mut self,
        name: LabelName,
    ) -> Option<(&mut Label, Fill, &mut TokenBucket)> {
        let (place, fill) = (self.place(name)?, self.fill());
        let label = self.labels.get_mut(place);
        let label = label.filter(|label| label.is(name))?;
        let owner = self.owners.get_mut(usize::from(label.owner.0))?;
        Some((label, fill, &mut owner.bucket))
    }

    /// Returns the destination of `name` if it belongs to `owner` and has not ended.
    pub(crate) fn owned(&self, name: LabelName, owner: LinkId) -> Option<Owned> {
        Some(match self.owned_label(name, owner)?.purpose {
            Purpose::Terminal { flow, .. } => Owned::Flow(flow),
            Purpose::Free | Purpose::Reserved | Purpose::Transit(_) => Owned::Elsewhere,
        })
    }

    fn owned_label(&self, name: LabelName, owner: LinkId) -> Option<&Label> {
        let label = self.labels.get(self.place(name)?)?;
        (label.is(name) && label.owner == owner).then_some(label)
    }

    /// Frees a label and returns its binding, to be released by its sealer.
    pub(crate) fn remove(&mut self, name: LabelName) -> Option<(LinkId, Binding)> {
        let label = self.get_mut(name)?;
        let (owner, next) = (label.owner, label.next);
        let old = core::mem::replace(&mut label.purpose, Purpose::Free);
        label.number = label.number.saturating_add(1);
        if label.number < USES {
            let place = u32::try_from(place_of(name)).unwrap_or(u32::MAX);
            self.free.push_back(place);
        } else {
            self.retired = self.retired.saturating_add(1);
        }
        self.taken = self.taken.saturating_sub(1);
        if let Some(owner) = self.owners.get_mut(usize::from(owner.0)) {
            owner.held = owner.held.saturating_sub(1);
        }
        match old {
            Purpose::Transit(binding) => Some((next, binding)),
            Purpose::Free | Purpose::Reserved | Purpose::Terminal { .. } => None,
        }
    }

    /// Frees the labels that match `ends` and passes their bindings to `on_free`.
    pub(crate) fn remove_where(
        &mut self,
        ends: impl Fn(&Label) -> bool,
        on_free: impl FnMut(LinkId, Binding),
    ) -> u32 {
        self.remove_among(0..self.places(), ends, on_free)
    }

    /// Frees expired labels in the next of [`SWEEPS`] parts, to hold the lock briefly.
    pub(crate) fn sweep(&mut self, now: Instant, on_free: impl FnMut(LinkId, Binding)) -> u32 {
        let all = self.places();
        let from = self.swept_to.min(all);
        let to = all.min(from.saturating_add(all.div_ceil(SWEEPS)));
        self.swept_to = if to == all { 0 } else { to };
        self.remove_among(from..to, |label| label.is_expired(now), on_free)
    }

    fn remove_among(
        &mut self,
        places: Range<u32>,
        ends: impl Fn(&Label) -> bool,
        mut on_free: impl FnMut(LinkId, Binding),
    ) -> u32 {
        let mut count = 0_u32;
        for place in places {
            let at = usize::try_from(place).unwrap_or(usize::MAX);
            let Some(label) = self.labels.get(at) else {
                break;
            };
            if label.is_free() || !ends(label) {
                continue;
            }
            let name = name_of(self.shard, place, label.number);
            count = count.saturating_add(1);
            if let Some((next, binding)) = self.remove(name) {
                on_free(next, binding);
            }
        }
        count
    }

    /// Adds the links that labels name, and their owners' links.
    pub(crate) fn add_named(&self, to: &mut LinkSet) {
        let labels = self.labels.iter().filter(|label| !label.is_free());
        to.extend(labels.flat_map(Label::links));
    }

    /// Adds the owners of labels that lead to other nodes, or may be bound to one.
    pub(crate) fn add_transit_owners(&self, to: &mut LinkSet) {
        to.extend(self.labels.iter().filter_map(Label::transit_owner));
    }

    /// Adds the owners of bound labels; reserved ones carry nothing.
    pub(crate) fn add_held(&self, to: &mut LinkSet) {
        let labels = self.labels.iter().filter(|label| label.is_bound());
        to.extend(labels.flat_map(Label::links));
    }

    /// Returns the number of labels that lead to other nodes at `now`.
    pub(crate) fn transit(&self, now: Instant) -> u32 {
        let transit = self.labels.iter().filter(|label| {
            let is_transit = matches!(label.purpose, Purpose::Transit(_) | Purpose::Reserved);
            is_transit && !label.is_expired(now)
        });
        u32::try_from(transit.count()).unwrap_or(u32::MAX)
    }

    pub(crate) const fn len(&self) -> u32 {
        self.taken
    }

    pub(crate) fn memory(&self) -> usize {
        let labels = self.labels.capacity().saturating_mul(size_of::<Label>());
        let free = self.free.capacity().saturating_mul(4);
        let owners = self
            .owners
            .capacity()
            .saturating_mul(size_of::<LabelUsage>());
        labels.saturating_add(free).saturating_add(owners)
    }

    fn owner_mut(&mut self, now: Instant, owner: LinkId) -> Result<&mut LabelUsage, LabelRefusal> {
        let rate = self.limits.owner_rate;
        let place = usize::from(owner.0);
        if place >= self.owners.len() {
            self.owners
                .resize_with(place.saturating_add(1), || LabelUsage {
                    held: 0,
                    bucket: TokenBucket::new(rate, rate / 4, now),
                });
        }
        self.owners.get_mut(place).ok_or(LabelRefusal::Unknown)
    }

    fn take_place(&mut self, now: Instant) -> Result<u32, LabelRefusal> {
        let places = self.places();
        let is_all = places.saturating_sub(self.retired) >= self.limits.labels_max;
        // A slot rests before its next use, so that frames in flight to its last label find none.
        if self.free.len() > FREE_KEPT || is_all || places >= PLACES {
            return self.free.pop_front().ok_or(LabelRefusal::Full);
        }
        self.labels.push(Label::vacant(now));
        Ok(places)
    }

    /// Returns a label's slot; `None` if its name belongs to another shard.
    fn place(&self, name: LabelName) -> Option<usize> {
        (name.shard() == self.shard).then(|| place_of(name))
    }

    fn places(&self) -> u32 {
        u32::try_from(self.labels.len()).unwrap_or(u32::MAX)
    }

    const fn fill(&self) -> Fill {
        let LabelLimits { rate, burst, .. } = self.limits;
        Fill { rate, burst }
    }
}

/// Why a label is not assigned or bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelRefusal {
    /// The limit is reached.
    Full,
    /// There is no such label, or it belongs to another owner.
    Unknown,
    /// It is bound.
    Bound,
}

/// Sweeps that cover all labels: one every 100 ms, so that an expired label ends within 5 s.
const SWEEPS: u32 = 50;

/// Number of free slots above which no new one is created.
const FREE_KEPT: usize = 64;

#[cfg(test)]
mod tests;
