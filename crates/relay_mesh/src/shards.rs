//! The planes of a node's shards beside the first, each behind a lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::Aead;
use wire::Transmit;

use crate::data_plane::DataPlane;
use crate::label::LabelLimits;
use crate::leg::Leg;
use crate::shard::ShardId;

/// A plane that a thread of its own passes frames on with; the node takes the lock to give labels out and
/// to end them, which is seldom.
pub(crate) type SharedPlane<A> = Arc<Mutex<DataPlane<A>>>;

/// The planes beside the node's own.
pub(crate) struct Shards<A> {
    planes: Vec<SharedPlane<A>>,
    /// The shard that gives out the next label.
    turn: u8,
    /// Those that the node has passed frames on for.
    pub(crate) touched: Touched,
}

/// Shards that have something to send which whoever passed frames on for them is to take, a bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched(u8);

impl<A: Aead> Shards<A> {
    /// Makes as many as a node has beside its own plane, if it has `count` in all. Each has its part of the
    /// bounds that the node's own has whole, since all that ends at the node is there.
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

    /// The plane of a shard; `None` where it is the node's own, or there is none.
    pub(crate) fn lock(&self, shard: ShardId) -> Option<MutexGuard<'_, DataPlane<A>>> {
        plane_of(&self.planes, shard).map(lock)
    }

    /// The ways to all planes, for a thread that passes frames on.
    pub(crate) fn shared(&self) -> Vec<SharedPlane<A>> {
        self.planes.clone()
    }

    /// All planes, one after the other.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, DataPlane<A>>> {
        self.planes.iter().map(lock)
    }

    /// All planes but that of one shard.
    pub(crate) fn others(
        &self,
        but: ShardId,
    ) -> impl Iterator<Item = MutexGuard<'_, DataPlane<A>>> {
        let but = usize::from(but.place()).checked_sub(1);
        let others = self.planes.iter().enumerate();
        let others = others.filter(move |(place, _)| Some(*place) != but);
        others.map(|(_, plane)| lock(plane))
    }

    /// Takes what one of them has to send that the node has passed frames on for.
    pub(crate) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit<Leg>> {
        self.touched.poll_transmit(&self.planes, buf)
    }

    /// The shards from which a label is to come, the first choice first; the node's own is among them.
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

    /// Notes that a frame was passed on for a shard.
    pub(crate) const fn note(&mut self, shard: ShardId) {
        self.0 |= 1 << shard.place();
    }

    /// Takes what one of them has to send, of all the planes; who has nothing is none of them any more.
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

/// The plane of a shard among those from 1; `None` where it is the node's own, or there is none.
pub(crate) fn plane_of<A>(planes: &[SharedPlane<A>], shard: ShardId) -> Option<&SharedPlane<A>> {
    planes.get(usize::from(shard.place()).checked_sub(1)?)
}

/// Takes the lock of a plane, in whatever state a thread that panicked left it: no step of a plane leaves
/// one in which another step would do harm.
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
