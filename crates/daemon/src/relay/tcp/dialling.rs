//! Connections to game servers.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use crypto::Ring;
use relay_mesh::Node;
use relay_mesh::tunnel::{ConnId, Refusal};
use wire::Instant;

use super::connection::{Connection, Stage};
use super::{Sockets, Way, count, listener};

impl Sockets {
    /// Begins to connect to a game server.
    pub(super) fn dial(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        conn: ConnId,
        server: SocketAddr,
    ) {
        if !self.has_place() && !self.end_oldest_wait(now, node) {
            return self.refuse(now, node, conn, Refusal::Crowded);
        }
        let from = self.upstream.filter(|ip| ip.is_ipv4() == server.is_ipv4());
        let from = from.map(|ip| SocketAddr::new(ip, 0));
        let added = listener::dial(server, from).and_then(|stream| {
            let deadline = Some(now + DIAL_MAX);
            self.add(Connection::new(stream, Stage::Dialling(conn), deadline))
        });
        match added {
            Ok(token) => {
                count(&mut self.stats.dialled);
                self.by_conn.insert(conn, token);
            }
            Err(error) => self.refuse(now, node, conn, refusal_of(&error)),
        }
    }

    /// Looks how a dial went.
    pub(super) fn on_dialling(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let Some(conn) = connection.conn() else {
            return;
        };
        let fault = match connection.stream.take_error() {
            Ok(None) => match connection.stream.peer_addr() {
                Ok(_) => None,
                // It goes on.
                Err(error) if error.kind() == ErrorKind::NotConnected => return,
                Err(error) => Some(error),
            },
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = fault {
            self.remove(token);
            return self.refuse(now, node, conn, refusal_of(&error));
        }
        let deadline = connection.deadline.take();
        connection.open(conn, Vec::new());
        self.forget_deadline(token, deadline);
        if node.tcp_dialled(now, conn, Ok(())).is_err() {
            self.remove(token);
            count(&mut self.stats.lost);
            return;
        }
        self.pass(now, node, conn, Way::ToSocket);
        self.pass(now, node, conn, Way::ToNode);
    }

    /// Gives up a dial.
    pub(super) fn on_dial_overdue(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        if let Some(conn) = self.remove(token).and_then(|dialling| dialling.conn()) {
            self.refuse(now, node, conn, Refusal::Slow);
        }
    }

    fn refuse(&mut self, now: Instant, node: &mut Node<Ring>, conn: ConnId, why: Refusal) {
        count(if why == Refusal::Crowded {
            &mut self.stats.dials_crowded
        } else if why == Refusal::Slow {
            &mut self.stats.dials_slow
        } else {
            &mut self.stats.dials_refused
        });
        // Nobody may wait for it any more.
        node.tcp_dialled(now, conn, Err(why)).ok();
    }
}

/// What a player is told of a dial that failed.
fn refusal_of(error: &io::Error) -> Refusal {
    // ENFILE and EMFILE of errno(3), for which there is no kind.
    if matches!(error.raw_os_error(), Some(23 | 24)) {
        return Refusal::Crowded;
    }
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    if is(&[ErrorKind::TimedOut]) {
        Refusal::Slow
    } else if is(&NOTHING_LEFT) {
        Refusal::Crowded
    } else {
        Refusal::Server
    }
}

/// No port is left, or no memory.
const NOTHING_LEFT: [ErrorKind; 3] = [
    ErrorKind::AddrInUse,
    ErrorKind::AddrNotAvailable,
    ErrorKind::OutOfMemory,
];
/// How long a game server may take to answer; the node waits 15 s for it.
const DIAL_MAX: Duration = Duration::from_secs(10);
