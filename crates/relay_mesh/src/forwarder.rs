//! A shard on its own thread, which only forwards frames.

use core::convert::Infallible;
use core::fmt;
use std::collections::VecDeque;

use crypto::Provider;
use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use crate::data_plane::DataPlane;
use crate::leg::Leg;
use crate::shard::ShardId;
use crate::shards::{SharedPlane, Touched, lock, plane_of};
use crate::stats::FrameStats;
use crate::trunk::{self, Frames};

/// Forwards frames for one shard of a [`Node`](crate::Node): a [`wire::Machine`] that a driver runs
/// on its own thread, with its own socket on the node's port.
///
/// The node assigns and ends its labels; the forwarder reports nothing to it.
///
/// It also forwards frames of other forwarders' shards, with their keys and windows: a kernel that
/// coalesces datagrams before it distributes them delivers all of one neighbour's batch by the
/// first datagram. Frames for the node, and everything else, are returned as [`Stray`]s for the
/// node to handle; up to [`STRAYS_MAX`] may wait, and more are dropped and counted.
pub struct Forwarder<P: Provider> {
    shard: ShardId,
    /// Data planes of all forwarders' shards, from 1.
    planes: Vec<SharedPlane<P::Aead>>,
    provider: P,
    /// Shards that it has forwarded frames for, one bit each: their outboxes must be drained.
    touched: Touched,
    strays: VecDeque<Stray>,
    strays_dropped: u64,
    now: Instant,
}

/// A datagram for the node that arrived at another shard's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its arrival.
    pub arrival: Arrival<Leg>,
    /// Its bytes.
    pub datagram: Vec<u8>,
}

impl<P: Provider> Forwarder<P> {
    pub(crate) const fn new(
        shard: ShardId,
        planes: Vec<SharedPlane<P::Aead>>,
        provider: P,
    ) -> Self {
        Self {
            shard,
            planes,
            provider,
            touched: Touched::NONE,
            strays: VecDeque::new(),
            strays_dropped: 0,
            now: Instant::ZERO,
        }
    }

    /// Returns how many datagrams for the node were dropped because the queue was full.
    pub const fn strays_dropped(&self) -> u64 {
        self.strays_dropped
    }

    /// Returns the frame counters of its shard.
    pub fn frame_stats(&self) -> FrameStats {
        let own = plane_of(&self.planes, self.shard);
        own.map_or_else(FrameStats::default, |plane| lock(plane).stats)
    }

    fn stray(&mut self, arrival: Arrival<Leg>, datagram: &[u8]) {
        if self.strays.len() >= STRAYS_MAX {
            self.strays_dropped = self.strays_dropped.saturating_add(1);
            return;
        }
        let datagram = datagram.to_vec();
        self.strays.push_back(Stray { arrival, datagram });
    }
}

impl<P: Provider> Machine for Forwarder<P> {
    type Peer = Leg;
    type Event = Stray;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Leg>, datagram: &mut [u8]) {
        let shard = ShardId::of_datagram(datagram);
        let Some(plane) = plane_of(&self.planes, shard) else {
            self.stray(arrival, datagram);
            return;
        };
        self.touched.note(shard);
        // The driver must not pass earlier times.
        debug_assert!(now >= self.now, "time went back");
        self.now = self.now.max(now);
        let (now, source) = (self.now, arrival.peer.address);
        let mut plane = lock(plane);
        // No label of this plane ends here: each frame is forwarded, or dropped and counted.
        let provider = &self.provider;
        let pass_on = |plane: &mut DataPlane<P::Aead>, frame: &mut [u8]| {
            plane.handle_frame(provider, now, (source, frame));
        };
        if datagram.first() != Some(&trunk::KIND) {
            return pass_on(&mut plane, datagram);
        }
        // Frames of other shards have no label here: a sender keeps them in separate datagrams.
        let frames = Frames::new(datagram).map_err(|_| plane.stats.count_bad_trunk());
        for frame in frames.into_iter().flatten() {
            match frame {
                Ok(frame) => pass_on(&mut plane, frame),
                Err(_) => plane.stats.count_bad_trunk(),
            }
        }
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        self.touched.poll_transmit(&self.planes, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Stray> {
        self.strays.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<P: Provider> fmt::Debug for Forwarder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("shard", &self.shard)
            .field("strays", &self.strays.len())
            .finish_non_exhaustive()
    }
}

/// Queued datagrams for the node.
pub const STRAYS_MAX: usize = 1_024;
