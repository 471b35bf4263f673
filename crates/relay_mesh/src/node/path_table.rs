//! The paths of a set: which one carries packets, and which others are kept.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::Instant;

use super::path_cost::AdvertisedDelay;
use super::path_labels::has_failed;
use super::path_setups::PathSetups;
use crate::data_plane::DataPlane;
use crate::flow_key::{FlowId, Numbered};
use crate::game::Mode;
use crate::hop::HOPS_LEFT_MAX;
use crate::hop_seal::{Binding, Packet};
use crate::link::LinkId;
use crate::path_quality::PathQuality;
use crate::path_setup::HeldLabel;
use crate::path_watch::{PathState, PathWatch};
use crate::routes::Path;

#[derive(Debug, Default)]
pub(super) struct PathTable {
    /// At most [`PATHS_MAX`].
    paths: Vec<PathEntry>,
    /// The path that carries packets.
    current: Option<u8>,
    /// The path that is kept ready.
    standby: Option<u8>,
    /// After a move, the previous path and until when it carries copies.
    previous: Option<(u8, Instant)>,
    next_id: u8,
}

#[derive(Debug)]
pub(super) struct PathEntry {
    pub(super) id: u8,
    pub(super) path: Path,
    /// The link to its first node.
    pub(super) first: LinkId,
    pub(super) setups: PathSetups,
    /// Label of each flow at the first node.
    pub(super) bound: BTreeMap<FlowId, Bound>,
    pub(super) watch: PathWatch,
    pub(super) quality: PathQuality,
    /// When its data was found to be worse than its probes.
    pub(super) failed_at: Option<Instant>,
    pub(super) advertised_delay: AdvertisedDelay,
    /// The earliest next padding.
    pub(super) padding_at: Instant,
    /// On the active path: a flow without a label, and since when it has waited.
    pub(super) unbound_since: Option<(FlowId, Instant)>,
}

/// A flow's label on a path.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    pub(super) sent_at: Instant,
    /// Labels at each node of the path, in order.
    pub(super) held: Vec<HeldLabel>,
}

impl PathTable {
    pub(super) fn get(&self, id: u8) -> Option<&PathEntry> {
        self.paths.iter().find(|path| path.id == id)
    }

    pub(super) fn get_mut(&mut self, id: u8) -> Option<&mut PathEntry> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    pub(super) fn find(&self, wanted: &Path) -> Option<&PathEntry> {
        self.paths.iter().find(|path| path.path == *wanted)
    }

