//! Connections until they are open: dials of game servers, and PROXY headers of accepted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crypto::Ring;
use mio::net::TcpStream;
use relay_mesh::tunnel::{ConnId, InboundConn, InboundHeader, InboundHeaderError, Refusal};
use relay_mesh::{Node, TcpPort};
use servicer::tcp::socket;
use wire::Instant;
use wire::address::canonical;

use super::connection::{Connection, ReadResult, SocketState};
use super::{AcceptedStream, TcpSockets, Transfer, count, listener};

impl TcpSockets {
    pub(super) fn dial(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        conn: ConnId,
        server: SocketAddr,
    ) {
        if !self.has_capacity() && !self.evict_oldest_pending(now, node) {
            return self.fail_dial(now, node, conn, Refusal::LimitReached);
        }
        let from = self.upstream.filter(|ip| ip.is_ipv4() == server.is_ipv4());
        let from = from.map(|ip| SocketAddr::new(ip, 0));
        let added = listener::dial(server, from).and_then(|stream| {
            let deadline = Some(now + DIAL_TIMEOUT);
            self.add(Connection::new(
                stream,
                SocketState::Dialling(conn),
                deadline,
            ))
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
        match socket::is_connected(&connection.stream) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                self.remove(token);
                return self.fail_dial(now, node, conn, refusal_of(&error));
            }
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
        count(if why == Refusal::LimitReached {
            &mut self.stats.dials_limited
        } else if why == Refusal::Slow {
            &mut self.stats.dials_slow
        } else {
            &mut self.stats.dials_refused
        });
        // The node may have dropped the connection already.
        node.tcp_dialled(now, conn, Err(why)).ok();
    }
}

fn refusal_of(error: &io::Error) -> Refusal {
    // ENFILE and EMFILE of errno(3); std has no kind for them.
    if matches!(error.raw_os_error(), Some(23 | 24)) {
        return Refusal::LimitReached;
    }
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    if is(&[ErrorKind::TimedOut]) {
        Refusal::Slow
    } else if is(&EXHAUSTED_KINDS) {
        Refusal::LimitReached
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

impl TcpSockets {
    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        accepted: AcceptedStream,
    ) {
        let AcceptedStream { port, stream, peer } = accepted;
        let Ok(local) = configure(&stream) else {
            // Already closed by the peer.
            count(&mut self.stats.broken);
            return;
        };
        let game = node.tcp_game(port).unwrap_or_default();
        let proxies = self.setup.proxies.get(game);
        let is_proxy = proxies.is_some_and(|trusted| trusted.is_trusted(peer.ip()));
        if !is_proxy {
            let mut connection = Connection::new(stream, SocketState::Accepted, None);
            connection.guarded_port = proxies.is_some().then_some(port);
            if let Ok(token) = self.add(connection) {
                self.admit(now, node, (token, port), ((peer, local), Vec::new()));
            } else {
                count(&mut self.stats.accept_errors);
            }
            return;
        }
        let inbound_header = InboundHeader::new((peer, local), now);
        let proxy = peer.ip();
        let deadline = inbound_header.deadline();
        let game = game.to_owned();
        let stage = SocketState::ProxyHeader {
            port,
            game,
            inbound_header: Box::new(inbound_header),
            proxy,
        };
        if let Some(oldest) = self
            .pending_headers
            .oldest_of(proxy, self.setup.pending_headers_max())
        {
            self.evict_pending(now, node, oldest);
        }
        if let Ok(token) = self.add(Connection::new(stream, stage, Some(deadline))) {
            self.pending_headers.add(token, proxy);
            self.on_header_bytes(now, node, token);
        } else {
            count(&mut self.stats.accept_errors);
        }
    }

    /// Resets the oldest connection that waits for its header; returns whether there was one.
    pub(super) fn evict_oldest_pending(&mut self, now: Instant, node: &mut Node<Ring>) -> bool {
        let oldest = self.pending_headers.oldest();
        if let Some(token) = oldest {
            self.evict_pending(now, node, token);
        }
        oldest.is_some()
    }

    /// Resets a connection that waits for its header, to free its slot.
    fn evict_pending(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        if let Some(connection) = self.remove(token)
            && let SocketState::ProxyHeader { port, .. } = connection.stage
        {
            count(&mut self.stats.headers_evicted);
            node.tcp_header_refused(now, port);
        }
    }

    /// Resets a player's connection that began with a PROXY header.
    pub(super) fn reject_header(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        (token, port): (usize, TcpPort),
    ) {
        count(&mut self.stats.invalid_headers);
        node.tcp_header_refused(now, port);
        if let Some(conn) = self.remove(token).and_then(|connection| connection.conn()) {
            node.tcp_reset(conn);
        }
    }

    pub(super) fn on_header_bytes(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(&token) else {
                return;
            };
            let taken = connection.read(&mut self.read_buffer);
            let SocketState::ProxyHeader {
                game,
                inbound_header,
                ..
            } = &mut connection.stage
            else {
                return;
            };
            let Some(trusted) = self.setup.proxies.get(game) else {
                return;
            };
            let outcome = match taken {
                ReadResult::WouldBlock => return,
                ReadResult::Broken => {
                    self.on_broken(node, token);
                    return;
                }
                ReadResult::Bytes(len) => {
                    let bytes = self.read_buffer.get(..len).unwrap_or_default();
                    inbound_header.take(trusted, bytes)
                }
                // The same as after the timeout.
                ReadResult::Eof => inbound_header.on_timeout(trusted).map(Some),
            };
            if let Some(outcome) = outcome.transpose() {
                self.finish_header(now, node, token, outcome);
                return;
            }
        }
    }

    pub(super) fn on_header_timeout(&mut self, now: Instant, node: &mut Node<Ring>, token: usize) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let SocketState::ProxyHeader {
            game,
            inbound_header,
            ..
        } = &mut connection.stage
        else {
            return;
        };
        if let Some(trusted) = self.setup.proxies.get(game) {
            let outcome = inbound_header.on_timeout(trusted);
            self.finish_header(now, node, token, outcome);
        }
    }

