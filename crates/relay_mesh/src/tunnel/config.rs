//! Configuration of a tunnel.

/// What one tunnel allows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelConfig {
    /// Connections of players at a time; 1,024, and at most [`PLAYERS_MAX`](Self::PLAYERS_MAX) whatever stands
    /// here. Each may hold twice [`WINDOW`](super::WINDOW) at
    /// this end, and at an exit a seventh more of them, which wait for a place, once.
    pub players_max: u32,
    /// Of them, those of one address: of IPv4 an address, of IPv6 a /64; 64: a browser opens six to each
    /// host, and households share an address. A carrier's NAT with more players needs more.
    pub per_address_max: u32,
    /// New connections a second; 256, and four times as many at once.
    pub open_rate: u32,
}

impl TunnelConfig {
    /// Most connections of players in a tunnel: QUIC remembers each stream that it allows from the start.
    pub const PLAYERS_MAX: u32 = 65_536;

    /// Connections of players that there may be.
    pub(crate) fn players(&self) -> u32 {
        self.players_max.min(Self::PLAYERS_MAX)
    }
}

impl Default for TunnelConfig {
    fn default() -> Self {
        Self {
            players_max: 1_024,
            per_address_max: 64,
            open_rate: 256,
        }
    }
}
