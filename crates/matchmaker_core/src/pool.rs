//! The pool: slots in which the driver can run a server process each.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use wire::{CommandId, Generator, Instant, NodeId};

/// A place of the pool, by its index in [`Game::slots`](crate::Game::slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What goes on in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Nothing; it may start at this time.
    Idle {
        /// Later than now after a failure.
        retry_at: Instant,
    },
    /// A process was asked for, and has not registered.
    Starting {
        /// When it is given up.
        ready_until: Instant,
        /// It has taken longer than one that serves usually does.
        is_late: bool,
    },
    /// Its node has registered.
    Serving,
    /// Its process is asked to end.
    Stopping,
}

/// One place of the pool.
#[derive(Debug)]
pub(crate) struct Place {
    /// Whose key the process has.
    pub(crate) node: NodeId,
    pub(crate) state: SlotState,
    /// The command that started the process.
    pub(crate) run: Option<CommandId>,
    /// How many times in a row no lasting server came of it.
    pub(crate) failures: u32,
}

/// All places of the pool.
#[derive(Debug)]
pub(crate) struct Pool {
    places: Vec<Place>,
    by_node: BTreeMap<NodeId, Slot>,
    /// Seats of the process that registered last: all run the same program.
    pub(crate) capacity: Option<u16>,
}

impl Pool {
    /// Makes one place for each node.
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

    /// Returns the slot whose process `run` started.
    pub(crate) fn slot_of_run(&self, run: CommandId) -> Option<Slot> {
        self.iter()
            .find(|(_, place)| place.run == Some(run))
            .map(|(slot, _)| slot)
    }

    /// Returns how many processes were asked for and have not registered, and how many of them are
    /// late.
    pub(crate) fn starting(&self) -> (usize, usize) {
        let late = self.places.iter().filter_map(|place| match place.state {
            SlotState::Starting { is_late, .. } => Some(usize::from(is_late)),
            SlotState::Idle { .. } | SlotState::Serving | SlotState::Stopping => None,
        });
        late.fold((0, 0), |(all, late), is_late| {
            (all.saturating_add(1), late.saturating_add(is_late))
        })
    }

    /// Returns the first slot that may start a process at `now`.
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

    fn iter(&self) -> impl Iterator<Item = (Slot, &Place)> {
        (0..).map(Slot).zip(&self.places)
    }
}

/// Returns how long a slot rests after `failures` in a row: `min` doubled with each, up to `max`,
/// and up to an eighth more, so that slots that failed together do not start together.
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
        assert_eq!(Pool::new(&nodes, Instant::ZERO).len(), 65_536);
    }
}
