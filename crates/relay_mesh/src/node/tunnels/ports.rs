//! The TCP ports of games, which the driver opens.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use wire::Instant;

use crate::game::Game;
use crate::node::entry::{LISTEN_AGAIN, is_dual};
use crate::tcp::{TcpPort, TcpWork};

#[derive(Debug, Default)]
pub(super) struct Ports {
    by_number: BTreeMap<TcpPort, Port>,
    /// The number of the next port; none is used twice.
    next: u32,
}

#[derive(Debug)]
struct Port {
    /// Name of the game.
    game: String,
    /// Where the driver listens.
    address: SocketAddr,
    state: PortState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortState {
    /// Not open; to be opened at this time.
    Closed(Instant),
    /// The driver was asked to open it.
    Opening,
    Open,
}

impl Ports {
    /// Name of a port's game.
    pub(super) fn game(&self, port: TcpPort) -> Option<&str> {
        self.by_number.get(&port).map(|port| port.game.as_str())
    }

    /// Adds the ports of `games` and closes all others.
    pub(super) fn set_games(&mut self, now: Instant, games: &[Game], work: &mut VecDeque<TcpWork>) {
        self.by_number.retain(|&port, of| {
            let game = games.iter().find(|game| game.name == of.game);
            let entry = game.and_then(|game| game.entry.as_ref());
            let is_wanted = entry.is_some_and(|entry| entry.listen.contains(&of.address));
            if !is_wanted {
                work.push_back(TcpWork::Unlisten { port });
            }
            is_wanted
        });
        for game in games {
            for &address in game.entry.iter().flat_map(|entry| &entry.listen) {
                let is_it = |port: &Port| port.game == game.name && port.address == address;
                if self.by_number.values().any(is_it) {
                    continue;
                }
                let port = Port {
                    game: game.name.clone(),
                    address,
                    state: PortState::Closed(now),
                };
                self.by_number.insert(TcpPort(self.next), port);
                self.next = self.next.saturating_add(1);
            }
        }
    }

    /// Makes the driver close and reopen all ports, since it may have closed some itself.
    pub(super) fn reopen(&mut self, now: Instant, work: &mut VecDeque<TcpWork>) {
        for (&port, of) in &mut self.by_number {
            if !matches!(of.state, PortState::Closed(_)) {
                work.push_back(TcpWork::Unlisten { port });
                of.state = PortState::Closed(now);
            }
        }
        self.open_due(now, work);
    }

    /// Makes the driver open the ports that are due.
    pub(super) fn open_due(&mut self, now: Instant, work: &mut VecDeque<TcpWork>) {
        let ports = self.by_number.values();
        let used: Vec<SocketAddr> = ports.map(|port| port.address).collect();
        for (&port, of) in &mut self.by_number {
            if matches!(of.state, PortState::Closed(due) if due <= now) {
                of.state = PortState::Opening;
                work.push_back(TcpWork::Listen {
                    port,
                    address: of.address,
                    is_dual: is_dual(of.address, &used),
                });
            }
        }
    }

    /// Records whether the driver could open a port; returns the port's game and address.
    pub(super) fn on_listening(
        &mut self,
        now: Instant,
        port: TcpPort,
        is_open: Result<(), ()>,
    ) -> Option<(String, SocketAddr)> {
        let port = self.by_number.get_mut(&port)?;
        port.state = match is_open {
            Ok(()) => PortState::Open,
            Err(()) => PortState::Closed(now + LISTEN_AGAIN),
        };
        Some((port.game.clone(), port.address))
    }
}
