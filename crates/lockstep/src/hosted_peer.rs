//! A player of a match that one of the players hosts, and that survives its host.
//!
//! All peers have sessions with each other. One runs the server next to its own client. When it is
//! gone, the remaining players agree on that by [`View`], and the lowest of their seats becomes
//! host. A view only ever loses members, so the host's seat identifies its term: no host returns,
//! and datagrams of a former host are recognised by their sender.
//!
//! Why confirmed ticks never change, and a match never splits in two:
//!
//! - A player that suspects the host accepts nothing more from it, and states how many closed ticks
//!   it holds. The next host starts after the largest stated tick, and fetches the ticks before it
//!   that it lacks. So every tick that a remaining player returned lies before the new host's
//!   first.
//! - No player suspects the host alone: those that do not receive it announce that first, and
//!   commit only if they are enough for a view. So a player with a bad link rejoins the others
//!   later.
//! - Any two views share a member ([`View`] explains why at most one of them can decide further). A
//!   host closes ticks only while a quorum of its view has addressed it as host within
//!   `host_timeout`. Members of another group's view do not. So the host left out of all later
//!   views
//!   pauses at most `host_timeout` after the last of them left it.
//! - Until then it may close ticks that no remaining player holds, and players that still receive
//!   it
//!   may simulate them. They are out, and learn up to which tick they share the others' history.
//!
//! A hostile player can force a change of hosts, and end the match for itself and others. As host
//! it can do what a hostile server can. Ticks that it forwards to a next host may be forged; the
//! comparison of state hashes, which cover inputs, reveals that.

mod link;
mod machine;
mod playing;
mod succession;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant, MatchId, Seat, Seed};

use crate::bundle::Shape;
use crate::client_peer::ClientPeer;
use crate::config::{ClientConfig, Config, SnapshotSource, StartPolicy};
use crate::event::{
    ClientEvent, CloseReason, ConfigError, LeaveReason, Phase, Refusal, ServerEvent,
};
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::message::{MESH_SEATS_MAX, Seats, Ticks, bit};
use crate::tick::{PeerId, Tick};
use crate::view::View;
use link::Link;
use machine::Due;

/// Id by which our own client and server address each other; never the driver's.
const SELF: PeerId = PeerId(u32::MAX);

/// Queued events; beyond it they are only counted, except for the final one.
const EVENTS_MAX: usize = 256;

/// One player of a match that a player hosts.
///
/// Like a [`ClientPeer`] it takes inputs and returns turns, whether it hosts or not. Memory is that
/// of a client, plus that of a server while it hosts.
#[derive(Debug)]
pub struct HostedPeer<I> {
    config: HostedConfig,
    match_id: MatchId,
    /// Seats and input width.
    shape: Shape,
    seat: Seat,
    /// Jitter of repetitions, and seeds for servers.
    generator: Generator,
    state: State,
    /// The other players, by seat; `None` for our own. Removed players are kept, to notify them.
    links: Vec<Option<Link>>,
    /// The current members.
    view: View,
    /// The current host.
    host: Seat,
    /// By seat, for removed players: first tick of a host after theirs.
    cuts: Ticks,
    client: ClientPeer<I>,
    /// Set while we host.
    server: Option<Box<MatchServer<I>>>,
    /// Whether the server is paused for lack of a quorum.
    is_held: bool,
    /// Whether the host was silent for longer than `host_timeout`.
    host_suspected: bool,
    /// When to send the next presence and check the members.
    heartbeat_at: Instant,
    due: Due,
    events: VecDeque<HostedEvent>,
    stats: HostedStats,
    /// Latest time passed in.
    now: Instant,
}

/// State of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is a host, as far as known.
    Playing,
    /// The host is suspected.
    Electing { since: Instant },
    /// We are to host from `next` on, and fetch ticks or gather players.
    TakingOver {
        /// When this began, or when we held all closed ticks.
        since: Instant,
        /// When we last received a missing tick.
        fetched_at: Instant,
        next: Tick,
    },
    /// The others play on without us, as one of them stated; waits to learn up to where we agree.
    Evicted { until: Instant },
    /// The leave is being repeated.
    Leaving { copies: u8, at: Instant },
    /// The match is over; peers that do not know it are notified.
    Ending { until: Instant },
    /// Over.
    Closed,
}

