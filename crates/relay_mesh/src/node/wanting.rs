//! Which flows a path is asked for labels for, and which of them first.

use core::time::Duration;
use std::collections::BTreeSet;

use wire::Instant;

use super::course::{Course, CoursePath, PATHS_MAX};
use super::path_labels::TRIES;
use crate::flow_key::FlowId;
use crate::path_setup::PathSetup;
use crate::path_watch::PathState;
use crate::route_request::FLOWS_MAX;

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

    /// The path beside which no other is asked for anything, not even to be tried: the one that packets go on by
    /// after a failure, until all have their labels there. So a thousand flows move by requests for them alone.
    pub(super) fn served_alone(&self, now: Instant, hurried: Option<u8>) -> Option<u8> {
        let path = self.path(hurried?)?;
        let answers = path.is_watched() && path.watch.state(now) == PathState::Good;
        answers.then_some(path.id)
    }

    /// Takes note of whom the path in use has no label for, the first of whom is waited for; returns those
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
        if path.lacking.is_none() {
            path.failures = 0;
        }
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

    /// Paths that are only spare ones, while flows wait for labels on the path in use and none of them looks elsewhere.
    pub(super) fn waiting_spares(&self, bereft: &BTreeSet<FlowId>) -> Vec<u8> {
        let in_use = self.current.and_then(|id| self.path(id));
        let is_awaited = in_use.is_some_and(|path| path.lacking.is_some());
        if !is_awaited || !bereft.is_empty() {
            return Vec::new();
        }
        let spares = self.paths.iter().filter(|path| {
            Some(path.id) != self.current && Some(&path.path) != self.choice.current()
        });
        spares.map(|path| path.id).collect()
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
    /// Whether a flow lacks a label, and so many set-ups failed, one after the other, or it has waited for so long,
    /// that such flows are to look elsewhere.
    pub(super) fn is_short(&self, now: Instant) -> bool {
        self.lacking.is_some_and(|(_, since)| {
            self.failures >= TRIES || now.saturating_since(since) >= LACKING_MAX
        })
    }

    /// How to divide what a path is asked for among requests: for half as many flows after each failure, so that
    /// a node with room for some gives it; and the probe's label by itself after one, so that no flow's shortage
    /// makes the path one of which nothing is known.
    pub(super) fn requests<'a>(
        &self,
        mut flows: &'a [FlowId],
    ) -> impl Iterator<Item = &'a [FlowId]> {
        let most = (FLOWS_MAX >> self.failures.min(15)).max(1);
        let is_tried = self.failures > 0 && !self.is_watched();
        core::iter::from_fn(move || {
            let probes = is_tried && flows.first() == Some(&FlowId::PROBE);
            let count = if probes { 1 } else { most.min(flows.len()) };
            let (request, rest) = flows.split_at_checked(count)?;
            flows = rest;
            (!request.is_empty()).then_some(request)
        })
    }
}

