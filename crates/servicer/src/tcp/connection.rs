//! One TCP connection: its socket, TLS session, records and deadlines.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};

use mio::net::TcpStream;
use rustls::Error as TlsError;
use wire::address::canonical;
use wire::{CommandId, ConnectionId, Instant, NodeId, PeerIdentity, SourceKey};

use super::StreamConfig;
use super::record::{RecordReader, RecordWriter};
use super::socket;
use super::table::SlotPermit;
use super::tls;
use super::x509::CertificateFault;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) io: TcpStream,
    tls: rustls::Connection,
    pub(super) side: Side,
    pub(super) stage: ConnState,
    pub(super) reader: RecordReader,
    writer: RecordWriter,
    /// Bytes of `writer` that are encrypted but not completely written.
    encrypted: usize,
    /// Bytes of records that the machine may write.
    credit: usize,
    pub(super) is_ready: Readiness,
    /// Whether it is in the list of connections to flush.
    pub(super) is_dirty: bool,
    pub(super) deadlines: ConnDeadlines,
    /// Its slot in the limits of the driver that accepted it, if another driver serves it.
    pub(super) permit: Option<SlotPermit>,
}

/// Readiness of a socket, as last reported by the system.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    /// The socket may be readable.
    pub(super) read: bool,
    /// The socket may be writable.
    pub(super) write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The peer.
    Accepted(SourceKey),
    /// This end, for this command.
    Dialled(CommandId, Expected),
}

/// The expected peer of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// This node.
    Node(NodeId),
    /// The host with the name that TLS was given.
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnState {
    /// TCP is connecting.
    Connecting,
    /// TLS is in its handshake, or the accepter's empty first record has not arrived.
    Handshaking,
    /// Open; the machine knows it by this id.
    Open(ConnectionId),
    /// Closed by the machine; buffered data is still being written.
    Closing,
    /// All data is written. The driver waits for the peer to close, because unread bytes could
    /// cause a reset that discards the data.
    Lingering,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The peer closed the connection in order.
    Finished,
    /// The peer left without a TLS close.
    Reset,
    /// The peer was unreachable.
    Unreachable(ErrorKind),
    /// The peer's key is not the expected one or is not admitted.
    UnknownNode(NodeId),
    /// The host's certificate was rejected.
    Certificate(CertificateFault),
    /// No key, a key of the wrong kind, or an invalid proof.
    BadProof,
    /// The peer rejected the handshake.
    Refused,
    /// The peer broke the TLS protocol.
    Tls,
    /// A record is too long.
    TooLong,
    /// A deadline passed.
    DeadlinePassed(Deadline),
    /// The machine exceeded its credit.
    Overrun,
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        io: TcpStream,
        tls: rustls::Connection,
        side: Side,
        config: &StreamConfig,
    ) -> Self {
        Self {
            io,
            tls,
            side,
            stage: match side {
                Side::Accepted(_) => ConnState::Handshaking,
                Side::Dialled(..) => ConnState::Connecting,
            },
            reader: RecordReader::new(config.record_bytes_max),
            writer: RecordWriter::default(),
            encrypted: 0,
            credit: config.credit(),
            is_ready: Readiness::default(),
            is_dirty: false,
            deadlines: ConnDeadlines::new(now),
            permit: None,
        }
    }

    /// Applies the limits of a new driver, and forgets the readiness seen by the last one.
    pub(super) fn reset_for(&mut self, config: &StreamConfig) {
        self.reader.set_len_max(config.record_bytes_max);
        self.credit = config.credit();
        self.is_ready = Readiness::default();
        self.is_dirty = false;
    }

    pub(super) const fn set_stage(&mut self, now: Instant, stage: ConnState) {
        self.stage = stage;
        self.deadlines.restart(now);
    }

    /// Returns whether TCP is connected, or an error if the connect failed.
    pub(super) fn is_connected(&self) -> Result<bool, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.kind());
        socket::is_connected(&self.io).map_err(unreachable)
    }

    /// Reads from the socket up to the length of `buffer`. Returns `None` if no data is available.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        loop {
            return match self.io.read(buffer) {
                Ok(0) => Err(Fault::Reset),
                Ok(len) => Ok(Some(len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready.read = false;
                    Ok(None)
                }
                Err(_) => Err(Fault::Reset),
            };
        }
    }

    pub(super) fn decrypt(&mut self, bytes: &mut &[u8]) -> Result<(), Fault> {
        // Reading from a slice cannot fail, and earlier plaintext was taken out.
        if self.tls.read_tls(bytes).is_err() {
            return Err(Fault::Tls);
        }
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // Send the alert, if the socket takes it.
                self.write_tls().ok();
                tracing::debug!(%error, "TLS failed");
                Err(self.fault(&error))
            }
        }
    }

    pub(super) fn plaintext(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        match self.tls.reader().read(buffer) {
            Ok(0) if buffer.is_empty() => Ok(0),
            Ok(0) => Err(Fault::Finished),
            Ok(len) => Ok(len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Fault::Reset),
        }
    }

    /// Returns the peer's identity after the TLS handshake; `None` before.
    pub(super) fn peer(&self) -> Result<Option<PeerIdentity>, Fault> {
        if self.tls.is_handshaking() {
            return Ok(None);
        }
        tls::peer(&self.tls, self.side).map(Some).ok_or(Fault::Tls)
    }

    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), Fault> {
        self.credit = self
            .credit
            .checked_sub(record.len())
            .ok_or(Fault::Overrun)?;
        self.writer.push(record).map_err(|_| Fault::Overrun)
    }

    /// Writes queued data as far as the socket takes it. Returns the bytes of records written.
    pub(super) fn flush(&mut self, now: Instant) -> Result<usize, Fault> {
        if self.stage == ConnState::Connecting {
            return Ok(0);
        }
        let mut records = 0_usize;
        while self.is_ready.write {
            let progress = self.write_tls()?;
            if progress > 0 {
                self.deadlines.on_written();
            }
            if self.tls.wants_write() {
                self.deadlines.on_blocked(now);
                break;
            }
            records =
                records.saturating_add(self.writer.advance(std::mem::take(&mut self.encrypted)));
            if !self.is_handshake_complete() {
                break;
            }
            let waiting = self.writer.waiting();
            let chunk = waiting.get(..CHUNK).unwrap_or(waiting);
            if chunk.is_empty() {
                break;
            }
            self.encrypted = self.tls.writer().write(chunk).map_err(|_| Fault::Tls)?;
        }
        self.credit = self.credit.saturating_add(records);
        Ok(records)
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.writer.waiting().is_empty() && !self.tls.wants_write()
    }

    /// Sends the TLS close. No data may be queued.
    pub(super) fn finish(&mut self) {
        self.tls.send_close_notify();
        // If the socket does not take it now, only the TLS close is lost.
        self.write_tls().ok();
        drop(self.io.shutdown(Shutdown::Write));
    }

    fn is_handshake_complete(&self) -> bool {
        !self.tls.is_handshaking()
    }

    fn fault(&self, error: &TlsError) -> Fault {
        if let Some(found) = tls::unknown_node(error) {
            return Fault::UnknownNode(found);
        }
        if let TlsError::AlertReceived(_) = error {
            return Fault::Refused;
        }
        if let TlsError::InvalidCertificate(cause) = error
            && let Side::Dialled(_, Expected::Host) = self.side
        {
            return Fault::Certificate(CertificateFault::of(cause));
        }
        if let TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented = error {
            return Fault::BadProof;
        }
        Fault::Tls
    }

    fn write_tls(&mut self) -> Result<usize, Fault> {
        let mut written = 0_usize;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.io) {
                Ok(0) => return Err(Fault::Reset),
                Ok(len) => written = written.saturating_add(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready.write = false;
                    break;
                }
                Err(_) => return Err(Fault::Reset),
            }
        }
        Ok(written)
    }
}

