//! Connections to game servers.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use crypto::Ring;
use relay_mesh::Node;
use relay_mesh::tunnel::{ConnId, Refusal};
use wire::Instant;

use super::connection::{Connection, Stage};
use super::{TcpSockets, Transfer, count, listener};

impl TcpSockets {
    pub(super) fn dial(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        conn: ConnId,
        server: SocketAddr,
    ) {
        if !self.has_capacity() && !self.evict_oldest_pending(now, node) {
            return self.fail_dial(now, node, conn, Refusal::Crowded);
        }
        let from = self.upstream.filter(|ip| ip.is_ipv4() == server.is_ipv4());
        let from = from.map(|ip| SocketAddr::new(ip, 0));
        let added = listener::dial(server, from).and_then(|stream| {
            let deadline = Some(now + DIAL_TIMEOUT);
            self.add(Connection::new(stream, Stage::Dialling(conn), deadline))
        });
        match added {
            Ok(token) => {
                count(&mut self.stats.dialled);
                self.by_conn.insert(conn, token);
            }
            Err(error) => self.fail_dial(now, node, conn, refusal_of(&error)),
        }
    }

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
                // Still in progress.
                Err(error) if error.kind() == ErrorKind::NotConnected => return,
                Err(error) => Some(error),
            },
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = fault {
            self.remove(token);
            return self.fail_dial(now, node, conn, refusal_of(&error));
        }
        let deadline = connection.deadline.take();
        connection.open(conn, Vec::new());
        self.cancel_deadline(token, deadline);
        if node.tcp_dialled(now, conn, Ok(())).is_err() {
            self.remove(token);
            count(&mut self.stats.lost);
            return;
        }
        self.transfer(now, node, conn, Transfer::ToSocket);
        self.transfer(now, node, conn, Transfer::ToNode);
    }

    pub(super) fn on_dial_timeout(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        if let Some(conn) = self.remove(token).and_then(|dialling| dialling.conn()) {
            self.fail_dial(now, node, conn, Refusal::Slow);
        }
    }

    fn fail_dial(&mut self, now: Instant, node: &mut Node<Ring>, conn: ConnId, why: Refusal) {
        count(if why == Refusal::Crowded {
            &mut self.stats.dials_crowded
        } else if why == Refusal::Slow {
            &mut self.stats.dials_slow
        } else {
            &mut self.stats.dials_refused
        });
        // The node may have dropped the connection already.
        node.tcp_dialled(now, conn, Err(why)).ok();
    }
}

/// The reason that the player's side is given.
fn refusal_of(error: &io::Error) -> Refusal {
    // ENFILE and EMFILE of errno(3); std has no kind for them.
    if matches!(error.raw_os_error(), Some(23 | 24)) {
        return Refusal::Crowded;
    }
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    if is(&[ErrorKind::TimedOut]) {
        Refusal::Slow
    } else if is(&EXHAUSTED_KINDS) {
        Refusal::Crowded
    } else {
        Refusal::Server
    }
}

const EXHAUSTED_KINDS: [ErrorKind; 3] = [
    ErrorKind::AddrInUse,
    ErrorKind::AddrNotAvailable,
    ErrorKind::OutOfMemory,
];
/// Time to connect to a game server; the node waits 15 s.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
