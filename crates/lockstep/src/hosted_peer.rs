//! A player of a match that one of the players hosts, and that outlives its host.
//!
//! Everybody has a session to everybody. One runs the server beside its own client; when it is gone,
//! those who stay agree on that by [`View`], and the lowest seat of them goes on as host. Members of
//! a view only become fewer, so the seat of a host names its term: no host comes back, and what a
//! former host sends is known by its sender.
//!
//! Why nobody's confirmed ticks change, and no two matches come of one:
//!
//! - Whoever suspects the host takes nothing more of it, and states up to where it holds the closed
//!   ticks. The next host closes its first tick after the largest of what those who stay stated, and
//!   fetches what it lacks before that. What any of them returned lies before it.
//! - Nobody suspects the host alone: first those who do not hear it say so, and only where they are
//!   enough for a view does any of them bind itself. So a player whose own link was down goes on
//!   with the others when it comes back.
//! - Views of two groups share a member ([`View`] says why at most one of them can decide more). A
//!   host closes ticks only while enough of its view have spoken to it as to their host within
//!   `host_timeout`. Whoever is in another group's view does not; so the host that is in none of the
//!   later ones stands still, at most `host_timeout` after the last of them turned away.
//! - Until then it may close ticks that nobody who stays holds, and those who still heard it alone
//!   may have simulated them. They are out, and are told up to where their history is the others'.
//!
//! A hostile player can make all choose another host, and end the match for itself and others; as
//! host it can do what a hostile server can; and what it passes on to a next host may be forged,
//! which the compared state hashes show, since they are over the inputs too.

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

/// What our own client and server call each other; no driver's number.
const SELF: PeerId = PeerId(u32::MAX);

/// Events that wait for the application; past it they are only counted, but for our end.
const EVENTS_MAX: usize = 256;

/// One player of a match that a player hosts.
///
/// As a [`ClientPeer`] it takes inputs and returns turns; whether it hosts makes no difference to
/// the game. Memory is that of a client, and while it hosts that of a server.
#[derive(Debug)]
pub struct HostedPeer<I> {
    config: HostedConfig,
    match_id: MatchId,
    /// Seats and input width.
    shape: Shape,
    seat: Seat,
    /// Spreads what is repeated, and seeds servers.
    generator: Generator,
    state: State,
    /// The other players, by seat; `None` on our own. Those who are out are kept, to be told.
    links: Vec<Option<Link>>,
    /// Who plays.
    view: View,
    /// Who hosts.
    host: Seat,
    /// By seat, of those who are out: first tick of a host after theirs.
    cuts: Ticks,
    client: ClientPeer<I>,
    /// While we host.
    server: Option<Box<MatchServer<I>>>,
    /// Whether the server stands still, since too few are heard.
    is_held: bool,
    /// Whether the host was not heard for longer than `host_timeout`.
    host_suspected: bool,
    /// When to say again that we are there, and to look who is.
    heartbeat_at: Instant,
    due: Due,
    events: VecDeque<HostedEvent>,
    stats: HostedStats,
    /// Latest time told.
    now: Instant,
}

/// What a player is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is a host, as far as is known.
    Playing,
    /// The host is suspected.
    Electing { since: Instant },
    /// We are to host, from `next` on, and fetch or gather.
    TakingOver {
        /// When we began, or had all that is closed.
        since: Instant,
        /// When we last got a tick that we lacked.
        fetched_at: Instant,
        next: Tick,
    },
    /// The others play on without us, as one of them said; they say up to where we shared.
    Evicted { until: Instant },
    /// The player goes, and says so.
    Leaving { copies: u8, at: Instant },
    /// The match is over; those who have not heard it are told.
    Ending { until: Instant },
    /// Over.
    Closed,
}

impl State {
    /// Takes note that we slept for `span`: in none of it did anybody wait.
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
    /// Returns what the match is doing, as far as is known.
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

    /// Returns who hosts, or did last.
    #[must_use]
    pub const fn host(&self) -> Seat {
        self.host
    }

    /// Returns how many views there were before: hosts and players that those who stay agreed were
    /// gone, one or more at a time.
    #[must_use]
    pub const fn epoch(&self) -> u8 {
        self.view.epoch()
    }

    /// Returns who plays, ourselves included, in seat order.
    pub fn members(&self) -> impl Iterator<Item = Seat> + use<I> {
        let members = self.view.members();
        (0..16)
            .filter(move |seat| members & bit(*seat) != 0)
            .map(Seat)
    }

    /// Returns the counters of the machine itself.
    #[must_use]
    pub const fn stats(&self) -> &HostedStats {
        &self.stats
    }

    /// Returns what our client does.
    #[must_use]
    pub const fn client(&self) -> &ClientPeer<I> {
        &self.client
    }

    /// Returns what our server does, while we host.
    #[must_use]
    pub fn server(&self) -> Option<&MatchServer<I>> {
        self.server.as_deref()
    }

    /// Returns the bytes that it holds on the heap, to about an allocation's worth.
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

    /// Takes the time, which never goes back. A process that slept has not heard others' silence,
    /// and what it waits for it has not waited for.
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

