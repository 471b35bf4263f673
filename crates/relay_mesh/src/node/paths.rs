//! Setting paths up, probing them, and keeping their labels.

use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::course::{Bound, CoursePath, KEEP_ALIVE, SETUPS_MAX};
use super::{Node, RELIABLE, UNRELIABLE};
use crate::data_plane::Arrived;
use crate::flow_key::FlowId;
use crate::flow_message::PathProbe;
use crate::hop::{LabelName, Piece};
use crate::hop_sealer::Packet;
use crate::link::LinkId;
use crate::path_setup::{Ask, PathSetup, Progress};
use crate::route_request::{FLOWS_MAX, Refused, RequestId, RouteReply};

impl<P: Provider> Node<P> {
    /// Starts set-ups for the flows that have no label on a path.
    pub(super) fn set_up_missing(&mut self, now: Instant, link: LinkId) {
        let flows: Vec<FlowId> = self.flows.with(link).map(|(flow, _)| flow).collect();
        let Some(course) = self.courses.get_mut(&link) else {
            return;
        };
        let mut asks = Vec::new();
        let mut request = self.next_request;
        let mut ids = || {
            request = request.wrapping_add(1);
            RequestId(request)
        };
        course.is_incomplete = false;
        for path in &mut course.paths {
            if now < path.retry_at {
                course.is_incomplete = true;
                continue;
            }
            let all = [FlowId::PROBE].into_iter().chain(flows.iter().copied());
            // One more than there is room for, to see whether any are left.
            let room = SETUPS_MAX.saturating_sub(path.setups.len()) * FLOWS_MAX;
            let mut missing: Vec<FlowId> = path.missing(all).take(room + 1).collect();
            course.is_incomplete |= missing.len() > room;
            missing.truncate(room);
            for chunk in missing.chunks(FLOWS_MAX) {
                let way = (path.path.relays.as_slice(), path.path.destination);
                let (setup, first) = PathSetup::start(now, self.own, way, chunk.to_vec(), &mut ids);
                path.setups.push(setup);
                asks.extend(first);
            }
        }
        self.next_request = request;
        self.ask(now, asks);
    }

    /// Takes the answer to a request of ours.
    pub(super) fn on_route_reply(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        let Ok((id, reply)) = RouteReply::decode(message) else {
            self.count_malformed();
            return;
        };
        let Some(node) = self.peers.get(link).map(|peer| peer.node) else {
            return;
        };
        let mut request = self.next_request;
        let mut ids = || {
            request = request.wrapping_add(1);
            RequestId(request)
        };
        let mut lost_flow = false;
        let found = self.courses.iter_mut().find_map(|(&far, course)| {
            course.paths.iter_mut().find_map(|path| {
                let place = path
                    .setups
                    .iter()
                    .position(|setup| setup.waits_for(node, id))?;
                let progress = path
                    .setups
                    .get_mut(place)?
                    .on_reply(id, reply.clone(), &mut ids);
                if !matches!(progress, Progress::Pending(_)) {
                    let setup = path.setups.swap_remove(place);
                    let mut flows = setup.flows().iter();
                    lost_flow = flows.any(|flow| !self.flows.is_alive(far, *flow));
                }
                Some((far, path.id, progress))
            })
        });
        self.next_request = request;
        match found {
            Some((_, _, Progress::Pending(asks))) => self.ask(now, asks),
            Some((far, path, Progress::Ready(labels))) => self.take_labels(now, far, path, labels),
            // A flow that ended meanwhile, maybe refused by its exit: nobody else's path pays.
            Some((far, _, Progress::Failed(_))) if lost_flow => {
                if let Some(course) = self.courses.get_mut(&far) {
                    course.is_incomplete = true;
                }
            }
            // Its first node has enough of us for now; whoever has a label there keeps it.
            Some((far, path, Progress::Failed(Refused::TooMany))) if self.is_proved(far, path) => {
                self.postpone(now, far, path);
            }
            Some((far, path, Progress::Failed(_))) => self.on_setup_failed(now, far, path),
            None => {
                self.stats.stray_replies = self.stats.stray_replies.saturating_add(1);
            }
        }
        self.is_untended = true;
    }

