//! The probe flow of paths: probes, echoes, padding, and session datagrams.
//!
//! A session with a remote end that this node does not reach directly uses the probe flow of an
//! established path: the rate limit of a neighbour that forwards its datagrams suffices only to set
//! up the first path. The path is sealed end to end and has the rate of a label. A few datagrams
//! still use the neighbour, so that the detour stays up in case the path dies.

use core::time::Duration;

use crypto::Provider;
use wire::{Arrival, Instant};

use super::{Node, UNRELIABLE};
use crate::data_plane::Arrived;
use crate::flow_key::FlowId;
use crate::flow_message::flow_code;
use crate::hop::Piece;
use crate::link::LinkId;
use crate::path_probe::{PathEcho, PathPadding, PathProbe};
use crate::path_quality::{DataVerdict, TRIAL_PACKETS};
use crate::path_watch::EchoWay;
use crate::pieces::split;

impl<P: Provider> Node<P> {
    /// Sends the probes that are due on all paths.
    pub(super) fn run_watches(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (&link, path_set) in &mut self.path_sets {
            let longest = path_set.probe_flow.longest();
            for path in path_set.paths.iter_mut().filter(|path| path.is_watched()) {
                let Some(number) = path.watch.poll_probe(now) else {
                    continue;
                };
                let is_padded = path.padding_at <= now && longest > 0;
                let padding = is_padded.then(|| longest.min(path.quality.whole_max()));
                if is_padded {
                    path.padding_at = now + PADDING;
                }
                due.push((
                    (link, path.id),
                    number,
                    padding,
                    path.quality.poll_trial(now),
                ));
            }
        }
        for ((link, id), number, padding, trial) in due {
            let trial = trial.map(|len| [len; TRIAL_PACKETS as usize]);
            for len in padding.into_iter().chain(trial.into_iter().flatten()) {
                self.send_padding(now, (link, id), len);
            }
            let Some(path_set) = self.path_sets.get_mut(&link) else {
                continue;
            };
            let len = path_set.probe_len(id);
            let Some(path) = path_set.paths.get_mut(id) else {
                continue;
            };
            let (sampling, has_data) = path.quality.on_probe_sent(now, number);
            if has_data {
                path.padding_at = now + PADDING;
            }
            let probe = PathProbe {
                path: id,
                number,
                clock: now.as_nanos(),
                sampling,
            };
            let mut payload = Vec::with_capacity(len.max(PathProbe::LEN));
            probe.encode_padded(len, &mut payload);
            self.send_probe_piece(now, (link, id), (Piece::Whole, &payload));
        }
    }

