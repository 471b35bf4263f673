//! Leases of registered server instances.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crypto::{AddressList, ServerKeys, TokenKey};
use wire::{InstanceId, Instant, MatchId, NodeId};

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
    /// Most seats at a time.
    pub(crate) capacity: u16,
    /// Whether it accepts new matches.
    pub(crate) intake: Intake,
    /// It rejected or missed a call: no calls until its next heartbeat.
    pub(crate) is_suspended: bool,
    /// When its lease expires.
    pub(crate) lease_until: Instant,
    /// When it first registered.
    pub(crate) since: Instant,
    /// When its last match ended, or it registered.
    pub(crate) unused_since: Instant,
    /// Seats of its matches.
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

    /// Returns whether a match of `seats` fits.
    pub(crate) fn has_room(&self, seats: usize) -> bool {
        let used = self.seats_used.saturating_add(seats);
        self.intake == Intake::Open
            && !self.is_suspended
            && used <= usize::from(self.capacity)
            && self.matches.len() < MATCHES_MAX
    }

    /// Reserves the seats of a match.
    pub(crate) fn add(&mut self, match_id: MatchId, seats: usize) {
        if self.matches.insert(match_id) {
            self.seats_used = self.seats_used.saturating_add(seats);
        }
    }

    /// Releases the seats of a match.
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
    /// Instances that lost their lease, oldest first; they may not register again.
    retired: VecDeque<ServerLink>,
}

impl Servers {
    pub(crate) fn insert(&mut self, link: ServerLink, server: Server) {
        self.by_link.insert(link, server);
    }

    /// Retires an instance permanently.
    ///
    /// Beyond [`RETIRED_MAX`] the oldest is forgotten; it has ended itself by then, since its lease
    /// was not renewed.
    pub(crate) fn retire(&mut self, link: ServerLink) -> Option<Server> {
        let server = self.by_link.remove(&link)?;
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

    pub(crate) fn get_mut(&mut self, link: ServerLink) -> Option<&mut Server> {
        self.by_link.get_mut(&link)
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
        self.by_link
            .iter()
            .filter(|(_, server)| server.has_room(seats))
            .min_by_key(|(link, server)| {
                let free = usize::from(server.capacity).saturating_sub(server.seats_used);
                (free, **link)
            })
            .map(|(link, _)| *link)
    }

    /// Returns how many servers have room for a match of `seats`, at most `max`.
    pub(crate) fn with_room(&self, seats: usize, max: usize) -> usize {
        let fitting = self
            .by_link
            .values()
            .filter(|server| server.has_room(seats));
        fitting.take(max).count()
    }

    /// Returns the instances, ordered by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ServerLink, &Server)> {
        self.by_link.iter().map(|(link, server)| (*link, server))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ServerLink, &mut Server)> {
        let servers = self.by_link.iter_mut();
        servers.map(|(link, server)| (*link, server))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_link.len()
    }
}

/// Retired instances that are remembered; 64 KiB.
const RETIRED_MAX: usize = 1_024;