/// How long a path waits that would only be a spare one where nobody wants a second path at all times. Where it is one
/// because the path in use has just died, that is known by then, and flows move by requests for them alone.
pub(super) const SPARE_AFTER: Duration = Duration::from_millis(500);
/// How long a flow waits for a label on the path in use before any other is asked for one: two round trips, and as
/// many for those before it, to relays that are 500 ms away and back.
const LACKING_MAX: Duration = Duration::from_secs(2);
/// After a failure, how long spare paths wait for the labels of the one that packets go on by: four round
/// trips, two for the first 64 flows and two for all others, by relays that are 250 ms away and back.
pub(super) const HURRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::course::tests::{course, path};
    use super::*;
    use crate::link::LinkId;
    use netsim::provider::SimProvider;
    use wire::Seed;

    fn flows(count: u64) -> Vec<FlowId> {
        let flows = (1..count).map(FlowId);
        [FlowId::PROBE].into_iter().chain(flows).collect()
    }

    fn wish(flow: FlowId) -> Wish {
        Wish {
            flow,
            is_proved: true,
            is_warm: false,
        }
    }

    #[test]
    fn after_a_failure_spare_paths_wait_for_the_one_that_packets_go_on_by_and_not_for_long() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut course = course(&provider);
        let added = course.add_path(Instant::ZERO, path(1), LinkId(1));
        let id = added.expect("there is room");
        course.current = Some(id);
        let flows = || [FlowId::PROBE, FlowId(1)].into_iter();
        let hurried = |course: &Course<_>, at| course.hurried(Instant::ZERO + at, flows());
        assert_eq!(hurried(&course, Duration::ZERO), None, "nothing failed");
        course.hurry_until = Instant::ZERO + HURRY;
        let last = HURRY.saturating_sub(Duration::from_millis(1));
        assert_eq!(hurried(&course, Duration::ZERO), Some(id));
        assert_eq!(hurried(&course, last), Some(id));
        assert_eq!(hurried(&course, HURRY), None, "nobody waits for longer");
        assert_eq!(course.hurried(Instant::ZERO, core::iter::empty()), None);
        course.paths[0].failures = 1;
        assert_eq!(hurried(&course, last), None, "labels may never come");
    }

    #[test]
    fn who_lacks_a_label_looks_elsewhere_after_2_s_or_three_failures_and_only_while_he_does() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut course = course(&provider);
        let added = course.add_path(Instant::ZERO, path(1), LinkId(1));
        course.current = added;
        let wishes = [wish(FlowId(1)), wish(FlowId(2))];
        let both = BTreeSet::from([FlowId(1), FlowId(2)]);
        let at = |millis| Instant::from_millis(millis);
        assert!(course.note_lacking(at(0), &wishes).is_empty());
        assert!(course.note_lacking(at(1_999), &wishes).is_empty());
        assert_eq!(course.note_lacking(at(2_000), &wishes), both);
        // The first has its label, or is gone: it is waited for the next from now on.
        assert!(course.note_lacking(at(2_001), &wishes[1..]).is_empty());
        course.paths[0].failures = TRIES;
        assert_eq!(course.note_lacking(at(2_002), &wishes), both);
        assert!(course.paths[0].is_short(at(2_002)));
        // Nobody lacks one any more, and what failed counts no more either.
        assert!(course.note_lacking(at(2_003), &[]).is_empty());
        assert!(!course.paths[0].is_short(at(9_000)));
        assert_eq!(course.paths[0].failures, 0);
    }

    #[test]
    fn requests_are_for_half_as_many_after_each_failure_and_the_probes_stands_alone_after_one() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut course = course(&provider);
        let added = course.add_path(Instant::ZERO, path(1), LinkId(1));
        added.expect("there is room");
        let path = &mut course.paths[0];
        let all = flows(100);
        let mut lens = |failures| {
            path.failures = failures;
            let requests: Vec<&[FlowId]> = path.requests(&all).collect();
            assert_eq!(requests.concat(), all);
            requests.iter().map(|of| of.len()).collect::<Vec<_>>()
        };
        assert_eq!(lens(0), [64, 36]);
        assert_eq!(lens(1), [1, 32, 32, 32, 3]);
        assert_eq!(lens(2)[..3], [1, 16, 16]);
        assert_eq!(lens(6), [1; 100]);
        assert_eq!(lens(u8::MAX), [1; 100]);
        assert_eq!(path.requests(&[]).count(), 0);
    }

    #[test]
    fn spare_paths_are_asked_by_whom_they_serve() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut course = course(&provider);
        for number in [1, 2] {
            let added = course.add_path(Instant::ZERO, path(number), LinkId(number));
            added.expect("there is room");
        }
        course.current = Some(course.paths[0].id);
        let stranger = Wish {
            is_proved: false,
            ..wish(FlowId(3))
        };
        let wishes = [Wish::PROBE, wish(FlowId(1)), stranger];
        let none = BTreeSet::new();
        let asked = |course: &Course<_>, place: usize, hurried, bereft: &BTreeSet<FlowId>| {
            course.missing(&course.paths[place], &wishes, (hurried, bereft))
        };
        let all = [FlowId::PROBE, FlowId(1), FlowId(3)];
        assert_eq!(
            asked(&course, 0, None, &none),
            all,
            "the path in use, for all"
        );
        assert_eq!(
            asked(&course, 1, None, &none),
            [FlowId::PROBE],
            "another is tried"
        );
        // Those that look elsewhere: a stranger on the spare path alone.
        let bereft = BTreeSet::from([FlowId(1), FlowId(3)]);
        let proved = [FlowId::PROBE, FlowId(1)];
        assert_eq!(asked(&course, 1, None, &bereft), proved);
        course.spare = Some(path(2));
        assert_eq!(asked(&course, 1, None, &bereft), all);
        let first = course.current;
        assert_eq!(
            asked(&course, 1, first, &bereft),
            [FlowId::PROBE],
            "in a hurry"
        );
    }
}