    pub(super) fn iter(&self) -> core::slice::Iter<'_, PathEntry> {
        self.paths.iter()
    }

    pub(super) fn iter_mut(&mut self) -> core::slice::IterMut<'_, PathEntry> {
        self.paths.iter_mut()
    }

    /// The number of the path that carries packets.
    pub(super) const fn current(&self) -> Option<u8> {
        self.current
    }

    /// The path that carries packets.
    pub(super) fn active(&self) -> Option<&PathEntry> {
        self.get(self.current?)
    }

    pub(super) fn active_mut(&mut self) -> Option<&mut PathEntry> {
        self.get_mut(self.current?)
    }

    /// The path that is kept ready.
    pub(super) fn standby(&self) -> Option<&PathEntry> {
        self.get(self.standby?)
    }

    pub(super) const fn has_room(&self) -> bool {
        self.paths.len() < PATHS_MAX
    }

    /// Adds a path and returns its number; `None` if there are [`PATHS_MAX`]. `salt` seeds its
    /// sampling rules.
    pub(super) fn add(&mut self, now: Instant, path: Path, first: LinkId, salt: u64) -> Option<u8> {
        if !self.has_room() {
            return None;
        }
        // At most [`PATHS_MAX`] ids are in use.
        while self.get(self.next_id).is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.paths.push(PathEntry::new(now, id, path, first, salt));
        Some(id)
    }

    /// Removes a path and every reference to it.
    pub(super) fn remove(&mut self, id: u8) -> Option<PathEntry> {
        let place = self.paths.iter().position(|path| path.id == id)?;
        self.current.take_if(|current| *current == id);
        self.standby.take_if(|standby| *standby == id);
        self.previous.take_if(|(previous, _)| *previous == id);
        Some(self.paths.swap_remove(place))
    }

    /// Removes all paths; their numbers are not used again soon.
    pub(super) fn take_all(&mut self) -> Vec<PathEntry> {
        (self.current, self.standby, self.previous) = (None, None, None);
        core::mem::take(&mut self.paths)
    }

    /// Makes a path the active one. Copies use the previous one for two round trips of the new one,
    /// and at least [`OVERLAP_MIN`].
    pub(super) fn activate(&mut self, now: Instant, to: u8) {
        let round_trip = self.get(to).and_then(|path| path.watch.round_trip());
        let overlap = round_trip.unwrap_or_default().saturating_mul(2);
        let until = now + overlap.max(OVERLAP_MIN);
        self.previous = self.current.map(|before| (before, until));
        self.current = Some(to);
        self.standby.take_if(|standby| *standby == to);
    }

    /// Makes the spare path the standby if it is proved.
    pub(super) fn update_standby(&mut self, now: Instant, spare: Option<&Path>) {
        let spare = spare.and_then(|spare| self.find(spare));
        let spare = spare.filter(|path| path.is_proved(now));
        self.standby = spare.map(|path| path.id).or(self.standby);
    }

    /// Removes and returns the paths that nothing needs.
    ///
    /// Kept are the chosen path, the spare, the active one, the previous one until its copies end,
    /// and the standby until the spare is proved.
    pub(super) fn remove_unneeded(
        &mut self,
        now: Instant,
        (chosen, spare): (Option<&Path>, Option<&Path>),
    ) -> Vec<PathEntry> {
        self.previous.take_if(|(_, until)| *until <= now);
        let is_proved = |path: &PathEntry| path.is_proved(now);
        let next = spare.map(|spare| self.find(spare));
        let is_awaited = next.is_some_and(|next| !next.is_some_and(is_proved));
        let standby = self.standby.filter(|id| {
            is_awaited && Some(*id) != self.current && self.get(*id).is_some_and(is_proved)
        });
        self.standby = standby;
        // The direct path has labels of all flows; keep them even if some are short.
        let is_short = self.active().is_some_and(|path| path.is_short(now));
        let previous = self.previous.map(|(previous, _)| previous);
        let is_kept = |path: &PathEntry| {
            [self.current, standby, previous].contains(&Some(path.id))
                || [chosen, spare].contains(&Some(&path.path))
                || (is_short && path.path.relays.is_empty())
        };
        let idle = self.paths.iter().filter(|path| !is_kept(path));
        let mut idle: Vec<u8> = idle.map(|path| path.id).collect();
        let incoming = [chosen, spare].into_iter().flatten();
        let incoming = incoming.filter(|path| self.find(path).is_none()).count();
        self.retain_fallback_paths(now, &mut idle, incoming);
        idle.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Removes from `idle` every path that still carries a flow with no label on the active path or
    /// an earlier one. Leaves room for `incoming` new paths within [`PATHS_MAX`].
    fn retain_fallback_paths(&self, now: Instant, idle: &mut Vec<u8>, incoming: usize) {
        let kept = self.paths.len().saturating_sub(idle.len());
        let mut room = PATHS_MAX.saturating_sub(kept).saturating_sub(incoming);
        idle.retain(|id| {
            let is_kept = room > 0 && self.is_fallback(now, *id);
            room = room.saturating_sub(is_kept.into());
            !is_kept
        });
    }

    fn is_fallback(&self, now: Instant, id: u8) -> bool {
        let carries =
            |path: &&PathEntry| path.watch.is_proved() && path.watch.state(now) != PathState::Dead;
        let Some(path) = self.get(id).filter(carries) else {
            return false;
        };
        let before = self.paths.iter().take_while(|path| path.id != id);
        let others: Vec<&PathEntry> = before.filter(carries).chain(self.active()).collect();
        let mut flows = path.bound.keys().filter(|flow| **flow != FlowId::PROBE);
        flows.any(|flow| others.iter().all(|other| !other.bound.contains_key(flow)))
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

    /// Heap of its paths.
    pub(super) fn heap(&self) -> usize {
        const EACH: usize = 2 * size_of::<Bound>() + NODES_MAX * size_of::<HeldLabel>();
        const TABLES: usize = 2 * 256 * size_of::<(u8, u32)>() + PATHS_MAX * 16_384;
        let bound: usize = self.paths.iter().map(|path| path.bound.len()).sum();
        TABLES.saturating_add(bound.saturating_mul(EACH))
    }
}

impl PathEntry {
    fn new(now: Instant, id: u8, path: Path, first: LinkId, salt: u64) -> Self {
        let key = u32::try_from(salt >> 32).unwrap_or(0);
        Self {
            id,
            path,
            first,
            setups: PathSetups::new(now),
            bound: BTreeMap::new(),
            watch: PathWatch::new(now).with_jitter(salt),
            quality: PathQuality::new(key),
            failed_at: None,
            advertised_delay: AdvertisedDelay::default(),
            padding_at: now,
            unbound_since: None,
        }
    }

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
            self.setups.reset_failures();
        }
        if unbound > 0 {
            self.setups.pause(now);
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
        self.setups.room(most)
    }

    pub(super) fn is_failing(&self, now: Instant) -> bool {
        self.failed_at
            .is_some_and(|at| now.saturating_since(at) < FAILING)
    }

    pub(super) fn is_proved(&self, now: Instant) -> bool {
        self.watch.is_proved() && self.watch.state(now) == PathState::Good
    }
}

