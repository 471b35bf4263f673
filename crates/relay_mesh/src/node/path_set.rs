//! All paths to one remote node, and the state of the flows that use them.

use core::time::Duration;

use wire::Instant;

use super::flow_ids::FlowIds;
use super::flow_open::EarlyLimiter;
use super::flow_queues::{CloseQueue, OpenQueue};
use super::flows::FlowKeys;
use super::label_search::LabelSearch;
use super::link_state_audit::LinkStateAudit;
use super::path_backoff::Backoffs;
use super::path_selector::PathSelector;
use super::path_table::{PathEntry, PathTable};
use super::probe_flow::ProbeFlow;
use crate::choice::Choice;
use crate::flow_key::FlowId;
use crate::link::{End, LinkId};
use crate::routes::Path;
use crate::splitmix;

/// The paths from this node to one other, for traffic in that direction.
#[derive(Debug)]
pub(super) struct PathSet<A> {
    pub(super) paths: PathTable,
    pub(super) selector: PathSelector,
    pub(super) backoffs: Backoffs,
    /// Paths that are slower than link state says.
    pub(super) audit: LinkStateAudit,
    pub(super) probe_flow: ProbeFlow<A>,
    pub(super) label_search: LabelSearch,
    flow_ids: FlowIds,
    /// Flows opened here that the remote end has not been sent yet.
    pub(super) opens: OpenQueue,
    /// Ended flows that the remote end has not been sent yet.
    pub(super) closes: CloseQueue,
    /// Limits bytes of flows' datagrams over the session.
    pub(super) early: EarlyLimiter,
    /// Random; seeds the sampling rules, and selects the lengths of probes.
    salt: u64,
    /// When a player's packet was last sent.
    used: Instant,
    /// Until then losses are not attributed to paths: the remote end reports overload.
    remote_overloaded_until: Instant,
    /// Since when no path has answered.
    lost_since: Option<Instant>,
}

impl<A> PathSet<A> {
    /// Makes an empty set to the remote end of a session in which this node is `end`.
    pub(super) fn new(
        now: Instant,
        end: End,
        probe_keys: FlowKeys<A>,
        choice: Choice,
        salt: u64,
    ) -> Self {
        Self {
            paths: PathTable::default(),
            backoffs: Backoffs::new(choice.config()),
            selector: PathSelector::new(now, choice),
            audit: LinkStateAudit::default(),
            probe_flow: ProbeFlow::new(probe_keys),
            label_search: LabelSearch::new(now),
            flow_ids: FlowIds::new(end),
            opens: OpenQueue::new(now),
            closes: CloseQueue::new(now),
            early: EarlyLimiter::new(now),
            salt,
            used: now,
            remote_overloaded_until: now,
            lost_since: None,
        }
    }