    /// Ends set-ups that wait for too long.
    pub(super) fn end_overdue_setups(&mut self, now: Instant, link: LinkId) {
        let Some(course) = self.courses.get_mut(&link) else {
            return;
        };
        let mut failed = Vec::new();
        for path in &mut course.paths {
            let before = path.setups.len();
            path.setups.retain(|setup| setup.deadline() > now);
            if path.setups.len() < before {
                failed.push(path.id);
            }
        }
        for path in failed {
            self.on_setup_failed(now, link, path);
        }
    }

    /// Sends the probes of all paths that are due.
    pub(super) fn run_watches(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (&link, course) in &mut self.courses {
            for path in course.paths.iter_mut().filter(|path| path.is_watched()) {
                if let Some(number) = path.watch.poll_probe(now) {
                    due.push((link, path.id, number));
                }
            }
        }
        for (link, path, number) in due {
            let probe = PathProbe {
                path,
                number,
                clock: now.as_nanos(),
            };
            self.send_probe(now, (link, path), &probe.encode_probe());
        }
    }

    /// Takes a frame of a far end's probe flow.
    pub(super) fn on_probe_frame(&mut self, now: Instant, link: LinkId, arrived: &mut Arrived<'_>) {
        let Some(course) = self.courses.get_mut(&link) else {
            return;
        };
        let provider = self.endpoint.provider();
        let opened = course
            .probe_opener
            .open(provider, now, &arrived.header, arrived.body);
        let Ok(payload) = opened else {
            self.stats.flow_forged = self.stats.flow_forged.saturating_add(1);
            return;
        };
        let Ok((probe, is_echo)) = PathProbe::decode(payload) else {
            self.count_malformed();
            return;
        };
        if is_echo {
            self.on_path_echoed(now, link, probe);
            return;
        }
        let echo = probe.answer(now).encode_echo();
        // The direct way is the session's own; over relays, the first of two answers counts.
        let back = course
            .current
            .and_then(|id| course.path(id))
            .filter(|path| path.is_watched());
        let (back, is_direct) = back.map_or((None, false), |path| {
            (Some(path.id), path.path.relays.is_empty())
        });
        if let Some(back) = back {
            self.send_probe(now, (link, back), &echo);
        }
        if !is_direct {
            self.send(now, link, UNRELIABLE, &echo);
        }
    }

    pub(super) fn on_path_echo(&mut self, now: Instant, link: LinkId, message: &[u8]) {
        match PathProbe::decode(message) {
            Ok((probe, true)) => self.on_path_echoed(now, link, probe),
            Ok((_, false)) | Err(_) => self.count_malformed(),
        }
    }

    /// Sends a frame without a payload where a label was silent for long.
    pub(super) fn keep_labels_alive(&mut self, now: Instant) {
        let mut silent = Vec::new();
        for (&link, course) in &self.courses {
            for path in &course.paths {
                for (&flow, bound) in &path.bound {
                    if now.saturating_since(bound.sent_at) >= KEEP_ALIVE
                        && let Some(index) = self.flows.of_id(link, flow)
                    {
                        silent.push((index, path.id));
                    }
                }
            }
        }
        for (index, path) in silent {
            self.send_pieces(now, index, (Piece::First, &[]), [Some(path), None]);
        }
    }

    fn on_path_echoed(&mut self, now: Instant, link: LinkId, probe: PathProbe) {
        let Some(path) = self
            .courses
            .get_mut(&link)
            .and_then(|course| course.path_mut(probe.path))
        else {
            return;
        };
        let was_proved = path.watch.is_proved();
        path.watch.on_echo(now, probe.number, probe.clock);
        if !was_proved && path.watch.is_proved() {
            self.is_untended = true;
        }
    }

    fn send_probe(&mut self, now: Instant, (link, id): (LinkId, u8), payload: &[u8]) {
        let Some(course) = self.courses.get_mut(&link) else {
            return;
        };
        let provider = self.endpoint.provider();
        self.sealed.clear();
        let Ok(numbered) =
            course
                .probe_sealer
                .seal(provider, now, (Piece::Whole, payload), &mut self.sealed)
        else {
            return;
        };
        let Some(path) = course.path_mut(id) else {
            return;
        };
        let first = path.first;
        let Some(bound) = path.bound.get_mut(&FlowId::PROBE) else {
            return;
        };
        bound.sent_at = now;
        let packet = Packet {
            number: numbered.number,
            phase: numbered.phase,
            is_echo: false,
            body: &self.sealed,
        };
        let via = (first, &mut bound.binding);
        self.plane.send(provider, now, via, packet);
    }

