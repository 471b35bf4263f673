//! Which flows a path is asked for labels for, and which of them first.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::Instant;

use super::course::{Course, CoursePath};
use crate::flow_key::FlowId;
use crate::path_setup::PathSetup;

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

    /// Flows that a path is to be asked for now, those first that have no other way. They have neither a label
    /// there nor a set-up.
    ///
    /// The path in use is asked for all. One that has given none for long leaves those without a label to any
    /// other; and besides, others get labels of what is proved: those that stand by, and that packets move to.
    pub(super) fn missing(
        &self,
        path: &CoursePath,
        wishes: &[Wish],
        hurried: Option<u8>,
    ) -> Vec<FlowId> {
        let current = self.current.and_then(|id| self.path(id));
        let is_current = current.is_none_or(|current| current.id == path.id);
        let waits = hurried.is_some_and(|hurried| hurried != path.id);
        let stands_by = wishes.iter().any(|wish| wish.is_warm)
            || path.path.relays.is_empty()
            || self.choice.current() == Some(&path.path);
        let is_bereft = |flow: &FlowId| {
            current.is_some_and(|path| path.is_short() && !path.bound.contains_key(flow))
        };
        let asked = path.setups.iter().flat_map(PathSetup::flows);
        let asked: BTreeSet<FlowId> = asked.copied().collect();
        let is_wanted = |wish: &&Wish| {
            let for_all = is_current || (wish.is_proved && stands_by);
            wish.flow == FlowId::PROBE || (!waits && (for_all || is_bereft(&wish.flow)))
        };
        let wanted = wishes.iter().filter(is_wanted).map(|wish| wish.flow);
        let mut missing: Vec<FlowId> = wanted
            .filter(|flow| !path.bound.contains_key(flow) && !asked.contains(flow))
            .collect();
        if !is_current {
            missing.sort_by_key(|flow| (*flow != FlowId::PROBE, !is_bereft(flow)));
        }
        missing
    }

    /// Whether flows go by a path because the one in use has no label for them.
    pub(super) fn is_leant_on(&self, now: Instant, path: &CoursePath) -> bool {
        let current = self.current.and_then(|id| self.path(id));
        let is_bereft = |flow| current.is_some_and(|path| !path.bound.contains_key(flow));
        path.is_proved(now) && path.bound.keys().any(is_bereft)
    }
}

/// After a failure, how long spare paths wait for the labels of the one that packets go on by: four round
/// trips, two for the first 64 flows and two for all others, by relays that are 250 ms away and back.
pub(super) const HURRY: Duration = Duration::from_secs(1);
