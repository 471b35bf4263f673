//! The TCP connections of all tunnels, and the slots that they share.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NetworkKey, SourceKey};

use crate::link::LinkId;
use crate::node::flow_table::OTHERS_SHARE;
use crate::tcp::TcpConfig;
use crate::tunnel::{ConnId, TunnelConfig};

/// Where the player of a connection is. Tenants share the slots, each a socket of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) enum ConnOwner {
    /// Local players in this /24 or /48. If this node is also their exit, a connection uses two
    /// slots.
    Prefix(NetworkKey),
    /// Players of another entry, which states their addresses unverified.
    Entry(LinkId),
}

/// A TCP connection at this node.
#[derive(Debug)]
pub(in crate::node) struct ConnEntry {
    /// It uses one of this tenant's slots.
    pub(in crate::node) owner: ConnOwner,
    /// The player's address, or its /64.
    pub(in crate::node) source: SourceKey,
    /// Name of the game.
    pub(in crate::node) game: String,
    /// The rest of the PROXY header for the server, sent before the player's first byte.
    pub(in crate::node) outbound_header: Vec<u8>,
    /// When bytes last passed, or when the connection was accepted.
    pub(in crate::node) used: Instant,
    /// Whether the socket's peer has sent any byte.
    pub(in crate::node) has_sent: bool,
}

impl ConnEntry {
    fn is_idle(&self, now: Instant) -> bool {
        let after = if self.has_sent { IDLE } else { SILENT };
        now.saturating_since(self.used) >= after
    }
}

/// Which idle connections may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum IdleScope {
    /// Those of local players.
    Players,
    /// Those of one tenant.
    ConnOwner(ConnOwner),
    /// Those of one source in the tunnel with this number.
    Source(u32, SourceKey),
}

#[derive(Debug)]
pub(in crate::node) struct Conns {
    records: BTreeMap<ConnId, ConnEntry>,
    /// Slots in use by each tenant; none is zero, and they sum to `records.len()`.
    slots: BTreeMap<ConnOwner, u32>,
    /// Number of slots.
    max: u32,
    /// Slots that local players of one prefix may use.
    per_prefix_max: u32,
}

impl Conns {
    pub(in crate::node) fn new(config: &TcpConfig) -> Self {
        let max = config.connections_max.min(TunnelConfig::PLAYERS_MAX);
        // A single address can always use its full limit, with two slots for each connection.
        let address_max = config.tunnel.per_address_max.saturating_mul(2);
        Self {
            records: BTreeMap::new(),
            slots: BTreeMap::new(),
            max,
            per_prefix_max: TcpConfig::prefix_share(max).max(address_max),
        }
    }

    /// Whether `owner` may have another connection.
    pub(in crate::node) fn has_slot(&self, owner: ConnOwner) -> bool {
        let max = match owner {
            ConnOwner::Prefix(_) => self.per_prefix_max,
            ConnOwner::Entry(_) => self.max.saturating_sub(self.max / OTHERS_SHARE),
        };
        self.slots.get(&owner).is_none_or(|used| *used < max)
    }

    /// Whether at least three quarters of the slots are in use, so that idle connections are
    /// evicted.
    pub(in crate::node) fn is_scarce(&self) -> bool {
        let used = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        used >= self.max.saturating_sub(self.max / 4)
    }

    /// The idle connection to evict, if any is idle in `scope`: the oldest one of the tenant, or of
    /// another entry's source, with the most slots. Takes time linear in all connections.
    pub(in crate::node) fn idle(&self, now: Instant, scope: IdleScope) -> Option<ConnId> {
        let is_in_scope = |conn: &ConnId, record: &ConnEntry| match scope {
            IdleScope::Players => matches!(record.owner, ConnOwner::Prefix(_)),
            IdleScope::ConnOwner(owner) => record.owner == owner,
            IdleScope::Source(tunnel, source) => conn.tunnel == tunnel && record.source == source,
        };
        let mut by_source: BTreeMap<SourceKey, u32> = BTreeMap::new();
        if let IdleScope::ConnOwner(owner @ ConnOwner::Entry(_)) = scope {
            let records = self.records.values();
            for record in records.filter(|record| record.owner == owner) {
                let count = by_source.entry(record.source).or_default();
                *count = count.saturating_add(1);
            }
        }
        let slots = |record: &ConnEntry| {
            let of_source = by_source.get(&record.source).copied();
            of_source.unwrap_or_else(|| self.slots.get(&record.owner).copied().unwrap_or(0))
        };
        let records = self.records.iter();
        let idle =
            records.filter(|(conn, record)| is_in_scope(conn, record) && record.is_idle(now));
        let first = idle.min_by_key(|(conn, record)| (Reverse(slots(record)), record.used, **conn));
        first.map(|(conn, _)| *conn)
    }

    /// Records that the driver took bytes for the socket.
    pub(in crate::node) fn on_delivered(&mut self, now: Instant, conn: ConnId) {
        if let Some(record) = self.records.get_mut(&conn) {
            record.used = now;
        }
    }

    /// Records that bytes arrived from the socket.
    pub(in crate::node) fn on_peer_data(&mut self, now: Instant, conn: ConnId) {
        if let Some(record) = self.records.get_mut(&conn) {
            (record.used, record.has_sent) = (now, true);
        }
    }

    pub(in crate::node) fn insert(&mut self, conn: ConnId, record: ConnEntry) {
        let slots = self.slots.entry(record.owner).or_default();
        *slots = slots.saturating_add(1);
        let before = self.records.insert(conn, record);
        debug_assert!(before.is_none(), "connection ids are unique");
    }

    /// Removes a connection; returns false if it is unknown.
    pub(in crate::node) fn remove(&mut self, conn: ConnId) -> bool {
        let Some(removed) = self.records.remove(&conn) else {
            return false;
        };
        if let Some(slots) = self.slots.get_mut(&removed.owner) {
            *slots = slots.saturating_sub(1);
            if *slots == 0 {
                self.slots.remove(&removed.owner);
            }
        }
        true
    }

    pub(in crate::node) fn get(&self, conn: ConnId) -> Option<&ConnEntry> {
        self.records.get(&conn)
    }

    pub(in crate::node) fn get_mut(&mut self, conn: ConnId) -> Option<&mut ConnEntry> {
        self.records.get_mut(&conn)
    }

    pub(in crate::node) fn of_tunnel(&self, tunnel: u32) -> Vec<ConnId> {
        let conn = |number| ConnId { tunnel, number };
        let records = self.records.range(conn(0)..=conn(u64::MAX));
        records.map(|(conn, _)| *conn).collect()
    }

    pub(in crate::node) fn iter(&self) -> impl Iterator<Item = (&ConnId, &ConnEntry)> {
        self.records.iter()
    }

    pub(in crate::node) fn len(&self) -> usize {
        self.records.len()
    }
}

/// Idle time after which a connection that has sent bytes may be evicted: longer than pauses during
/// play, in which clients send keepalives.
const IDLE: Duration = Duration::from_secs(60);
/// The same for a connection that has sent no bytes.
const SILENT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
