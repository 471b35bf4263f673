//! What the application chooses for a match that a player hosts, and why it is refused.

use core::fmt;
use core::time::Duration;

use wire::Seat;

use crate::config::{ClientConfig, Config, SnapshotSource};
use crate::event::ConfigError;

/// How a [`HostedPeer`](crate::HostedPeer) plays and, when its turn comes, hosts.
///
/// `server`, `host` and both patiences must be the same for all players: whoever goes on as host
/// goes on with its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedConfig {
    /// How the match is run, whoever hosts it; 2 to 16 seats, one for each player. As no host
    /// simulates, [`Config::snapshots`] is always
    /// [`SnapshotSource::Players`](crate::SnapshotSource::Players).
    pub server: Config,
    /// What we accept of a host.
    pub client: ClientConfig,
    /// Who hosts first; seat 0. When the host is gone, the lowest seat of those who stay hosts.
    pub host: Seat,
    /// Silence of the host after which the others choose another, if enough of them do not hear it;
    /// and silence of too many others after which a host closes no more ticks. 1 s, and never
    /// shorter than 8 ticks or 200 ms. Until the first word of the host `player_patience`.
    pub patience: Duration,
    /// Silence after which the host plays on without a player, and a player gives up a host that
    /// the others still hear; 10 s, and never shorter than twice `patience`. Until the first word
    /// of the host twice as long.
    pub player_patience: Duration,
}

impl Default for HostedConfig {
    fn default() -> Self {
        Self {
            server: Config::default(),
            client: ClientConfig::default(),
            host: Seat(0),
            patience: Duration::from_secs(1),
            player_patience: Duration::from_secs(10),
        }
    }
}

impl HostedConfig {
    pub(super) fn half_patience(&self) -> Duration {
        self.patience.checked_div(2).unwrap_or_default()
    }

    /// Raises both patiences to what they are at least, and has players give snapshots.
    pub(super) fn settle(&mut self) {
        let period = Duration::from_nanos(self.server.tick_rate.period_nanos().into());
        let least = period.saturating_mul(PATIENCE_TICKS).max(PATIENCE_MIN);
        self.patience = self.patience.max(least);
        self.player_patience = self.player_patience.max(self.patience.saturating_mul(2));
        self.server.snapshots = SnapshotSource::Players;
        let len_max = self.server.datagram_len_max;
        self.client.datagram_len_max = self.client.datagram_len_max.min(len_max);
    }
}

/// Ticks that nobody is given up before.
const PATIENCE_TICKS: u32 = 8;

/// Time before which nobody is given up: a few words of an election, which are repeated each 40 ms.
const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// Why a hosted match is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedConfigError {
    /// A hosted match has 2 to 16 seats.
    Seats,
    /// The peers are not one for each seat but ours, each with a number of its own.
    Peers,
    /// Nobody sits on the seat that is to host first.
    Host,
    /// The match has no [`StartPolicy::ByHand`](crate::StartPolicy::ByHand): it begins by itself,
    /// whoever hosts.
    Start,
    /// Hosts could not run such a match.
    Server(ConfigError),
}

impl fmt::Display for HostedConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seats => f.write_str("a hosted match has 2 to 16 seats"),
            Self::Peers => f.write_str("the peers are not one for each other seat"),
            Self::Host => f.write_str("nobody sits on the seat that is to host first"),
            Self::Start => f.write_str("a hosted match begins by itself"),
            Self::Server(error) => write!(f, "hosts could not run the match: {error}"),
        }
    }
}

impl core::error::Error for HostedConfigError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Server(error) => Some(error),
            Self::Seats | Self::Peers | Self::Host | Self::Start => None,
        }
    }
}
