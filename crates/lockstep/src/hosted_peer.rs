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
//!   `patience`. Whoever is in another group's view does not; so the host that is in none of the
//!   later ones stands still, at most `patience` after the last of them turned away.
//! - Until then it may close ticks that nobody who stays holds, and those who still heard it alone
//!   may have simulated them. They are out, and are told up to where their history is the others'.
//!
//! A hostile player can make all choose another host, and end the match for itself and others; as
//! host it can do what a hostile server can; and what it passes on to a next host may be forged,
//! which the compared state hashes show, since they are over the inputs too.

mod config;
mod electing;
mod event;
mod hosting;
mod link;
mod machine;
mod playing;
mod receiving;
mod sending;
mod setup;

use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant, MatchId, Seat};

use crate::bundle::Shape;
use crate::client_peer::ClientPeer;
use crate::event::Phase;
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::message::{Seats, Ticks, bit};
use crate::tick::{PeerId, Tick};
use crate::view::View;

pub use config::{HostedConfig, HostedConfigError};
pub use event::{HostedClose, HostedEvent, HostedStats};

use link::Link;
use sending::Due;

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
    /// Whether the host was not heard for longer than `patience`.
    is_doubtful: bool,
    /// When to say again that we are there, and to look who is.
    beat_at: Instant,
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
    Taking {
        /// When we began, or had all that is closed.
        since: Instant,
        /// When we last got a tick that we lacked.
        fetched_at: Instant,
        next: Tick,
    },
    /// The others play on without us, as one of them said; they say up to where we shared.
    Ousted { until: Instant },
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
            Self::Taking {
                since, fetched_at, ..
            } => {
                *since += span;
                *fetched_at += span;
            }
            Self::Ousted { until } => *until += span,
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
            | State::Taking { .. }
            | State::Ousted { .. }
                if self.client.ticks_confirmed() > 0 =>
            {
                Phase::Running
            }
            State::Playing
            | State::Electing { .. }
            | State::Taking { .. }
            | State::Ousted { .. } => self.client.phase(),
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
        if passed > self.config.half_patience() {
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
    fn those(&self, seats: Seats, is_so: impl Fn(&Link) -> bool) -> Seats {
        let links = self.links.iter().zip(0..);
        links.fold(0, |all, (link, seat)| match link {
            Some(link) if seats & bit(seat) != 0 && is_so(link) => all | bit(seat),
            Some(_) | None => all,
        })
    }

    /// After our end nothing is told.
    fn tell(&mut self, event: HostedEvent) {
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
