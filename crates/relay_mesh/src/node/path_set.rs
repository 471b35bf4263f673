//! The way to one far end: its paths, and the flows that take them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use udp_proto::budget::TokenBucket;
use wire::Instant;

use super::early::{EARLY_BURST, EARLY_RATE};
use super::link_state_audit::LinkStateAudit;
use super::path_backoff::PathBackoff;
use super::probe_len::RecentLengths;
use super::relay_backoff::RelayBackoff;
use crate::choice::Choice;
use crate::config::Mode;
use crate::cost::Cost;
use crate::flow_key::{FlowId, FlowOpener, FlowSealer};
use crate::flow_message::FlowEnd;
use crate::hop::{HOPS_LEFT_MAX, LabelName};
use crate::hop_sealer::Binding;
use crate::link::{End, LinkId};
use crate::path_quality::{DataArrivals, PathQuality};
use crate::path_setup::{Held, PathSetup};
use crate::path_watch::{PathState, PathWatch};
use crate::pieces::Joiner;
use crate::routes::Path;
use crate::splitmix;

/// All paths from this node to one other, for what it sends there.
#[derive(Debug)]
pub(super) struct PathSet<A> {
    /// Which end of the session between the two this is.
    pub(super) end: End,
    /// Seals probes and echoes; their packet numbers.
    pub(super) probe_sealer: FlowSealer<A>,
    pub(super) probe_opener: FlowOpener<A>,
    /// At most [`PATHS_MAX`].
    pub(super) paths: Vec<PathEntry>,
    /// The path that carries packets.
    pub(super) current: Option<u8>,
    /// The path that is kept warm.
    pub(super) standby: Option<u8>,
    /// The path that carries copies, after a move, until then.
    pub(super) previous: Option<(u8, Instant)>,
    /// Where packets should go.
    pub(super) choice: Choice,
    /// Why the choice changed last, until the move is made.
    pub(super) cause: crate::event::RouteCause,
    /// The second-best way.
    pub(super) spare: Option<Path>,
    /// Paths that failed of late.
    pub(super) path_backoff: PathBackoff,
    /// Paths that take longer than link state says.
    pub(super) audit: LinkStateAudit,
    /// Datagrams of the session that come over paths, in pieces.
    pub(super) session_joiner: Joiner,
    /// Relays whose paths carried data worse than probes.
    pub(super) backoff: RelayBackoff,
    /// What came over the other end's paths.
    pub(super) arrivals: Arrivals,
    /// Length of the longest datagrams of late, either way; 0 before the first.
    pub(super) data_len: usize,
    /// Until then a second path is wanted, since the data of the one in use was suspect.
    pub(super) suspect_until: Instant,
    /// Until then what stays away is no path's fault: the far end says that it does not keep up.
    pub(super) far_overloaded_until: Instant,
    /// Lengths of payloads sent of late, which probes take.
    pub(super) lengths: RecentLengths,
    /// Drawn at random: what makes sampling rules.
    pub(super) salt: u64,
    /// Labels given out that lead to the probe flow.
    pub(super) probe_labels: Vec<LabelName>,
    /// Number of the next path.
    next_path: u8,
    /// Id of the next flow opened here.
    next_flow: u64,
    /// Last id of a flow that the other end opened.
    pub(super) last_remote: u64,
    /// When a packet of a player last went.
    pub(super) used: Instant,
    /// When to look for flows that have no label on some path; `None` where all have theirs, or
    /// what was asked for is on its way.
    search_at: Option<Instant>,
    /// Bytes of datagrams that go, and come, with the session.
    pub(super) early_out: TokenBucket,
    pub(super) early_in: TokenBucket,
    /// Until then they are not looked for again: each search looks at all flows.
    pub(super) next_search_at: Instant,
    /// Flows opened here of which the far end is still to be told.
    pub(super) opens: BTreeSet<FlowId>,
    /// Until then it is told of none: those that come together are told of together.
    pub(super) opens_at: Instant,
    /// Flows that ended of which the far end is still to be told.
    pub(super) closes: BTreeMap<FlowId, FlowEnd>,
    /// Until then the session is not asked for room again.
    pub(super) closes_at: Instant,
    /// When the choice is looked at again.
    pub(super) decide_at: Instant,
    /// Until then the path that packets go on by has its labels first, as the one before failed.
    pub(super) failover_deadline: Instant,
    /// Since when no way leads to the far end, and another exit serves players of it.
    pub(super) lost_since: Option<Instant>,
}

/// What came over paths of each number that the other end gives.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Probes so far; they wrap.
    probes: Box<[u32; 256]>,
    /// Data of the newest paths; at most [`DATA_PATHS_MAX`].
    data: BTreeMap<u8, DataArrivals>,
}

