//! Server instances with a lease, and the pool of slots that the driver can run one in.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crypto::{AddressList, ServerKeys, TokenKey};
use wire::{CommandId, Generator, InstanceId, Instant, MatchId, NodeId};

use crate::record::{Intake, MATCHES_MAX, Register};

/// A run of a game server, as authenticated by its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerLink {
    /// The node id of its key.
    pub node: NodeId,
    /// The run.
    pub instance: InstanceId,
}

/// An instance with a lease. No `Debug`, since it holds a token key.
pub(crate) struct Server {
    /// Seals the tokens for this instance.
    pub(crate) token_key: TokenKey,
    pub(crate) identity_keys: ServerKeys,
    pub(crate) addresses: AddressList,
    pub(crate) capacity: u16,
    pub(crate) intake: Intake,
    /// It rejected or missed a call: no calls until its next heartbeat.
    pub(crate) is_suspended: bool,
    pub(crate) lease_until: Instant,
    pub(crate) since: Instant,
    /// When its last match ended, or it registered.
    pub(crate) unused_since: Instant,
    pub(crate) seats_used: usize,
    /// Matches running or being assigned.
    pub(crate) matches: BTreeSet<MatchId>,
}

impl Server {
    pub(crate) fn new(register: &Register, lease_until: Instant, now: Instant) -> Self {
        Self {
            token_key: register.token_key.clone(),
            identity_keys: register.identity_keys.clone(),
            addresses: register.addresses.clone(),
            capacity: register.capacity,
            intake: register.intake,
            is_suspended: false,
            lease_until,
            since: now,
            unused_since: now,
            seats_used: 0,
            matches: BTreeSet::new(),
        }
    }

    /// Returns how many seats are free for another match; `None` if it takes none.
    fn free_seats(&self) -> Option<usize> {
        let takes_matches =
            self.intake == Intake::Open && !self.is_suspended && self.matches.len() < MATCHES_MAX;
        let free = usize::from(self.capacity).checked_sub(self.seats_used);
        free.filter(|_| takes_matches)
    }

    pub(crate) fn add(&mut self, match_id: MatchId, seats: usize) {
        if self.matches.insert(match_id) {
            self.seats_used = self.seats_used.saturating_add(seats);
        }
    }

    pub(crate) fn remove(&mut self, match_id: MatchId, seats: usize, now: Instant) {
        if self.matches.remove(&match_id) {
            self.seats_used = self.seats_used.saturating_sub(seats);
            self.unused_since = now;
        }
    }
}

/// All instances with a lease, at most one per node.
#[derive(Default)]
pub(crate) struct Servers {
    by_link: BTreeMap<ServerLink, Server>,
    /// Instances that take matches, by free seats.
    open: BTreeSet<(usize, ServerLink)>,
    /// Instances that lost their lease, oldest first; they may not register again.
    retired: VecDeque<ServerLink>,
}

impl Servers {
    pub(crate) fn insert(&mut self, link: ServerLink, server: Server) {
        self.remove(link);
        if let Some(free) = server.free_seats() {
            self.open.insert((free, link));
        }
        self.by_link.insert(link, server);
    }

    fn remove(&mut self, link: ServerLink) -> Option<Server> {
        let server = self.by_link.remove(&link)?;
        if let Some(free) = server.free_seats() {
            self.open.remove(&(free, link));
        }
        Some(server)
    }

    /// Changes an instance, if it has a lease.
    pub(crate) fn update<R>(
        &mut self,
        link: ServerLink,
        change: impl FnOnce(&mut Server) -> R,
    ) -> Option<R> {
        let server = self.by_link.get_mut(&link)?;
        let before = server.free_seats();
        let result = change(server);
        let after = server.free_seats();
        if before != after {
            if let Some(free) = before {
                self.open.remove(&(free, link));
            }
            if let Some(free) = after {
                self.open.insert((free, link));
            }
        }
        Some(result)
    }

    /// Retires an instance permanently. Beyond [`RETIRED_MAX`] the oldest is forgotten; it has ended
    /// itself by then, since its lease was not renewed.
    pub(crate) fn retire(&mut self, link: ServerLink) -> Option<Server> {
        let server = self.remove(link)?;
        if self.retired.len() >= RETIRED_MAX {
            self.retired.pop_front();
        }
        self.retired.push_back(link);
        Some(server)
    }

    pub(crate) fn is_retired(&self, link: ServerLink) -> bool {
        self.retired.contains(&link)
    }

    pub(crate) fn get(&self, link: ServerLink) -> Option<&Server> {
        self.by_link.get(&link)
    }

    pub(crate) fn of_node(&self, node: NodeId) -> Option<ServerLink> {
        let link = |instance| ServerLink {
            node,
            instance: InstanceId(instance),
        };
        self.by_link
            .range(link(0)..=link(u64::MAX))
            .map(|(link, _)| *link)
            .next()
    }

    /// Returns the server for a match of `seats`: the fullest with room, so that others become
    /// empty and can be stopped; if equal, the one with the lower id.
    pub(crate) fn choose(&self, seats: usize) -> Option<ServerLink> {
        self.with_free(seats).next()
    }

    /// Returns how many servers have room for a match of `seats`, at most `max`.
    pub(crate) fn with_room(&self, seats: usize, max: usize) -> usize {
        self.with_free(seats).take(max).count()
    }

    fn with_free(&self, seats: usize) -> impl Iterator<Item = ServerLink> {
        let first = ServerLink {
            node: NodeId([0; 32]),
            instance: InstanceId(0),
        };
        self.open.range((seats, first)..).map(|(_, link)| *link)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ServerLink, &Server)> {
        self.by_link.iter().map(|(link, server)| (*link, server))
    }

