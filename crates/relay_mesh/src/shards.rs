//! The data planes of a node's additional shards, each behind a mutex.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::Aead;
use wire::Transmit;

use crate::data_plane::DataPlane;
use crate::label::LabelLimits;
use crate::leg::Leg;
use crate::shard::ShardId;

/// A plane with its own forwarding thread; the node rarely locks it, to allocate and expire labels.
pub(crate) type SharedPlane<A> = Arc<Mutex<DataPlane<A>>>;

/// The planes of the additional shards.
pub(crate) struct Shards<A> {
    planes: Vec<SharedPlane<A>>,
    /// The shard that allocates the next label.
    turn: u8,
    /// Shards for which the node's thread forwarded frames.
    pub(crate) touched: Touched,
}

/// Bitmap of shards whose outbox the thread that forwarded for them must drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched(u8);

impl<A: Aead> Shards<A> {
    /// Creates the additional planes of a node with `count` shards in all. Each gets its share of
    /// the limits; the node's own plane keeps them whole, since all flows that end at the node use
    /// it.
    pub(crate) fn new(count: u8, limits: LabelLimits, outbox_bytes_max: usize) -> Self {
        let part = |whole: u32| whole.div_ceil(count.into());
        let limits = LabelLimits {
            labels_max: part(limits.labels_max),
            per_owner_max: part(limits.per_owner_max),
            owner_rate: part(limits.owner_rate),
            ..limits
        };
        let beside = (1..count).map(|place| {
            let plane = DataPlane::new(ShardId(place), limits, outbox_bytes_max);
            Arc::new(Mutex::new(plane))
        });
        Self {
            planes: beside.collect(),
            turn: 0,
            touched: Touched::NONE,
        }
    }

    /// Locks the plane of a shard; `None` for the node's own, or if there is no such shard.
    pub(crate) fn lock(&self, shard: ShardId) -> Option<MutexGuard<'_, DataPlane<A>>> {
        plane_of(&self.planes, shard).map(lock)
    }

    /// Shared references to all planes, for a forwarding thread.
    pub(crate) fn shared(&self) -> Vec<SharedPlane<A>> {
        self.planes.clone()
    }

    /// Locks all planes in turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, DataPlane<A>>> {
        self.planes.iter().map(lock)
    }

    /// Locks all planes in turn, except that of one shard.
    pub(crate) fn others(
        &self,
        but: ShardId,
    ) -> impl Iterator<Item = MutexGuard<'_, DataPlane<A>>> {
        let but = usize::from(but.place()).checked_sub(1);
        let others = self.planes.iter().enumerate();
        let others = others.filter(move |(place, _)| Some(*place) != but);
        others.map(|(_, plane)| lock(plane))
    }

    /// Returns the next datagram of shards for which the node's thread forwarded frames.
    pub(crate) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        self.touched.poll_transmit(&self.planes, buf)
    }

    /// Shards to allocate a label from, preferred first, including the node's own.
    pub(crate) fn turns(&mut self) -> impl Iterator<Item = ShardId> + use<A> {
        let count = u8::try_from(self.planes.len())
            .unwrap_or(0)
            .saturating_add(1);
        let first = self.turn;
        let turn = move |step| first.saturating_add(step).checked_rem(count).unwrap_or(0);
        self.turn = turn(1);
        (0..count).map(move |step| ShardId(turn(step)))
    }
}

impl Touched {
    pub(crate) const NONE: Self = Self(0);

    /// Marks a shard for which a frame was forwarded.
    pub(crate) const fn note(&mut self, shard: ShardId) {
        self.0 |= 1 << shard.place();
    }

    /// Returns the next datagram of the marked shards; unmarks those with an empty outbox.
    pub(crate) fn poll_transmit<A: Aead>(
        &mut self,
        planes: &[SharedPlane<A>],
        buf: &mut Vec<u8>,
    ) -> Option<Transmit<Leg>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkId;
    use crypto::Provider;
    use netsim::provider::SimProvider;
    use wire::Instant;

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
}
