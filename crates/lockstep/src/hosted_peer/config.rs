//! Configuration, events, errors and counters of a hosted peer.

use core::time::Duration;

use wire::Seat;

use crate::config::{ClientConfig, Config, SnapshotSource};
use crate::event::{ClientEvent, CloseReason, ConfigError, LeaveReason, Refusal, ServerEvent};
use crate::tick::Tick;

/// Configuration of a [`HostedPeer`](crate::HostedPeer), as a player and as a host.
///
/// `server`, `host` and both timeouts must be the same for all players: each host uses its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedConfig {
    /// Match configuration, for every host; 2 to 16 seats, one per player. Since no host simulates,
    /// [`Config::snapshots`] is always [`SnapshotSource::Players`](crate::SnapshotSource::Players).
    pub server: Config,
    /// Configuration of our client.
    pub client: ClientConfig,
    /// The first host; seat 0. When a host is gone, the lowest remaining seat hosts.
    pub host: Seat,
    /// Silence after which the host is replaced, if enough players do not receive it, and after
    /// which a host without a quorum closes no more ticks. Default 1 s. At least 8 ticks and 200
    /// ms. Until the host's first datagram, `player_timeout` applies.
    pub host_timeout: Duration,
    /// Silence after which the host removes a player, and a player gives up a host that the others
    /// still receive. Default 10 s. At least twice `host_timeout`. Doubled until the host's first
    /// datagram.
    pub player_timeout: Duration,
}

impl Default for HostedConfig {
    fn default() -> Self {
        Self {
            server: Config::default(),
            client: ClientConfig::default(),
            host: Seat(0),
            host_timeout: Duration::from_secs(1),
            player_timeout: Duration::from_secs(10),
        }
    }
}

impl HostedConfig {
    pub(super) fn half_timeout(&self) -> Duration {
        self.host_timeout.checked_div(2).unwrap_or_default()
    }

    /// Raises both timeouts to their minimum, and makes players the source of snapshots.
    pub(super) fn settle(&mut self) {
        let period = Duration::from_nanos(self.server.tick_rate.period_nanos().into());
        let least = period.saturating_mul(TIMEOUT_TICKS).max(TIMEOUT_MIN);
        self.host_timeout = self.host_timeout.max(least);
        self.player_timeout = self.player_timeout.max(self.host_timeout.saturating_mul(2));
        self.server.snapshots = SnapshotSource::Players;
        let len_max = self.server.datagram_len_max;
        self.client.datagram_len_max = self.client.datagram_len_max.min(len_max);
    }
}

const TIMEOUT_TICKS: u32 = 8;

/// Least timeout: a few datagrams of an election, which repeat every 40 ms.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// Why a hosted match is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedConfigError {
    /// A hosted match has 2 to 16 seats.
    Seats,
    /// The peers are not one per other seat, each with its own id.
    Peers,
    /// The first host's seat is empty.
    Host,
    /// The match lacks [`StartPolicy::ByHand`](crate::StartPolicy::ByHand): it starts by itself,
    /// regardless of the host.
    Start,
    /// No host could run such a match.
    Server(ConfigError),
}

wire::display_text! { HostedConfigError {
    Self::Seats => "a hosted match has 2 to 16 seats",
    Self::Peers => "the peers are not one for each other seat",
    Self::Host => "nobody sits on the seat that is to host first",
    Self::Start => "a hosted match begins by itself",
    Self::Server(error) => "hosts could not run the match: {error}",
}}

impl core::error::Error for HostedConfigError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Server(error) => Some(error),
            Self::Seats | Self::Peers | Self::Host | Self::Start => None,
        }
    }
}

/// Events of a [`HostedPeer`](crate::HostedPeer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedEvent {
    /// An event of our client; its end is reported by [`Closed`](Self::Closed) instead.
    Client(ClientEvent),
    /// An event of our server, while we host.
    Server(ServerEvent),
    /// The host is gone, and the others choose another. Closed ticks keep arriving.
    HostLost {
        /// The former host.
        host: Seat,
    },
    /// The remaining players agreed on the host from `tick` on. Inputs submitted for `tick` or
    /// later are revoked without further events; the held input counts from the first tick that the
    /// new host's clock stamps.
    Migrated {
        /// The new host; may be ourselves.
        host: Seat,
        /// Hosts and players lost so far, at most 15: the number of this view.
        epoch: u8,
        /// First tick that the new host closes.
        tick: Tick,
    },
    /// The others agreed that a player is out; its seat is absent from a tick on that the turns
    /// show.
    Left {
        /// Its seat.
        seat: Seat,
        /// [`LeaveReason::Quit`] if it left, else [`LeaveReason::Removed`]: it was silent, or
        /// kicked by the host.
        reason: LeaveReason,
    },
    /// We are out of the match. This is the last event; keep driving the machine, which notifies
    /// others, until [`poll_timeout`](crate::HostedPeer::poll_timeout) returns `None`.
    Closed(HostedClose),
}

/// Why a player's hosted match ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedClose {
    /// Too few others are reachable for [`player_timeout`](crate::HostedConfig::player_timeout), by
    /// us or by the host: no more than half, and not half including the lowest seat. Others may
    /// play on without us.
    TooFew,
    /// The others play on without us.
    Excluded {
        /// First tick in which our history may differ from theirs, as far as their notice says.
        tick: Tick,
    },
    /// We are to host, and cannot: closed ticks are missing that nobody sends, or the configuration
    /// is not that of the match. The others play on.
    Unserved,
    /// The host ended the match, or removed us.
    Out(CloseReason),
    /// We cannot play the host's match.
    Refused(Refusal),
}

/// Counters of a [`HostedPeer`](crate::HostedPeer), in addition to those of its client and server;
/// they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedStats {
    /// Datagrams sent that only hosted matches have.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Takeovers by another host, ourselves included.
    pub migrations: u64,
    /// Datagrams of closed ticks sent to a next host.
    pub forwards_sent: u64,
    /// Times that our server was paused for lack of a quorum.
    pub holds: u64,
    /// Datagrams dropped: malformed.
    pub dropped_malformed: u64,
    /// Datagrams dropped: sender is no player, or was removed.
    pub dropped_unknown_peer: u64,
    /// Datagrams dropped: sent by a former or future host.
    pub dropped_stale: u64,
    /// Statements and decisions dropped: of another view, or invalid.
    pub dropped_view: u64,
    /// Events lost because the queue was full.
    pub events_lost: u64,
}
