//! How a player of a hosted match begins.

use std::collections::VecDeque;

use wire::{Instant, MatchId, Seat, Seed};

use super::link::Link;
use super::sending::Due;
use super::{EVENTS_MAX, HostedConfig, HostedConfigError, HostedPeer, HostedStats, SELF, State};
use crate::bundle::Shape;
use crate::client_peer::ClientPeer;
use crate::config::StartPolicy;
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::message::{MESH_SEATS_MAX, Ticks};
use crate::tick::PeerId;
use crate::view::View;

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
            is_doubtful: false,
            beat_at: now,
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