impl State {
    /// Moves all deadlines by `span`, during which the process was paused.
    fn sleep(&mut self, span: Duration) {
        match self {
            Self::Electing { since } => *since += span,
            Self::TakingOver {
                since, fetched_at, ..
            } => {
                *since += span;
                *fetched_at += span;
            }
            Self::Evicted { until } => *until += span,
            Self::Playing | Self::Leaving { .. } | Self::Ending { .. } | Self::Closed => {}
        }
    }
}

impl<I: Input> HostedPeer<I> {
    /// Returns the state of the match, as far as known.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Leaving { .. } | State::Ending { .. } | State::Closed => Phase::Closed,
            State::Playing
            | State::Electing { .. }
            | State::TakingOver { .. }
            | State::Evicted { .. }
                if self.client.ticks_confirmed() > 0 =>
            {
                Phase::Running
            }
            State::Playing
            | State::Electing { .. }
            | State::TakingOver { .. }
            | State::Evicted { .. } => self.client.phase(),
        }
    }

    /// Returns our seat.
    #[must_use]
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Returns the current or last host.
    #[must_use]
    pub const fn host(&self) -> Seat {
        self.host
    }

    /// Returns the number of earlier views; each change removes a host or players.
    #[must_use]
    pub const fn epoch(&self) -> u8 {
        self.view.epoch()
    }

    /// Returns the members, ourselves included, in seat order.
    pub fn members(&self) -> impl Iterator<Item = Seat> + use<I> {
        let members = self.view.members();
        (0..16)
            .filter(move |seat| members & bit(*seat) != 0)
            .map(Seat)
    }

    /// Returns the machine's own counters.
    #[must_use]
    pub const fn stats(&self) -> &HostedStats {
        &self.stats
    }

    /// Returns our client.
    #[must_use]
    pub const fn client(&self) -> &ClientPeer<I> {
        &self.client
    }

    /// Returns our server, while we host.
    #[must_use]
    pub fn server(&self) -> Option<&MatchServer<I>> {
        self.server.as_deref()
    }

    /// Returns the heap bytes in use, accurate to about one allocation.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        let events = size_of::<HostedEvent>().saturating_mul(self.events.capacity());
        let links = size_of::<Option<Link>>().saturating_mul(self.links.len());
        let server = self.server().map_or(0, |server| {
            size_of::<MatchServer<I>>().saturating_add(server.memory_len())
        });
        self.client
            .memory_len()
            .saturating_add(server)
            .saturating_add(links)
            .saturating_add(events)
    }

    /// Advances the time, which never decreases. After a pause of the process, others' silence and
    /// our own waiting do not count.
    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        let passed = now.saturating_since(self.now);
        if passed > self.config.half_timeout() {
            for link in self.links.iter_mut().flatten() {
                link.wake(now);
            }
            self.state.sleep(passed);
        }
        self.now = self.now.max(now);
        self.now
    }

    fn is_host(&self) -> bool {
        self.host == self.seat
    }

    /// Other members that we accept datagrams from.
    fn others(&self) -> Seats {
        self.view.others()
    }

    fn link(&self, seat: u16) -> Option<&Link> {
        self.links.get(usize::from(seat))?.as_ref()
    }

    fn link_mut(&mut self, seat: u16) -> Option<&mut Link> {
        self.links.get_mut(usize::from(seat))?.as_mut()
    }

    /// Those of `seats` with a link that satisfies `is_so`.
    fn filter_seats(&self, seats: Seats, is_so: impl Fn(&Link) -> bool) -> Seats {
        let links = self.links.iter().zip(0..);
        links.fold(0, |all, (link, seat)| match link {
            Some(link) if seats & bit(seat) != 0 && is_so(link) => all | bit(seat),
            Some(_) | None => all,
        })
    }

    /// Queues an event; none after the final one.
    fn push_event(&mut self, event: HostedEvent) {
        if self.is_over() {
            return;
        }
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.stats.events_lost = self.stats.events_lost.saturating_add(1);
        }
    }

    /// Ends the machine.
    fn close(&mut self, why: HostedClose) {
        if self.is_over() {
            return;
        }
        self.state = State::Closed;
        self.server = None;
        self.due.clear();
        self.events.push_back(HostedEvent::Closed(why));
    }
}

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
    /// which a host without a quorum closes no more ticks; 1 s. At least 8 ticks and 200 ms. Until
    /// the host's first datagram, `player_timeout` applies.
    pub host_timeout: Duration,
    /// Silence after which the host removes a player, and a player gives up a host that the others
    /// still receive; 10 s. At least twice `host_timeout`. Doubled until the host's first datagram.
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
    fn half_timeout(&self) -> Duration {
        self.host_timeout.checked_div(2).unwrap_or_default()
    }

    /// Raises both timeouts to their minimum, and makes players the source of snapshots.
    fn settle(&mut self) {
        let period = Duration::from_nanos(self.server.tick_rate.period_nanos().into());
        let least = period.saturating_mul(TIMEOUT_TICKS).max(TIMEOUT_MIN);
        self.host_timeout = self.host_timeout.max(least);
        self.player_timeout = self.player_timeout.max(self.host_timeout.saturating_mul(2));
        self.server.snapshots = SnapshotSource::Players;
        let len_max = self.server.datagram_len_max;
        self.client.datagram_len_max = self.client.datagram_len_max.min(len_max);
    }
}

