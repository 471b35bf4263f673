//! One QUIC connection (RFC 9000). Its datagrams are payloads of a flow.

use core::net::{Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use crypto::tls::{self, KeyRefused, NodeVerifier, TlsIdentity};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, IdleTimeout, ReadError, ServerConfig, StreamId, TransportConfig, ValidationTokenConfig,
    VarInt, WriteError,
};
use rustls::CertificateError;
use wire::{Instant, NodeId};

use super::path_probes::PathProbes;
use super::{SILENCE_MAX, TunnelConfig, WINDOW};

/// An endpoint with at most one connection. The flow identifies the other end, whatever its path,
/// so QUIC sees a constant address.
pub(super) struct Quic {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    clock: Clock,
    path_probes: PathProbes,
    /// Buffer for the endpoint's answers to datagrams of no connection; never sent.
    unsent: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Read {
    Bytes(Bytes),
    /// The remote end finished the stream.
    Finished,
    /// The remote end reset the stream with this code.
    Reset(u64),
    /// No bytes are available now.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Number of bytes accepted, which may be less than all.
    Taken(usize),
    /// The remote end stopped the stream with this code.
    Stopped(u64),
}

impl Quic {
    /// Starts a connection to `remote`.
    pub(super) fn connect(
        config: &TunnelConfig,
        identity: &TlsIdentity,
        remote: NodeId,
        (clock, now): (Clock, Instant),
    ) -> Result<Self, KeyRefused> {
        let path_probes = PathProbes::default();
        let mut client = ClientConfig::new(client_config(identity, remote)?);
        client.transport_config(transport(config, 0, &path_probes));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let connection = endpoint
            .connect(clock.to_std(now), client, FAR, NAME)
            .map_err(|_| KeyRefused)?;
        Ok(Self::new(endpoint, Some(connection), clock, path_probes))
    }

    /// Accepts a connection from `remote`.
    pub(super) fn listen(
        config: &TunnelConfig,
        identity: &TlsIdentity,
        remote: NodeId,
        clock: Clock,
    ) -> Result<Self, KeyRefused> {
        let path_probes = PathProbes::default();
        let mut server = ServerConfig::with_crypto(server_config(identity, remote)?);
        // Tokens need the wall clock; without them and without retries QUIC does not read it.
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(0);
        server
            .transport_config(transport(config, streams(config), &path_probes))
            .validation_token_config(tokens)
            .migration(false);
        let config = Arc::new(EndpointConfig::default());
        let endpoint = Endpoint::new(config, Some(Arc::new(server)), false, None);
        Ok(Self::new(endpoint, None, clock, path_probes))
    }

    const fn new(
        endpoint: Endpoint,
        connection: Option<(ConnectionHandle, Connection)>,
        clock: Clock,
        path_probes: PathProbes,
    ) -> Self {
        Self {
            endpoint,
            connection,
            clock,
            path_probes,
            unsent: Vec::new(),
        }
    }

    /// Handles a datagram; returns false if it is not of this connection.
    pub(super) fn handle(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let now = self.clock.to_std(now);
        self.unsent.clear();
        let data = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(now, FAR, None, None, data, &mut self.unsent);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => match &mut self.connection {
                Some((own, connection)) if *own == handle => {
                    connection.handle_event(event);
                    true
                }
                _ => false,
            },
            Some(DatagramEvent::NewConnection(incoming)) if self.connection.is_none() => {
                let accepted = self.endpoint.accept(incoming, now, &mut self.unsent, None);
                self.connection = accepted.ok();
                self.connection.is_some()
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.endpoint.ignore(incoming);
                false
            }
            Some(DatagramEvent::Response(_)) | None => false,
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(self.clock.to_std(now));
            if self.path_probes.is_time(now) {
                connection.ping();
            }
        }
    }

    /// Returns when the next timer expires, later than `now`.
    pub(super) fn due(&mut self, now: Instant) -> Option<Instant> {
        let (_, connection) = self.connection.as_mut()?;
        let due = connection.poll_timeout().map(|due| self.clock.of_std(due));
        let due = due.into_iter().chain(self.path_probes.due()).min()?;
        Some(due.max(now + TIMER_GAP))
    }

    pub(super) fn poll(&mut self) -> Option<Event> {
        let (handle, connection) = self.connection.as_mut()?;
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        connection.poll()
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<usize> {
        let (_, connection) = self.connection.as_mut()?;
        let transmit = connection.poll_transmit(self.clock.to_std(now), 1, buf)?;
        Some(transmit.size)
    }

    /// Resets the path's state (RTT, congestion window) and validates the new path.
    pub(super) fn move_path(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.path_changed(self.clock.to_std(now));
            self.path_probes.begin(now);
            if self.path_probes.is_time(now) {
                connection.ping();
            }
        }
    }

