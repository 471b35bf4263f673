//! Selects the path of packets to each remote node, and moves them to another.

use core::time::Duration;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::Node;
use super::flow_table::{Flow, probe_flow};
use super::label_scheduler::SPARE_AFTER;
use super::path_cost::{LinkState, PathCost, expected, from_span, is_far_over};
use super::path_set::PathSet;
use super::path_table::PathEntry;
use crate::choice::{Choice, DataHealth, Penalties};
use crate::event::{Event, RouteCause};
use crate::flow_key::FlowId;
use crate::game::Mode;
use crate::link::{End, LinkId};
use crate::path_watch::{PathPace, PathState};
use crate::routes::Path;

impl<P: Provider> Node<P> {
    /// Makes the path set to a remote node if there is none. Returns false without a session.
    pub(super) fn ensure_path_set(&mut self, now: Instant, link: LinkId) -> bool {
        if self.path_sets.contains_key(&link) {
            return true;
        }
        let session = self.peers.session(link);
        let role = session.and_then(|session| self.endpoint.role(session));
        let (Some(role), Some(keys)) = (role, self.flow_keys(link, FlowId::PROBE)) else {
            return false;
        };
        let choice = Choice::new(now, self.config.choice, self.generator.next_u64());
        let salt = self.generator.next_u64();
        let path_set = PathSet::new(now, End::from(role), keys, choice, salt);
        self.path_sets.insert(link, path_set);
        self.paths_dirty = true;
        true
    }

    pub(super) fn path_mut(&mut self, (link, id): (LinkId, u8)) -> Option<&mut PathEntry> {
        self.path_sets.get_mut(&link)?.paths.get_mut(id)
    }

    /// Runs one path set: removes failed paths, selects, sets up, and moves.
    pub(super) fn run_path_set(&mut self, now: Instant, link: LinkId) {
        self.end_overdue_setups(now, link);
        self.send_closes(now, link);
        let is_overloaded = self.is_excused(now, link);
        let has_flows = self.flows.with(link).next().is_some();
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        if !has_flows && path_set.unused_for(now) >= self.config.flow_idle {
            self.suspend_path_set(now, link);
            return;
        }
        let is_busy = path_set.unused_for(now) < BUSY_AFTER;
        let current = path_set.paths.current();
        for path in path_set.paths.iter_mut() {
            let is_carrying = is_busy && Some(path.id) == current;
            let pace = if is_carrying {
                PathPace::Busy
            } else {
                PathPace::Idle
            };
            path.watch.set_pace(now, pace);
            if is_overloaded {
                path.quality.reset();
            }
        }
        // If either end is overloaded, a path is dead only after [`SILENT`].
        let is_dead = |path: &&PathEntry| {
            let since = path.watch.silent_since();
            let is_silent = since.is_some_and(|since| now.saturating_since(since) >= SILENT);
            let is_dead = path.is_watched() && path.watch.state(now) == PathState::Dead;
            is_dead && (!is_overloaded || is_silent)
        };
        let dead = path_set.paths.iter().filter(is_dead).map(|path| path.id);
        // The active path last, so that packets do not move to another dead path.
        let mut dead: Vec<u8> = dead.collect();
        dead.sort_by_key(|id| Some(*id) == current);
        for id in dead {
            self.fail_path(now, link, id);
        }
        self.judge_data(now, link);
        self.decide(now, link);
        self.move_if_ready(now, link);
        self.end_flows_of_lost_exit(now, link);
        self.send_opens(now, link);
        let path_set = self.path_sets.get_mut(&link);
        if path_set.is_some_and(|path_set| path_set.label_search.take_due(now)) {
            self.set_up_missing(now, link);
        }
    }

    /// Releases the paths of an unused set. The set lives as long as its session: path numbers and
    /// flow ids must not repeat under the session's keys.
    fn suspend_path_set(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        for path in path_set.paths.take_all() {
            self.release(now, path);
        }
    }