    /// The next deadline of searches, opens and closes after `now`.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let search = self.label_search.poll_timeout().into_iter();
        let opens = self.opens.poll_timeout();
        let closes = self.closes.poll_timeout();
        let due = search.chain(opens).chain(closes);
        due.filter(|at| *at > now).min()
    }

    pub(super) fn take_flow_id(&mut self, now: Instant) -> FlowId {
        self.label_search.schedule(now);
        self.flow_ids.take()
    }

    /// Accepts `flow` if it is an unused id of the remote end, and returns whether it was.
    pub(super) fn accept_remote_id(&mut self, now: Instant, flow: FlowId) -> bool {
        let is_accepted = self.flow_ids.accept_remote(flow);
        if is_accepted {
            self.label_search.schedule(now);
        }
        is_accepted
    }

    /// Adds a path and returns it; `None`, without another effect, if the table is full.
    pub(super) fn add_path(
        &mut self,
        now: Instant,
        path: Path,
        first: LinkId,
    ) -> Option<&mut PathEntry> {
        if !self.paths.has_room() {
            return None;
        }
        self.label_search.schedule(now);
        let salt = self.draw();
        let id = self.paths.add(now, path, first, salt)?;
        self.paths.get_mut(id)
    }

    /// Delays the first set-up of a path to `until`; no effect after it.
    pub(super) fn defer(&mut self, path: &Path, until: Instant) {
        let mut paths = self.paths.iter_mut();
        let is_new = |known: &PathEntry| known.setups.is_unused() && known.bound.is_empty();
        if let Some(path) = paths.find(|known| known.path == *path && is_new(known)) {
            path.setups.pause_until(until);
            self.label_search.schedule(until);
        }
    }

    /// The path that packets are to move to, or already use.
    pub(super) fn chosen(&self) -> Option<&PathEntry> {
        self.paths.find(self.selector.chosen()?)
    }

    /// Returns the length of the next probe on a path; if the path carries data, that of data.
    pub(super) fn probe_len(&mut self, path: u8) -> usize {
        if self.paths.current() != Some(path) {
            return 0;
        }
        let draw = self.draw();
        self.probe_flow.take_probe_len(draw)
    }

    const fn draw(&mut self) -> u64 {
        self.salt = splitmix::first(self.salt);
        self.salt
    }

    /// Records that a packet of a player was sent or received.
    pub(super) const fn on_used(&mut self, now: Instant) {
        self.used = now;
    }

    /// Time since the last packet of a player.
    pub(super) const fn unused_for(&self, now: Instant) -> Duration {
        now.saturating_since(self.used)
    }

    /// Records that the remote end is overloaded, which counts until then.
    pub(super) const fn on_remote_overload(&mut self, until: Instant) {
        self.remote_overloaded_until = until;
    }

    pub(super) fn is_remote_overloaded(&self, now: Instant) -> bool {
        now < self.remote_overloaded_until
    }

    /// How long no path has answered, counted by calls of this method; zero if one does.
    pub(super) fn poll_lost(&mut self, now: Instant) -> Duration {
        if self.paths.iter().any(|path| path.is_proved(now)) {
            self.lost_since = None;
            return Duration::ZERO;
        }
        now.saturating_since(*self.lost_since.get_or_insert(now))
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>().saturating_add(self.paths.heap())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::choice::ChoiceConfig;
    use crate::flow_key::{FlowOpener, FlowSealer};
    use crate::flow_message::FlowEnd;
    use crate::node::path_table::PATHS_MAX;
    use crate::node::path_table::tests::path;
    use crate::pieces::WHOLE_MAX;
    use crypto::{Exporter, Initial, Provider, Role, Secret32};
    use netsim::provider::SimProvider;
    use wire::Seed;

    pub(in super::super) fn path_set(
        provider: &SimProvider,
    ) -> PathSet<<SimProvider as Provider>::Aead> {
        let agreed = Initial::new(provider, None).agree(provider, &Secret32::new([1; 32]));
        let exporter: Exporter = agreed.traffic(provider, &[0; 32]).split(Role::Dialler).2;
        let keys = (
            FlowSealer::new(provider, &exporter, FlowId::PROBE, 0),
            FlowOpener::new(provider, &exporter, FlowId::PROBE, 1),
        );
        let choice = Choice::new(Instant::ZERO, ChoiceConfig::default(), 0);
        PathSet::new(Instant::ZERO, End::Dialler, keys, choice, 0)
    }

    #[test]
    fn a_full_set_adds_no_path_and_leaves_the_others_as_they_are() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut path_set = path_set(&provider);
        let add = |path_set: &mut PathSet<_>, relay| {
            let added = path_set.add_path(Instant::ZERO, path(relay), LinkId(relay));
            added.map(|path| {
                path.quality.send_in_pieces();
                path.id
            })
        };
        let small = add(&mut path_set, 0);
        for relay in 1..PATHS_MAX {
            let relay = u16::try_from(relay).expect("few");
            assert!(
                path_set
                    .add_path(Instant::ZERO, path(relay), LinkId(1))
                    .is_some()
            );
        }
        assert!(path_set.label_search.take_due(Instant::ZERO));
        assert_eq!(add(&mut path_set, 100), None);
        let in_pieces = |path: &&PathEntry| path.quality.whole_max() < WHOLE_MAX;
        let in_pieces = path_set.paths.iter().filter(in_pieces);
        assert!(in_pieces.map(|path| path.id).eq(small));
        assert_eq!(path_set.paths.iter().count(), PATHS_MAX);
        assert!(!path_set.label_search.take_due(Instant::ZERO));
    }

    #[test]
    fn the_next_deadline_is_the_first_one_after_now() {
        let at = Instant::from_millis;
        let provider = SimProvider::new(Seed::from_number(1));
        let mut path_set = path_set(&provider);
        // The first search is due at once, not at a later time.
        assert_eq!(path_set.next_due(at(0)), None);
        assert!(path_set.label_search.take_due(at(0)));
        path_set.opens.push(FlowId(1));
        path_set.opens.pause(at(5));
        assert_eq!(path_set.next_due(at(0)), Some(at(15)));
        path_set.closes.push(FlowId(2), FlowEnd::Idle);
        path_set.closes.on_full(at(0));
        assert_eq!(path_set.next_due(at(0)), Some(at(15)));
        path_set.label_search.on_searched(at(0), 10_000);
        assert_eq!(path_set.next_due(at(0)), Some(at(15)), "no search is due");
        path_set.label_search.schedule(at(0));
        assert_eq!(path_set.next_due(at(0)), Some(at(10)));
        assert_eq!(path_set.next_due(at(10)), Some(at(15)));
        assert_eq!(path_set.next_due(at(15)), Some(at(20)));
        assert_eq!(path_set.next_due(at(20)), None);
    }
}
