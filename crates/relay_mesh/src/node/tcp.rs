//! TCP games: the calls of the driver of the TCP sockets.

use core::net::SocketAddr;

use crypto::Provider;
use wire::{Instant, NetworkKey, SourceKey};

use super::Node;
use super::tunnels::{ConnEntry, ConnOwner, IdleScope};
use crate::event::{Event, TurnedAway};
use crate::game::Game;
use crate::tcp::{TcpPort, TcpRefused, TcpWork};
use crate::tunnel::{ConnEnd, ConnId, Gone, OpenError, OpenRecord, Refusal, Tunnel, TunnelStats};

/// After each call, call [`poll_transmit`](Self::poll_transmit) and [`poll_tcp`](Self::poll_tcp)
/// until they return `None`.
impl<P: Provider> Node<P> {
    /// Returns the next action for the driver.
    pub fn poll_tcp(&mut self) -> Option<TcpWork> {
        self.tunnels.as_mut()?.work.pop_front()
    }

    /// Reports whether a port could be [opened](TcpWork::Listen); if not, it is retried after 5 s.
    pub fn tcp_listening(&mut self, now: Instant, port: TcpPort, is_open: Result<(), ()>) {
        let now = self.advance(now);
        let tunnels = self.tunnels.as_mut();
        let port = tunnels.and_then(|tunnels| tunnels.on_listening(now, port, is_open));
        if let Some((game, address)) = port {
            self.emit(match is_open {
                Ok(()) => Event::Listening { game, address },
                Err(()) => Event::ListenFailed { game, address },
            });
        }
    }

    /// Accepts a connection at an entry's game port. `ends` is the player's address, then the
    /// address that it connected to.
    ///
    /// # Errors
    ///
    /// [`TcpRefused`] if the driver must reset the connection.
    pub fn tcp_accept(
        &mut self,
        now: Instant,
        port: TcpPort,
        ends: (SocketAddr, SocketAddr),
    ) -> Result<ConnId, TcpRefused> {
        let now = self.advance(now);
        let tunnels = self.tunnels.as_mut().ok_or(TcpRefused::NoGame)?;
        let game = tunnels.game_of(port).ok_or(TcpRefused::NoGame)?.clone();
        let name = game.name.clone();
        let outcome = self.accept_for(now, game, ends);
        let reason = match outcome {
            Err(TcpRefused::NoExit) => TurnedAway::TcpNoExit,
            Err(TcpRefused::LimitReached) => TurnedAway::TcpShare,
            Ok(_) | Err(TcpRefused::NoGame) => return outcome,
        };
        self.count_rejected_tcp(now, name, reason);
        outcome
    }

    fn accept_for(
        &mut self,
        now: Instant,
        game: Game,
        (player, listen): (SocketAddr, SocketAddr),
    ) -> Result<ConnId, TcpRefused> {
        let owner = ConnOwner::Prefix(NetworkKey::of(player.ip()));
        let source = SourceKey::of(player.ip());
        self.reclaim_for(now, owner);
        let tunnels = self.tunnels.as_mut().ok_or(TcpRefused::NoGame)?;
        if !tunnels.has_slot(owner) {
            return Err(TcpRefused::LimitReached);
        }
        if !self.takes_new_flows(now) {
            return Err(TcpRefused::NoExit);
        }
        let remote = self.best_tcp_exit(now, &game).ok_or(TcpRefused::NoExit)?;
        let flow = self
            .tunnel_to(now, remote, game.mode)
            .ok_or(TcpRefused::NoExit)?;
        let game = game.name;
        let open = OpenRecord {
            game: game.clone(),
            player,
            listen,
        };
        let mut opened = self.open_in(now, flow, &open);
        if opened == Err(OpenError::Address) && self.reclaim_of_source(now, flow, source) {
            opened = self.open_in(now, flow, &open);
        }
        let conn = opened.map_err(|why| match why {
            OpenError::Players | OpenError::Address | OpenError::Rate => TcpRefused::LimitReached,
            OpenError::Closed => TcpRefused::NoExit,
        })?;
        let tunnels = self.tunnels.as_mut().ok_or(TcpRefused::NoGame)?;
        let record = ConnEntry {
            owner,
            source,
            game,
            outbound_header: Vec::new(),
            used: now,
            has_sent: false,
        };
        tunnels.conns.insert(conn, record);
        Ok(conn)
    }

