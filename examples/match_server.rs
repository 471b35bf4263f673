//! A lockstep match of two players over encrypted UDP: the server.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most events do not matter here"
)]

use std::error::Error;
use tickwire::crypto::{Provider, Ring};
use tickwire::lockstep::{Config, MatchServer, PeerId, ServerEvent};
use tickwire::servicer::Clock;
use tickwire::wire::{Arrival, MatchId, Seat};
use tickwire::{AppId, Event, HZ_128, Server, SessionId, UNRELIABLE};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("0.0.0.0:7777").parse()?;
    let mut server = Server::bind(address, AppId(2))?;
    println!("{} {}", server.address(), server.key());

    let clock = Clock::new();
    let mut config = Config::default();
    config.seats = 2;
    let seed = Ring::new().random_seed()?;
    let mut ticks = MatchServer::<u16>::new(config, MatchId([1; 16]), seed, clock.now())?;
    // The first two sessions play. A session's place here is its seat and its peer id.
    let mut players: Vec<SessionId> = Vec::new();
    let (mut playing, mut datagram) = (0, Vec::new());
    loop {
        for event in server.wait_tick(HZ_128)? {
            let now = clock.now();
            match event {
                Event::Connected { session, .. } => {
                    let seat = u16::try_from(players.len())?;
                    if ticks.join(now, PeerId(seat.into()), Seat(seat)).is_ok() {
                        players.push(session);
                        playing += 1;
                    } else {
                        server.disconnect(session).ok();
                    }
                }
                Event::Message {
                    session, mut bytes, ..
                } => {
                    if let Some(peer) = peer_of(&players, session) {
                        ticks.handle_datagram(now, Arrival::from(peer), &mut bytes);
                    }
                }
                Event::Disconnected { session, .. } => {
                    if let Some(peer) = peer_of(&players, session) {
                        ticks.leave(now, peer);
                    }
                }
                _ => {}
            }
        }
        let now = clock.now();
        ticks.handle_timeout(now);
        // This server does not simulate; it only closes ticks.
        while ticks.poll_turn().is_some() {}
        while let Some(transmit) = ticks.poll_transmit(now, &mut datagram) {
            if let Some(session) = players.get(usize::try_from(transmit.destination.0)?) {
                // Fails if the session has ended, which an event reports.
                server.send(*session, UNRELIABLE, &datagram).ok();
            }
            datagram.clear();
        }
        while let Some(event) = ticks.poll_event() {
            match event {
                ServerEvent::Left { seat, reason, .. } => {
                    println!("player {} left: {reason:?}", seat.0);
                    playing -= 1;
                }
                ServerEvent::Desync { tick, seats, .. } => {
                    println!("players {seats:?} differ from tick {} on", tick.0);
                }
                _ => {}
            }
        }
        if playing == 0 && players.len() == 2 {
            // The match is over: end the sessions, and send what that takes.
            server.shutdown();
            while server.sessions().next().is_some() {
                server.wait_tick(HZ_128)?;
            }
            return Ok(());
        }
    }
}

fn peer_of(players: &[SessionId], session: SessionId) -> Option<PeerId> {
    let place = players.iter().position(|player| *player == session)?;
    u32::try_from(place).ok().map(PeerId)
}
