//! A player of `match_server`; its arguments are the address and the key that the server printed.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most events do not matter here"
)]

use std::error::Error;
use tickwire::crypto::{Provider, Ring};
use tickwire::lockstep::{ClientConfig, ClientPeer, LeaveReason, PeerId, StateHasher};
use tickwire::servicer::Clock;
use tickwire::wire::Arrival;
use tickwire::{AppId, Client, Event, HZ_128, UNRELIABLE};

/// Ticks of a match: five seconds at the default 60 Hz.
const TICKS: u32 = 300;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(key)) = (arguments.next(), arguments.next()) else {
        return Err("expected two arguments: the server's address and its key".into());
    };
    let mut connection = Client::connect(address, AppId(2), key.parse()?)?;

    let (clock, server) = (Clock::new(), PeerId(0));
    let seed = Ring::new().random_seed()?;
    let mut player = ClientPeer::<u16>::new(ClientConfig::default(), server, seed, clock.now());
    // The game: a player scores in each tick in which its button is down.
    let (mut points, mut played, mut datagram) = ([0_u32; 2], 0, Vec::new());
    loop {
        for event in connection.wait_tick(HZ_128)? {
            match event {
                Event::Message { mut bytes, .. } => {
                    player.handle_datagram(clock.now(), Arrival::from(server), &mut bytes);
                }
                Event::Unreachable { failure } => return Err(failure.to_string().into()),
                Event::Disconnected { .. } if played == TICKS => {
                    println!("{} : {}", points[0], points[1]);
                    return Ok(());
                }
                Event::Disconnected { reason, .. } => return Err(reason.to_string().into()),
                _ => {}
            }
        }
        let now = clock.now();
        player.handle_timeout(now);
        // Read the player's controls here. Fails before the match begins and after it ends.
        let buttons = 1;
        player.submit(now, &buttons).ok();
        while played < TICKS
            && let Some(turn) = player.poll_turn(now)
        {
            for (seat, buttons, _) in turn.inputs() {
                if let Some(points) = points.get_mut(usize::from(seat.0)) {
                    *points += u32::from(buttons & 1);
                }
            }
            let tick = turn.tick();
            played = tick.0 + 1;
            // The server compares the hashes of all players.
            let mut hasher = StateHasher::new(player.match_id().ok_or("no match")?);
            for points in points {
                hasher.u32(points);
            }
            player.report_state(tick, &hasher)?;
            if played == TICKS {
                player.leave(now, LeaveReason::Finished);
            }
        }
        while player.poll_transmit(now, &mut datagram).is_some() {
            // Fails until the session is open. A lost or refused datagram is repaired.
            connection.send(UNRELIABLE, &datagram).ok();
            datagram.clear();
        }
    }
}
