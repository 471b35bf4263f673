//! One TCP connection: its socket, its TLS, its records, and what it may still wait for.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;

use mio::net::TcpStream;
use rustls::Error as TlsError;
use wire::{CommandId, ConnectionId, Instant, NodeId, PeerIdentity, SourceKey};

use super::authorities::CertificateFault;
use super::config::StreamConfig;
use super::passage::LentPlace;
use super::patience::{Deadline, Patience};
use super::record::{RecordReader, RecordWriter};
use super::tls;

/// One TCP connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) io: TcpStream,
    tls: rustls::Connection,
    pub(super) side: Side,
    pub(super) stage: Stage,
    pub(super) reader: RecordReader,
    writer: RecordWriter,
    /// Bytes of `writer` that are encrypted and not wholly written.
    encrypted: usize,
    /// Bytes of records that the machine may still write.
    credit: usize,
    pub(super) is_ready: Readiness,
    /// Whether it waits in the list of those to be flushed.
    pub(super) is_dirty: bool,
    pub(super) patience: Patience,
    /// Its place in the limits of the driver that accepted it, where another serves it.
    pub(super) lent: Option<LentPlace>,
}

/// What the system has said about a socket and not taken back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    /// It may hold something to read.
    pub(super) read: bool,
    /// It may take something to write.
    pub(super) write: bool,
}

/// Who made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The other end.
    Accepted(SourceKey),
    /// We did, as this command asked.
    Dialled(CommandId, Expected),
}

/// Who shall be at the end that was dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// This node.
    Node(NodeId),
    /// The host of the name that TLS was given.
    Host,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// TCP is not through.
    Connecting,
    /// TLS is not through, or the end that accepts has not said that it is.
    Handshaking,
    /// The machine knows it by this id.
    Open(ConnectionId),
    /// The machine is done with it; what waits is still written.
    Closing,
    /// All is written; the other end's farewell is awaited, lest unread bytes cause a reset that
    /// overtakes what was written.
    Lingering,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The other end closed in order.
    Finished,
    /// The other end is gone without a farewell.
    Reset,
    /// Nobody was reached.
    Unreachable(ErrorKind),
    /// The key at the other end is not one to let pass.
    Stranger(NodeId),
    /// The certificate of the host that was dialled is not believed.
    Certificate(CertificateFault),
    /// No key, no key of the right kind, or a bad proof.
    BadProof,
    /// The other end said no.
    Refused,
    /// TLS is broken.
    Tls,
    /// A record is too long.
    TooLong,
    /// A deadline has passed.
    Late(Deadline),
    /// The machine wrote more than it may.
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

    /// Takes the limits of a driver that did not open it, and forgets what the last one's wait said.
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

    /// Returns whether TCP is through by now; an error where it never will be.
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

    /// Reads what the socket has, up to the length of `buffer`; `None` where it has nothing.
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

    /// Gives TLS some of `bytes`, which came from the socket.
    pub(super) fn decrypt(&mut self, bytes: &mut &[u8]) -> Result<(), Fault> {
        // A reader of bytes does not fail, and what it gave before has been taken out.
        if self.tls.read_tls(bytes).is_err() {
            return Err(Fault::Tls);
        }
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The alert that says why, if it gets out.
                self.write_tls().ok();
                tracing::debug!(%error, "TLS failed");
                Err(self.fault(&error))
            }
        }
    }

    /// Takes some plaintext; none is left at 0.
    pub(super) fn plaintext(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        match self.tls.reader().read(buffer) {
            Ok(0) if buffer.is_empty() => Ok(0),
            Ok(0) => Err(Fault::Finished),
            Ok(len) => Ok(len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Fault::Reset),
        }
    }

    /// Returns who is at the other end once TLS is through; `None` before.
    pub(super) fn peer(&self) -> Result<Option<PeerIdentity>, Fault> {
        if self.tls.is_handshaking() {
            return Ok(None);
        }
        tls::peer(&self.tls, self.side).map(Some).ok_or(Fault::Tls)
    }

    /// Takes a record of the machine.
    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), Fault> {
        self.credit = self
            .credit
            .checked_sub(record.len())
            .ok_or(Fault::Overrun)?;
        self.writer.push(record).map_err(|_| Fault::Overrun)
    }

    /// Writes what waits, as far as the socket takes it; returns the bytes of records that went
    /// out.
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

    /// Returns whether nothing waits to be written.
    pub(super) fn is_flushed(&self) -> bool {
        self.writer.waiting().is_empty() && !self.tls.wants_write()
    }

    /// Says that nothing more will come, once nothing waits.
    pub(super) fn finish(&mut self) {
        self.tls.send_close_notify();
        // What the socket does not take now is lost, and nothing but the farewell is in it.
        self.write_tls().ok();
        drop(self.io.shutdown(Shutdown::Write));
    }

    /// Returns whether records may be encrypted.
    fn is_shaken(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// What an error of TLS says about the other end.
    fn fault(&self, error: &TlsError) -> Fault {
        if let Some(found) = tls::stranger(error) {
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

/// Plaintext that is encrypted before a system call, bytes: four records of TLS.
const CHUNK: usize = 64 << 10;

/// Whether a socket's lack of a peer means that it is still connecting.
fn is_not_yet(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotConnected || error.kind() == ErrorKind::InvalidInput
}
