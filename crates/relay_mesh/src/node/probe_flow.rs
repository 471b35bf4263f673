//! The sealed flow that carries probes, their echoes, padding, and session datagrams between two
//! nodes.

use std::collections::BTreeMap;

use crypto::{Aead, Provider};
use wire::Instant;

use super::flows::FlowKeys;
use super::path_table::PATHS_MAX;
use super::recent_lengths::RecentLengths;
use crate::flow_key::{FlowDrop, FlowId, FlowOpener, FlowSealer, Numbered};
use crate::hop::{HopHeader, LabelName, Piece};
use crate::path_probe::{DataReport, PathPadding, PathProbe};
use crate::path_quality::DataArrivals;
use crate::pieces::Joiner;

#[derive(Debug)]
pub(super) struct ProbeFlow<A> {
    /// Numbers its packets.
    sealer: FlowSealer<A>,
    opener: FlowOpener<A>,
    /// Reassembles session datagrams.
    joiner: Joiner,
    /// Labels that this node granted for it.
    labels: Vec<LabelName>,
    /// Arrivals on the remote end's paths.
    arrivals: Arrivals,
    /// Lengths of recent payloads, which probes imitate.
    lengths: RecentLengths,
}

impl<A> ProbeFlow<A> {
    pub(super) fn new((sealer, opener): FlowKeys<A>) -> Self {
        Self {
            sealer,
            opener,
            joiner: Joiner::new(),
            labels: Vec::new(),
            arrivals: Arrivals::default(),
            lengths: RecentLengths::default(),
        }
    }

    pub(super) const fn labels_mut(&mut self) -> &mut Vec<LabelName> {
        &mut self.labels
    }

    /// Adds a piece of a session datagram. Returns the datagram, with its type byte, once it is
    /// complete.
    pub(super) fn join(
        &mut self,
        now: Instant,
        piece: (u64, Piece),
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let mut datagram = Vec::new();
        let is_whole = self.joiner.add(now, piece, payload, &mut datagram);
        is_whole.then_some(datagram)
    }

    /// Counts a probe of the remote end. Returns how many arrived on its path so far, and the report
    /// about the path's data.
    pub(super) fn on_probe(&mut self, now: Instant, probe: &PathProbe) -> (u32, DataReport) {
        let count = self.arrivals.count(probe.path);
        let data = self.arrivals.data(probe.path);
        (count, data.on_probe(now, probe.sampling))
    }

    /// Counts padding of the remote end, which is judged like data.
    pub(super) fn on_padding(
        &mut self,
        now: Instant,
        padding: PathPadding,
        (number, len): (u64, usize),
    ) {
        let data = self.arrivals.data(padding.path);
        data.on_data(now, (FlowId::PROBE, number), len);
    }

    /// Counts a packet of a flow that arrived on a path of the remote end.
    pub(super) fn on_data(&mut self, now: Instant, path: u8, packet: (FlowId, u64), len: usize) {
        self.arrivals.data(path).on_data(now, packet, len);
    }

    /// Records the length of a received payload, which padding imitates.
    pub(super) fn record_received(&mut self, len: usize) {
        self.lengths.record_longest(len);
    }

    /// Records the length of a sent payload, which probes and padding imitate.
    pub(super) fn record_sent(&mut self, len: usize) {
        self.lengths.record_longest(len);
        self.lengths.record(len);
    }

    /// Length of the longest recent payloads: that of padding; 0 before the first.
    pub(super) const fn longest(&self) -> usize {
        self.lengths.longest()
    }

    /// Returns the length of a recent payload for a probe, selected by `draw`.
    pub(super) fn take_probe_len(&mut self, draw: u64) -> usize {
        self.lengths.take(draw)
    }
}

impl<A: Aead> ProbeFlow<A> {
    /// Seals a piece into `out`; `None` if the keys are exhausted.
    pub(super) fn seal_piece<P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        piece: (Piece, &[u8]),
        out: &mut Vec<u8>,
    ) -> Option<Numbered> {
        self.sealer.seal(provider, now, piece, out).ok()
    }

    /// Opens a frame of the remote end in place.
    pub(super) fn open<'a, P: Provider<Aead = A>>(
        &mut self,
        provider: &P,
        now: Instant,
        header: &HopHeader,
        body: &'a mut [u8],
    ) -> Result<&'a mut [u8], FlowDrop> {
        self.opener.open(provider, now, header, body)
    }
}

/// Arrivals on each path, by the remote end's path number.
#[derive(Debug, Default)]
struct Arrivals {
    /// Probes received; wraps.
    probes: BTreeMap<u8, u32>,
    /// Data of the most recent paths; at most [`DATA_PATHS_MAX`].
    data: BTreeMap<u8, DataArrivals>,
}

impl Arrivals {
    /// Counts a probe and returns the number received so far.
    fn count(&mut self, path: u8) -> u32 {
        let count = self.probes.entry(path).or_default();
        *count = count.wrapping_add(1);
        *count
    }

    /// The data of a path, in place of the least recently used one if there is no room.
    fn data(&mut self, path: u8) -> &mut DataArrivals {
        if !self.data.contains_key(&path) && self.data.len() >= DATA_PATHS_MAX {
            let oldest = self.data.iter().min_by_key(|(_, data)| data.used());
            if let Some(oldest) = oldest.map(|(path, _)| *path) {
                self.data.remove(&oldest);
            }
        }
        self.data.entry(path).or_default()
    }
}

/// Maximum number of remote paths to count data of: twice as many as exist at a time.
const DATA_PATHS_MAX: usize = 2 * PATHS_MAX;
