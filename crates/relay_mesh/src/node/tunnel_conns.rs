//! The TCP connections that a node's driver has sockets for, and how sources share them.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Instant, NetworkKey, SourceKey};

use super::flow_table::OTHERS_SHARE;
use crate::link::LinkId;
use crate::tcp::TcpConfig;
use crate::tunnel::{ConnId, TunnelConfig};

/// Connections by ID. Each uses one socket of the driver, which counts as one slot.
#[derive(Debug)]
pub(super) struct Conns {
    held: BTreeMap<ConnId, Held>,
    /// Slots in use by each tenant. No entry is zero, and they sum to `held.len()`.
    places: BTreeMap<Tenant, u32>,
    /// Number of slots.
    max: u32,
    per_prefix_max: u32,
}

/// A connection with a socket at the driver.
#[derive(Debug)]
pub(super) struct Held {
    /// The tenant that its slot counts for.
    pub(super) tenant: Tenant,
    /// The player's source key.
    pub(super) source: SourceKey,
    pub(super) game: String,
    /// PROXY header for the server, sent before the player's first byte: the part that the driver
    /// has not consumed.
    pub(super) outbound_header: Vec<u8>,
    /// Last time bytes passed, or when the connection was accepted.
    pub(super) used: Instant,
    /// Whether the socket's peer has sent any byte.
    pub(super) has_spoken: bool,
}

impl Held {
    fn is_idle(&self, now: Instant) -> bool {
        let after = if self.has_spoken { IDLE } else { SILENT };
        now.saturating_since(self.used) >= after
    }
}

/// The unit that slots are shared among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tenant {
    /// Local players in this /24 or /48. If their exit is also this node, a connection uses two
    /// slots.
    Prefix(NetworkKey),
    /// Players of another entry. The entry states their addresses, so these cannot be verified.
    Entry(LinkId),
}

/// Which idle connections may be evicted for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleOf {
    /// Connections of local players.
    Players,
    /// Connections of one tenant.
    Tenant(Tenant),
    /// Connections of one source in the tunnel with this number.
    Source(u32, SourceKey),
}

