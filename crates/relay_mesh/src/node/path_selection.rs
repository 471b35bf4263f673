//! Selects the path of packets to each remote node, and moves them to another.

use core::time::Duration;

use crypto::Provider;
use wire::{Instant, NodeId};

use super::flow_table::{Flow, probe_flow};
use super::label_scheduler::{FAILOVER_PRIORITY, SPARE_AFTER};
use super::path_cost::{LinkState, PathCost, expected, from_span, is_far_over};
use super::path_set::{OVERLAP_MIN, PathEntry, PathSet};
use super::{Node, path_backoff};
use crate::choice::{Candidate, Choice, DataHealth, Reason};
use crate::event::{Event, RouteCause};
use crate::flow_key::FlowId;
use crate::game::Mode;
use crate::link::{End, LinkId};
use crate::path_setup::PathSetup;
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
        let mut path_set = PathSet::new(now, End::from(role), keys, choice);
        path_set.salt = self.generator.next_u64();
        self.path_sets.insert(link, path_set);
        self.paths_dirty = true;
        true
    }

    pub(super) fn path_mut(&mut self, (link, id): (LinkId, u8)) -> Option<&mut PathEntry> {
        self.path_sets.get_mut(&link)?.path_mut(id)
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
        if !has_flows && now.saturating_since(path_set.used) >= self.config.flow_idle {
            self.suspend_path_set(now, link);
            return;
        }
        let is_busy = now.saturating_since(path_set.used) < BUSY_AFTER;
        let current = path_set.current;
        for path in &mut path_set.paths {
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
        if path_set.is_some_and(|path_set| path_set.take_search(now)) {
            self.set_up_missing(now, link);
        }
    }

    /// Releases the paths of an unused set. The set lives as long as its session: path numbers and
    /// flow ids must not repeat under the session's keys.
    fn suspend_path_set(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        (path_set.current, path_set.standby, path_set.previous) = (None, None, None);
        for path in core::mem::take(&mut path_set.paths) {
            self.release(now, path);
        }
    }

    /// Handles the end of the session with the remote node.
    pub(super) fn end_path_set(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.remove(&link) else {
            return;
        };
        for path in path_set.paths {
            self.release(now, path);
        }
        self.end_flows_with(now, link);
        self.plane
            .free_where(|label| label.leads_to(probe_flow(link)));
    }

    /// Handles the end of the session with a node that may be a relay of paths.
    pub(super) fn on_link_gone(&mut self, now: Instant, link: LinkId, node: NodeId) {
        let mut hit: Vec<(LinkId, u8)> = Vec::new();
        for (far, path_set) in &self.path_sets {
            let paths = path_set.paths.iter().filter(|path| {
                path.first == link || path.setups.iter().any(|setup| setup.passes(node))
            });
            hit.extend(paths.map(|path| (*far, path.id)));
        }
        for (far, path) in hit {
            self.fail_path(now, far, path);
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
        let was_current = path_set.current == Some(id);
        let standby = path_set.standby.filter(|standby| *standby != id);
        let Some(failed) = path_set.remove_path(id) else {
            return;
        };
        path_set.decide_at = now;
        path_set.search_from(now);
        path_set
            .path_backoff
            .add(now, failed.path.clone(), path_backoff::FAILED);
        let is_its_own_fault = failed.watch.silent_since().is_some_and(|since| {
            let mut others = path_set.paths.iter();
            others.any(|other| other.watch.carried_after(since))
        });
        if is_its_own_fault {
            self.penalties.on_path_failure(now, &failed.path);
        }
        if was_current {
            path_set.failover_deadline = now + FAILOVER_PRIORITY;
        }
        if was_current && let Some(standby) = standby {
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
        let is_due = path_set.is_some_and(|path_set| now >= path_set.decide_at);
        let Some(far) = self.node_of(link).filter(|_| is_due) else {
            return;
        };
        self.renew_routes(now);
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        if is_overloaded && let Some(in_use) = path_set.active() {
            // A draining relay is known from link state, not measured.
            let (newest, model) = (self.known_routes.newest(), &self.config.cost);
            if !LinkState::of(newest, &in_use.path, model).is_draining {
                path_set.decide_at = now + DECIDE;
                return;
            }
        }
        let avoided = path_set.backoff.held(now);
        let Some(routes) = self.known_routes.alternatives(now, far, &avoided) else {
            self.paths_dirty = true;
            return;
        };
        let mut paths = routes.to_vec();
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        path_set.decide_at = now + DECIDE;
        // The active path may no longer be among the best.
        let in_use = path_set.active().map(|path| path.path.clone());
        let chosen = path_set.choice.current().cloned();
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
        path_set.record_delays(|path| LinkState::of(newest, path, model).delay());
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
        let chosen = path_set.choice.current();
        let mut known = candidates.iter();
        let in_use = known.find(|path_cost| Some(&path_cost.path) == chosen);
        let offers = candidates.iter().map(|path_cost| path_cost.offer(in_use));
        let offers: Vec<Candidate<'_>> = offers.collect();
        if let Some(change) = path_set.choice.decide(now, &offers, &self.penalties) {
            // A new path may have only a probe label.
            path_set.search_from(now);
            path_set.cause = match change.reason {
                Reason::First => RouteCause::First,
                Reason::Dead if in_use.is_some_and(|before| before.is_draining) => {
                    RouteCause::Drained
                }
                Reason::Dead => RouteCause::Killed,
                Reason::Degraded => RouteCause::Degraded,
                Reason::Better => RouteCause::Better,
            };
            if let Some(before) = in_use.filter(|_| path_set.cause == RouteCause::Degraded) {
                let mut candidates = candidates.iter();
                let to = candidates.find(|path_cost| path_cost.path == change.to);
                if path_set.backoff.remembers(now, &change.to) {
                    // A relay that delayed data before may advertise too low a cost again.
                } else if to.is_some_and(|to| to.cost < before.cost) {
                    for node in &before.path.relays {
                        self.penalties.on_failure(now, *node);
                    }
                } else {
                    // Its links still look better in link state: a relay delays or drops data.
                    path_set.back_off(now, before.path.clone());
                }
            }
        }
        let is_warm = |(_, flow): (u32, &Flow<P::Aead>)| flow.mode != Mode::Single;
        let wants_warm = self.flows.with(link).any(is_warm);
        // The spare must differ from the active path until packets move.
        let in_use = path_set.active();
        let wants_spare = wants_warm
            || now < path_set.suspect_until
            || in_use.is_some_and(|path| path.is_short(now));
        let in_use = in_use.map(|path| path.path.clone());
        let in_use = in_use.or_else(|| path_set.choice.current().cloned());
        path_set.spare = in_use.as_ref().and_then(|in_use| {
            let penalties = &self.penalties;
            candidates
                .iter()
                .filter(|path_cost| {
                    path_cost.cost.is_routable() && is_disjoint(&path_cost.path, in_use)
                })
                .filter(|path_cost| wants_spare || path_cost.path.relays.is_empty())
                .min_by_key(|path_cost| {
                    let is_suspect = path_cost.standing != DataHealth::Good
                        || penalties.is_suppressed(now, &path_cost.path)
                        || path_set.path_backoff.failed_recently(now, &path_cost.path);
                    (is_suspect, path_cost.cost, path_cost.path.clone())
                })
                .map(|path_cost| path_cost.path.clone())
        });
        let spare_from = if wants_warm { now } else { now + SPARE_AFTER };
        self.keep_paths(now, link, spare_from);
    }

    /// Adds the required paths and drops the others. A new spare requests no labels before
    /// `spare_from`.
    fn keep_paths(&mut self, now: Instant, link: LinkId, spare_from: Instant) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let wanted = path_set.choice.current().cloned();
        let spare = path_set.spare.clone();
        path_set.previous.take_if(|(_, until)| *until <= now);
        // Until the spare path is proved, the previous one remains the standby.
        let is_proved = |path: &PathEntry| path.is_proved(now);
        let next = spare.as_ref().map(|spare| path_set.find(spare));
        let is_awaited = next.is_some_and(|next| !next.is_some_and(is_proved));
        let kept_standby = path_set.standby.filter(|id| {
            is_awaited && Some(*id) != path_set.current && path_set.path(*id).is_some_and(is_proved)
        });
        // The direct path has labels of all flows; keep them even if some are short.
        let is_short = path_set.active().is_some_and(|path| path.is_short(now));
        let previous = path_set.previous.map(|(previous, _)| previous);
        let is_kept = |path: &PathEntry| {
            [path_set.current, kept_standby, previous].contains(&Some(path.id))
                || [wanted.as_ref(), spare.as_ref()].contains(&Some(&path.path))
                || (is_short && path.path.relays.is_empty())
        };
        let idle = path_set.paths.iter().filter(|path| !is_kept(path));
        let mut idle: Vec<u8> = idle.map(|path| path.id).collect();
        let incoming = [&wanted, &spare].into_iter().flatten();
        let incoming = incoming
            .filter(|path| path_set.find(path).is_none())
            .count();
        path_set.retain_fallback_paths(now, &mut idle, incoming);
        let idle = idle.into_iter().filter_map(|id| path_set.remove_path(id));
        let idle: Vec<PathEntry> = idle.collect();
        let is_wanted = |path: &Path| Some(path) == wanted.as_ref();
        for path in [&wanted, &spare].into_iter().flatten() {
            let first = self.peers.find(&path.next_hop());
            let first = first.filter(|first| self.peers.carries(*first));
            let Some(first) = first.filter(|_| !path_set.path_backoff.is_blocked(now, path)) else {
                continue;
            };
            let is_new = path_set.find(path).is_none();
            if is_new {
                path_set.add_path(now, path.clone(), first);
                let added = path_set.paths.last_mut();
                if let Some(added) = added.filter(|_| self.peers.is_small(first)) {
                    added.quality.send_in_pieces();
                }
            }
            if is_wanted(path) {
                path_set.defer(path, now);
            } else if is_new {
                path_set.defer(path, spare_from);
            }
        }
        let standby = spare.and_then(|spare| path_set.find(&spare));
        let standby = standby.filter(|path| is_proved(path));
        path_set.standby = standby.map(|path| path.id).or(kept_standby);
        for path in idle {
            self.release(now, path);
        }
    }

    /// Moves packets to the chosen path once it is proved.
    fn move_if_ready(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get(&link) else {
            return;
        };
        let is_new = |path: &&PathEntry| Some(path.id) != path_set.current;
        let Some(to) = path_set.chosen().filter(is_new) else {
            return;
        };
        let is_first = path_set.current.is_none();
        // Flows on the active path need labels on the new one first; newer flows can wait.
        let active = path_set.active().into_iter();
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
        let from = path_set.active().map(|path| path.path.clone());
        let (to, cause) = (to.id, path_set.cause);
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
        let (Some(chosen), Some(active)) = (path_set.chosen(), path_set.active()) else {
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
        path_set.back_off(now, path);
        path_set.decide_at = now;
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
        let far_end = self.node_of(link);
        let (Some(far_end), Some(path_set)) = (far_end, self.path_sets.get_mut(&link)) else {
            return;
        };
        let Some(path) = path_set.path_mut(to) else {
            return;
        };
        path.unbound_since = None;
        let event = Event::RouteChanged {
            far_end,
            from,
            to: path.path.clone(),
            cause,
            flows: self.flows.with(link).count(),
        };
        let round_trip = path.watch.round_trip().unwrap_or_default();
        let overlap = round_trip.saturating_mul(2).max(OVERLAP_MIN);
        path_set.previous = path_set.current.map(|before| (before, now + overlap));
        path_set.current = Some(to);
        path_set.search_from(now);
        path_set.standby.take_if(|standby| *standby == to);
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
        self.queue_releases(now, path.setups.into_iter().flat_map(PathSetup::into_held));
    }
}

/// Whether two paths share no relay or, if both are direct, no link.
fn is_disjoint(path: &Path, other: &Path) -> bool {
    path != other && !path.relays.iter().any(|relay| other.relays.contains(relay))
}

/// Time between two evaluations of the routes.
const DECIDE: Duration = Duration::from_millis(200);
/// Silence after which a path is dead even if this node does not keep up.
const SILENT: Duration = Duration::from_secs(3);
/// Time without packets of players after which paths are probed less.
const BUSY_AFTER: Duration = Duration::from_secs(2);