/// An open connection between two drivers: one has handed it over, another may take it.
///
/// It is not read or written, and its deadlines do not run. Dropping it closes the connection
/// without a TLS close. Until it is closed, it counts towards the limits of the driver that
/// accepted it, whichever driver serves it.
pub struct OpenConnection {
    pub(super) connection: Box<Connection>,
    pub(super) peer: PeerIdentity,
}

impl OpenConnection {
    /// Returns the identity that the peer proved.
    pub const fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Returns the socket.
    pub(crate) const fn socket(&self) -> &TcpStream {
        &self.connection.io
    }

    /// Returns the peer's address; `None` if the peer has already left.
    pub fn address(&self) -> Option<SocketAddr> {
        self.connection.io.peer_addr().ok().map(canonical)
    }
}

wire::debug_fields!(OpenConnection, this { peer: this.peer });

/// Times of the last activity of a connection, which determine its deadline.
#[derive(Debug)]
pub(super) struct ConnDeadlines {
    staged_at: Instant,
    /// When bytes of a record last arrived.
    received_at: Instant,
    /// When the current incomplete record or TLS record began.
    partial_since: Option<Instant>,
    /// Since when the socket takes no data.
    stalled_since: Option<Instant>,
    /// Whether the application has paused reading, so silence is not the peer's fault.
    is_paused: bool,
}

