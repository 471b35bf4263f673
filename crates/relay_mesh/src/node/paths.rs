//! Setting up paths, probing them, and keeping their labels alive.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::Instant;

use super::flow_table::FlowTable;
use super::label_retry::RETRY;
use super::label_scheduler::LabelRequest;
use super::path_set::{KEEP_ALIVE, PathEntry, PathSet};
use super::{Node, RELIABLE, UNRELIABLE};
use crate::config::Mode;
use crate::data_plane::Arrived;
use crate::flow_key::FlowId;
use crate::hop::Piece;
use crate::link::LinkId;
use crate::path_probe::{PathEcho, PathPadding, PathProbe};
use crate::path_quality::TRIAL_PACKETS;
use crate::path_setup::{Ask, PathSetup, Progress, held};
use crate::path_watch::EchoWay;
use crate::route_request::{RequestId, RouteReply};

impl<P: Provider> Node<P> {
    /// Starts set-ups for flows without a label on a path, as many as may be pending.
    ///
    /// Unproved flows get labels only on the active path, or on the standby path if the active one
    /// grants none for long.
    pub(super) fn set_up_missing(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        self.stats.label_searches = self.stats.label_searches.saturating_add(1);
        let requests = Self::label_requests(now, path_set, &self.flows, link);
        path_set.on_searched(now, requests.len());
        let mut asks = Vec::new();
        let mut request = self.next_request;
        let mut ids = || {
            request = request.wrapping_add(1);
            RequestId(request)
        };
        // After a failure, the path that takes over gets its labels first; the others are only
        // spares.
        let proved = requests.iter().filter(|wanted| wanted.is_proved);
        let priority_path = path_set.priority_path(now, proved.map(|wanted| wanted.flow));
        if priority_path.is_some() {
            path_set.search_from(path_set.failover_deadline);
        }
        let stranded = path_set.update_unbound_flows(now, &requests);
        let alone = path_set.exclusive_path(now, priority_path);
        // Flows without any label come before those that want a second one.
        let waiting = path_set.deferred_spares(&stranded);
        let is_open = |path: &PathEntry| path.retry_at <= now;
        let shut = path_set.paths.iter().filter(|path| !is_open(path));
        let retry_at = shut.map(|path| path.retry_at).min();
        let open = path_set.paths.iter().filter(|path| is_open(path));
        let missing: Vec<_> = open
            .filter(|path| path.setup_room() > 0 && alone.is_none_or(|alone| alone == path.id))
            .map(|path| {
                (
                    path.id,
                    path_set.missing(path, &requests, (priority_path, &stranded)),
                )
            })
            .collect();
        for (id, missing) in missing {
            let Some(path) = path_set.path_mut(id) else {
                continue;
            };
            let room = if waiting.contains(&id) {
                path.setup_room()
                    .min(SPARE_SETUPS.saturating_sub(path.setups.len()))
            } else {
                path.setup_room()
            };
            // The end of a set-up starts the next search, so flows that do not fit now need no
            // timer.
            let started: Vec<_> = path
                .batches(&missing)
                .take(room)
                .map(|flows| {
                    let way = (path.path.relays.as_slice(), path.path.destination, id);
                    PathSetup::start(now, self.own, way, flows.to_vec(), &mut ids)
                })
                .collect();
            for (setup, first) in started {
                path.setups.push(setup);
                asks.extend(first);
            }
        }
        if let Some(at) = retry_at {
            path_set.search_from(at);
        }
        self.next_request = request;
        self.ask(now, asks);
    }

    /// The flows with a far end for which labels may be requested, the probe flow first. Leaves out
    /// flows whose open message is not sent yet: the far end does not know them.
    fn label_requests(
        now: Instant,
        path_set: &mut PathSet<P::Aead>,
        flows: &FlowTable<P::Aead>,
        far: LinkId,
    ) -> Vec<LabelRequest> {
        let mut requests = vec![LabelRequest::PROBE];
        let all = flows.with(far);
        for flow in all.filter_map(|(_, index)| flows.get(index)) {
            if path_set.opens.contains(&flow.id) {
                continue;
            }
            if flow.label_retry.from() <= now {
                requests.push(LabelRequest {
                    flow: flow.id,
                    is_proved: flow.is_proved(),
                    is_warm: flow.mode != Mode::Single,
                });
            } else {
                path_set.search_from(flow.label_retry.from());
            }
        }
        requests
    }

