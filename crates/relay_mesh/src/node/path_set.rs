//! All paths to one remote node, and the state of the flows that use them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::Provider;
use wire::{Instant, TokenBucket};

use super::flow_open::{EARLY_BURST, EARLY_RATE};
use super::link_state_audit::LinkStateAudit;
use super::path_backoff::{self, PathBackoff, RelayBackoff};
use super::path_labels::{RETRY, has_failed};
use super::path_probes::RecentLengths;
use crate::choice::Choice;
use crate::cost::Cost;
use crate::data_plane::DataPlane;
use crate::event::RouteCause;
use crate::flow_key::{FlowId, FlowOpener, FlowSealer, Numbered};
use crate::flow_message::FlowEnd;
use crate::game::Mode;
use crate::hop::{HOPS_LEFT_MAX, LabelName};
use crate::hop_seal::{Binding, Packet};
use crate::link::{End, LinkId};
use crate::path_quality::{DataArrivals, PathQuality};
use crate::path_setup::{Held, PathSetup};
use crate::path_watch::{PathState, PathWatch};
use crate::pieces::Joiner;
use crate::routes::Path;
use crate::splitmix;

/// The paths from this node to one other, for traffic in that direction.
#[derive(Debug)]
pub(super) struct PathSet<A> {
    end: End,
    /// Seals probes and echoes, and numbers their packets.
    pub(super) probe_sealer: FlowSealer<A>,
    pub(super) probe_opener: FlowOpener<A>,
    /// At most [`PATHS_MAX`].
    pub(super) paths: Vec<PathEntry>,
    /// The path that carries packets.
    pub(super) current: Option<u8>,
    /// The path that is kept ready.
    pub(super) standby: Option<u8>,
    /// After a move, the previous path and until when it carries copies.
    pub(super) previous: Option<(u8, Instant)>,
    pub(super) choice: Choice,
    /// Why the choice changed last.
    pub(super) cause: RouteCause,
    /// The second-best path.
    pub(super) spare: Option<Path>,
    pub(super) path_backoff: PathBackoff,
    /// Paths that are slower than link state says.
    pub(super) audit: LinkStateAudit,
    /// Reassembles session datagrams that arrive over paths.
    pub(super) session_joiner: Joiner,
    /// Relays whose paths carried data worse than probes.
    pub(super) backoff: RelayBackoff,
    /// Arrivals on the remote end's paths.
    pub(super) arrivals: Arrivals,
    /// Until then a second path is kept, since data on the active one was suspect.
    pub(super) suspect_until: Instant,
    /// Until then losses are not attributed to paths: the remote end reports overload.
    pub(super) far_overloaded_until: Instant,
    /// Lengths of recent payloads, which probes imitate.
    pub(super) lengths: RecentLengths,
    /// Random; seeds the sampling rules.
    pub(super) salt: u64,
    /// Labels granted for the probe flow.
    pub(super) probe_labels: Vec<LabelName>,
    next_path: u8,
    next_flow: u64,
    /// Last flow id of the remote end.
    pub(super) last_remote: u64,
    /// When a player's packet was last sent.
    pub(super) used: Instant,
    /// When to search for flows without a label; `None` if none has to wait for one.
    search_at: Option<Instant>,
    /// Limits bytes of datagrams sent, and received, over the session.
    pub(super) early_out: TokenBucket,
    pub(super) early_in: TokenBucket,
    /// The earliest next search; each one visits all flows.
    pub(super) next_search_at: Instant,
    /// Flows opened here that the remote end has not been sent yet.
    pub(super) opens: BTreeSet<FlowId>,
    /// The earliest next open message; flows that open together share one.
    pub(super) opens_at: Instant,
    /// Ended flows that the remote end has not been sent yet.
    pub(super) closes: BTreeMap<FlowId, FlowEnd>,
    /// The earliest next attempt to queue them.
    pub(super) closes_at: Instant,
    /// When the choice is evaluated next.
    pub(super) decide_at: Instant,
    /// Until then the active path gets its labels first, since the one before failed.
    pub(super) failover_deadline: Instant,
    /// Since when no path has answered.
    pub(super) lost_since: Option<Instant>,
}