    pub(super) fn close(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.close(self.clock.to_std(now), VarInt::from_u32(0), Bytes::new());
        }
    }

    /// Opens a stream if the remote end's limit allows it.
    pub(super) fn open(&mut self) -> Option<StreamId> {
        let (_, connection) = self.connection.as_mut()?;
        connection.streams().open(Dir::Bi)
    }

    pub(super) fn accept(&mut self) -> Option<StreamId> {
        let (_, connection) = self.connection.as_mut()?;
        connection.streams().accept(Dir::Bi)
    }

    /// Writes as much as is accepted; if that is not all, `StreamEvent::Writable` follows.
    pub(super) fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Written {
        let mut taken = 0;
        let Some((_, connection)) = &mut self.connection else {
            return Written::Taken(0);
        };
        loop {
            let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) else {
                return Written::Taken(taken);
            };
            match connection.send_stream(stream).write(rest) {
                Ok(more) => taken = taken.saturating_add(more),
                Err(WriteError::Stopped(code)) => return Written::Stopped(code.into_inner()),
                Err(WriteError::Blocked | WriteError::ClosedStream) => {
                    return Written::Taken(taken);
                }
            }
        }
    }

    /// Finishes the send half of a stream after all written bytes.
    pub(super) fn finish(&mut self, stream: StreamId) {
        if let Some((_, connection)) = &mut self.connection {
            // It fails if the remote end stopped the stream; an event reports that.
            connection.send_stream(stream).finish().ok();
        }
    }

    /// Resets both halves of a stream; undelivered bytes may be lost.
    pub(super) fn reset(&mut self, stream: StreamId, code: u32) {
        let code = VarInt::from_u32(code);
        if let Some((_, connection)) = &mut self.connection {
            // It fails if a half is already closed.
            connection.send_stream(stream).reset(code).ok();
            connection.recv_stream(stream).stop(code).ok();
        }
    }

    pub(super) fn read(&mut self, stream: StreamId, max: usize) -> Read {
        let Some((_, connection)) = &mut self.connection else {
            return Read::Nothing;
        };
        let mut half = connection.recv_stream(stream);
        let Ok(mut chunks) = half.read(true) else {
            return Read::Nothing;
        };
        let read = match chunks.next(max) {
            Ok(Some(chunk)) => Read::Bytes(chunk.bytes),
            Ok(None) => Read::Finished,
            Err(ReadError::Reset(code)) => Read::Reset(code.into_inner()),
            Err(ReadError::Blocked) => Read::Nothing,
        };
        // `poll_transmit` is called anyway.
        let _should_transmit = chunks.finalize().should_transmit();
        read
    }

    /// Returns the code with which the remote end reset a stream that must not be read yet.
    pub(super) fn reset_code(&mut self, stream: StreamId) -> Option<u64> {
        let (_, connection) = self.connection.as_mut()?;
        let code = connection.recv_stream(stream).received_reset().ok()??;
        Some(code.into_inner())
    }
}

/// Stream limit of an exit. quinn-proto raises the limit only when more than an eighth of the
/// streams have closed, so it is larger than the number of players by that.
fn streams(config: &TunnelConfig) -> u32 {
    let players = config.players();
    let unannounced = players / 7;
    players.saturating_add(unannounced).saturating_add(1)
}

fn transport(
    config: &TunnelConfig,
    streams: u32,
    path_probes: &PathProbes,
) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let all = WINDOW.saturating_mul(self::streams(config));
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(all))
        .send_window(SEND_WINDOW)
        .initial_mtu(DATAGRAM_LEN)
        .min_mtu(DATAGRAM_LEN_MIN)
        .mtu_discovery_config(None)
        .initial_rtt(FIRST_RTT)
        .max_idle_timeout(IdleTimeout::try_from(SILENCE_MAX).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(path_probes.controllers())
        .enable_segmentation_offload(false);
    Arc::new(transport)
}

/// Placeholder for the remote end's address, which QUIC requires and nothing uses.
const FAR: SocketAddr = SocketAddr::new(core::net::IpAddr::V6(Ipv6Addr::LOCALHOST), 1);
const NAME: &str = "exit.invalid";
/// Longest payload of a flow that is not split; `pieces::WHOLE_MAX`.
const DATAGRAM_LEN: u16 = 1_232;
/// Minimum MTU; RFC 9000, section 14.
const DATAGRAM_LEN_MIN: u16 = 1_200;
/// Unacknowledged bytes of all streams: 40 MB/s at an RTT of 100 ms.
const SEND_WINDOW: u64 = 4 << 20;
/// Initial RTT. Paths are measured, and slow ones are not chosen.
const FIRST_RTT: Duration = Duration::from_millis(100);
/// A fifth of the tunnel's idle timeout, so that a lost path is detected.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// Minimum delay of a timer, which prevents a busy loop.
pub(super) const TIMER_GAP: Duration = Duration::from_micros(1);

/// An instant of quinn-proto.
pub type StdInstant = std::time::Instant;

/// Converts between the clock of quinn-proto and ours; `epoch` and `start` are the same moment.
///
/// No machine reads it: the driver passes one instant in, and all others are computed from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    epoch: StdInstant,
    start: Instant,
}

impl Clock {
    pub(super) const fn new(epoch: StdInstant, start: Instant) -> Self {
        Self { epoch, start }
    }

    pub(super) fn to_std(self, now: Instant) -> StdInstant {
        let since = now.saturating_since(self.start);
        self.epoch.checked_add(since).unwrap_or(self.epoch)
    }

    pub(super) fn of_std(self, then: StdInstant) -> Instant {
        self.start + then.saturating_duration_since(self.epoch)
    }
}

fn client_config(own: &TlsIdentity, remote: NodeId) -> Result<Arc<QuicClientConfig>, KeyRefused> {
    let config =
        tls::client_config(Some(own), verifier(remote), PROTOCOL).map_err(|_| KeyRefused)?;
    let config = QuicClientConfig::try_from(config).map_err(|_| KeyRefused)?;
    Ok(Arc::new(config))
}

fn server_config(own: &TlsIdentity, remote: NodeId) -> Result<Arc<QuicServerConfig>, KeyRefused> {
    let config = tls::server_config(own.server_key(), Arc::new(verifier(remote)), PROTOCOL)
        .map_err(|_| KeyRefused)?;
    let config = QuicServerConfig::try_from(config).map_err(|_| KeyRefused)?;
    Ok(Arc::new(config))
}

fn verifier(remote: NodeId) -> NodeVerifier {
    NodeVerifier::new(move |node| {
        if node == remote {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    })
}

/// ALPN protocol (RFC 7301): streams that start with an open record of version 1.
const PROTOCOL: &[u8] = b"tickwire-tunnel/1";
