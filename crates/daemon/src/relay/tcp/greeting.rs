//! Players who come, and proxies that say whom they come for.

use std::io;
use std::net::SocketAddr;

use crypto::Ring;
use mio::net::TcpStream;
use relay_mesh::tunnel::{BadGreeting, Greeted, Greeting};
use relay_mesh::{Node, TcpPort};
use wire::Instant;
use wire::address::canonical;

use super::Sockets;
use super::connection::{Connection, Stage, Taken};
use super::door;
use super::stats::count;

impl Sockets {
    /// Takes a connection from a door.
    pub(super) fn welcome(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        port: TcpPort,
        (stream, peer): (TcpStream, SocketAddr),
    ) {
        let Ok(local) = set_up(&stream) else {
            // It is gone already.
            count(&mut self.stats.broken);
            return;
        };
        let game = node.tcp_game(port).unwrap_or_default();
        let Some(trusted) = self.setup.proxies.get(game) else {
            let connection = Connection::new(stream, Stage::Coming, None);
            self.admit_unnamed(now, node, (connection, port), (peer, local));
            return;
        };
        if !trusted.is_trusted(peer.ip()) {
            let connection = Connection::new(stream, Stage::Coming, None).screened(port);
            self.admit_unnamed(now, node, (connection, port), (peer, local));
            return;
        }
        let greeting = Greeting::new(trusted, (peer, local), now);
        let deadline = greeting.deadline();
        let game = game.to_owned();
        let stage = Stage::Greeting {
            port,
            game,
            greeting: Box::new(greeting),
        };
        if let Ok(token) = self.add(Connection::new(stream, stage, Some(deadline))) {
            self.greetings.insert(token);
            self.on_greeting(now, node, token);
        } else {
            count(&mut self.stats.accept_errors);
        }
    }

    /// Lets a player in who comes by himself.
    fn admit_unnamed(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        (connection, port): (Connection, TcpPort),
        ends: (SocketAddr, SocketAddr),
    ) {
        if let Ok(token) = self.add(connection) {
            self.admit(now, node, (token, port), (ends, Vec::new()));
        } else {
            count(&mut self.stats.accept_errors);
        }
    }

    /// Resets the proxy's connection that has waited longest for its header, to make room; returns whether there was
    /// one. A header comes with the first segment, so one without has nothing to lose.
    pub(super) fn evict_greeting(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        let Some(token) = self.greetings.first().copied() else {
            return false;
        };
        if let Some(connection) = self.remove(token)
            && let Stage::Greeting { port, .. } = connection.stage
        {
            count(&mut self.stats.greetings_evicted);
            node.tcp_greeting_refused(now, port);
        }
        true
    }

    /// Reads on whom a connection is for.
    pub(super) fn on_greeting(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(&token) else {
                return;
            };
            let taken = connection.read(&mut self.room);
            let Stage::Greeting { game, greeting, .. } = &mut connection.stage else {
                return;
            };
            let Some(trusted) = self.setup.proxies.get(game) else {
                return;
            };
            let told = match taken {
                Taken::Nothing => return,
                Taken::Broken => {
                    self.on_broken(node, token);
                    return;
                }
                Taken::Bytes(len) => {
                    let bytes = self.room.get(..len).unwrap_or_default();
                    greeting.take(trusted, bytes)
                }
                // Nothing more comes: as after the deadline.
                Taken::End => greeting.give_up(trusted).map(Some),
            };
            let told = match told {
                Ok(None) => continue,
                Ok(Some(greeted)) => Ok(greeted),
                Err(bad) => Err(bad),
            };
            self.greet(now, node, token, told);
            return;
        }
    }

    /// Goes on with a connection that did not say in time whom it is for.
    pub(super) fn on_greeting_overdue(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        token: usize,
    ) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let Stage::Greeting { game, greeting, .. } = &mut connection.stage else {
            return;
        };
        if let Some(trusted) = self.setup.proxies.get(game) {
            let told = greeting.give_up(trusted);
            self.greet(now, node, token, told);
        }
    }

    fn greet(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        token: usize,
        told: Result<Greeted, BadGreeting>,
    ) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let Stage::Greeting { port, .. } = &connection.stage else {
            return;
        };
        let port = *port;
        let deadline = connection.deadline.take();
        self.forget_deadline(token, deadline);
        self.greetings.remove(&token);
        if let Ok(greeted) = told {
            let ends = (greeted.player, greeted.listen);
            self.admit(now, node, (token, port), (ends, greeted.rest));
        } else {
            count(&mut self.stats.bad_greetings);
            node.tcp_greeting_refused(now, port);
            self.remove(token);
        }
    }
}

/// Returns the address that the player has reached.
fn set_up(stream: &TcpStream) -> io::Result<SocketAddr> {
    door::set_up(stream)?;
    stream.local_addr().map(canonical)
}
