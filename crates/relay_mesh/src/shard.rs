//! Shards: parts of a node that forward frames in parallel, each with its own labels, on its own
//! thread.

use core::convert::Infallible;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::{Aead, Provider};
use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use crate::data_plane::DataPlane;
use crate::hop::{SHARD_SHIFT, ShardId};
use crate::label::LabelLimits;
use crate::peer_addr::PeerAddr;
use crate::stats::FrameStats;
use crate::trunk;
use crate::trunk::Frames;

/// A plane with its own forwarding thread; the node rarely locks it, to allocate and expire labels.
pub(crate) type SharedPlane<A> = Arc<Mutex<DataPlane<A>>>;

pub(crate) struct Shards<A> {
    planes: Vec<SharedPlane<A>>,
    /// The shard that allocates the next label.
    turn: u8,
    /// Shards for which the node's thread forwarded frames.
    pub(crate) touched: Touched,
}

/// Bitmap of shards: the thread that forwarded for them must drain their outboxes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched(u8);

impl<A: Aead> Shards<A> {
    /// Creates the additional planes of a node with `count` shards in all. Each gets its share of
    /// the limits; the node's own plane, where all flows end, keeps them whole.
    pub(crate) fn new(count: u8, limits: LabelLimits, outbox_bytes_max: usize) -> Self {
        let part = |whole: u32| whole.div_ceil(count.into());
        let limits = LabelLimits {
            labels_max: part(limits.labels_max),
            per_owner_max: part(limits.per_owner_max),
            owner_rate: part(limits.owner_rate),
            ..limits
        };
        let planes = (1..count).map(|place| {
            let plane = DataPlane::new(ShardId(place), limits, outbox_bytes_max);
            Arc::new(Mutex::new(plane))
        });
        Self {
            planes: planes.collect(),
            turn: 0,
            touched: Touched::NONE,
        }
    }

    /// Locks the plane of a shard; `None` for the node's own, or if there is no such shard.
    pub(crate) fn lock(&self, shard: ShardId) -> Option<MutexGuard<'_, DataPlane<A>>> {
        plane_of(&self.planes, shard).map(lock)
    }

    pub(crate) fn shared(&self) -> Vec<SharedPlane<A>> {
        self.planes.clone()
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, DataPlane<A>>> {
        self.planes.iter().map(lock)
    }

    /// Locks all planes in turn, except that of one shard.
    pub(crate) fn others(
        &self,
        but: ShardId,
    ) -> impl Iterator<Item = MutexGuard<'_, DataPlane<A>>> {
        let but = usize::from(but.place()).checked_sub(1);
        let planes = self.planes.iter().enumerate();
        let others = planes.filter(move |(place, _)| Some(*place) != but);
        others.map(|(_, plane)| lock(plane))
    }

    /// Returns the next datagram of shards for which the node's thread forwarded frames.
    pub(crate) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
        self.touched.poll_transmit(&self.planes, buf)
    }

    /// Shards to allocate a label from, preferred first, including the node's own.
    pub(crate) fn turns(&mut self) -> impl Iterator<Item = ShardId> + use<A> {
        let count = u8::try_from(self.planes.len()).unwrap_or(0);
        let (count, first) = (count.saturating_add(1), self.turn);
        let turn = move |step| first.saturating_add(step).checked_rem(count).unwrap_or(0);
        self.turn = turn(1);
        (0..count).map(move |step| ShardId(turn(step)))
    }
}

impl Touched {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn insert(&mut self, shard: ShardId) {
        self.0 |= 1 << shard.place();
    }

    /// Returns the next datagram of the marked shards; unmarks those with an empty outbox.
    pub(crate) fn poll_transmit<A: Aead>(
        &mut self,
        planes: &[SharedPlane<A>],
        buf: &mut Vec<u8>,
    ) -> Option<Transmit<PeerAddr>> {
        while self.0 != 0 {
            let shard = ShardId(u8::try_from(self.0.trailing_zeros()).unwrap_or(0));
            let plane = plane_of(planes, shard);
            let next = plane.and_then(|plane| lock(plane).outbox.poll_transmit(buf));
            if next.is_some() {
                return next;
            }
            self.0 &= !(1 << shard.place());
        }
        None
    }
}

/// Returns the plane of a shard from 1 on; `None` for the node's own, or if there is no such shard.
pub(crate) fn plane_of<A>(planes: &[SharedPlane<A>], shard: ShardId) -> Option<&SharedPlane<A>> {
    planes.get(usize::from(shard.place()).checked_sub(1)?)
}

/// Locks a plane, even if a thread panicked with the lock: after each step a plane is consistent.
pub(crate) fn lock<A>(plane: &SharedPlane<A>) -> MutexGuard<'_, DataPlane<A>> {
    plane.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Location of the shard in datagrams with a given first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The first byte.
    pub first: u8,
    /// Offset of the byte with the shard in its high bits; the first shard if it is missing.
    pub at: usize,
}

/// Right shift of the byte that [`Steering`] names.
pub const STEERING_SHIFT: u32 = SHARD_SHIFT;

/// Rules for a socket filter that distributes datagrams; all others belong to the first shard.
pub const STEERING: [Steering; 3] = [
    Steering {
        first: 0x80,
        at: LABEL_AT,
    },
    Steering {
        first: 0x81,
        at: LABEL_AT,
    },
    Steering {
        first: trunk::KIND,
        at: trunk::HEAD_LEN + trunk::PREFIX_LEN + LABEL_AT,
    },
];

/// Offset of the label in a frame.
const LABEL_AT: usize = 4;