/// What a batch of received bytes contained.
#[expect(
    clippy::struct_excessive_bools,
    reason = "three independent observations of the same bytes"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadProgress {
    /// Whether TLS produced plaintext from them.
    pub(super) plaintext: bool,
    /// Whether a record ended in them.
    pub(super) record: bool,
    /// Whether a record is incomplete after them.
    pub(super) partial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Handshake,
    Record,
    Idle,
    Stall,
    Linger,
}

impl ConnDeadlines {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            staged_at: now,
            received_at: now,
            partial_since: None,
            stalled_since: None,
            is_paused: false,
        }
    }

    pub(super) const fn restart(&mut self, now: Instant) {
        self.staged_at = now;
        self.received_at = now;
    }

    pub(super) const fn on_received(&mut self, now: Instant, progress: ReadProgress) {
        if progress.plaintext {
            self.received_at = now;
        }
        // Bytes without plaintext are part of an incomplete TLS record.
        if progress.partial || !progress.plaintext {
            if progress.record || self.partial_since.is_none() {
                self.partial_since = Some(now);
            }
        } else {
            self.partial_since = None;
        }
    }

    pub(super) const fn pause(&mut self) {
        self.is_paused = true;
    }

    pub(super) const fn resume(&mut self, now: Instant) {
        if self.is_paused {
            self.is_paused = false;
            self.received_at = now;
            if self.partial_since.is_some() {
                self.partial_since = Some(now);
            }
        }
    }

    pub(super) const fn on_written(&mut self) {
        self.stalled_since = None;
    }

    pub(super) const fn on_blocked(&mut self, now: Instant) {
        if self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
    }

    pub(super) fn next(
        &self,
        stage: ConnState,
        config: &StreamConfig,
    ) -> Option<(Instant, Deadline)> {
        let staged = |timeout, deadline| Some((self.staged_at + timeout, deadline));
        match stage {
            ConnState::Connecting | ConnState::Handshaking => {
                staged(config.handshake_timeout, Deadline::Handshake)
            }
            ConnState::Closing => staged(config.record_timeout, Deadline::Linger),
            ConnState::Lingering => staged(config.linger_timeout, Deadline::Linger),
            ConnState::Open(_) => {
                let stall = self
                    .stalled_since
                    .map(|since| (since + config.stall_timeout, Deadline::Stall));
                let record = self
                    .partial_since
                    .map(|since| (since + config.record_timeout, Deadline::Record));
                let idle = Some((self.received_at + config.idle_timeout, Deadline::Idle));
                [record, idle]
                    .into_iter()
                    .filter(|_| !self.is_paused)
                    .chain([stall])
                    .flatten()
                    .min_by_key(|(at, _)| *at)
            }
        }
    }
}

const CHUNK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ConnectionId;

    const OPEN: ConnState = ConnState::Open(ConnectionId(1));

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    fn deadline(deadlines: &ConnDeadlines) -> Option<(Instant, Deadline)> {
        deadlines.next(OPEN, &StreamConfig::default())
    }

    const PIECE: ReadProgress = ReadProgress {
        plaintext: true,
        record: false,
        partial: true,
    };

    #[test]
    fn the_record_timeout_starts_at_its_first_byte() {
        let mut deadlines = ConnDeadlines::new(at(0));
        assert_eq!(deadline(&deadlines), Some((at(60), Deadline::Idle)));
        deadlines.on_received(at(1), PIECE);
        deadlines.on_received(at(9), PIECE);
        assert_eq!(deadline(&deadlines), Some((at(11), Deadline::Record)));
        // One record ended, and the next began.
        deadlines.on_received(
            at(10),
            ReadProgress {
                record: true,
                ..PIECE
            },
        );
        assert_eq!(deadline(&deadlines), Some((at(20), Deadline::Record)));
        deadlines.on_received(
            at(11),
            ReadProgress {
                record: true,
                partial: false,
                ..PIECE
            },
        );
        assert_eq!(deadline(&deadlines), Some((at(71), Deadline::Idle)));
        // TLS records that never become plaintext also count.
        deadlines.on_received(at(20), ReadProgress::default());
        deadlines.on_received(at(25), ReadProgress::default());
        assert_eq!(deadline(&deadlines), Some((at(30), Deadline::Record)));
    }

    #[test]
    fn idle_time_does_not_count_while_the_application_is_paused() {
        let mut deadlines = ConnDeadlines::new(at(0));
        deadlines.on_received(at(1), PIECE);
        deadlines.pause();
        assert_eq!(deadline(&deadlines), None);
        deadlines.on_blocked(at(2));
        assert_eq!(deadline(&deadlines), Some((at(32), Deadline::Stall)));
        deadlines.on_written();
        deadlines.resume(at(100));
        assert_eq!(deadline(&deadlines), Some((at(110), Deadline::Record)));
    }
}