    /// Handles the end of the session with the remote node.
    pub(super) fn end_path_set(&mut self, now: Instant, link: LinkId) {
        let Some(mut path_set) = self.path_sets.remove(&link) else {
            return;
        };
        for path in path_set.paths.take_all() {
            self.release(now, path);
        }
        self.end_flows_with(now, link);
        self.plane
            .free_where(|label| label.leads_to(probe_flow(link)));
    }

    /// Handles the end of the session with a node that may be a relay of paths.
    pub(super) fn on_link_gone(&mut self, now: Instant, link: LinkId, node: NodeId) {
        let mut hit: Vec<(LinkId, u8)> = Vec::new();
        for (remote, path_set) in &self.path_sets {
            let paths = path_set
                .paths
                .iter()
                .filter(|path| path.first == link || path.setups.pass(node));
            hit.extend(paths.map(|path| (*remote, path.id)));
        }
        for (remote, path) in hit {
            self.fail_path(now, remote, path);
        }
        self.paths_dirty = true;
    }

    /// Backs off a path; packets use another at once.
    ///
    /// Its relays are penalised for all sets only if another path to the remote node worked
    /// meanwhile. Otherwise the remote node or this node's own line may have failed.
    pub(super) fn fail_path(&mut self, now: Instant, link: LinkId, id: u8) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let was_current = path_set.paths.current() == Some(id);
        let Some(failed) = path_set.paths.remove(id) else {
            return;
        };
        path_set.selector.schedule_evaluation(now);
        path_set.label_search.schedule(now);
        path_set.backoffs.on_failure(now, failed.path.clone());
        let is_its_own_fault = failed.watch.silent_since().is_some_and(|since| {
            let mut others = path_set.paths.iter();
            others.any(|other| other.watch.carried_after(since))
        });
        if is_its_own_fault {
            self.penalties.on_path_failure(now, &failed.path);
        }
        if was_current {
            path_set.label_search.on_failover(now);
        }
        let standby = path_set.paths.standby().map(|path| path.id);
        if let Some(standby) = standby.filter(|_| was_current) {
            let newest = self.known_routes.newest();
            let advertised = LinkState::of(newest, &failed.path, &self.config.cost);
            let cause = if advertised.is_draining {
                RouteCause::Drained
            } else {
                RouteCause::Killed
            };
            let from = Some(failed.path.clone());
            self.activate_path(now, link, standby, (from, cause));
        }
        self.release(now, failed);
        self.paths_dirty = true;
    }

    /// Evaluates the routes, and keeps the paths that the choice needs.
    fn decide(&mut self, now: Instant, link: LinkId) {
        let is_overloaded = self.is_excused(now, link);
        let path_set = self.path_sets.get(&link);
        let is_due = path_set.is_some_and(|path_set| path_set.selector.is_due(now));
        let Some(remote) = self.node_of(link).filter(|_| is_due) else {
            return;
        };
        self.renew_routes(now);
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        if is_overloaded && let Some(in_use) = path_set.paths.active() {
            // A draining relay is known from link state, not measured.
            let (newest, model) = (self.known_routes.newest(), &self.config.cost);
            if !LinkState::of(newest, &in_use.path, model).is_draining {
                path_set.selector.on_evaluated(now);
                return;
            }
        }
        let avoided = path_set.backoffs.held_relays(now);
        let Some(routes) = self.known_routes.alternatives(now, remote, &avoided) else {
            self.paths_dirty = true;
            return;
        };
        let mut paths = routes.to_vec();
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        path_set.selector.on_evaluated(now);
        // The active path may no longer be among the best.
        let in_use = path_set.paths.active().map(|path| path.path.clone());
        let chosen = path_set.selector.chosen().cloned();
        for path in [in_use, chosen].into_iter().flatten() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let newest = self.known_routes.newest();
        let model = &self.config.cost;
        // Delays prove nothing while this node or the remote node is overloaded.
        if !is_overloaded {
            let refuted = path_set.refute(now, |path| expected(newest, path, model));
            self.stats.paths_refuted = self.stats.paths_refuted.saturating_add(refuted);
        }
        path_set
            .paths
            .record_delays(|path| LinkState::of(newest, path, model).delay());
        let candidates = paths.into_iter().map(|path| {
            let advertised = LinkState::of(newest, &path, model);
            PathCost::new(now, path_set, path, advertised)
        });
        let candidates: Vec<PathCost> = candidates.collect();
        self.choose(now, link, &candidates);
    }

    fn choose(&mut self, now: Instant, link: LinkId, candidates: &[PathCost]) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let before = path_set.selector.chosen_of(candidates);
        let change = path_set.selector.decide(now, candidates, &self.penalties);
        if let Some(chosen) = change {
            // A new path may have only a probe label.
            path_set.label_search.schedule(now);
            let is_degraded = path_set.selector.cause() == RouteCause::Degraded;
            if let Some(before) = before.filter(|_| is_degraded) {
                let to = path_set.selector.chosen_of(candidates);
                if path_set.backoffs.remembers_relay_of(now, &chosen) {
                    // A relay that delayed data before may advertise too low a cost again.
                } else if to.is_some_and(|to| to.cost < before.cost) {
                    for node in &before.path.relays {
                        self.penalties.on_failure(now, *node);
                    }
                } else {
                    // Its links still look better in link state: a relay delays or drops data.
                    path_set.backoffs.on_degraded(now, before.path.clone());
                }
            }
        }
        let is_warm = |(_, flow): (u32, &Flow<P::Aead>)| flow.mode != Mode::Single;
        let wants_warm = self.flows.with(link).any(is_warm);
        let wants_spare = wants_warm
            || path_set.selector.is_data_suspect(now)
            || path_set
                .paths
                .active()
                .is_some_and(|path| path.is_short(now));
        let spares = candidates.iter();
        let spares = spares.filter(|to| wants_spare || to.path.relays.is_empty());
        let spare = best_spare(now, path_set, spares, &self.penalties).cloned();
        path_set.selector.set_spare(spare);
        let spare_from = if wants_warm { now } else { now + SPARE_AFTER };
        self.keep_paths(now, link, spare_from);
    }

    /// Adds the required paths and drops the others. A new spare requests no labels before
    /// `spare_from`.
    fn keep_paths(&mut self, now: Instant, link: LinkId, spare_from: Instant) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let chosen = path_set.selector.chosen().cloned();
        let spare = path_set.selector.spare().cloned();
        let needed = (chosen.as_ref(), spare.as_ref());
        let idle = path_set.paths.remove_unneeded(now, needed);
        for path in [&chosen, &spare].into_iter().flatten() {
            let first = self.peers.find(&path.next_hop());
            let first = first.filter(|first| self.peers.carries(*first));
            let Some(first) = first.filter(|_| !path_set.backoffs.is_blocked(now, path)) else {
                continue;
            };
            let is_new = path_set.paths.find(path).is_none();
            let added = is_new.then(|| path_set.add_path(now, path.clone(), first));
            if let Some(added) = added.flatten().filter(|_| self.peers.is_small(first)) {
                added.quality.send_in_pieces();
            }
            if Some(path) == chosen.as_ref() {
                path_set.defer(path, now);
            } else if is_new {
                path_set.defer(path, spare_from);
            }
        }
        path_set.paths.update_standby(now, spare.as_ref());
        for path in idle {
            self.release(now, path);
        }
    }

    /// Moves packets to the chosen path once it is proved.
    fn move_if_ready(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get(&link) else {
            return;
        };
        let is_new = |path: &&PathEntry| Some(path.id) != path_set.paths.current();
        let Some(to) = path_set.chosen().filter(is_new) else {
            return;
        };
        let is_first = path_set.paths.current().is_none();
        // Flows on the active path need labels on the new one first; newer flows can wait.
        let active = path_set.paths.active().into_iter();
        let mut carried = active.flat_map(|path| path.bound.keys());
        let is_whole = carried.all(|flow| {
            to.bound.contains_key(flow) || !self.flows.is_wanted_everywhere(now, link, *flow)
        });
        let is_ready = to.is_proved(now) && is_whole;
        // Without any other path, one that has labels is better than none.
        let may_move = is_ready || (is_first && to.is_watched());
        if !may_move {
            return;
        }
        let from = path_set.paths.active().map(|path| path.path.clone());
        let (to, cause) = (to.id, path_set.selector.cause());
        let is_by_advertised_cost = matches!(cause, RouteCause::Better | RouteCause::Degraded);
        if !is_first && is_by_advertised_cost && self.is_advertised_too_low(now, link) {
            return;
        }
        self.activate_path(now, link, to, (from, cause));
    }

    /// Whether the chosen path is far slower than link state says, and slower than the active one.
    /// If so, its relays are backed off.
    fn is_advertised_too_low(&mut self, now: Instant, link: LinkId) -> bool {
        let newest = self.known_routes.newest();
        let model = &self.config.cost;
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return false;
        };
        let (Some(chosen), Some(active)) = (path_set.chosen(), path_set.paths.active()) else {
            return false;
        };
        let round_trips = chosen.watch.round_trip().zip(active.watch.round_trip());
        let advertised = expected(newest, &chosen.path, model);
        let is_false = round_trips.is_some_and(|(of_chosen, of_active)| {
            of_chosen > of_active && is_far_over(advertised, from_span(of_chosen))
        });
        if !is_false || active.is_failing(now) {
            return false;
        }
        let path = chosen.path.clone();
        path_set.backoffs.on_degraded(now, path);
        path_set.selector.schedule_evaluation(now);
        self.stats.paths_refuted = self.stats.paths_refuted.saturating_add(1);
        self.paths_dirty = true;
        true
    }

    /// Makes a path the active one; copies use the previous path for a while.
    fn activate_path(
        &mut self,
        now: Instant,
        link: LinkId,
        to: u8,
        (from, cause): (Option<Path>, RouteCause),
    ) {
        let remote_end = self.node_of(link);
        let (Some(remote_end), Some(path_set)) = (remote_end, self.path_sets.get_mut(&link)) else {
            return;
        };
        let Some(path) = path_set.paths.get_mut(to) else {
            return;
        };
        path.unbound_since = None;
        let event = Event::RouteChanged {
            remote_end,
            from,
            to: path.path.clone(),
            cause,
            flows: self.flows.with(link).count(),
        };
        path_set.paths.activate(now, to);
        path_set.label_search.schedule(now);
        self.stats.route_changes = self.stats.route_changes.saturating_add(1);
        self.emit(event);
        #[cfg(feature = "tcp")]
        self.on_tunnels_moved(now, link);
    }

    /// Returns the labels of a path to their sealer, and to the nodes that granted them.
    fn release(&mut self, now: Instant, path: PathEntry) {
        for bound in path.bound.into_values() {
            if let Some(link) = self.plane.links.get_mut(path.first) {
                link.release(bound.binding);
            }
            self.queue_releases(now, bound.held);
        }
        self.queue_releases(now, path.setups.into_held());
    }
}

