//! TCP games: players' connections between an entry and an exit, as streams of one QUIC connection.
//! Its datagrams are payloads of a flow.
//!
//! - A [`Tunnel`] is one end. Entry and exit have one each, with their own [`ConnId`]s.
//! - Both ends prove their node keys ([`crypto::tls`]), without a certificate authority or a
//!   clock.
//! - Each stream starts with an [`OpenRecord`]. The exit connects to its server before it accepts.
//! - Half-close, reset and back-pressure are forwarded. A slow reader has at most [`WINDOW`] bytes
//!   and one chunk of 16 KiB in transit. At most 128 readers below 32 kbit/s may hold that much;
//!   beyond it the one stalled for longest is reset.
//!
//! QUIC draws its own randomness: two equal runs deliver equal bytes in different datagrams.

mod conn;
mod event;
mod open_record;
mod path_probes;
mod proxy_headers;
mod quic;
mod streams;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Buf;
use crypto::tls::{KeyRefused, TlsIdentity};
use quinn_proto::StreamId;
use serde::Serialize;
use wire::{Instant, LimitError, NodeId, SourceKey, SourceLimiter, TokenBucket};

use conn::{Conn, Outbound, TunnelConnState};
use open_record::RESET;
use quic::{Clock, Quic, Written};

pub use event::{ConnEnd, ConnId, Gone, OpenError, TunnelEnd, TunnelEvent};
pub use open_record::{OpenReader, OpenRecord, Refusal};
pub use proxy_headers::{InboundConn, InboundHeader, InboundHeaderError, OutboundHeader};
pub use quic::StdInstant;

/// One end of a tunnel. Sans-I/O: datagrams in and out, connections' bytes in and out, and timers.
///
/// After each input call [`poll_transmit`](Self::poll_transmit) and
/// [`poll_event`](Self::poll_event) until they return `None`.
pub struct Tunnel {
    number: u32,
    side: Side,
    state: TunnelState,
    quic: Quic,
    conns: BTreeMap<u64, Conn>,
    by_stream: BTreeMap<StreamId, u64>,
    /// Connections of an entry without a stream, oldest first; some may have ended.
    waiting: VecDeque<u64>,
    deadlines: BTreeSet<(Instant, u64)>,
    next: u64,
    limiter: SourceLimiter<SourceKey>,
    /// Most connections of players.
    players_max: u32,
    events: VecDeque<TunnelEvent>,
    due: Option<Instant>,
    /// When stalled connections are next checked.
    stall_check_at: Option<Instant>,
    stats: TunnelStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Entry,
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelState {
    Connecting,
    Established,
    Closed,
}

impl Tunnel {
    /// Creates the entry's end of a tunnel to the exit `remote`.
    ///
    /// `number` becomes part of its [`ConnId`]s. `epoch` is the driver's standard-library time at
    /// `now`; only differences to it are used.
    ///
    /// # Errors
    ///
    /// [`KeyRefused`] if TLS rejects the identity.
    pub fn entry(
        (number, config): (u32, &TunnelConfig),
        identity: &TlsIdentity,
        remote: NodeId,
        (epoch, now): (StdInstant, Instant),
    ) -> Result<Self, KeyRefused> {
        let clock = Clock::new(epoch, now);
        let quic = Quic::connect(config, identity, remote, (clock, now))?;
        Ok(Self::new((number, config), Side::Entry, quic, now))
    }

    /// Creates the exit's end of a tunnel from the entry `remote`.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry).
    pub fn exit(
        (number, config): (u32, &TunnelConfig),
        identity: &TlsIdentity,
        remote: NodeId,
        (epoch, now): (StdInstant, Instant),
    ) -> Result<Self, KeyRefused> {
        let quic = Quic::listen(config, identity, remote, Clock::new(epoch, now))?;
        Ok(Self::new((number, config), Side::Exit, quic, now))
    }

    fn new((number, config): (u32, &TunnelConfig), side: Side, quic: Quic, now: Instant) -> Self {
        let mut tunnel = Self {
            number,
            side,
            state: TunnelState::Connecting,
            quic,
            conns: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            waiting: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next: 0,
            limiter: limiter(config, now),
            players_max: config.players(),
            events: VecDeque::new(),
            due: None,
            stall_check_at: None,
            stats: TunnelStats::default(),
        };
        tunnel.due = tunnel.quic.due(now);
        tunnel
    }

