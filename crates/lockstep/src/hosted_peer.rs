//! A player of a match that one of the players hosts, and that survives its host.
//!
//! All peers have sessions with each other. One runs the server next to its own client. When it is
//! gone, the remaining players agree on that by [`View`], and the lowest of their seats becomes
//! host. A view only ever loses members, so the host's seat identifies its term.
//!
//! Why confirmed ticks never change, and a match never splits in two:
//!
//! - A player that suspects the host accepts nothing more from it, and states how many closed ticks
//!   it holds. The next host fetches ticks that it lacks, and starts after the largest stated tick.
//! - Players that do not receive the host announce that first, and suspect it only if they are
//!   enough for a view. So a player with a bad link rejoins the others later.
//! - Any two views share a member ([`View`] explains why at most one of them can decide further). A
//!   host closes ticks only while a quorum of its view has addressed it as host within
//!   `host_timeout`. So a host left out of all later views pauses at most `host_timeout` after the
//!   last of them left it.
//! - Until then it may close ticks that no remaining player holds. Players that simulate them are
//!   out, and learn up to which tick they share the others' history.
//!
//! A hostile player can force a change of hosts, and end the match for itself and others. As host
//! it can do what a hostile server can. If it forges ticks that it forwards to a next host, the
//! comparison of state hashes, which cover inputs, reveals that.

mod config;
mod machine;
mod succession;

use core::time::Duration;
use std::collections::VecDeque;

use wire::{Generator, Instant, MatchId, Seat, Seed};

use crate::bundle::Shape;
use crate::checksum::StateHasher;
use crate::client_peer::ClientPeer;
use crate::config::StartPolicy;
use crate::event::{
    CloseReason, JoinError, LeaveReason, Phase, ReportError, SnapshotError, SubmitError,
};
use crate::input::{Input, Turn};
use crate::match_server::MatchServer;
use crate::message::{MESH_SEATS_MAX, Seats, Ticks, bit, seats_in};
use crate::repeat::LEAVE_COPIES;
use crate::sim::{Step, Steps};
use crate::tick::{PeerId, Tick};
use crate::view::View;
use machine::Due;
use succession::Link;

pub use config::{HostedClose, HostedConfig, HostedConfigError, HostedEvent, HostedStats};

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
    shape: Shape,
    seat: Seat,
    generator: Generator,
    state: State,
    /// The other players, by seat; `None` for our own. Removed players are kept, to notify them.
    links: Vec<Option<Link>>,
    view: View,
    host: Seat,
    /// By seat, for removed players: first tick of a host after theirs.
    cuts: Ticks,
    client: ClientPeer<I>,
    server: Option<Box<MatchServer<I>>>,
    /// Whether the server is paused for lack of a quorum.
    is_held: bool,
    /// Whether the host was silent for longer than `host_timeout`.
    host_suspected: bool,
    heartbeat_at: Instant,
    due: Due,
    events: VecDeque<HostedEvent>,
    stats: HostedStats,
    now: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Playing,
    Electing {
        since: Instant,
    },
    /// We are to host from `next` on, and fetch ticks or gather players.
    TakingOver {
        /// When this began, or when we held all closed ticks.
        since: Instant,
        /// When we last received a missing tick.
        fetched_at: Instant,
        next: Tick,
    },
    /// The others play on without us, as one of them stated; waits to learn up to where we agree.
    Evicted {
        until: Instant,
    },
    Leaving {
        copies: u8,
        at: Instant,
    },
    /// The match is over; peers that do not know it are notified.
    Ending {
        until: Instant,
    },
    Closed,
}

impl State {
    /// Moves all deadlines by `span`, during which the process was paused.
    fn extend_by(&mut self, span: Duration) {
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
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Returns the current or last host.
    pub const fn host(&self) -> Seat {
        self.host
    }

    /// Returns the number of earlier views; each change removes a host or players.
    pub const fn epoch(&self) -> u8 {
        self.view.epoch
    }

    /// Returns the members, ourselves included, in seat order.
    pub fn members(&self) -> impl Iterator<Item = Seat> + use<I> {
        seats_in(self.view.members)
    }

    /// Returns the machine's own counters.
    pub const fn stats(&self) -> &HostedStats {
        &self.stats
    }

    /// Returns our client.
    pub const fn client(&self) -> &ClientPeer<I> {
        &self.client
    }

    /// Returns our server, while we host.
    pub fn server(&self) -> Option<&MatchServer<I>> {
        self.server.as_deref()
    }

    /// Returns the heap bytes in use, accurate to about one allocation.
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

    /// After a pause of the process, silence and waiting do not count.
    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        let passed = now.saturating_since(self.now);
        if passed > self.config.half_timeout() {
            for link in self.links.iter_mut().flatten() {
                link.on_resumed(now);
            }
            self.state.extend_by(passed);
        }
        self.now = self.now.max(now);
        self.now
    }