impl Conns {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let max = config.connections_max.min(TunnelConfig::PLAYERS_MAX);
        // A single address can always use its full limit, even if `max` is small.
        let of_an_address = config.tunnel.per_address_max.saturating_mul(2);
        Self {
            held: BTreeMap::new(),
            places: BTreeMap::new(),
            max,
            per_prefix_max: TcpConfig::prefix_share(max).max(of_an_address),
        }
    }

    /// Returns whether a tenant is below its limit. Does not check whether the driver has a free
    /// slot.
    pub(super) fn has_place(&self, tenant: Tenant) -> bool {
        let max = match tenant {
            Tenant::Prefix(_) => self.per_prefix_max,
            Tenant::Entry(_) => self.max.saturating_sub(self.max / OTHERS_SHARE),
        };
        self.places.get(&tenant).is_none_or(|held| *held < max)
    }

    /// Returns whether at least three quarters of the slots are in use, so that idle connections
    /// are evicted.
    pub(super) fn is_scarce(&self) -> bool {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        held >= self.max.saturating_sub(self.max / 4)
    }

    /// Returns the idle connection to evict: the oldest one of the tenant with the most slots.
    /// Within another entry, the oldest one of the source with the most slots. Takes time linear in
    /// all connections.
    pub(super) fn idle(&self, now: Instant, of: IdleOf) -> Option<ConnId> {
        let is_meant = |conn: &ConnId, held: &Held| match of {
            IdleOf::Players => matches!(held.tenant, Tenant::Prefix(_)),
            IdleOf::Tenant(tenant) => held.tenant == tenant,
            IdleOf::Source(tunnel, source) => conn.tunnel == tunnel && held.source == source,
        };
        let mut by_source: BTreeMap<SourceKey, u32> = BTreeMap::new();
        if let IdleOf::Tenant(tenant @ Tenant::Entry(_)) = of {
            for held in self.held.values().filter(|held| held.tenant == tenant) {
                let count = by_source.entry(held.source).or_default();
                *count = count.saturating_add(1);
            }
        }
        let places = |held: &Held| {
            let of_source = by_source.get(&held.source).copied();
            of_source.unwrap_or_else(|| self.places.get(&held.tenant).copied().unwrap_or(0))
        };
        let held = self.held.iter();
        let idle = held.filter(|(conn, held)| is_meant(conn, held) && held.is_idle(now));
        let first = idle.min_by_key(|(conn, held)| (Reverse(places(held)), held.used, **conn));
        first.map(|(conn, _)| *conn)
    }

    /// Records that bytes were passed to the socket.
    pub(super) fn on_read(&mut self, now: Instant, conn: ConnId) {
        if let Some(held) = self.held.get_mut(&conn) {
            held.used = now;
        }
    }

    /// Records that bytes came from the socket.
    pub(super) fn on_spoken(&mut self, now: Instant, conn: ConnId) {
        if let Some(held) = self.held.get_mut(&conn) {
            (held.used, held.has_spoken) = (now, true);
        }
    }

    /// Adds a connection. IDs must be unique.
    pub(super) fn insert(&mut self, conn: ConnId, held: Held) {
        let places = self.places.entry(held.tenant).or_default();
        *places = places.saturating_add(1);
        let before = self.held.insert(conn, held);
        debug_assert!(before.is_none(), "a name that was given before");
    }

    /// Removes a connection. Returns false if it is unknown.
    pub(super) fn remove(&mut self, conn: ConnId) -> bool {
        let Some(gone) = self.held.remove(&conn) else {
            return false;
        };
        if let Some(places) = self.places.get_mut(&gone.tenant) {
            *places = places.saturating_sub(1);
            if *places == 0 {
                self.places.remove(&gone.tenant);
            }
        }
        true
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Held> {
        self.held.get(&conn)
    }

    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Held> {
        self.held.get_mut(&conn)
    }

    pub(super) fn contains(&self, conn: ConnId) -> bool {
        self.held.contains_key(&conn)
    }

    /// Returns the connections of the tunnel with this number.
    pub(super) fn of_tunnel(&self, tunnel: u32) -> Vec<ConnId> {
        let conn = |number| ConnId { tunnel, number };
        let held = self.held.range(conn(0)..=conn(u64::MAX));
        held.map(|(conn, _)| *conn).collect()
    }

    /// Iterates over all connections, ordered by ID.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ConnId, &Held)> {
        self.held.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

/// Idle time after which a connection that has sent bytes may be evicted. Longer than pauses during
/// play, in which clients send keepalives.
const IDLE: Duration = Duration::from_secs(60);
/// Idle time after which a connection that has sent no bytes may be evicted.
const SILENT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    fn conns(connections_max: u32, per_address_max: u32) -> Conns {
        #[expect(
            clippy::disallowed_methods,
            reason = "a place in the standard library's time, which nothing is measured by"
        )]
        let mut config = TcpConfig::new(std::time::Instant::now());
        config.connections_max = connections_max;
        config.tunnel.per_address_max = per_address_max;
        Conns::new(&config)
    }

    /// Adds connections of `tenant` in `tunnel` up to its limit, at most 100. Returns how many.
    fn fill(conns: &mut Conns, tunnel: u32, tenant: Tenant) -> u64 {
        let mut added = 0;
        while added < 100 && conns.has_place(tenant) {
            let held = Held {
                tenant,
                source: source(1),
                game: "web".into(),
                outbound_header: Vec::new(),
                used: Instant::ZERO,
                has_spoken: false,
            };
            let conn = ConnId {
                tunnel,
                number: added,
            };
            conns.insert(conn, held);
            added += 1;
        }
        added
    }

    fn source(last: u8) -> SourceKey {
        SourceKey::of(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn mesh_a7_the_oldest_idle_one_of_an_address_or_of_an_entrys_fullest_source_gives_way() {
        let mut conns = conns(64, 4);
        let entry = Tenant::Entry(LinkId(1));
        let mut add = |tunnel, number, last, used| {
            let held = Held {
                tenant: entry,
                source: source(last),
                game: "web".into(),
                outbound_header: Vec::new(),
                used: Instant::from_millis(used),
                has_spoken: false,
            };
            conns.insert(ConnId { tunnel, number }, held);
        };
        for (number, last) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
            add(1, number, last, number);
        }
        add(2, 1, 3, 0);
        let conn = |tunnel, number| Some(ConnId { tunnel, number });
        let of = |seconds: u64, of| conns.idle(Instant::from_millis(seconds * 1_000), of);
        assert_eq!(of(4, IdleOf::Tenant(entry)), None, "none is idle");
        // Two sources have two each: the oldest of both.
        assert_eq!(of(6, IdleOf::Tenant(entry)), conn(2, 1));
        assert_eq!(of(6, IdleOf::Source(1, source(3))), conn(1, 4));
        assert_eq!(of(6, IdleOf::Source(1, source(9))), None);
        assert_eq!(of(6, IdleOf::Players), None, "another entry's");
    }

    fn network(text: &str) -> Tenant {
        Tenant::Prefix(NetworkKey::of(text.parse::<IpAddr>().unwrap()))
    }

    #[test]
    fn another_entry_has_seven_eighths_of_the_places_in_all_its_tunnels() {
        let mut conns = conns(64, 1);
        let (one, other) = (Tenant::Entry(LinkId(1)), Tenant::Entry(LinkId(2)));
        assert_eq!(fill(&mut conns, 1, one), 56);
        assert_eq!(fill(&mut conns, 2, one), 0, "another tunnel of it");
        assert!(conns.has_place(other));
        let last = ConnId {
            tunnel: 1,
            number: 55,
        };
        assert!(conns.remove(last) && !conns.remove(last));
        assert_eq!(fill(&mut conns, 2, one), 1);
    }

    #[test]
    fn a_network_has_a_quarter_of_the_places_or_what_an_address_may_have() {
        let mut quarter = conns(64, 4);
        assert_eq!(fill(&mut quarter, 1, network("2001:db8::1")), 16);
        assert!(!quarter.has_place(network("2001:db8:0:ff00::9")));
        assert!(quarter.has_place(network("2001:db8:1::1")));
        assert_eq!(fill(&mut quarter, 2, network("192.0.2.1")), 16);
        assert!(!quarter.has_place(network("192.0.2.200")));
        assert!(quarter.has_place(network("192.0.3.1")));
        // An address whose exit is this node uses two slots for each connection.
        assert_eq!(fill(&mut conns(64, 16), 1, network("192.0.2.1")), 32);
        assert_eq!(fill(&mut conns(2, 16), 1, network("192.0.2.1")), 32);
    }

    #[test]
    fn the_oldest_idle_one_of_the_fullest_source_gives_way() {
        let mut conns = conns(64, 4);
        assert_eq!(fill(&mut conns, 1, network("192.0.2.1")), 16);
        assert_eq!(fill(&mut conns, 2, network("192.0.3.1")), 16);
        let (at, conn) = (Instant::from_millis, |tunnel, number| ConnId {
            tunnel,
            number,
        });
        assert!(conns.remove(conn(2, 0)) && !conns.is_scarce());
        fill(&mut conns, 3, network("192.0.4.1"));
        fill(&mut conns, 4, network("192.0.5.1"));
        assert!(conns.is_scarce());
        assert_eq!(conns.idle(at(4_999), IdleOf::Players), None);
        conns.on_spoken(at(1), conn(1, 0));
        for number in 1..15 {
            conns.on_read(at(100 - number), conn(1, number));
        }
        assert_eq!(conns.idle(at(6_000), IdleOf::Players), Some(conn(1, 15)));
        assert_eq!(
            conns.idle(at(6_000), IdleOf::Tenant(network("192.0.3.9"))),
            Some(conn(2, 1))
        );
        assert_eq!(
            conns.idle(at(6_000), IdleOf::Tenant(network("10.0.0.1"))),
            None
        );
        conns.on_read(at(6_000), conn(1, 15));
        assert_eq!(conns.idle(at(6_000), IdleOf::Players), Some(conn(3, 0)));
    }

    #[test]
    fn who_has_no_connection_any_more_is_not_remembered() {
        let mut conns = conns(64, 4);
        fill(&mut conns, 1, network("192.0.2.1"));
        fill(&mut conns, 2, Tenant::Entry(LinkId(1)));
        for conn in [conns.of_tunnel(1), conns.of_tunnel(2)].concat() {
            assert!(conns.remove(conn));
        }
        assert!(conns.places.is_empty() && conns.len() == 0);
    }
}