impl ShardId {
    /// Returns the shard of its first frame's label, or the first shard if it is no frame.
    #[must_use]
    pub fn of_datagram(datagram: &[u8]) -> Self {
        let place = STEERING.iter().find_map(|rule| {
            let claims = datagram.first() == Some(&rule.first);
            claims.then(|| datagram.get(rule.at)).flatten()
        });
        place.map_or(Self::FIRST, |byte| Self(byte >> STEERING_SHIFT))
    }
}

/// Forwards frames for one shard of a [`Node`](crate::Node): a [`wire::Machine`] that a driver runs
/// on its own thread, with its own socket on the node's port. The node assigns and ends its labels.
///
/// It also forwards frames of other forwarders' shards, with their keys and windows: a kernel that
/// coalesces datagrams before it distributes them delivers all of one neighbour's batch by the
/// first datagram. Everything else is returned as [`Stray`]s for the node; up to [`STRAYS_MAX`] may
/// wait, and more are dropped and counted.
pub struct Forwarder<P: Provider> {
    shard: ShardId,
    /// Data planes of all forwarders' shards, from 1.
    planes: Vec<SharedPlane<P::Aead>>,
    provider: P,
    touched: Touched,
    strays: VecDeque<Stray>,
    strays_dropped: u64,
    now: Instant,
}

/// A datagram for the node that arrived at another shard's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its arrival.
    pub arrival: Arrival<PeerAddr>,
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

    fn stray(&mut self, arrival: Arrival<PeerAddr>, datagram: &[u8]) {
        if self.strays.len() >= STRAYS_MAX {
            self.strays_dropped = self.strays_dropped.saturating_add(1);
            return;
        }
        let datagram = datagram.to_vec();
        self.strays.push_back(Stray { arrival, datagram });
    }
}

impl<P: Provider> Machine for Forwarder<P> {
    type Peer = PeerAddr;
    type Event = Stray;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerAddr>, datagram: &mut [u8]) {
        let shard = ShardId::of_datagram(datagram);
        let Some(plane) = plane_of(&self.planes, shard) else {
            self.stray(arrival, datagram);
            return;
        };
        self.touched.insert(shard);
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

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerAddr>> {
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

wire::debug_fields!([P: Provider] Forwarder<P>, this {
    shard: this.shard,
    strays: this.strays.len(),
});

/// Queued datagrams for the node.
pub const STRAYS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use crypto::Provider;
    use netsim::provider::SimProvider;
    use wire::Instant;

    use super::*;
    use crate::hop::{HopHeader, HopKind, LabelName, Phase, Piece};
    use crate::link::LinkId;

    type Planes = Shards<<SimProvider as Provider>::Aead>;

    const LIMITS: LabelLimits = LabelLimits {
        labels_max: 10,
        per_owner_max: 6,
        rate: 1,
        burst: 1,
        owner_rate: 1,
    };

    #[test]
    fn each_has_its_part_of_the_labels_in_all_and_for_each_owner() {
        let planes = Planes::new(4, LIMITS, 1 << 20);
        assert_eq!(planes.each().count(), 3);
        for mut plane in planes.each() {
            let (one, other) = (LinkId(1), LinkId(2));
            let labels = [one, one, one, other, other, other]
                .map(|owner| plane.labels.reserve(Instant::ZERO, owner, one).is_ok());
            assert_eq!(labels, [true, true, false, true, false, false]);
        }
    }

    #[test]
    fn labels_come_of_all_in_turn_and_of_the_next_one_where_one_is_full() {
        let mut planes = Planes::new(3, LIMITS, 1 << 20);
        let places = |planes: &mut Planes| planes.turns().map(ShardId::place).collect::<Vec<_>>();
        assert_eq!(places(&mut planes), [0, 1, 2]);
        assert_eq!(places(&mut planes), [1, 2, 0]);
        assert_eq!(places(&mut planes), [2, 0, 1]);
        assert_eq!(places(&mut planes), [0, 1, 2]);
        assert_eq!(places(&mut Planes::new(1, LIMITS, 1 << 20)), [0]);
    }

    #[test]
    fn a_datagram_is_routed_by_the_label_of_its_first_frame() {
        for place in 0..ShardId::COUNT_MAX {
            let shard = ShardId::new(place).unwrap();
            let label = LabelName {
                slot: (u32::from(place) << 29) | 0x4D,
                generation: 1,
            };
            assert_eq!(label.shard(), shard);
            for kind in [HopKind::Sealed, HopKind::TagOnly] {
                let header = HopHeader {
                    kind,
                    epoch: 1,
                    from: ShardId::FIRST,
                    hops_left: 2,
                    label,
                    phase: Phase {
                        key: 0,
                        piece: Piece::Whole,
                    },
                    number: u64::MAX >> 8,
                };
                let frame = header.encode();
                assert_eq!(ShardId::of_datagram(&frame), shard);
                let mut trunk = vec![trunk::KIND];
                trunk::append(&frame, &mut trunk);
                trunk::append(&[0xFF; 20], &mut trunk);
                assert_eq!(ShardId::of_datagram(&trunk), shard);
            }
        }
        assert_eq!(ShardId::new(ShardId::COUNT_MAX), None);
    }

    #[test]
    fn what_is_no_frame_or_cut_short_is_the_first_ones() {
        for datagram in [
            &[][..],
            &[0x81],
            &[0x81, 0, 0, 0],
            &[0x82, 0, 20, 0x81, 0, 0, 0],
            &[0x40, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0x83, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        ] {
            assert_eq!(
                ShardId::of_datagram(datagram),
                ShardId::FIRST,
                "{datagram:?}"
            );
        }
    }
}