    /// Changes the ends of all leases, which do not decide where matches are placed.
    pub(crate) fn leases_mut(&mut self) -> impl Iterator<Item = (ServerLink, &mut Instant)> {
        let servers = self.by_link.iter_mut();
        servers.map(|(link, server)| (*link, &mut server.lease_until))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_link.len()
    }
}

/// Retired instances that are remembered; 64 KiB.
const RETIRED_MAX: usize = 1_024;

/// Slot of the pool: an index into [`Game::slots`](crate::Game::slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Idle {
        /// When it may start a process; later than now after a failure.
        retry_at: Instant,
    },
    /// A process was started, and has not registered.
    Starting {
        ready_until: Instant,
        /// Whether it takes longer than usual.
        is_late: bool,
    },
    Serving,
    Stopping,
}

#[derive(Debug)]
pub(crate) struct SlotEntry {
    /// The node id of the process's key.
    pub(crate) node: NodeId,
    pub(crate) state: SlotState,
    /// The command that started the process.
    pub(crate) run: Option<CommandId>,
    pub(crate) failures: u32,
}

#[derive(Debug)]
pub(crate) struct Pool {
    slots: Vec<SlotEntry>,
    by_node: BTreeMap<NodeId, Slot>,
    /// Seats of the process that registered last; all run the same program.
    pub(crate) capacity: Option<u16>,
}

impl Pool {
    pub(crate) fn new(nodes: &[NodeId], now: Instant) -> Self {
        let mut pool = Self {
            slots: Vec::new(),
            by_node: BTreeMap::new(),
            capacity: None,
        };
        for node in nodes {
            let Ok(index) = u16::try_from(pool.slots.len()) else {
                break;
            };
            if pool.by_node.contains_key(node) {
                continue;
            }
            pool.by_node.insert(*node, Slot(index));
            pool.slots.push(SlotEntry {
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

    pub(crate) fn get(&self, slot: Slot) -> Option<&SlotEntry> {
        self.slots.get(usize::from(slot.0))
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut SlotEntry> {
        self.slots.get_mut(usize::from(slot.0))
    }

    pub(crate) fn slot_of_run(&self, run: CommandId) -> Option<Slot> {
        self.iter()
            .find(|(_, entry)| entry.run == Some(run))
            .map(|(slot, _)| slot)
    }

    /// Returns how many processes have not registered, and how many of them are late.
    pub(crate) fn starting(&self) -> (usize, usize) {
        let late = self.slots.iter().filter_map(|entry| match entry.state {
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
                |(_, entry)| matches!(entry.state, SlotState::Idle { retry_at } if retry_at <= now),
            )
            .map(|(slot, _)| slot)
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut SlotEntry)> {
        (0..=u16::MAX).map(Slot).zip(&mut self.slots)
    }

    fn iter(&self) -> impl Iterator<Item = (Slot, &SlotEntry)> {
        (0..=u16::MAX).map(Slot).zip(&self.slots)
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
    fn backoff_doubles_up_to_its_maximum() {
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

    fn register(capacity: u16) -> Register {
        let mut ring = crypto::Ring::new();
        let identity = crypto::Identity::generate(&mut ring).unwrap();
        Register {
            app_id: 1,
            token_key: TokenKey::generate(&mut ring, 1).unwrap(),
            capacity,
            intake: Intake::Open,
            identity_keys: ServerKeys::new(&[*identity.public_key()]).unwrap(),
            addresses: AddressList::new(&["192.0.2.1:4433".parse().unwrap()]).unwrap(),
            matches: Vec::new(),
        }
    }

    /// The fullest server with room, by a look at each.
    fn fullest(servers: &Servers, seats: usize) -> Option<ServerLink> {
        let free = |server: &Server| usize::from(server.capacity) - server.seats_used;
        let takes = |server: &Server| {
            server.intake == Intake::Open && !server.is_suspended && free(server) >= seats
        };
        let fitting = servers.iter().filter(|(_, server)| takes(server));
        fitting
            .min_by_key(|(link, server)| (free(server), *link))
            .map(|(link, _)| link)
    }

    #[test]
    fn the_index_of_free_seats_agrees_with_a_scan() {
        let mut generator = Seed::from_number(5).generator(0);
        let mut servers = Servers::default();
        let register = register(16);
        let link = |number: u64| ServerLink {
            node: NodeId([u8::try_from(number).unwrap(); 32]),
            instance: InstanceId(number),
        };
        let mut running: Vec<(ServerLink, MatchId, usize)> = Vec::new();
        for step in 0..5_000_u128 {
            let server = link(generator.between(0, 20));
            let seats = usize::try_from(generator.between(1, 6)).unwrap();
            match generator.between(0, 9) {
                0 => {
                    let mut other = Server::new(&register, Instant::ZERO, Instant::ZERO);
                    other.capacity = u16::try_from(generator.between(4, 16)).unwrap();
                    running.retain(|(of, _, _)| *of != server);
                    servers.insert(server, other);
                }
                1 => {
                    running.retain(|(of, _, _)| *of != server);
                    servers.retire(server);
                }
                2 => {
                    servers.update(server, |it| it.is_suspended = !it.is_suspended);
                }
                3 if !running.is_empty() => {
                    let (of, id, seats) = running.swap_remove(0);
                    servers.update(of, |it| it.remove(id, seats, Instant::ZERO));
                }
                _ => {
                    let chosen = servers.choose(seats);
                    assert_eq!(chosen, fullest(&servers, seats), "step {step}");
                    if let Some(chosen) = chosen {
                        let id = MatchId(step.to_be_bytes());
                        servers.update(chosen, |it| it.add(id, seats));
                        running.push((chosen, id, seats));
                    }
                }
            }
        }
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
