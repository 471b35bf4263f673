//! One TCP connection: its socket, TLS session, records and deadlines.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;

use mio::net::TcpStream;
use rustls::Error as TlsError;
use wire::{CommandId, ConnectionId, Instant, NodeId, PeerIdentity, SourceKey};

use super::config::StreamConfig;
use super::passage::LentPlace;
use super::patience::{Deadline, Patience};
use super::record::{RecordReader, RecordWriter};
use super::tls;
use super::x509::CertificateFault;

/// One TCP connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) io: TcpStream,
    tls: rustls::Connection,
    pub(super) side: Side,
    pub(super) stage: Stage,
    pub(super) reader: RecordReader,
    writer: RecordWriter,
    /// Bytes of `writer` that are encrypted but not completely written.
    encrypted: usize,
    /// Bytes of records that the machine may write.
    credit: usize,
    pub(super) is_ready: Readiness,
    /// Whether it is in the list of connections to flush.
    pub(super) is_dirty: bool,
    pub(super) patience: Patience,
    /// Its slot in the limits of the driver that accepted it, if another driver serves it.
    pub(super) lent: Option<LentPlace>,
}

/// Readiness of a socket, as last reported by the system.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    /// The socket may be readable.
    pub(super) read: bool,
    /// The socket may be writable.
    pub(super) write: bool,
}

/// Which end opened a connection.
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

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The peer closed the connection in order.
    Finished,
    /// The peer left without a TLS close.
    Reset,
    /// The peer was unreachable.
    Unreachable(ErrorKind),
    /// The peer's key is not the expected one or is not admitted.
    Stranger(NodeId),
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
    Late(Deadline),
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
                Side::Accepted(_) => Stage::Handshaking,
                Side::Dialled(..) => Stage::Connecting,
            },
            reader: RecordReader::new(config.record_bytes_max),
            writer: RecordWriter::default(),
            encrypted: 0,
            credit: config.credit(),
            is_ready: Readiness::default(),
            is_dirty: false,
            patience: Patience::new(now),
            lent: None,
        }
    }

    /// Applies the limits of a new driver, and forgets the readiness seen by the last one.
    pub(super) fn adapt(&mut self, config: &StreamConfig) {
        self.reader.set_len_max(config.record_bytes_max);
        self.credit = config.credit();
        self.is_ready = Readiness::default();
        self.is_dirty = false;
    }

    pub(super) const fn set_stage(&mut self, now: Instant, stage: Stage) {
        self.stage = stage;
        self.patience.restart(now);
    }

    /// Returns whether TCP is connected, or an error if the connect failed.
    pub(super) fn is_connected(&self) -> Result<bool, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.kind());
        if let Some(error) = self.io.take_error().map_err(unreachable)? {
            return Err(unreachable(error));
        }
        match self.io.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if is_not_yet(&error) => Ok(false),
            Err(error) => Err(unreachable(error)),
        }
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

    /// Gives TLS some of `bytes`, received from the socket.
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

    /// Takes plaintext. Returns 0 if none is left.
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

    /// Queues a record of the machine.
    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), Fault> {
        self.credit = self
            .credit
            .checked_sub(record.len())
            .ok_or(Fault::Overrun)?;
        self.writer.push(record).map_err(|_| Fault::Overrun)
    }

    /// Writes queued data as far as the socket takes it. Returns the bytes of records written.
    pub(super) fn flush(&mut self, now: Instant) -> Result<usize, Fault> {
        if self.stage == Stage::Connecting {
            return Ok(0);
        }
        let mut gone = 0_usize;
        while self.is_ready.write {
            let progress = self.write_tls()?;
            if progress > 0 {
                self.patience.on_written();
            }
            if self.tls.wants_write() {
                self.patience.on_blocked(now);
                break;
            }
            gone = gone.saturating_add(self.writer.advance(std::mem::take(&mut self.encrypted)));
            if !self.is_shaken() {
                break;
            }
            let waiting = self.writer.waiting();
            let chunk = waiting.get(..CHUNK).unwrap_or(waiting);
            if chunk.is_empty() {
                break;
            }
            self.encrypted = self.tls.writer().write(chunk).map_err(|_| Fault::Tls)?;
        }
        self.credit = self.credit.saturating_add(gone);
        Ok(gone)
    }

    /// Returns whether no data is queued.
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

    /// Returns whether TLS can encrypt records.
    fn is_shaken(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Maps a TLS error to the fault of the connection.
    fn fault(&self, error: &TlsError) -> Fault {
        if let Some(found) = tls::unknown_node(error) {
            return Fault::Stranger(found);
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

/// Plaintext encrypted per system call, bytes: four TLS records.
const CHUNK: usize = 64 << 10;

/// Returns whether an error of `peer_addr` means that the socket is still connecting.
fn is_not_yet(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotConnected || error.kind() == ErrorKind::InvalidInput
}