impl Arrivals {
    /// Counts a probe and returns how many came so far.
    pub(super) fn count(&mut self, path: u8) -> u32 {
        self.probes.get_mut(usize::from(path)).map_or(0, |count| {
            *count = count.wrapping_add(1);
            *count
        })
    }

    /// What came of a path's data.
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

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            probes: Box::new([0; 256]),
            data: BTreeMap::new(),
        }
    }
}

/// One path of a course.
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
    /// When its data was found to do worse than its probes.
    pub(super) failed_at: Option<Instant>,
    /// When its probes were first enough.
    pub(super) proved_at: Option<Instant>,
    /// Whether it ever took what its links are said to take.
    pub(super) has_fitted: bool,
    /// What it takes by link state, as of when its probes last took no longer than usual.
    pub(super) usual_delay: Option<Cost>,
    /// When padding is sent again in the place of data.
    pub(super) padding_at: Instant,
    /// After a set-up that failed: when to try again.
    pub(super) retry_at: Instant,
    pub(super) failures: u8,
    /// On the path in use: a flow without a label, and since when it is waited for.
    pub(super) unbound_since: Option<(FlowId, Instant)>,
}

/// A flow's label on a path.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    /// When a frame last went.
    pub(super) sent_at: Instant,
    /// At each node of the path, in order.
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
            cause: crate::event::RouteCause::First,
            spare: None,
            path_backoff: PathBackoff::default(),
            audit: LinkStateAudit::default(),
            session_joiner: Joiner::new(),
            data_len: 0,
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
            // They may have waited on the way.
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

    /// Has flows without a label looked for at `at`, or before.
    pub(super) fn search_from(&mut self, at: Instant) {
        let before = self.search_at.map_or(at, |before| before.min(at));
        self.search_at = Some(before);
    }

    /// Whether they are to be looked for now; not again, unless [`search_from`](Self::search_from)
    /// says so.
    pub(super) fn take_search(&mut self, now: Instant) -> bool {
        let is_rested = self.next_search_at <= now;
        self.search_at
            .take_if(|at| *at <= now && is_rested)
            .is_some()
    }

    /// Whether one flow more may wait until the far end is told of it.
    pub(super) fn has_room_to_open(&self) -> bool {
        self.opens.len() < OPENS_WAITING_MAX
    }

    /// Takes note of a search through so many flows: the next one may come so much later that searches take
    /// a bounded share of the time, and one for a mass of newcomers finds many of them.
    pub(super) fn on_searched(&mut self, now: Instant, flows: usize) {
        let micros = u64::try_from(flows).unwrap_or(u64::MAX);
        let rest = Duration::from_micros(micros).min(SEARCH_REST_MAX);
        self.next_search_at = now + rest;
    }

    /// When what rests at `now` is due.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let is_searched_for = self.search_at.is_some_and(|at| at <= self.next_search_at);
        let search = is_searched_for.then_some(self.next_search_at);
        let opens = (!self.opens.is_empty()).then_some(self.opens_at);
        let closes = (!self.closes.is_empty()).then_some(self.closes_at);
        let due = search.into_iter().chain(opens).chain(closes);
        due.filter(|at| *at > now).min()
    }

    /// Takes the next flow id of this end.
    pub(super) fn take_flow_id(&mut self, now: Instant) -> FlowId {
        self.search_from(now);
        let id = FlowId(self.next_flow);
        self.next_flow = self.next_flow.saturating_add(2);
        id
    }

    /// Returns whether `flow` is the other end's to give and was not used; it then is.
    pub(super) fn accept_remote_id(&mut self, now: Instant, FlowId(flow): FlowId) -> bool {
        let theirs = match self.end {
            End::Dialler => 0,
            End::Accepter => 1,
        };
        if flow == 0 || flow % 2 != theirs || flow <= self.last_remote {
            return false;
        }
        self.last_remote = flow;
        self.search_from(now);
        true
    }

    /// Adds a path and returns its number; `None` where there are as many as may be.
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

    /// Has a path for which nothing was asked yet wait until then.
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

    pub(super) fn path(&self, id: u8) -> Option<&PathEntry> {
        self.paths.iter().find(|path| path.id == id)
    }

    pub(super) fn path_mut(&mut self, id: u8) -> Option<&mut PathEntry> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    pub(super) fn find(&self, wanted: &Path) -> Option<&PathEntry> {
        self.paths.iter().find(|path| path.path == *wanted)
    }

    /// Takes a path out, with all that names it.
    pub(super) fn remove_path(&mut self, id: u8) -> Option<PathEntry> {
        let place = self.paths.iter().position(|path| path.id == id)?;
        if self.current == Some(id) {
            self.current = None;
        }
        if self.standby == Some(id) {
            self.standby = None;
        }
        if self.previous.is_some_and(|(previous, _)| previous == id) {
            self.previous = None;
        }
        Some(self.paths.swap_remove(place))
    }

    /// Returns the length of a probe that leaves now over a path: that of data where it carries data.
    pub(super) fn probe_len(&mut self, path: u8) -> usize {
        if self.current != Some(path) {
            return 0;
        }
        self.salt = splitmix::first(self.salt);
        self.lengths.take(self.salt)
    }

    /// Returns the paths that a packet of `flow` takes now: the first, and one for a copy.
    pub(super) fn ways(&self, now: Instant, flow: FlowId, mode: Mode) -> [Option<u8>; 2] {
        let carries = |id: &u8| {
            self.path(*id)
                .is_some_and(|path| path.bound.contains_key(&flow))
        };
        let first = self.current.filter(carries).or_else(|| {
            let mut bound = self
                .paths
                .iter()
                .filter(|path| path.bound.contains_key(&flow));
            bound
                .clone()
                .find(|path| path.is_proved(now))
                .or_else(|| bound.next())
                .map(|path| path.id)
        });
        let moved = self
            .previous
            .filter(|(_, until)| now < *until)
            .map(|(id, _)| id);
        let is_suspect = || {
            first
                .and_then(|id| self.path(id))
                .is_some_and(|path| path.watch.is_overdue(now))
        };
        let copy = match mode {
            Mode::Dup => self.standby.or(moved),
            Mode::Shadow if moved.is_none() && is_suspect() => self.standby,
            Mode::Shadow | Mode::Single => moved,
        };
        [
            first,
            copy.filter(|copy| Some(*copy) != first && carries(copy)),
        ]
    }

    pub(super) fn memory(&self) -> usize {
        const EACH: usize = 2 * size_of::<Bound>() + NODES_MAX * size_of::<Held>();
        const TABLES: usize = size_of::<[u32; 256]>() + PATHS_MAX * 16_384;
        let bound: usize = self.paths.iter().map(|path| path.bound.len()).sum();
        size_of::<Self>()
            .saturating_add(TABLES)
            .saturating_add(bound.saturating_mul(EACH))
    }
}