/// Paths of a set: the active one, the spare, the previous one and the next one.
pub(super) const PATHS_MAX: usize = 4;
/// How long a path counts as failing before its data is judged again.
const FAILING: Duration = Duration::from_secs(5);
/// Nodes of a path that grant labels: the maximum of hops, and the remote end.
const NODES_MAX: usize = HOPS_LEFT_MAX as usize + 1;
/// Pending set-ups of one path, for 1,024 flows: an eighth of the default
/// [`request_rate`](crate::Config::request_rate)'s burst, and half of a session's queue.
const SETUPS_MAX: usize = 16;
/// Minimum time for which copies use the previous path after a move.
const OVERLAP_MIN: Duration = Duration::from_millis(200);
/// Silence on a label after which a frame without a payload keeps it alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use wire::NodeId;

    pub(in super::super) fn path(relay: u16) -> Path {
        let mut node = [0; 32];
        node[..2].copy_from_slice(&relay.to_be_bytes());
        Path {
            relays: vec![NodeId(node)],
            destination: NodeId([9; 32]),
        }
    }

    #[test]
    fn no_path_gets_the_id_of_one_that_is_there() {
        let mut paths = PathTable::default();
        let add = |paths: &mut PathTable, relay| {
            let added = paths.add(Instant::ZERO, path(relay), LinkId(1), 0);
            added.expect("there is room")
        };
        let lasting = [add(&mut paths, 1_000), add(&mut paths, 1_001)];
        for relay in 0..300 {
            let id = add(&mut paths, relay);
            assert!(!lasting.contains(&id), "{relay}");
            let removed = paths.remove(id).expect("just added");
            assert_eq!(removed.path, path(relay));
        }
        assert_eq!(paths.iter().count(), 2);
        assert_eq!(
            paths.get(lasting[0]).map(|known| &known.path),
            Some(&path(1_000))
        );
    }

    #[test]
    fn the_previous_path_is_kept_until_its_copies_end() {
        let at = Instant::from_millis;
        let mut paths = PathTable::default();
        let mut add = |relay| paths.add(at(0), path(relay), LinkId(1), 0);
        let (first, second) = (add(1).expect("room"), add(2).expect("room"));
        paths.activate(at(0), first);
        paths.activate(at(0), second);
        let chosen = path(2);
        assert_eq!(
            paths.remove_unneeded(at(199), (Some(&chosen), None)).len(),
            0
        );
        let removed = paths.remove_unneeded(at(200), (Some(&chosen), None));
        assert_eq!(removed.first().map(|path| path.id), Some(first));
        assert_eq!(paths.active().map(|path| path.id), Some(second));
    }
}