/// Least timeout, in ticks.
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

impl<I: Input> HostedPeer<I> {
    /// Creates the player of `seat`; `peers` are the driver's ids for all other seats, with a
    /// session each. [`u32::MAX`] is not allowed.
    ///
    /// Ticks begin as set by [`HostedConfig::server`], or with the remaining players if the first
    /// host is gone before.
    ///
    /// # Errors
    ///
    /// [`HostedConfigError`] if such a match cannot be played.
    pub fn new(
        config: HostedConfig,
        (match_id, seat): (MatchId, Seat),
        peers: &[(Seat, PeerId)],
        seed: Seed,
        now: Instant,
    ) -> Result<Self, HostedConfigError> {
        let mut config = config;
        config.settle();
        let seats = config.server.seats;
        if !(2..=MESH_SEATS_MAX).contains(&seats) {
            return Err(HostedConfigError::Seats);
        }
        if config.host.0 >= seats {
            return Err(HostedConfigError::Host);
        }
        if config.server.start == StartPolicy::ByHand {
            return Err(HostedConfigError::Start);
        }
        let links = links(seat, seats, peers, now).ok_or(HostedConfigError::Peers)?;
        let mut generator = seed.generator(0);
        // Also on players that do not host yet, so that a bad configuration is found before the
        // match.
        let server = MatchServer::new(config.server.clone(), match_id, generator.seed(), now)
            .map_err(HostedConfigError::Server)?;
        let is_host = config.host == seat;
        let host = links.get(usize::from(config.host.0));
        let host = host
            .and_then(|link| Some(link.as_ref()?.peer))
            .unwrap_or(SELF);
        let mut peer = Self {
            match_id,
            shape: Shape {
                seats,
                width: I::WIDTH,
            },
            seat,
            state: State::Playing,
            links,
            view: View::new(seat.0, seats),
            host: config.host,
            cuts: Ticks::default(),
            client: ClientPeer::new(config.client.clone(), host, generator.seed(), now),
            server: is_host.then(|| Box::new(server)),
            is_held: false,
            host_suspected: false,
            heartbeat_at: now,
            due: Due::default(),
            events: VecDeque::with_capacity(EVENTS_MAX.saturating_add(1)),
            stats: HostedStats::default(),
            generator,
            now,
            config,
        };
        peer.seat_members(now);
        Ok(peer)
    }
}

/// One per seat except `own`, if `peers` match.
fn links(
    own: Seat,
    seats: u16,
    peers: &[(Seat, PeerId)],
    now: Instant,
) -> Option<Vec<Option<Link>>> {
    let link = |seat: u16| {
        if seat == own.0 {
            return Some(None);
        }
        let mut of_seat = peers.iter().filter(|(at, _)| at.0 == seat);
        let (_, peer) = of_seat.next()?;
        let mut alike = peers.iter().filter(|(_, other)| other == peer);
        let is_alone = of_seat.next().is_none() && alike.nth(1).is_none() && *peer != SELF;
        is_alone.then(|| Some(Link::new(*peer, now)))
    };
    let links: Option<Vec<_>> = (0..seats).map(link).collect();
    let is_whole = own.0 < seats && peers.len() == usize::from(seats).saturating_sub(1);
    links.filter(|_| is_whole)
}
