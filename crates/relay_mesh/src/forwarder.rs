//! A shard on a thread of its own: it passes frames on, and knows nothing else.

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

/// Passes frames on for one shard of a [`Node`](crate::Node), beside it: a [`wire::Machine`] that a driver
/// runs on a thread of its own, with a socket of its own behind the node's port.
///
/// The node gives its labels out and ends them, and needs to be told nothing by it.
///
/// Frames of other forwarders' shards that come to this one go on from here too, with their own shard's keys and
/// windows: a system that joins datagrams before it divides them hands over what one neighbour sent at once by
/// the first of it. What is the node's own, or no frame, is handed back as a [`Stray`] for the node, which knows
/// what to do with all: up to [`STRAYS_MAX`] may wait, and others are dropped and counted.
pub struct Forwarder<P: Provider> {
    shard: ShardId,
    /// Of all forwarders' shards, from 1.
    planes: Vec<SharedPlane<P::Aead>>,
    provider: P,
    /// Shards whose frames it has passed on, a bit each: what they have to send is to be taken.
    touched: Touched,
    strays: VecDeque<Stray>,
    strays_dropped: u64,
    now: Instant,
}

/// A datagram for the node that came to the socket of another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// As it came.
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

    /// Returns how many datagrams for the node were dropped, because too many waited.
    pub const fn strays_dropped(&self) -> u64 {
        self.strays_dropped
    }

    /// Returns what became of the frames of its shard.
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
        // A late clock is a fault of the driver's.
        debug_assert!(now >= self.now, "time went back");
        self.now = self.now.max(now);
        let (now, source) = (self.now, arrival.peer.address);
        let mut plane = lock(plane);
        // No label of this plane ends here: each frame goes on, or is dropped and counted.
        let provider = &self.provider;
        let pass_on = |plane: &mut DataPlane<P::Aead>, frame: &mut [u8]| {
            plane.handle_frame(provider, now, (source, frame));
        };
        if datagram.first() != Some(&trunk::KIND) {
            return pass_on(&mut plane, datagram);
        }
        // Those of other shards in it have labels that are none here: who packs frames keeps them apart.
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

/// Datagrams for the node that may wait.
pub const STRAYS_MAX: usize = 1_024;