    /// Handles one datagram of the flow.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        if !self.quic.handle(now, datagram) {
            self.stats.junk = self.stats.junk.saturating_add(1);
        }
        self.pump(now);
    }

    /// Runs every timer due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        if self.due.is_some_and(|due| due <= now) {
            self.quic.handle_timeout(now);
        }
        self.end_overdue(now);
        self.reset_stalled(now);
        self.pump(now);
    }

    /// Returns when `handle_timeout` is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let all = [self.due, deadline, self.stall_check_at];
        all.into_iter().flatten().min()
    }

    /// Appends the flow's next datagram to `buf` and returns its length, at most 1,232 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<usize> {
        let sent = self.quic.poll_transmit(now, buf);
        if sent.is_none() {
            self.pump(now);
        }
        sent
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    /// Opens a connection at an entry. Bytes may be written at once; the exit holds them until its
    /// server accepts. The connection ends if there is no answer within 20 s.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the limit that is reached.
    pub fn open(&mut self, now: Instant, open: &OpenRecord) -> Result<ConnId, OpenError> {
        if self.side != Side::Entry || self.state == TunnelState::Closed {
            return Err(OpenError::Closed);
        }
        let source = self.join(now, open).map_err(|error| match error {
            LimitError::Total => OpenError::Players,
            LimitError::Source => OpenError::Address,
            LimitError::Rate => OpenError::Rate,
        })?;
        let mut conn = Conn::new(TunnelConnState::Asking, now + ANSWER_MAX);
        conn.source = Some(source);
        open.encode(&mut conn.first);
        let number = self.add(conn);
        self.stats.opened = self.stats.opened.saturating_add(1);
        self.waiting.push_back(number);
        self.open_waiting();
        Ok(self.id(number))
    }

    /// Accepts a connection that an exit was [asked](TunnelEvent::Asked) for, after its server has
    /// answered.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the connection has ended, or was answered already.
    pub fn accept(&mut self, conn: ConnId) -> Result<(), Gone> {
        let number = self.dialling(conn)?;
        self.clear_deadline(number);
        let Some(held) = self.conns.get_mut(&number) else {
            return Err(Gone);
        };
        held.stage = TunnelConnState::Open;
        held.first.push(open_record::ACCEPTED);
        self.stats.accepted = self.stats.accepted.saturating_add(1);
        self.on_writable(number);
        self.notify_readable(number);
        Ok(())
    }

    /// Refuses such a connection.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn refuse(&mut self, conn: ConnId, why: Refusal) -> Result<(), Gone> {
        let number = self.dialling(conn)?;
        self.refuse_stream(number, why);
        Ok(())
    }

    /// Queues bytes for the remote end and returns how many: all, or as many as there is room for.
    /// If not all were taken, [`TunnelEvent::Writable`] reports when there is room again.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the connection has ended, or this half of it is closed.
    pub fn write(&mut self, conn: ConnId, bytes: &[u8]) -> Result<usize, Gone> {
        let number = self.number_of(conn)?;
        let is_flushed = self.flush(number);
        let Some(held) = self.conns.get_mut(&number) else {
            return Err(Gone);
        };
        if held.outbound != Outbound::Open {
            return Err(Gone);
        }
        let stream = held.stream.filter(|_| is_flushed && held.may_write());
        let written = stream.map_or(Written::Taken(0), |stream| self.quic.write(stream, bytes));
        match written {
            Written::Taken(taken) => {
                held.wants.write = taken < bytes.len();
                Ok(taken)
            }
            Written::Stopped(code) => {
                self.on_broken(number, code);
                Err(Gone)
            }
        }
    }

    /// Closes the half towards the remote end after the bytes already written.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the connection has ended.
    pub fn finish(&mut self, conn: ConnId) -> Result<(), Gone> {
        let number = self.number_of(conn)?;
        if let Some(held) = self.conns.get_mut(&number)
            && held.outbound == Outbound::Open
        {
            held.outbound = Outbound::Ending;
        }
        self.flush(number);
        Ok(())
    }

    /// Returns the remote end's bytes that were not [consumed](Self::consume) yet. If there are
    /// none, [`TunnelEvent::Readable`] or [`TunnelEvent::Finished`] follows.
    pub fn readable(&mut self, conn: ConnId) -> &[u8] {
        let Ok(number) = self.number_of(conn) else {
            return &[];
        };
        self.fill(number);
        let Some(held) = self.conns.get_mut(&number) else {
            return &[];
        };
        if held.chunk.is_empty() {
            held.wants.read = true;
        }
        &held.chunk
    }

    /// Removes the first `len` of the [readable](Self::readable) bytes.
    pub fn consume(&mut self, conn: ConnId, len: usize) {
        let number = self.number_of(conn);
        if let Some(held) = number.ok().and_then(|number| self.conns.get_mut(&number)) {
            let len = len.min(held.chunk.len());
            held.chunk.advance(len);
            held.uptake.on_consumed(len);
        }
    }

    /// Ends a connection at once and resets it at the remote end. No event follows.
    pub fn reset(&mut self, conn: ConnId) {
        let Ok(number) = self.number_of(conn) else {
            return;
        };
        if let Some(stream) = self.conns.get(&number).and_then(|held| held.stream) {
            self.quic.reset(stream, RESET);
        }
        self.stats.reset = self.stats.reset.saturating_add(1);
        self.remove(number);
    }

    /// Reports that the flow has changed its path: QUIC discards its estimates for the old one.
    pub fn handle_moved(&mut self, now: Instant) {
        self.quic.move_path(now);
        self.pump(now);
    }

    /// Ends the tunnel and its connections.
    pub fn close(&mut self, now: Instant) {
        self.quic.close(now);
        self.go_down(TunnelEnd::Local);
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Returns whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &TunnelStats {
        &self.stats
    }

    const fn id(&self, number: u64) -> ConnId {
        ConnId {
            tunnel: self.number,
            number,
        }
    }

    fn number_of(&self, conn: ConnId) -> Result<u64, Gone> {
        let is_held = conn.tunnel == self.number && self.conns.contains_key(&conn.number);
        is_held.then_some(conn.number).ok_or(Gone)
    }

    fn dialling(&self, conn: ConnId) -> Result<u64, Gone> {
        let number = self.number_of(conn)?;
        match self.conns.get(&number).map(|held| &held.stage) {
            Some(TunnelConnState::Dialling) => Ok(number),
            _ => Err(Gone),
        }
    }
}