    fn is_host(&self) -> bool {
        self.host == self.seat
    }

    fn others(&self) -> Seats {
        self.view.others()
    }

    fn link(&self, seat: u16) -> Option<&Link> {
        self.links.get(usize::from(seat))?.as_ref()
    }

    fn link_mut(&mut self, seat: u16) -> Option<&mut Link> {
        self.links.get_mut(usize::from(seat))?.as_mut()
    }

    fn filter_seats(&self, seats: Seats, is_so: impl Fn(&Link) -> bool) -> Seats {
        let links = self.links.iter().zip(0..);
        links.fold(0, |all, (link, seat)| match link {
            Some(link) if seats & bit(seat) != 0 && is_so(link) => all | bit(seat),
            Some(_) | None => all,
        })
    }

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

    fn close(&mut self, why: HostedClose) {
        if self.is_over() {
            return;
        }
        self.state = State::Closed;
        self.server = None;
        self.due = Due::default();
        self.events.push_back(HostedEvent::Closed(why));
    }
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
        // Also on other players, so that a bad configuration is found early.
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

impl<I: Input> HostedPeer<I> {
    /// Takes the player's current input, and returns the tick it is for, as
    /// [`ClientPeer::submit`](crate::ClientPeer::submit). A host that takes over revokes promises
    /// for its ticks ([`HostedEvent::Migrated`]).
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. While no host closes ticks, and before the match begins, the input is kept
    /// for the first tick that the next host's clock stamps.
    pub fn submit(&mut self, now: Instant, input: &I) -> Result<Tick, SubmitError> {
        let now = self.advance(now);
        if self.is_over() {
            return Err(SubmitError::Closed);
        }
        self.client.submit(now, input)
    }

    /// Returns the next turn, as [`ClientPeer::poll_turn`](crate::ClientPeer::poll_turn).
    pub fn poll_turn(&mut self, now: Instant) -> Option<Turn<'_, I>> {
        let now = self.advance(now);
        self.client.poll_turn(now)
    }

    /// Returns when the next turn is due, if it has arrived.
    pub fn next_turn_at(&self) -> Option<Instant> {
        self.client.next_turn_at()
    }