    /// Handles the reply to a route request of this node.
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
        let session = self.peers.session(link);
        let found = self.path_sets.iter_mut().find_map(|(&far, path_set)| {
            path_set.paths.iter_mut().find_map(|path| {
                let place = path
                    .setups
                    .iter()
                    .position(|setup| setup.waits_for(node, id))?;
                let setup = path.setups.get_mut(place)?;
                setup.note_session(id, session);
                let progress = setup.on_reply(id, reply.clone(), &mut ids);
                let is_over = !matches!(progress, Progress::Pending(_));
                let ended = is_over.then(|| path.setups.swap_remove(place));
                Some((far, path.id, progress, ended))
            })
        });
        self.next_request = request;
        let mut idle = Vec::new();
        match found {
            Some((_, _, Progress::Pending(asks), _)) => self.ask(now, asks),
            Some((far, path, progress, Some(mut setup))) => {
                self.on_setup_ended(now, (far, path), progress, &mut setup);
                idle = setup.into_held();
            }
            Some((_, _, _, None)) | None => {
                self.stats.stray_replies = self.stats.stray_replies.saturating_add(1);
                // The labels are no longer wanted.
                if let RouteReply::Done(granted) = reply {
                    idle.extend(held(session, granted));
                }
            }
        }
        self.give_back(now, idle);
        self.paths_dirty = true;
    }

    fn on_setup_ended(
        &mut self,
        now: Instant,
        (far, path): (LinkId, u8),
        progress: Progress,
        setup: &mut PathSetup,
    ) {
        if let Progress::Ready { labels, refused } = progress {
            self.take_labels(now, (far, path), labels, setup);
            self.defer(now, far, &refused);
        } else {
            self.on_setup_failed(now, far, path);
        }
    }

    /// Ends set-ups that have passed their deadline.
    pub(super) fn end_overdue_setups(&mut self, now: Instant, link: LinkId) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let (mut failed, mut ended) = (Vec::new(), Vec::new());
        for path in &mut path_set.paths {
            let before = path.setups.len();
            ended.extend(path.setups.extract_if(.., |setup| setup.deadline() <= now));
            if path.setups.len() < before {
                failed.push(path.id);
            }
        }
        for setup in ended {
            self.give_back(now, setup.into_held());
        }
        for path in failed {
            self.on_setup_failed(now, link, path);
        }
    }

    /// Sends the probes that are due on all paths.
    pub(super) fn run_watches(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (&link, path_set) in &mut self.path_sets {
            for path in path_set.paths.iter_mut().filter(|path| path.is_watched()) {
                if let Some(number) = path.watch.poll_probe(now) {
                    let is_padded = path.padding_at <= now && path_set.data_len > 0;
                    due.push((link, path.id, number, is_padded));
                }
            }
        }
        for (link, path, number, is_padded) in due {
            if is_padded {
                self.send_padding(now, (link, path));
            }
            self.send_trial(now, (link, path));
            let known = self.path_sets.get_mut(&link);
            let Some(known) = known.and_then(|path_set| path_set.path_mut(path)) else {
                continue;
            };
            let (sampling, has_data) = known.quality.on_probe_sent(now, number);
            if has_data {
                known.padding_at = now + PADDING;
            }
            let probe = PathProbe {
                path,
                number,
                clock: now.as_nanos(),
                sampling,
            };
            let path_set = self.path_sets.get_mut(&link);
            let len = path_set.map_or(0, |path_set| path_set.probe_len(path));
            let mut payload = Vec::with_capacity(len.max(PathProbe::LEN));
            probe.encode_padded(len, &mut payload);
            self.send_probe(now, (link, path), &payload);
        }
    }

    /// Handles a frame of a far end's probe flow.
    pub(super) fn on_probe_frame(&mut self, now: Instant, link: LinkId, arrived: &mut Arrived<'_>) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let provider = self.endpoint.provider();
        let opened = path_set
            .probe_opener
            .open(provider, now, &arrived.header, arrived.body);
        let Ok(payload) = opened else {
            self.stats.flow_forged = self.stats.flow_forged.saturating_add(1);
            return;
        };
        let header = &arrived.header;
        let (number, piece) = (header.number, header.phase.piece);
        if Self::is_of_session(piece, payload) {
            self.on_session_piece(now, link, (number, piece), payload);
            return;
        }
        if let Ok(echo) = PathEcho::decode(payload) {
            self.on_path_echoed(now, link, (echo, EchoWay::Path));
            return;
        }
        if let Ok(padding) = PathPadding::decode(payload) {
            let (packet, len) = ((FlowId::PROBE, arrived.header.number), payload.len());
            let data = path_set.arrivals.data(padding.path);
            data.on_data(now, packet, len);
            return;
        }
        let Ok(probe) = PathProbe::decode(payload) else {
            self.count_malformed();
            return;
        };
        let arrived = path_set.arrivals.count(probe.path);
        let mut data = path_set
            .arrivals
            .data(probe.path)
            .on_probe(now, probe.sampling);
        data.is_overloaded = self.overload.is_overloaded(now);
        let mut echo = Vec::with_capacity(PathEcho::LEN_MAX);
        probe.answer(now, arrived, data).encode(&mut echo);
        // The session is the direct path. If the active path has relays, the echo takes both paths,
        // and the first to arrive counts.
        let back = path_set
            .current
            .and_then(|id| path_set.path(id))
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
        match PathEcho::decode(message) {
            Ok(echo) => self.on_path_echoed(now, link, (echo, EchoWay::Session)),
            Err(_) => self.count_malformed(),
        }
    }

    /// Sends an empty frame for each label that was silent for [`KEEP_ALIVE`].
    pub(super) fn keep_labels_alive(&mut self, now: Instant) {
        let mut silent = Vec::new();
        for (&link, path_set) in &self.path_sets {
            for path in &path_set.paths {
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

    fn on_path_echoed(&mut self, now: Instant, link: LinkId, (echo, way): (PathEcho, EchoWay)) {
        self.note_far_report(now, link, &echo.data);
        let is_excused = self.is_excused(now, link);
        let Some(path) = self
            .path_sets
            .get_mut(&link)
            .and_then(|path_set| path_set.path_mut(echo.path))
        else {
            return;
        };
        let was = (path.watch.is_proved(), path.quality.verdict());
        path.watch.on_echo(now, echo, way);
        let loss = path.watch.lost(now);
        if !is_excused {
            path.quality.on_echo(now, echo, loss);
        }
        if was != (path.watch.is_proved(), path.quality.verdict()) {
            self.paths_dirty = true;
        }
    }

    /// Sends padding of the length of data over a path that carries none.
    fn send_padding(&mut self, now: Instant, (link, id): (LinkId, u8)) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let len = path_set.data_len;
        let Some(path) = path_set.path_mut(id) else {
            return;
        };
        path.padding_at = now + PADDING;
        let len = len.min(path.quality.whole_max());
        self.send_padding_of(now, (link, id), len);
    }

    /// If datagrams are split, sends full-length packets at times, to learn whether splitting is
    /// still necessary.
    fn send_trial(&mut self, now: Instant, (link, id): (LinkId, u8)) {
        let path_set = self.path_sets.get_mut(&link);
        let path = path_set.and_then(|path_set| path_set.path_mut(id));
        let Some(len) = path.and_then(|path| path.quality.poll_trial(now)) else {
            return;
        };
        for _ in 0..TRIAL_PACKETS {
            self.send_padding_of(now, (link, id), len);
        }
    }

    /// Sends `len` bytes of padding over a path, which count as data.
    fn send_padding_of(&mut self, now: Instant, (link, id): (LinkId, u8), len: usize) {
        let mut payload = Vec::with_capacity(len);
        PathPadding { path: id }.encode(len, &mut payload);
        let number = self.send_probe(now, (link, id), &payload);
        let path_set = self.path_sets.get_mut(&link);
        let path = path_set.and_then(|path_set| path_set.path_mut(id));
        if let (Some(path), Some(number)) = (path, number) {
            let packet = (FlowId::PROBE, number);
            path.quality.on_data_sent(now, packet, payload.len());
        }
    }

    /// Returns the packet number if the packet was sent.
    fn send_probe(
        &mut self,
        now: Instant,
        (link, id): (LinkId, u8),
        payload: &[u8],
    ) -> Option<u64> {
        self.send_probe_piece(now, (link, id), (Piece::Whole, payload))
    }

    /// Sends requests. If requests of a path cannot be sent, their set-ups end, and the path backs
    /// off once for all of them.
    fn ask(&mut self, now: Instant, asks: Vec<Ask>) {
        let mut unasked = Vec::new();
        for Ask { node, id, request } in asks {
            let mut message = Vec::new();
            request.encode(id, &mut message);
            let link = self.peers.find(&node);
            let link = link.filter(|link| self.peers.session(*link).is_some());
            if link.is_some_and(|link| self.send(now, link, RELIABLE, &message)) {
                self.stats.label_requests = self.stats.label_requests.saturating_add(1);
            } else {
                unasked.push((node, id, link.is_some()));
            }
        }
        let (mut stuck, mut ended) = (BTreeMap::new(), Vec::new());
        for (node, id, is_only_full) in unasked {
            for (&far, path_set) in &mut self.path_sets {
                let mut is_stuck = false;
                for path in &mut path_set.paths {
                    let before = path.setups.len();
                    ended.extend(
                        path.setups
                            .extract_if(.., |setup| setup.waits_for(node, id)),
                    );
                    if path.setups.len() < before {
                        let is_full = stuck.entry((far, path.id)).or_insert(true);
                        *is_full &= is_only_full;
                        is_stuck = true;
                    }
                }
                if is_stuck {
                    path_set.search_from(now + RETRY);
                }
            }
        }
        for setup in ended {
            self.give_back(now, setup.into_held());
        }
        for ((far, id), is_only_full) in stuck {
            if !is_only_full {
                self.on_setup_failed(now, far, id);
                continue;
            }
            let path_set = self.path_sets.get_mut(&far);
            if let Some(path) = path_set.and_then(|path_set| path_set.path_mut(id)) {
                path.retry_at = now + RETRY;
            }
        }
    }
}

/// Pending set-ups of each spare path, while flows wait for labels on the active path.
const SPARE_SETUPS: usize = 2;
/// Time without data on a path before padding is sent, and between two paddings.
const PADDING: Duration = Duration::from_millis(100);
