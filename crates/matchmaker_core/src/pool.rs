//! The pool: slots that the driver can run one server process in.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use wire::{CommandId, Generator, Instant, NodeId};

/// Slot of the pool: an index into [`Game::slots`](crate::Game::slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Empty.
    Idle {
        /// When it may start a process; later than now after a failure.
        retry_at: Instant,
    },
    /// A process was started, and has not registered.
    Starting {
        /// Timeout of the registration.
        ready_until: Instant,
        /// Whether it takes longer than usual.
        is_late: bool,
    },
    /// Its node has registered.
    Serving,
    /// Its process was asked to end.
    Stopping,
}

/// A slot.
#[derive(Debug)]
pub(crate) struct Place {
    /// The node id of the process's key.
    pub(crate) node: NodeId,
    pub(crate) state: SlotState,
    /// The command that started the process.
    pub(crate) run: Option<CommandId>,
    /// Consecutive failures.
    pub(crate) failures: u32,
}

/// All slots.
#[derive(Debug)]
pub(crate) struct Pool {
    places: Vec<Place>,
    by_node: BTreeMap<NodeId, Slot>,
    /// Seats of the process that registered last; all run the same program.
    pub(crate) capacity: Option<u16>,
}

impl Pool {
    /// Creates one slot per node.
    pub(crate) fn new(nodes: &[NodeId], now: Instant) -> Self {
        let mut pool = Self {
            places: Vec::new(),
            by_node: BTreeMap::new(),
            capacity: None,
        };
        for node in nodes {
            let Ok(index) = u16::try_from(pool.places.len()) else {
                break;
            };
            if pool.by_node.contains_key(node) {
                continue;
            }
            pool.by_node.insert(*node, Slot(index));
            pool.places.push(Place {
                node: *node,
                state: SlotState::Idle { retry_at: now },
                run: None,
                failures: 0,
            });
        }
        pool
    }

    pub(crate) fn slot_of(&self, node: NodeId) -> Option<Slot> {
        self.by_node.get(&node).copied()
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Place> {
        self.places.get(usize::from(slot.0))
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Place> {
        self.places.get_mut(usize::from(slot.0))
    }

    pub(crate) fn slot_of_run(&self, run: CommandId) -> Option<Slot> {
        self.iter()
            .find(|(_, place)| place.run == Some(run))
            .map(|(slot, _)| slot)
    }

    /// Returns how many processes have not registered, and how many of them are late.
    pub(crate) fn starting(&self) -> (usize, usize) {
        let late = self.places.iter().filter_map(|place| match place.state {
            SlotState::Starting { is_late, .. } => Some(usize::from(is_late)),
            SlotState::Idle { .. } | SlotState::Serving | SlotState::Stopping => None,
        });
        late.fold((0, 0), |(all, late), is_late| {
            (all.saturating_add(1), late.saturating_add(is_late))
        })
    }

    pub(crate) fn startable(&self, now: Instant) -> Option<Slot> {
        self.iter()
            .find(
                |(_, place)| matches!(place.state, SlotState::Idle { retry_at } if retry_at <= now),
            )
            .map(|(slot, _)| slot)
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Place)> {
        (0..=u16::MAX).map(Slot).zip(&mut self.places)
    }

    fn iter(&self) -> impl Iterator<Item = (Slot, &Place)> {
        (0..=u16::MAX).map(Slot).zip(&self.places)
    }
}

/// Returns the backoff after `failures` in a row: `min`, doubled with each, up to `max`, plus up to
/// an eighth, so that slots that failed together do not start together.
pub(crate) fn backoff(
    (min, max): (Duration, Duration),
    failures: u32,
    generator: &mut Generator,
) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let rest = min.saturating_mul(1 << doublings).min(max);
    let eighth = u64::try_from(rest.as_nanos() / 8).unwrap_or(u64::MAX);
    rest.saturating_add(Duration::from_nanos(generator.between(0, eighth)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    #[test]
    fn rests_double_up_to_the_longest() {
        let mut generator = Seed::from_number(1).generator(0);
        let bounds = (Duration::from_secs(1), Duration::from_secs(60));
        for (failures, secs) in [(1, 1), (2, 2), (4, 8), (7, 60), (u32::MAX, 60)] {
            let rest = backoff(bounds, failures, &mut generator);
            let least = Duration::from_secs(secs);
            assert!(
                (least..=least * 9 / 8).contains(&rest),
                "{failures}: {rest:?}"
            );
        }
    }

    #[test]
    fn a_node_named_twice_has_one_slot() {
        let nodes = [NodeId([1; 32]), NodeId([2; 32]), NodeId([1; 32])];
        let pool = Pool::new(&nodes, Instant::ZERO);
        assert_eq!(pool.len(), 2);
        assert_eq!(pool.slot_of(nodes[1]), Some(Slot(1)));
        assert_eq!(pool.startable(Instant::ZERO), Some(Slot(0)));
    }

    #[test]
    fn slots_past_the_last_number_are_not_used() {
        let nodes: Vec<_> = (0..65_600_u32)
            .map(|number| {
                let mut id = [0; 32];
                id[..4].copy_from_slice(&number.to_be_bytes());
                NodeId(id)
            })
            .collect();
        let mut pool = Pool::new(&nodes, Instant::ZERO);
        assert_eq!(pool.len(), 65_536);
        assert_eq!(pool.slot_of_run(CommandId(1)), None, "nor counted past it");
        assert_eq!(pool.iter_mut().count(), 65_536);
    }
}