/// Arrivals on each path, by the remote end's path number.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Probes received; wraps.
    probes: BTreeMap<u8, u32>,
    /// Data of the most recent paths; at most [`DATA_PATHS_MAX`].
    data: BTreeMap<u8, DataArrivals>,
}

impl Arrivals {
    /// Counts a probe and returns the number received so far.
    pub(super) fn count(&mut self, path: u8) -> u32 {
        let count = self.probes.entry(path).or_default();
        *count = count.wrapping_add(1);
        *count
    }

    pub(super) fn data(&mut self, path: u8) -> &mut DataArrivals {
        if !self.data.contains_key(&path) && self.data.len() >= DATA_PATHS_MAX {
            let oldest = self.data.iter().min_by_key(|(_, data)| data.used());
            if let Some(oldest) = oldest.map(|(path, _)| *path) {
                self.data.remove(&oldest);
            }
        }
        self.data.entry(path).or_default()
    }
}

#[derive(Debug)]
pub(super) struct PathEntry {
    pub(super) id: u8,
    pub(super) path: Path,
    /// The link to its first node.
    pub(super) first: LinkId,
    /// At most [`SETUPS_MAX`].
    pub(super) setups: Vec<PathSetup>,
    /// Label of each flow at the first node.
    pub(super) bound: BTreeMap<FlowId, Bound>,
    pub(super) watch: PathWatch,
    pub(super) quality: PathQuality,
    /// When its data was found to be worse than its probes.
    pub(super) failed_at: Option<Instant>,
    /// When its probes first sufficed.
    pub(super) proved_at: Option<Instant>,
    /// Whether its delay ever matched link state.
    pub(super) has_fitted: bool,
    /// Its delay by link state when its probes were last as fast as usual.
    pub(super) usual_delay: Option<Cost>,
    pub(super) padding_at: Instant,
    pub(super) retry_at: Instant,
    pub(super) failures: u8,
    /// On the active path: a flow without a label, and since when it has waited.
    pub(super) unbound_since: Option<(FlowId, Instant)>,
}

/// A flow's label on a path.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    pub(super) sent_at: Instant,
    /// Labels at each node of the path, in order.
    pub(super) held: Vec<Held>,
}

impl<A> PathSet<A> {
    pub(super) fn new(
        now: Instant,
        end: End,
        (probe_sealer, probe_opener): (FlowSealer<A>, FlowOpener<A>),
        choice: Choice,
    ) -> Self {
        Self {
            end,
            probe_sealer,
            probe_opener,
            paths: Vec::new(),
            current: None,
            standby: None,
            previous: None,
            backoff: RelayBackoff::new(choice.config()),
            choice,
            cause: RouteCause::First,
            spare: None,
            path_backoff: PathBackoff::default(),
            audit: LinkStateAudit::default(),
            session_joiner: Joiner::new(),
            suspect_until: now,
            far_overloaded_until: now,
            lengths: RecentLengths::default(),
            salt: 0,
            arrivals: Arrivals::default(),
            probe_labels: Vec::new(),
            next_path: 0,
            next_flow: match end {
                End::Dialler => 1,
                End::Accepter => 2,
            },
            last_remote: 0,
            used: now,
            search_at: Some(now),
            early_out: TokenBucket::new(EARLY_RATE, EARLY_BURST, now),
            // They may have queued on the path.
            early_in: TokenBucket::new(EARLY_RATE * 2, EARLY_BURST * 4, now),
            next_search_at: now,
            opens: BTreeSet::new(),
            opens_at: now,
            closes: BTreeMap::new(),
            closes_at: now,
            decide_at: now,
            failover_deadline: now,
            lost_since: None,
        }
    }

    /// Schedules a search for flows without a label, no later than `at`.
    pub(super) fn search_from(&mut self, at: Instant) {
        self.search_at = Some(self.search_at.map_or(at, |before| before.min(at)));
    }

    /// Whether to search now; clears the schedule if so.
    pub(super) fn take_search(&mut self, now: Instant) -> bool {
        let is_rested = self.next_search_at <= now;
        let search = self.search_at.take_if(|at| *at <= now && is_rested);
        search.is_some()
    }

