//! Which flows a path is asked for labels for, and which of them first.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::Instant;

use super::course::{Course, CoursePath, PATHS_MAX};
use super::path_labels::TRIES;
use crate::flow_key::FlowId;
use crate::path_setup::PathSetup;
use crate::path_watch::PathState;

/// A flow that may be asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) flow: FlowId,
    /// Whether it is somebody's for sure.
    pub(super) is_proved: bool,
    /// Whether its mode wants a second path.
    pub(super) is_warm: bool,
}

impl Wish {
    pub(super) const PROBE: Self = Self {
        flow: FlowId::PROBE,
        is_proved: true,
        is_warm: false,
    };
}

impl<A> Course<A> {
    /// The path that others wait for: where packets go or shall go after a failure, as long as one of `flows`
    /// has no label there. None where it has not even one to probe it and another is proved, or a set-up of it
    /// failed.
    pub(super) fn hurried(
        &self,
        now: Instant,
        mut flows: impl Iterator<Item = FlowId>,
    ) -> Option<u8> {
        let chosen = self.choice.current().and_then(|path| self.find(path));
        let path = self.current.and_then(|id| self.path(id)).or(chosen)?;
        let is_open = path.failures == 0 && path.retry_at <= now;
        let is_first = path.is_watched() || !self.paths.iter().any(|path| path.is_proved(now));
        let is_wanted = now < self.hurry_until && is_open && is_first;
        (is_wanted && flows.any(|flow| !path.bound.contains_key(&flow))).then_some(path.id)
    }

    /// Takes note of whom the path in use has no label for, the first of whom is waited with; returns those
    /// that are to look elsewhere, as it has given none for long: none while it gives them one after the other.
    pub(super) fn note_lacking(&mut self, now: Instant, wishes: &[Wish]) -> BTreeSet<FlowId> {
        let current = self.current;
        let mut paths = self.paths.iter_mut();
        let Some(path) = paths.find(|path| Some(path.id) == current) else {
            return BTreeSet::new();
        };
        let lacks = |wish: &&Wish| !path.bound.contains_key(&wish.flow);
        let still = path
            .lacking
            .filter(|(flow, _)| wishes.iter().filter(lacks).any(|wish| wish.flow == *flow));
        let first = wishes.iter().find(lacks).map(|wish| (wish.flow, now));
        path.lacking = still.or(first);
        let bereft = if path.is_short(now) {
            let bereft = wishes
                .iter()
                .filter(|wish| !path.bound.contains_key(&wish.flow));
            bereft.map(|wish| wish.flow).collect()
        } else {
            BTreeSet::new()
        };
        if let Some((_, since)) = path.lacking.filter(|_| bereft.is_empty()) {
            self.search_from(since + LACKING_MAX);
        }
        bereft
    }

    /// Flows that a path is to be asked for now, those first that have no other way. They have neither a label
    /// there nor a set-up.
    ///
    /// The path in use is asked for all. Those that look elsewhere are asked for on any other, strangers on the one
    /// that stands by; and besides, others get labels of what is proved: those that stand by, and that packets
    /// move to.
    pub(super) fn missing(
        &self,
        path: &CoursePath,
        wishes: &[Wish],
        (hurried, bereft): (Option<u8>, &BTreeSet<FlowId>),
    ) -> Vec<FlowId> {
        let is_current = self.current.is_none_or(|current| current == path.id);
        let waits = hurried.is_some_and(|hurried| hurried != path.id);
        let is_warm = wishes.iter().any(|wish| wish.is_warm)
            || path.path.relays.is_empty()
            || self.choice.current() == Some(&path.path);
        let is_spare = self.spare.as_ref() == Some(&path.path) || self.standby == Some(path.id);
        let asked = path.setups.iter().flat_map(PathSetup::flows);
        let asked: BTreeSet<FlowId> = asked.copied().collect();
        let is_first = |wish: &Wish| {
            let is_bereft = !waits && bereft.contains(&wish.flow);
            wish.flow == FlowId::PROBE || (is_bereft && (wish.is_proved || is_spare))
        };
        let is_next = |wish: &Wish| !waits && (is_current || (wish.is_proved && is_warm));
        let first = wishes.iter().filter(|wish| is_first(wish));
        let next = wishes
            .iter()
            .filter(|wish| !is_first(wish) && is_next(wish));
        let wanted = first.chain(next).map(|wish| wish.flow);
        wanted
            .filter(|flow| !path.bound.contains_key(flow) && !asked.contains(flow))
            .collect()
    }

    /// Takes out of `idle` those paths by which flows go that the one in use has no label for, and no path
    /// before it in the list: as many as leave room for `coming` others.
    pub(super) fn spare_leant_on(&self, now: Instant, idle: &mut Vec<u8>, coming: usize) {
        let kept = self.paths.len().saturating_sub(idle.len());
        let mut room = PATHS_MAX.saturating_sub(kept).saturating_sub(coming);
        idle.retain(|id| {
            let is_kept = room > 0 && self.is_leant_on(now, *id);
            room = room.saturating_sub(is_kept.into());
            !is_kept
        });
    }

    fn is_leant_on(&self, now: Instant, id: u8) -> bool {
        let carries =
            |path: &&CoursePath| path.watch.is_proved() && path.watch.state(now) != PathState::Dead;
        let Some(path) = self.path(id).filter(carries) else {
            return false;
        };
        let before = self.paths.iter().take_while(|path| path.id != id);
        let others: Vec<&CoursePath> = before
            .filter(carries)
            .chain(self.current.and_then(|id| self.path(id)))
            .collect();
        let mut flows = path.bound.keys().filter(|flow| **flow != FlowId::PROBE);
        flows.any(|flow| others.iter().all(|other| !other.bound.contains_key(flow)))
    }
}

impl CoursePath {
    /// Whether so many set-ups failed, one after the other, or one flow has waited for so long, that flows without
    /// a label are to look elsewhere.
    pub(super) fn is_short(&self, now: Instant) -> bool {
        let waits = |(_, since): (FlowId, Instant)| now.saturating_since(since) >= LACKING_MAX;
        self.failures >= TRIES || self.lacking.is_some_and(waits)
    }
}

/// How long a flow waits for a label on the path in use before any other is asked for one: two round trips, and as
/// many for those before it, to relays that are 500 ms away and back.
const LACKING_MAX: Duration = Duration::from_secs(2);
/// After a failure, how long spare paths wait for the labels of the one that packets go on by: four round
/// trips, two for the first 64 flows and two for all others, by relays that are 250 ms away and back.
pub(super) const HURRY: Duration = Duration::from_secs(1);