    fn finish_header(
        &mut self,
        now: Instant,
        node: &mut Node<Ring>,
        token: usize,
        outcome: Result<InboundConn, InboundHeaderError>,
    ) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let SocketState::ProxyHeader { port, proxy, .. } = connection.stage else {
            return;
        };
        let deadline = connection.deadline.take();
        self.cancel_deadline(token, deadline);
        self.pending_headers.remove(token, proxy);
        if let Ok(inbound) = outcome {
            let ends = (inbound.player, inbound.listen);
            self.admit(now, node, (token, port), (ends, inbound.rest));
        } else {
            count(&mut self.stats.invalid_headers);
            node.tcp_header_refused(now, port);
            self.remove(token);
        }
    }
}

/// Configures the socket; returns the local address.
fn configure(stream: &TcpStream) -> io::Result<SocketAddr> {
    listener::configure(stream)?;
    stream.local_addr().map(canonical)
}

/// Connections that wait for their header, by token. Tokens ascend, so the first is the oldest.
#[derive(Debug, Default)]
pub(super) struct PendingHeaders {
    all: BTreeSet<usize>,
    /// The same by proxy address; no set is empty.
    by_proxy: BTreeMap<IpAddr, BTreeSet<usize>>,
}

impl PendingHeaders {
    pub(super) fn add(&mut self, token: usize, proxy: IpAddr) {
        self.all.insert(token);
        self.by_proxy.entry(proxy).or_default().insert(token);
    }

    pub(super) fn remove(&mut self, token: usize, proxy: IpAddr) {
        self.all.remove(&token);
        if let Some(pending_headers) = self.by_proxy.get_mut(&proxy) {
            pending_headers.remove(&token);
            if pending_headers.is_empty() {
                self.by_proxy.remove(&proxy);
            }
        }
    }

    /// Returns the oldest of `proxy` if it has at least `max` connections.
    pub(super) fn oldest_of(&self, proxy: IpAddr, max: u32) -> Option<usize> {
        let pending_headers = self.by_proxy.get(&proxy)?;
        let is_full = u32::try_from(pending_headers.len()).map_or(true, |len| len >= max);
        pending_headers.first().copied().filter(|_| is_full)
    }

    pub(super) fn oldest(&self) -> Option<usize> {
        self.all.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pending_header_of_a_full_proxy_is_evicted() {
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut pending_headers = PendingHeaders::default();
        assert_eq!(
            (pending_headers.oldest(), pending_headers.oldest_of(one, 0)),
            (None, None)
        );
        pending_headers.add(3, other);
        pending_headers.add(5, one);
        assert_eq!(pending_headers.oldest_of(one, 2), None);
        pending_headers.add(9, one);
        assert_eq!(pending_headers.oldest_of(one, 2), Some(5));
        assert_eq!(
            pending_headers.oldest_of(other, 2),
            None,
            "it has its own share"
        );
        assert_eq!(pending_headers.oldest(), Some(3));
        for (token, proxy) in [(3, other), (5, one), (5, one), (9, one)] {
            pending_headers.remove(token, proxy);
        }
        assert!(pending_headers.all.is_empty() && pending_headers.by_proxy.is_empty());
    }
}