    pub(super) fn has_room_to_open(&self) -> bool {
        self.opens.len() < OPENS_WAITING_MAX
    }

    /// Schedules the next search after one through `flows`: 1 µs later for each flow, up to
    /// [`SEARCH_REST_MAX`].
    pub(super) fn on_searched(&mut self, now: Instant, flows: usize) {
        let micros = u64::try_from(flows).unwrap_or(u64::MAX);
        let rest = Duration::from_micros(micros).min(SEARCH_REST_MAX);
        self.next_search_at = now + rest;
    }

    /// The next deadline of searches, opens and closes after `now`.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let is_searched_for = self.search_at.is_some_and(|at| at <= self.next_search_at);
        let search = is_searched_for.then_some(self.next_search_at);
        let opens = (!self.opens.is_empty()).then_some(self.opens_at);
        let closes = (!self.closes.is_empty()).then_some(self.closes_at);
        let due = search.into_iter().chain(opens).chain(closes);
        due.filter(|at| *at > now).min()
    }

    pub(super) fn take_flow_id(&mut self, now: Instant) -> FlowId {
        self.search_from(now);
        let id = FlowId(self.next_flow);
        self.next_flow = self.next_flow.saturating_add(2);
        id
    }

    /// Accepts `flow` if it is an unused id of the remote end, and returns whether it was.
    pub(super) fn accept_remote_id(&mut self, now: Instant, FlowId(flow): FlowId) -> bool {
        let theirs = u64::from(self.end == End::Accepter);
        if flow == 0 || flow % 2 != theirs || flow <= self.last_remote {
            return false;
        }
        self.last_remote = flow;
        self.search_from(now);
        true
    }

    /// Adds a path and returns its number; `None` if there are [`PATHS_MAX`].
    pub(super) fn add_path(&mut self, now: Instant, path: Path, first: LinkId) -> Option<u8> {
        if self.paths.len() >= PATHS_MAX {
            return None;
        }
        // At most [`PATHS_MAX`] ids are in use.
        while self.path(self.next_path).is_some() {
            self.next_path = self.next_path.wrapping_add(1);
        }
        let id = self.next_path;
        self.next_path = self.next_path.wrapping_add(1);
        self.search_from(now);
        self.salt = splitmix::first(self.salt);
        let key = u32::try_from(self.salt >> 32).unwrap_or(0);
        self.paths.push(PathEntry {
            id,
            path,
            first,
            setups: Vec::new(),
            bound: BTreeMap::new(),
            watch: PathWatch::new(now).with_jitter(self.salt),
            quality: PathQuality::new(key),
            failed_at: None,
            proved_at: None,
            has_fitted: false,
            usual_delay: None,
            padding_at: now,
            retry_at: now,
            failures: 0,
            unbound_since: None,
        });
        Some(id)
    }

    pub(super) fn defer(&mut self, path: &Path, until: Instant) {
        let mut paths = self.paths.iter_mut();
        let is_new = |known: &PathEntry| {
            known.failures == 0 && known.setups.is_empty() && known.bound.is_empty()
        };
        if let Some(path) = paths.find(|known| known.path == *path && is_new(known)) {
            path.retry_at = until;
            self.search_from(until);
        }
    }

    /// Backs off a path and its relays, which delay or drop data that link state does not explain.
    pub(super) fn back_off(&mut self, now: Instant, path: Path) {
        self.backoff.add(now, &path);
        self.path_backoff.add(now, path, path_backoff::DEGRADED);
    }

    pub(super) fn path(&self, id: u8) -> Option<&PathEntry> {
        self.paths.iter().find(|path| path.id == id)
    }

    pub(super) fn path_mut(&mut self, id: u8) -> Option<&mut PathEntry> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    pub(super) fn find(&self, wanted: &Path) -> Option<&PathEntry> {
        self.paths.iter().find(|path| path.path == *wanted)
    }

    /// The path that carries packets.
    pub(super) fn active(&self) -> Option<&PathEntry> {
        self.path(self.current?)
    }

    /// The path that packets are to move to, or already use.
    pub(super) fn chosen(&self) -> Option<&PathEntry> {
        self.find(self.choice.current()?)
    }

    /// Removes a path and every reference to it.
    pub(super) fn remove_path(&mut self, id: u8) -> Option<PathEntry> {
        let place = self.paths.iter().position(|path| path.id == id)?;
        self.current.take_if(|current| *current == id);
        self.standby.take_if(|standby| *standby == id);
        self.previous.take_if(|(previous, _)| *previous == id);
        Some(self.paths.swap_remove(place))
    }

    /// Returns the length of the next probe on a path; if the path carries data, that of data.
    pub(super) fn probe_len(&mut self, path: u8) -> usize {
        if self.current != Some(path) {
            return 0;
        }
        self.salt = splitmix::first(self.salt);
        self.lengths.take(self.salt)
    }

    /// Returns the paths for a packet of `flow`: the first, and one for a copy.
    pub(super) fn packet_paths(&self, now: Instant, flow: FlowId, mode: Mode) -> [Option<u8>; 2] {
        let mut bound = self
            .paths
            .iter()
            .filter(|path| path.bound.contains_key(&flow));
        let active = bound.clone().find(|path| Some(path.id) == self.current);
        let proved = || bound.clone().find(|path| path.is_proved(now));
        let first = active.or_else(proved).or_else(|| bound.clone().next());
        let moved = self.previous.filter(|(_, until)| now < *until);
        let moved = moved.map(|(id, _)| id);
        let is_suspect = || first.is_some_and(|path| path.watch.is_overdue(now));
        let copy = match mode {
            Mode::Dup => self.standby.or(moved),
            Mode::Shadow if moved.is_none() && is_suspect() => self.standby,
            Mode::Shadow | Mode::Single => moved,
        };
        let first = first.map(|path| path.id);
        let is_other = |copy: &u8| Some(*copy) != first && bound.any(|path| path.id == *copy);
        [first, copy.filter(is_other)]
    }

    pub(super) fn memory(&self) -> usize {
        const EACH: usize = 2 * size_of::<Bound>() + NODES_MAX * size_of::<Held>();
        const TABLES: usize = 2 * 256 * size_of::<(u8, u32)>() + PATHS_MAX * 16_384;
        let bound: usize = self.paths.iter().map(|path| path.bound.len()).sum();
        size_of::<Self>()
            .saturating_add(TABLES)
            .saturating_add(bound.saturating_mul(EACH))
    }
}