    fn open_in(&mut self, now: Instant, flow: u32, open: &OpenRecord) -> Result<ConnId, OpenError> {
        let tunnels = self.tunnels.as_mut().ok_or(OpenError::Closed)?;
        let end = tunnels.ends.get_mut(&flow).ok_or(OpenError::Closed)?;
        let conn = end.tunnel.open(now, open)?;
        end.used = now;
        tunnels.touched.insert(flow);
        Ok(conn)
    }

    /// Evicts an idle connection if `owner` is at its limit, or is local and few slots are left.
    pub(super) fn reclaim_for(&mut self, now: Instant, owner: ConnOwner) {
        let Some(tunnels) = &self.tunnels else {
            return;
        };
        if !tunnels.conns.has_slot(owner) {
            self.reclaim(now, IdleScope::ConnOwner(owner));
        } else if matches!(owner, ConnOwner::Prefix(_)) && tunnels.conns.is_scarce() {
            self.reclaim(now, IdleScope::Players);
        }
    }

    /// Evicts an idle connection of `source` in the tunnel of `flow`; returns whether one was.
    fn reclaim_of_source(&mut self, now: Instant, flow: u32, source: SourceKey) -> bool {
        let end = self
            .tunnels
            .as_ref()
            .and_then(|tunnels| tunnels.ends.get(&flow));
        let number = end.map(|end| end.number);
        number.is_some_and(|number| self.reclaim(now, IdleScope::Source(number, source)))
    }

    /// Resets the oldest idle connection in this scope; returns whether there was one.
    fn reclaim(&mut self, now: Instant, scope: IdleScope) -> bool {
        let Some(tunnels) = &mut self.tunnels else {
            return false;
        };
        let Some(conn) = tunnels.conns.idle(now, scope) else {
            return false;
        };
        if let Some(tunnel) = tunnels.of_conn(conn) {
            tunnel.reset(conn);
        }
        let game = tunnels.conns.get(conn).map(|record| record.game.clone());
        tunnels.end_conn(conn, ConnEnd::Reset);
        self.count_rejected_tcp(now, game.unwrap_or_default(), TurnedAway::TcpIdle);
        true
    }

    /// Evicts the oldest idle connection of a local player, named by [`TcpWork::Ended`], when the
    /// driver has no slot for a new one. Returns whether there was one.
    pub fn tcp_reclaim(&mut self, now: Instant) -> bool {
        let now = self.advance(now);
        self.reclaim(now, IdleScope::Players)
    }

    /// Reports that the driver reset a connection with an invalid PROXY header, or without one when
    /// a new connection needed the slot.
    pub fn tcp_header_refused(&mut self, now: Instant, port: TcpPort) {
        self.count_rejected_at(now, port, TurnedAway::TcpGreeting);
    }

    /// Reports that the driver rejects a connection: all slots are in use, and
    /// [`tcp_reclaim`](Self::tcp_reclaim) found no idle connection.
    pub fn tcp_full(&mut self, now: Instant, port: TcpPort) {
        self.count_rejected_at(now, port, TurnedAway::TcpFull);
    }

    fn count_rejected_at(&mut self, now: Instant, port: TcpPort, reason: TurnedAway) {
        let now = self.advance(now);
        if let Some(game) = self.tcp_game(port).map(String::from) {
            self.count_rejected_tcp(now, game, reason);
        }
    }