    /// Returns the game's next step, as [`ClientPeer::next_step`](crate::ClientPeer::next_step).
    pub fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        let now = self.advance(now);
        self.client.next_step(now)
    }

    /// Takes the state hash after the turn returned last.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        self.client.report(tick, state_hash)
    }

    /// Takes the hash of the state after the turn returned last, with its sections.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.client.report_state(tick, state)
    }

    /// Takes the state announced by [`ClientEvent::Snapshot`](crate::ClientEvent::Snapshot); `None`
    /// if none is waiting.
    pub const fn take_snapshot(&mut self) -> Option<Vec<u8>> {
        self.client.take_snapshot()
    }

    /// Gives the state after the turn returned last, on
    /// [`ClientEvent::SnapshotWanted`](crate::ClientEvent::SnapshotWanted).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        self.client.offer_snapshot(now, state)
    }

    /// Gives a saved final state, as [`ClientPeer::offer_save`](crate::ClientPeer::offer_save).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_save(
        &mut self,
        now: Instant,
        tick: Tick,
        state: &[u8],
    ) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        self.client.offer_save(now, tick, state)
    }

    /// While we host: seats a guest, which is none of the players, in place of a removed player, as
    /// [`MatchServer::join`](crate::MatchServer::join). The guest runs a plain
    /// [`ClientPeer`](crate::ClientPeer), takes no part in elections, and must join the next host
    /// again.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn join(&mut self, now: Instant, peer: PeerId, seat: Seat) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.join(now, peer, seat)
    }

    /// While we host: admits a spectator, as [`MatchServer::watch`](crate::MatchServer::watch). It
    /// must join the next host again.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.watch(now, peer)
    }

    /// While we host: admits a [`SpectatorRelay`](crate::SpectatorRelay), as
    /// [`MatchServer::watch_as_relay`](crate::MatchServer::watch_as_relay). It must join the next
    /// host again.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch_as_relay(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.watch_as_relay(now, peer)
    }

    /// While we host: removes a peer admitted by [`join`](Self::join), [`watch`](Self::watch) or
    /// [`watch_as_relay`](Self::watch_as_relay), or lost by the transport. Players, which are
    /// removed by [`remove`](Self::remove), and unknown peers are ignored.
    pub fn kick(&mut self, now: Instant, peer: PeerId) {
        let now = self.advance(now);
        if let Ok(server) = self.server_for(peer) {
            server.kick(now, peer);
            if !self.is_over() {
                self.resume_if_quorum(now);
            }
        }
    }

    /// The server, to admit `peer` as a guest, which is no player.
    fn server_for(&mut self, peer: PeerId) -> Result<&mut MatchServer<I>, JoinError> {
        let is_players = Self::is_own(peer) || self.seat_of(peer).is_some();
        let server = self.server.as_deref_mut().ok_or(JoinError::NotHost)?;
        if is_players {
            Err(JoinError::PeerTaken)
        } else {
            Ok(server)
        }
    }

    /// Leaves the match, and notifies the others a few times: they play on, and replace us at once
    /// if we host.
    pub fn leave(&mut self, now: Instant, reason: LeaveReason) {
        let now = self.advance(now);
        if self.is_over() {
            return;
        }
        self.due = Due::default();
        self.server = None;
        self.client.leave(now, reason);
        self.repeat_leave(now, LEAVE_COPIES, now);
    }

    /// Removes the player of `seat`, as after a silence, because the transport lost it or it is
    /// kicked. If it hosts, the others must agree. Our own seat and removed players are ignored.
    pub fn remove(&mut self, now: Instant, seat: Seat) {
        let now = self.advance(now);
        let is_playing = matches!(self.state, State::Playing | State::TakingOver { .. });
        if !is_playing {
            return;
        }
        if self.is_host() {
            self.suspect(now, bit(seat.0));
        } else if seat == self.host && !self.host_suspected {
            self.host_suspected = true;
            self.heartbeat_at = now;
        }
    }

    /// While we host: ends the match for all. Others are notified for some time.
    pub fn finish(&mut self, now: Instant) {
        let now = self.advance(now);
        let Some(server) = self.server.as_mut() else {
            return;
        };
        if !matches!(self.state, State::Playing | State::TakingOver { .. }) {
            return;
        }
        server.close(now);
        self.is_held = false;
        self.due = Due::default();
        self.state = State::Ending {
            until: now + self.config.host_timeout.saturating_mul(2),
        };
        let ended = HostedClose::Out(CloseReason::Ended);
        self.events.push_back(HostedEvent::Closed(ended));
    }

    /// Returns the match.
    pub const fn match_id(&self) -> MatchId {
        self.match_id
    }

    /// Returns the first tick that has not arrived; all before it have.
    pub fn ticks_confirmed(&self) -> u32 {
        self.client.ticks_confirmed()
    }

    /// Returns the hash over all returned turns; equal logs have equal hashes on all participants.
    pub fn log_hash(&self) -> Option<u64> {
        self.client.log_hash()
    }

    const fn is_over(&self) -> bool {
        matches!(
            self.state,
            State::Leaving { .. } | State::Ending { .. } | State::Closed
        )
    }
}

impl<I: Input> Steps for HostedPeer<I> {
    type Input = I;

    fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        self.next_step(now)
    }

    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.report_state(tick, state)
    }

    fn wants_hash(&self, tick: Tick) -> bool {
        self.client.wants_hash(tick)
    }

    fn match_id(&self) -> Option<MatchId> {
        Some(self.match_id)
    }

    fn window(&self) -> u8 {
        Steps::window(&self.client)
    }

    fn set_costs(&mut self, save: Duration, step: Duration) {
        self.client.set_costs(save, step);
    }
}