impl PathEntry {
    /// Whether it has a label for probes.
    pub(super) fn is_watched(&self) -> bool {
        self.bound.contains_key(&FlowId::PROBE)
    }

    /// Records how many labels of a set-up were bound, and how many could not be. Returns whether
    /// the set-up failed.
    pub(super) fn on_labels(&mut self, now: Instant, bound: usize, unbound: usize) -> bool {
        if has_failed(usize::from(self.is_watched()), (bound, unbound)) {
            return true;
        }
        if bound > 0 {
            self.failures = 0;
        }
        if unbound > 0 {
            self.retry_at = now + RETRY;
        }
        false
    }

    /// Sends a sealed packet of `flow`; returns false if it has no label, or no room.
    pub(super) fn send<P: Provider>(
        &mut self,
        plane: &mut DataPlane<P::Aead>,
        provider: &P,
        now: Instant,
        (flow, (numbered, body)): (FlowId, (Numbered, &[u8])),
    ) -> bool {
        let Some(bound) = self.bound.get_mut(&flow) else {
            return false;
        };
        bound.sent_at = now;
        let packet = Packet {
            number: numbered.number,
            phase: numbered.phase,
            hops_left: HOPS_LEFT_MAX,
            body,
        };
        plane.send(provider, now, (self.first, &mut bound.binding), packet)
    }

    /// How many more set-ups may be pending: one until the path has a probe label, then
    /// [`SETUPS_MAX`].
    pub(super) fn setup_room(&self) -> usize {
        let most = if self.is_watched() { SETUPS_MAX } else { 1 };
        most.saturating_sub(self.setups.len())
    }