    /// Reports the outcome of a [dial](TcpWork::Dial), at an exit.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the connection has ended: the driver must reset the socket.
    pub fn tcp_dialled(
        &mut self,
        now: Instant,
        conn: ConnId,
        outcome: Result<(), Refusal>,
    ) -> Result<(), Gone> {
        self.advance(now);
        let tunnels = self.tunnels.as_mut().ok_or(Gone)?;
        let tunnel = tunnels.of_conn(conn).ok_or(Gone)?;
        match outcome {
            Ok(()) => {
                tunnel.accept(conn)?;
                tunnels.work.push_back(TcpWork::Readable { conn });
            }
            Err(why) => {
                tunnel.refuse(conn, why)?;
                tunnels.conns.remove(conn);
            }
        }
        Ok(())
    }

    /// Writes bytes read from a socket; returns how many were accepted. If fewer than all,
    /// [`TcpWork::Writable`] follows when there is room again.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the connection has ended.
    pub fn tcp_write(&mut self, conn: ConnId, bytes: &[u8]) -> Result<usize, Gone> {
        let now = self.now;
        if let Some(tunnels) = self.tunnels.as_mut().filter(|_| !bytes.is_empty()) {
            tunnels.conns.on_peer_data(now, conn);
        }
        self.tunnel_of(conn).ok_or(Gone)?.write(conn, bytes)
    }

    /// Reports that the socket reached end of stream.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the connection has ended.
    pub fn tcp_finish(&mut self, conn: ConnId) -> Result<(), Gone> {
        self.tunnel_of(conn).ok_or(Gone)?.finish(conn)
    }

    /// Reports that the socket was reset or closed.
    pub fn tcp_reset(&mut self, conn: ConnId) {
        if let Some(tunnel) = self.tunnel_of(conn) {
            tunnel.reset(conn);
        }
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.conns.remove(conn);
        }
    }

    /// Returns bytes for the socket that are not yet [consumed](Self::tcp_consume). If empty,
    /// [`TcpWork::Readable`] or [`TcpWork::Finished`] follows.
    pub fn tcp_readable(&mut self, conn: ConnId) -> &[u8] {
        let Some(tunnels) = &mut self.tunnels else {
            return &[];
        };
        let record = tunnels.conns.get(conn);
        if record.is_some_and(|record| !record.outbound_header.is_empty()) {
            let record = tunnels.conns.get(conn);
            return record.map_or(&[], |record| &record.outbound_header);
        }
        let tunnel = tunnels.of_conn(conn);
        tunnel.map_or(&[], |tunnel| tunnel.readable(conn))
    }

    /// Discards the first `len` of the [readable](Self::tcp_readable) bytes.
    pub fn tcp_consume(&mut self, conn: ConnId, len: usize) {
        let now = self.now;
        let Some(tunnels) = &mut self.tunnels else {
            return;
        };
        tunnels.conns.on_delivered(now, conn);
        let record = tunnels.conns.get_mut(conn);
        match record.filter(|record| !record.outbound_header.is_empty()) {
            Some(record) => {
                let len = len.min(record.outbound_header.len());
                record.outbound_header.drain(..len);
            }
            None => {
                if let Some(tunnel) = tunnels.of_conn(conn) {
                    tunnel.consume(conn, len);
                }
            }
        }
    }

    /// Returns the name of a port's game, or `None` if the port is no longer configured.
    #[must_use]
    pub fn tcp_game(&self, port: TcpPort) -> Option<&str> {
        let game = self.tunnels.as_ref()?.game_of(port)?;
        Some(&game.name)
    }

    /// Returns the number of TCP connections, and of tunnels.
    #[must_use]
    pub fn tcp_len(&self) -> (usize, usize) {
        let tunnels = self.tunnels.as_ref();
        tunnels.map_or((0, 0), |tunnels| (tunnels.conns.len(), tunnels.ends.len()))
    }

    /// Returns the counters of all tunnels; `None` if the node carries no TCP games.
    #[must_use]
    pub fn tunnel_stats(&self) -> Option<TunnelStats> {
        self.tunnels.as_ref().map(|tunnels| tunnels.stats())
    }

    fn tunnel_of(&mut self, conn: ConnId) -> Option<&mut Tunnel> {
        self.tunnels.as_mut()?.of_conn(conn)
    }
}
