//! The way to one far end: its paths, and the flows that take them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::Instant;

use crate::choice::Choice;
use crate::config::Mode;
use crate::flow_key::{FlowId, FlowOpener, FlowSealer};
use crate::hop_sealer::Binding;
use crate::link::{End, LinkId};
use crate::path_setup::PathSetup;
use crate::path_watch::{PathState, PathWatch};
use crate::routes::Path;

/// All paths from this node to one other, for what it sends there.
#[derive(Debug)]
pub(super) struct Course<A> {
    /// Which end of the session between the two this is.
    pub(super) end: End,
    /// Seals probes and echoes; their packet numbers.
    pub(super) probe_sealer: FlowSealer<A>,
    pub(super) probe_opener: FlowOpener<A>,
    /// At most [`PATHS_MAX`].
    pub(super) paths: Vec<CoursePath>,
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
    /// Number of the next path.
    next_path: u8,
    /// Id of the next flow opened here.
    next_flow: u64,
    /// Last id of a flow that the other end opened.
    pub(super) last_foreign: u64,
    /// When a packet of a player last went.
    pub(super) used: Instant,
    /// Whether a flow may have no label on some path.
    pub(super) is_incomplete: bool,
    /// When the choice is looked at again.
    pub(super) decide_at: Instant,
}

/// One path of a course.
#[derive(Debug)]
pub(super) struct CoursePath {
    pub(super) id: u8,
    pub(super) path: Path,
    /// The link to its first node.
    pub(super) first: LinkId,
    /// At most [`SETUPS_MAX`].
    pub(super) setups: Vec<PathSetup>,
    /// Label of each flow at the first node.
    pub(super) bound: BTreeMap<FlowId, Bound>,
    pub(super) watch: PathWatch,
    /// After a set-up that failed: when to try again.
    pub(super) retry_at: Instant,
    pub(super) failures: u8,
}

/// A flow's label on a path.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    /// When a frame last went.
    pub(super) sent_at: Instant,
}

impl<A> Course<A> {
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
            choice,
            cause: crate::event::RouteCause::First,
            spare: None,
            next_path: 0,
            next_flow: match end {
                End::Dialler => 1,
                End::Accepter => 2,
            },
            last_foreign: 0,
            used: now,
            is_incomplete: true,
            decide_at: now,
        }
    }

    /// Takes the next flow id of this end.
    pub(super) const fn take_flow_id(&mut self) -> FlowId {
        self.is_incomplete = true;
        let id = FlowId(self.next_flow);
        self.next_flow = self.next_flow.saturating_add(2);
        id
    }

    /// Returns whether `flow` is the other end's to give and was not used; it then is.
    pub(super) const fn take_foreign_id(&mut self, FlowId(flow): FlowId) -> bool {
        let theirs = match self.end {
            End::Dialler => 0,
            End::Accepter => 1,
        };
        if flow == 0 || flow % 2 != theirs || flow <= self.last_foreign {
            return false;
        }
        self.last_foreign = flow;
        self.is_incomplete = true;
        true
    }

    /// Adds a path and returns its number; `None` where there are as many as may be.
    pub(super) fn add_path(&mut self, now: Instant, path: Path, first: LinkId) -> Option<u8> {
        if self.paths.len() >= PATHS_MAX {
            return None;
        }
        let id = self.next_path;
        self.next_path = self.next_path.wrapping_add(1);
        self.is_incomplete = true;
        self.paths.push(CoursePath {
            id,
            path,
            first,
            setups: Vec::new(),
            bound: BTreeMap::new(),
            watch: PathWatch::new(now),
            retry_at: now,
            failures: 0,
        });
        Some(id)
    }

    pub(super) fn path(&self, id: u8) -> Option<&CoursePath> {
        self.paths.iter().find(|path| path.id == id)
    }

    pub(super) fn path_mut(&mut self, id: u8) -> Option<&mut CoursePath> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    pub(super) fn find(&self, wanted: &Path) -> Option<&CoursePath> {
        self.paths.iter().find(|path| path.path == *wanted)
    }

    /// Takes a path out, with all that names it.
    pub(super) fn remove_path(&mut self, id: u8) -> Option<CoursePath> {
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
                .find(|path| path.watch.state(now) == PathState::Good)
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
                .is_some_and(|path| path.watch.state(now) > PathState::Good)
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
        let bound: usize = self.paths.iter().map(|path| path.bound.len()).sum();
        size_of::<Self>() + PATHS_MAX * 8_192 + bound * 2 * size_of::<Bound>()
    }
}

impl CoursePath {
    /// Returns which of `flows` have neither a label nor a set-up, in their order.
    pub(super) fn missing(
        &self,
        flows: impl Iterator<Item = FlowId>,
    ) -> impl Iterator<Item = FlowId> {
        let asked = self.setups.iter().flat_map(PathSetup::flows);
        let asked: BTreeSet<FlowId> = asked.copied().collect();
        flows.filter(move |flow| !self.bound.contains_key(flow) && !asked.contains(flow))
    }

    /// Whether packets may move here: every flow has its label, and probes were answered of late.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.setups.is_empty() && self.watch.is_proved() && self.watch.state(now) == PathState::Good
    }
}

/// Paths of a course: the present one, the spare, the one before, and the one to come.
pub(super) const PATHS_MAX: usize = 4;
/// Set-ups of a path at a time: what a neighbour's request rate allows in half a second.
pub(super) const SETUPS_MAX: usize = 8;
/// Least time that copies go over the path before, after a move.
pub(super) const OVERLAP_MIN: Duration = Duration::from_millis(200);
/// Silence on a label after which a frame without a payload keeps it alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);