    pub(super) fn is_failing(&self, now: Instant) -> bool {
        self.failed_at
            .is_some_and(|at| now.saturating_since(at) < FAILING)
    }

    pub(super) fn is_proved(&self, now: Instant) -> bool {
        self.watch.is_proved() && self.watch.state(now) == PathState::Good
    }
}

/// How long a path counts as failing before its data is judged again.
const FAILING: Duration = Duration::from_secs(5);
/// Remote paths whose data is counted: twice as many as exist at a time.
const DATA_PATHS_MAX: usize = 2 * PATHS_MAX;
/// Paths of a set: the active one, the spare, the previous one and the next one.
pub(super) const PATHS_MAX: usize = 4;
/// Nodes of a path that grant labels: the maximum of hops, and the remote end.
const NODES_MAX: usize = HOPS_LEFT_MAX as usize + 1;
/// Pending set-ups of one path, for 1,024 flows: an eighth of the default
/// [`request_rate`](crate::Config::request_rate)'s burst, and half of a session's queue.
const SETUPS_MAX: usize = 16;
/// Minimum time for which copies use the previous path after a move.
pub(super) const OVERLAP_MIN: Duration = Duration::from_millis(200);
/// Flows that wait for their open message: 4 s at the default
/// [`open_rate`](crate::Config::open_rate).
const OPENS_WAITING_MAX: usize = 4_096;
/// Maximum time between two searches.
const SEARCH_REST_MAX: Duration = Duration::from_millis(50);
/// Silence on a label after which a frame without a payload keeps it alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::choice::ChoiceConfig;
    use crypto::{Exporter, Initial, Role, Secret32};
    use netsim::provider::SimProvider;
    use wire::{NodeId, Seed};

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
        PathSet::new(Instant::ZERO, End::Dialler, keys, choice)
    }

    pub(in super::super) fn path(relay: u16) -> Path {
        let mut node = [0; 32];
        node[..2].copy_from_slice(&relay.to_be_bytes());
        Path {
            relays: vec![NodeId(node)],
            destination: NodeId([9; 32]),
        }
    }

    #[test]
    fn mesh_a1_flows_that_wait_to_be_announced_are_bounded() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut path_set = path_set(&provider);
        let opened = (0..10_000).filter(|flow| {
            let has_room = path_set.has_room_to_open();
            has_room && path_set.opens.insert(FlowId(*flow))
        });
        assert_eq!(opened.count(), OPENS_WAITING_MAX);
    }

    #[test]
    fn searches_rest_for_a_microsecond_a_flow_and_no_longer_than_50_ms() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut path_set = path_set(&provider);
        let at = Instant::from_millis;
        assert!(path_set.take_search(at(0)));
        for (flows, millis) in [(10, 1), (10_000, 10), (1_000_000, 50)] {
            path_set.on_searched(at(0), flows);
            path_set.search_from(at(0));
            assert!(!path_set.take_search(at(0)), "{flows}");
            assert!(
                path_set
                    .next_due(at(0))
                    .is_some_and(|due| due <= at(millis))
            );
            assert!(path_set.take_search(at(millis)), "{flows}");
            assert_eq!(path_set.next_due(at(0)), None);
        }
    }

    #[test]
    fn no_path_gets_the_id_of_one_that_is_there() {
        let provider = SimProvider::new(Seed::from_number(1));
        let mut path_set = path_set(&provider);
        let add = |path_set: &mut PathSet<_>, relay| {
            let added = path_set.add_path(Instant::ZERO, path(relay), LinkId(1));
            added.expect("there is room")
        };
        let lasting = [add(&mut path_set, 1_000), add(&mut path_set, 1_001)];
        for relay in 0..300 {
            let id = add(&mut path_set, relay);
            assert!(!lasting.contains(&id), "{relay}");
            let removed = path_set.remove_path(id).expect("just added");
            assert_eq!(removed.path, path(relay));
        }
        assert_eq!(path_set.paths.len(), 2);
        assert_eq!(
            path_set.path(lasting[0]).map(|known| &known.path),
            Some(&path(1_000))
        );
    }
}