/// The best of `candidates` as the spare, which must differ from the active path until packets
/// move.
fn best_spare<'a, A>(
    now: Instant,
    path_set: &PathSet<A>,
    candidates: impl Iterator<Item = &'a PathCost>,
    penalties: &Penalties,
) -> Option<&'a Path> {
    let active = path_set.paths.active().map(|path| &path.path);
    let in_use = active.or_else(|| path_set.selector.chosen())?;
    let best = candidates
        .filter(|to| to.cost.is_routable() && is_disjoint(&to.path, in_use))
        .min_by_key(|to| {
            let is_suspect = to.data_health != DataHealth::Good
                || penalties.is_suppressed(now, &to.path)
                || path_set.backoffs.failed_recently(now, &to.path);
            (is_suspect, to.cost, to.path.clone())
        });
    best.map(|to| &to.path)
}

/// Whether two paths share no relay or, if both are direct, no link.
fn is_disjoint(path: &Path, other: &Path) -> bool {
    path != other && !path.relays.iter().any(|relay| other.relays.contains(relay))
}

/// Silence after which a path is dead even if this node does not keep up.
const SILENT: Duration = Duration::from_secs(3);
/// Time without packets of players after which paths are probed less.
const BUSY_AFTER: Duration = Duration::from_secs(2);