impl PathEntry {
    /// How many set-ups may be under way beside those that are: one until the path is known to
    /// be there, then as many as a relay's budget takes.
    pub(super) fn setup_room(&self) -> usize {
        let most = if self.is_watched() { SETUPS_MAX } else { 1 };
        most.saturating_sub(self.setups.len())
    }

    /// Whether its data was found to do worse than its probes a moment ago.
    pub(super) fn is_failing(&self, now: Instant) -> bool {
        self.failed_at
            .is_some_and(|at| now.saturating_since(at) < FAILING)
    }

    /// Whether probes were answered of late.
    pub(super) fn is_proved(&self, now: Instant) -> bool {
        self.watch.is_proved() && self.watch.state(now) == PathState::Good
    }
}

/// How long a path counts as failing: time to move from it. If it is still in use then, its data is judged anew.
const FAILING: Duration = Duration::from_secs(5);
/// Paths of the other end whose data is counted: twice as many as it has at a time.
const DATA_PATHS_MAX: usize = 2 * PATHS_MAX;
/// Paths of a course: the present one, the spare, the one before, and the one to come.
pub(super) const PATHS_MAX: usize = 4;
/// Nodes of a path that give labels out: as many as a frame may make hops, and the far end.
const NODES_MAX: usize = HOPS_LEFT_MAX as usize + 1;
/// Set-ups of one path at a time: those of 1,024 flows. Relays take two labels' worth for each, an eighth of
/// what the default [`request_rate`](crate::Config::request_rate) lets through at once; and it is less than
/// half of what waits in a session's queue.
const SETUPS_MAX: usize = 16;
/// Least time that copies go over the path before, after a move.
pub(super) const OVERLAP_MIN: Duration = Duration::from_millis(200);
/// Flows that wait until a far end is told of them: those of 4 s at the default
/// [`open_rate`](crate::Config::open_rate).
const OPENS_WAITING_MAX: usize = 4_096;
/// The longest time between two searches, whatever the number of flows.
const SEARCH_REST_MAX: Duration = Duration::from_millis(50);
/// Silence on a label after which a frame without a payload keeps it alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::choice::ChoiceConfig;
    use crypto::{Exporter, Initial, Provider, Role, Secret32};
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
    fn mesh_a1_flows_that_wait_to_be_told_of_are_bounded() {
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