    /// Members that are listened to, other than ourselves.
    fn others(&self) -> Seats {
        self.view.others()
    }

    fn link(&self, seat: u16) -> Option<&Link> {
        self.links.get(usize::from(seat))?.as_ref()
    }

    fn link_mut(&mut self, seat: u16) -> Option<&mut Link> {
        self.links.get_mut(usize::from(seat))?.as_mut()
    }

    /// Those of `seats` whose link is as `is_so` says.
    fn filter_seats(&self, seats: Seats, is_so: impl Fn(&Link) -> bool) -> Seats {
        let links = self.links.iter().zip(0..);
        links.fold(0, |all, (link, seat)| match link {
            Some(link) if seats & bit(seat) != 0 && is_so(link) => all | bit(seat),
            Some(_) | None => all,
        })
    }

    /// After our end nothing is told.
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

    /// Ends it.
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
    /// shorter than 8 ticks or 200 ms. Until the first word of the host `player_timeout`.
    pub host_timeout: Duration,
    /// Silence after which the host plays on without a player, and a player gives up a host that
    /// the others still hear; 10 s, and never shorter than twice `host_timeout`. Until the first word
    /// of the host twice as long.
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

    /// Raises both patiences to what they are at least, and has players give snapshots.
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

/// Ticks that nobody is given up before.
const TIMEOUT_TICKS: u32 = 8;

/// Time before which nobody is given up: a few words of an election, which are repeated each 40 ms.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

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

/// What a [`HostedPeer`](crate::HostedPeer) tells the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedEvent {
    /// What a client is told; its end is told by [`Closed`](Self::Closed) instead.
    Client(ClientEvent),
    /// What a server is told, while we host.
    Server(ServerEvent),
    /// The host is gone, and those who stay choose another. Ticks that are closed come as ever.
    HostLost {
        /// Who hosted.
        host: Seat,
    },
    /// Those who stay have agreed on who hosts from `tick` on. Inputs that were submitted for it or
    /// a later one are taken back, and nothing more is said of them; what the player holds counts
    /// from the first tick on that the new host's clock stamps.
    Migrated {
        /// Who hosts; may be ourselves.
        host: Seat,
        /// Hosts and players lost so far, at most 15: the number of this view.
        epoch: u8,
        /// First tick that the new host closes.
        tick: Tick,
    },
    /// Those who stay have agreed that a player is out; its seat is absent, from a tick on that the
    /// turns show.
    Left {
        /// Who.
        seat: Seat,
        /// [`LeaveReason::Quit`] where it said so, else [`LeaveReason::Removed`]: it fell silent,
        /// or the host put it out.
        reason: LeaveReason,
    },
    /// We are out of the match. Nothing is told after it; the machine is driven on, to tell others,
    /// until [`poll_timeout`](crate::HostedPeer::poll_timeout) returns `None`.
    Closed(HostedClose),
}

/// Why a player's hosted match ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostedClose {
    /// Too few others can be heard: no more than half, and not half with the lowest seat among us;
    /// or the host cannot, for [`player_timeout`](crate::HostedConfig::player_timeout). Others may
    /// play on without us, whom we cannot hear.
    TooFew,
    /// The others play on without us.
    Excluded {
        /// First tick in which our history may not be theirs, as far as those who told us knew.
        tick: Tick,
    },
    /// We are to host, and cannot: closed ticks are lacking that nobody serves, or the configuration
    /// is not the one that the match was begun with. The others play on.
    Unserved,
    /// The host ended the match, or put us out.
    Out(CloseReason),
    /// The host's match is not one we can play.
    Refused(Refusal),
}

/// What a [`HostedPeer`](crate::HostedPeer) counted, beside what its client and server did; none of
/// it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedStats {
    /// Datagrams sent that only hosted matches have.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Times that another host took over, ourselves included.
    pub migrations: u64,
    /// Datagrams of closed ticks sent to one who is to host.
    pub forwards_sent: u64,
    /// Times that we hosted and closed no ticks, since too few others were heard.
    pub holds: u64,
    /// Datagrams dropped: not of this format.
    pub dropped_malformed: u64,
    /// Datagrams dropped: from nobody who plays, or from one who is given up.
    pub dropped_unknown_peer: u64,
    /// Datagrams dropped: a host's who is none any more, or none yet.
    pub dropped_stale: u64,
    /// Statements and decisions dropped: of another view, or no honest ones.
    pub dropped_view: u64,
    /// Events not told, since too many waited.
    pub events_lost: u64,
}

impl<I: Input> HostedPeer<I> {
    /// Makes the player of `seat`; `peers` are the driver's numbers for those on all other seats, to
    /// each of whom it has a session. [`u32::MAX`] is no such number.
    ///
    /// Ticks begin as [`HostedConfig::server`] says, or with whoever is there where the first host
    /// is gone before.
    ///
    /// # Errors
    ///
    /// [`HostedConfigError`] where no such match can be played.
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
        // Also on those who do not host yet: who could not host says so before the match.
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

/// One for each seat but `own`, where `peers` are just that.
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