wire::debug_fields!(
    Tunnel,
    this {
        number: this.number,
        side: this.side,
        state: this.state,
        conns: this.conns.len(),
    }
);

/// Bytes of one connection per direction: sent, and not read by the driver at the remote end.
pub const WINDOW: u32 = 512 << 10;
/// Timeout for an open record, which is in the stream's first datagram.
const RECORD_MAX: Duration = Duration::from_secs(10);
/// Timeout for an exit's driver to dial the server.
const DIAL_MAX: Duration = Duration::from_secs(15);
/// Timeout for an entry to receive the answer: longer than the exit's.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Idle timeout of a tunnel; keep-alives are sent every 4 s.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Limits of one tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelConfig {
    /// Concurrent connections of players; default 1,024, limited to
    /// [`PLAYERS_MAX`](Self::PLAYERS_MAX). Each may hold twice [`WINDOW`] at this end; at
    /// an exit, up to a seventh more may wait for a slot, holding it once.
    pub players_max: u32,
    /// Of them, those of one source, an IPv4 address or an IPv6 /64; default 64: a browser opens
    /// six per host, and households share an address. A carrier's NAT with more players needs more.
    pub per_address_max: u32,
    /// New connections per second; default 256, with a burst of four times as many.
    pub open_rate: u32,
}

impl TunnelConfig {
    /// Upper bound of `players_max`: QUIC keeps state for each stream that it allows.
    pub const PLAYERS_MAX: u32 = 65_536;

    pub(crate) fn players(&self) -> u32 {
        self.players_max.min(Self::PLAYERS_MAX)
    }
}

impl Default for TunnelConfig {
    fn default() -> Self {
        Self {
            players_max: 1_024,
            per_address_max: 64,
            open_rate: 256,
        }
    }
}

/// Counters of one end of a tunnel, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TunnelStats {
    /// Datagrams that were not part of this QUIC connection.
    pub junk: u64,
    /// Connections that players or the entry opened.
    pub opened: u64,
    /// Opened connections that the exit accepted.
    pub accepted: u64,
    /// Opened connections that the exit refused.
    pub refused: u64,
    /// Connections over the limit of all connections.
    pub over_players: u64,
    /// Connections over the limit of one address.
    pub over_address: u64,
    /// Connections over the limit of one /24 or /48, counted over all tunnels of the entry.
    pub over_prefix: u64,
    /// Connections over one entry's share of the exit.
    pub over_share: u64,
    /// Connections over the limit per second.
    pub over_rate: u64,
    /// Streams without a valid open record.
    pub malformed: u64,
    /// Connections that timed out without an answer.
    pub unanswered: u64,
    /// Connections that were reset at either end.
    pub reset: u64,
    /// Connections reset because they stalled, above the limit of stalled ones.
    pub stalled: u64,
    /// Connections whose two halves were closed.
    pub done: u64,
}

impl TunnelStats {
    pub(crate) const fn plus(self, other: &Self) -> Self {
        Self {
            junk: self.junk.saturating_add(other.junk),
            opened: self.opened.saturating_add(other.opened),
            accepted: self.accepted.saturating_add(other.accepted),
            refused: self.refused.saturating_add(other.refused),
            over_players: self.over_players.saturating_add(other.over_players),
            over_address: self.over_address.saturating_add(other.over_address),
            over_prefix: self.over_prefix.saturating_add(other.over_prefix),
            over_share: self.over_share.saturating_add(other.over_share),
            over_rate: self.over_rate.saturating_add(other.over_rate),
            malformed: self.malformed.saturating_add(other.malformed),
            unanswered: self.unanswered.saturating_add(other.unanswered),
            reset: self.reset.saturating_add(other.reset),
            stalled: self.stalled.saturating_add(other.stalled),
            done: self.done.saturating_add(other.done),
        }
    }
}

fn limiter(config: &TunnelConfig, now: Instant) -> SourceLimiter<SourceKey> {
    let burst = config.open_rate.saturating_mul(4);
    let rate = TokenBucket::new(config.open_rate, burst, now);
    SourceLimiter::new(config.players(), config.per_address_max).with_rate(rate)
}