    /// Handles a frame of a remote end's probe flow.
    pub(super) fn on_probe_frame(&mut self, now: Instant, link: LinkId, arrived: &mut Arrived<'_>) {
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let provider = self.endpoint.provider();
        let probe_flow = &mut path_set.probe_flow;
        let Ok(payload) = probe_flow.open(provider, now, &arrived.header, arrived.body) else {
            self.stats.flow_forged = self.stats.flow_forged.saturating_add(1);
            return;
        };
        let (number, piece) = (arrived.header.number, arrived.header.phase.piece);
        if piece != Piece::Whole || payload.first() == Some(&flow_code::SESSION_DATAGRAM) {
            self.on_session_piece(now, link, (number, piece), payload);
            return;
        }
        if let Ok(echo) = PathEcho::decode(payload) {
            self.on_path_echoed(now, link, (echo, EchoWay::Path));
            return;
        }
        if let Ok(padding) = PathPadding::decode(payload) {
            probe_flow.on_padding(now, padding, (number, payload.len()));
            return;
        }
        let Ok(probe) = PathProbe::decode(payload) else {
            self.count_malformed();
            return;
        };
        let (arrived, mut data) = probe_flow.on_probe(now, &probe);
        data.is_overloaded = self.overload.is_overloaded(now);
        let mut echo = Vec::with_capacity(PathEcho::LEN_MAX);
        probe.answer(now, arrived, data).encode(&mut echo);
        // If the active path has relays, the echo takes it and the session, which is direct.
        let back = path_set.paths.active().filter(|path| path.is_watched());
        let is_direct = back.is_some_and(|path| path.path.relays.is_empty());
        if let Some(back) = back.map(|path| path.id) {
            self.send_probe_piece(now, (link, back), (Piece::Whole, &echo));
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

    fn on_path_echoed(&mut self, now: Instant, link: LinkId, (echo, way): (PathEcho, EchoWay)) {
        self.record_remote_report(now, link, &echo.data);
        let is_excused = self.is_excused(now, link);
        let Some(path) = self.path_mut((link, echo.path)) else {
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

    /// Sends `len` bytes of padding over a path, which count as data.
    fn send_padding(&mut self, now: Instant, (link, id): (LinkId, u8), len: usize) {
        let mut payload = Vec::with_capacity(len);
        PathPadding { path: id }.encode(len, &mut payload);
        let number = self.send_probe_piece(now, (link, id), (Piece::Whole, &payload));
        if let (Some(path), Some(number)) = (self.path_mut((link, id)), number) {
            let packet = (FlowId::PROBE, number);
            path.quality.on_data_sent(now, packet, payload.len());
        }
    }

    pub(super) fn path_for_session(&self, now: Instant, remote: LinkId) -> Option<u8> {
        let path = self.path_sets.get(&remote)?.paths.active()?;
        let is_fit = path.is_watched() && path.is_proved(now) && !path.path.relays.is_empty();
        is_fit.then_some(path.id)
    }

    /// Sends a datagram of the session with a remote end over a path.
    pub(super) fn send_session_over(
        &mut self,
        now: Instant,
        (remote, path): (LinkId, u8),
        datagram: &[u8],
    ) {
        let mut payload = Vec::with_capacity(datagram.len().saturating_add(1));
        payload.push(flow_code::SESSION_DATAGRAM);
        payload.extend_from_slice(datagram);
        match split(&payload) {
            Some((whole, None)) => {
                self.send_probe_piece(now, (remote, path), (Piece::Whole, whole));
            }
            Some((first, Some(second))) => {
                self.send_probe_piece(now, (remote, path), (Piece::First, first));
                self.send_probe_piece(now, (remote, path), (Piece::Second, second));
            }
            None => {}
        }
    }

    pub(super) fn on_session_piece(
        &mut self,
        now: Instant,
        remote: LinkId,
        piece: (u64, Piece),
        payload: &[u8],
    ) {
        let Some(path_set) = self.path_sets.get_mut(&remote) else {
            return;
        };
        let Some(mut datagram) = path_set.probe_flow.join(now, piece, payload) else {
            return;
        };
        let Some((&mut flow_code::SESSION_DATAGRAM, datagram)) = datagram.split_first_mut() else {
            self.count_malformed();
            return;
        };
        let detour = self.detours.list.get(&remote).map(|detour| detour.address);
        let session = self.peers.session(remote);
        let address = detour.or_else(|| self.endpoint.peer_address(session?));
        let (Some(address), None) = (address, self.detours.receiving_from) else {
            return;
        };
        self.detours.receiving_from = Some(remote);
        self.endpoint
            .handle_datagram(now, Arrival::from(address), datagram);
        self.pump(now);
        self.detours.receiving_from = None;
    }

    pub(super) fn send_probe_piece(
        &mut self,
        now: Instant,
        (link, id): (LinkId, u8),
        piece: (Piece, &[u8]),
    ) -> Option<u64> {
        let path_set = self.path_sets.get_mut(&link)?;
        let provider = self.endpoint.provider();
        self.sealed.clear();
        let probe_flow = &mut path_set.probe_flow;
        let numbered = probe_flow.seal_piece(provider, now, piece, &mut self.sealed)?;
        let path = path_set.paths.get_mut(id)?;
        let sealed = (numbered, self.sealed.as_slice());
        let is_sent = path.send(&mut self.plane, provider, now, (FlowId::PROBE, sealed));
        is_sent.then_some(numbered.number)
    }

    /// Backs off the relays of paths that carry data worse than probes.
    pub(super) fn judge_data(&mut self, now: Instant, link: LinkId) {
        if !self.config.choice.judges_data {
            return;
        }
        let Some(path_set) = self.path_sets.get_mut(&link) else {
            return;
        };
        let mut failed: u64 = 0;
        for path in path_set.paths.iter_mut() {
            let verdict = path.quality.verdict();
            if verdict == DataVerdict::Suspect {
                path_set.selector.on_suspect_data(now);
            }
            if !verdict.is_failing() {
                continue;
            }
            failed = failed.saturating_add(1);
            path.failed_at = Some(now);
            path.quality.reset();
            path_set.backoffs.on_bad_data(now, &path.path);
            path_set.selector.schedule_evaluation(now);
        }
        self.stats.paths_failed_data = self.stats.paths_failed_data.saturating_add(failed);
    }

    pub(super) fn on_data_arrived(
        &mut self,
        now: Instant,
        (remote, path): (LinkId, u8),
        packet: (FlowId, u64),
        len: usize,
    ) {
        if let Some(path_set) = self.path_sets.get_mut(&remote) {
            path_set.probe_flow.on_data(now, path, packet, len);
            if self.config.choice.judges_data {
                path_set.probe_flow.record_received(len);
            }
        }
    }
}

/// Time without data on a path before padding is sent, and between two paddings.
const PADDING: Duration = Duration::from_millis(100);