    fn ask(&mut self, now: Instant, asks: Vec<Ask>) {
        let mut unasked = Vec::new();
        for Ask { node, id, request } in asks {
            let mut message = Vec::new();
            request.encode(id, &mut message);
            let link = self.peers.find(&node);
            if !link.is_some_and(|link| self.send(now, link, RELIABLE, &message)) {
                unasked.push((node, id));
            }
        }
        for (node, id) in unasked {
            let found = self.courses.iter_mut().find_map(|(&far, course)| {
                course.paths.iter_mut().find_map(|path| {
                    let place = path
                        .setups
                        .iter()
                        .position(|setup| setup.waits_for(node, id))?;
                    path.setups.swap_remove(place);
                    Some((far, path.id))
                })
            });
            if let Some((far, path)) = found {
                self.on_setup_failed(now, far, path);
            }
        }
    }

    fn is_proved(&self, far: LinkId, id: u8) -> bool {
        let path = self.courses.get(&far).and_then(|course| course.path(id));
        path.is_some_and(CoursePath::is_watched)
    }

    /// Asks for the labels that a path lacks a little later.
    fn postpone(&mut self, now: Instant, far: LinkId, id: u8) {
        let Some(course) = self.courses.get_mut(&far) else {
            return;
        };
        course.is_incomplete = true;
        if let Some(path) = course.path_mut(id) {
            path.retry_at = now + RETRY;
        }
    }

    /// Takes the labels of a path that is set up.
    fn take_labels(
        &mut self,
        now: Instant,
        far: LinkId,
        path: u8,
        labels: Vec<(FlowId, LabelName)>,
    ) {
        let Some(course) = self.courses.get_mut(&far) else {
            return;
        };
        let Some(path) = course.paths.iter_mut().find(|known| known.id == path) else {
            return;
        };
        let Some(link) = self.plane.links.get_mut(path.first) else {
            return;
        };
        path.failures = 0;
        let (mut ready, mut unbound) = (Vec::new(), false);
        for (flow, label) in labels {
            if !self.flows.is_alive(far, flow) {
                // Its label at the first hop ends by itself.
                continue;
            }
            let provider = self.endpoint.provider();
            // A first hop that names a label twice gets no frames on it.
            let Ok(binding) = link.sealer.bind_origin(provider, now, label) else {
                unbound = true;
                continue;
            };
            let bound = Bound {
                binding,
                sent_at: now,
            };
            if let Some(old) = path.bound.insert(flow, bound) {
                link.sealer.release(old.binding);
            }
            ready.push(flow);
        }
        if unbound {
            path.retry_at = now + RETRY;
            course.is_incomplete = true;
        }
        for flow in ready {
            self.send_early(now, far, flow);
        }
    }

    /// Tries again a little later, and gives the path up after the third time.
    fn on_setup_failed(&mut self, now: Instant, far: LinkId, id: u8) {
        let Some(path) = self
            .courses
            .get_mut(&far)
            .and_then(|course| course.path_mut(id))
        else {
            return;
        };
        self.stats.setups_failed = self.stats.setups_failed.saturating_add(1);
        // Set-ups that were begun together fail together, and count as one.
        if now >= path.retry_at {
            path.failures = path.failures.saturating_add(1);
        }
        let is_hopeless = path.failures >= TRIES;
        self.postpone(now, far, id);
        if is_hopeless {
            self.fail_path(now, far, id);
        }
    }
}

impl CoursePath {
    /// Whether probes can be sent over it.
    pub(super) fn is_watched(&self) -> bool {
        self.bound.contains_key(&FlowId::PROBE)
    }
}

/// Wait after a set-up that failed.
const RETRY: Duration = Duration::from_millis(250);
/// Set-ups that may fail until a path is given up.
const TRIES: u8 = 3;
