//! The connections of a driver, from open to close.

use std::sync::Arc;

use crypto::tls::TlsIdentity;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::{ServerConfig, ServerConnection};
use wire::{CloseCause, CommandId, ConnectionId, Instant, SourceKey, StreamMachine};

use super::upper::Upper;
use crate::tcp::application::{Dial, DialError, DialPeer, StreamApplication};
use crate::tcp::config::StreamConfig;
use crate::tcp::connection::{Connection, Expected, Fault, Side, Stage};
use crate::tcp::counters::StreamLedger;
use crate::tcp::patience::Deadline;
use crate::tcp::table::{Key, NoPlace, Table};
use crate::tcp::tls;

/// The connections of a driver.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) table: Table,
    /// Connections that may be readable.
    pub(super) ready: Vec<Key>,
    /// Connections that may have data to write.
    pub(super) dirty: Vec<Key>,
    /// Replaces one of the lists while that is iterated.
    pub(super) spare: Vec<Key>,
    pub(super) config: StreamConfig,
    pub(super) ledger: Arc<StreamLedger>,
    /// The identity that dials prove, if any.
    identity: Option<TlsIdentity>,
    pub(super) registry: Registry,
    /// Receive buffer of sockets.
    pub(super) ciphertext: Box<[u8]>,
    /// Receive buffer of TLS plaintext.
    pub(super) plaintext: Box<[u8]>,
    /// Reads of handshake sockets left in this turn.
    pub(super) handshakes_left: usize,
    /// Whether the driver is ending and rejects dials.
    is_ending: bool,
}

impl Links {
    pub(super) fn new(
        first_key: usize,
        config: StreamConfig,
        ledger: Arc<StreamLedger>,
        identity: Option<TlsIdentity>,
        registry: Registry,
    ) -> Self {
        Self {
            table: Table::new(first_key),
            ready: Vec::new(),
            dirty: Vec::new(),
            spare: Vec::new(),
            config,
            ledger,
            identity,
            registry,
            ciphertext: vec![0; READ_LEN].into_boxed_slice(),
            plaintext: vec![0; PLAINTEXT_LEN].into_boxed_slice(),
            handshakes_left: 0,
            is_ending: false,
        }
    }

    /// Adds an accepted connection, or closes it if a limit is reached.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        io: TcpStream,
        source: SourceKey,
        tls: &Arc<ServerConfig>,
    ) {
        self.ledger.accepted.add(1);
        let (key, dropped) = match self.table.place(now, Some(source), &self.config) {
            Ok(place) => place,
            Err(NoPlace::Full) => return self.ledger.refused_full.add(1),
            Err(NoPlace::Handshakes) => return self.ledger.refused_handshakes.add(1),
            Err(NoPlace::Source) => return self.ledger.refused_source.add(1),
        };
        if let Some(dropped) = dropped {
            self.table.remove(dropped);
            self.ledger.failed_crowded.add(1);
        }
        let Ok(tls) = ServerConnection::new(Arc::clone(tls)) else {
            return self.ledger.failed_tls.add(1);
        };
        let side = Side::Accepted(source);
        let connection = Connection::new(now, io, tls.into(), side, &self.config);
        if self.register(now, key, connection).is_none() {
            self.ledger.failed_gone.add(1);
        }
    }

    /// Dials for the machine's command `id`.
    pub(super) fn dial<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        id: CommandId,
        dial: &Dial,
        upper: &mut Upper<M, A>,
    ) {
        if let Err(error) = self.try_dial(now, id, dial) {
            upper.dialled(now, id, Err(error));
        }
    }

    fn try_dial(&mut self, now: Instant, id: CommandId, dial: &Dial) -> Result<(), DialError> {
        let refuse = |error| {
            self.ledger.dials_refused.add(1);
            error
        };
        if self.is_ending {
            return Err(refuse(DialError::Ended));
        }
        let (key, _) = self
            .table
            .place(now, None, &self.config)
            .map_err(|_| refuse(DialError::Full))?;
        let tls =
            tls::connect(self.identity.as_ref(), dial).map_err(|_| refuse(DialError::Malformed))?;
        self.ledger.dialled.add(1);
        let unreachable = |kind| {
            self.ledger.failed_unreachable.add(1);
            DialError::Unreachable(kind)
        };
        let io = TcpStream::connect(dial.address).map_err(|error| unreachable(error.kind()))?;
        let expected = match dial.peer {
            DialPeer::Node(node) => Expected::Node(node),
            DialPeer::Host(_) => Expected::Host,
        };
        let side = Side::Dialled(id, expected);
        let connection = Connection::new(now, io, tls.into(), side, &self.config);
        if self.register(now, key, connection).is_none() {
            self.ledger.failed_gone.add(1);
            return Err(DialError::Full);
        }
        Ok(())
    }

    /// Registers a new connection with the system's wait.
    pub(super) fn register(
        &mut self,
        now: Instant,
        key: Key,
        mut connection: Connection,
    ) -> Option<()> {
        // If this fails, small records are delayed; nothing else changes.
        drop(connection.io.set_nodelay(true));
        self.registry
            .register(
                &mut connection.io,
                Token(key.0),
                Interest::READABLE | Interest::WRITABLE,
            )
            .ok()?;
        self.table.insert(now, key, connection);
        self.table.schedule(key, &self.config);
        Some(())
    }

    /// Handles a socket event of a connection.
    pub(super) fn note_event<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        (key, event): (Key, &mio::event::Event),
        upper: &mut Upper<M, A>,
    ) {
        let Some(connection) = self.table.get_mut(key) else {
            return;
        };
        if connection.stage == Stage::Connecting {
            match connection.is_connected() {
                Ok(true) => connection.stage = Stage::Handshaking,
                Ok(false) => return,
                Err(fault) => return self.fail(now, key, fault, upper),
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if !connection.is_ready.read {
                self.ready.push(key);
            }
            connection.is_ready.read = true;
        }
        if event.is_writable() || event.is_write_closed() {
            connection.is_ready.write = true;
            if !connection.is_dirty {
                connection.is_dirty = true;
                self.dirty.push(key);
            }
        }
    }

    /// Opens a connection after its handshake.
    pub(super) fn open<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        upper: &mut Upper<M, A>,
    ) -> Result<(), Fault> {
        let Some(connection) = self.table.get_mut(key) else {
            return Ok(());
        };
        let Some(peer) = connection.peer()? else {
            return Err(Fault::Tls);
        };
        let side = connection.side;
        if let Side::Accepted(_) = side {
            // Confirms to the dialler that its key was accepted.
            connection.push(&[])?;
            self.mark_dirty(key);
        }
        let id = self.table.open(now, key).ok_or(Fault::Refused)?;
        self.ledger.opened.add(1);
        upper.opened(now, id, &peer, self.config.credit());
        if let Side::Dialled(command, _) = side {
            upper.dialled(now, command, Ok(id));
        }
        Ok(())
    }

    pub(super) fn mark_dirty(&mut self, key: Key) {
        if let Some(connection) = self.table.get_mut(key)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(key);
        }
    }

    /// Ends a connection at once, and reports the fault to the machine or the dial.
    pub(super) fn fail<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        fault: Fault,
        upper: &mut Upper<M, A>,
    ) {
        let Some(mut connection) = self.table.remove(key) else {
            return;
        };
        match connection.stage {
            Stage::Closing | Stage::Lingering => {}
            Stage::Connecting | Stage::Handshaking => {
                tracing::debug!(?fault, side = ?connection.side, "handshake failed");
                self.count_failed(fault);
                match (connection.side, fault) {
                    (Side::Dialled(command, expected), fault) => {
                        let error = dial_error(fault, expected);
                        upper.dialled(now, command, Err(error));
                    }
                    (Side::Accepted(_), Fault::Stranger(claimed)) => upper.stranger(now, claimed),
                    (Side::Accepted(_), _) => {}
                }
            }
            Stage::Open(id) => {
                tracing::debug!(?fault, connection = id.0, "closed");
                self.count_closed(fault);
                let cause = if fault == Fault::Finished {
                    connection.flush(now).ok();
                    connection.finish();
                    CloseCause::Finished
                } else {
                    CloseCause::Failed
                };
                upper.closed(now, id, cause);
            }
        }
    }

    /// Closes a connection in order.
    pub(super) fn close<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        id: ConnectionId,
        upper: &mut Upper<M, A>,
    ) {
        let Some(key) = self.table.key_of(id) else {
            return;
        };
        self.table.forget_id(id);
        if let Some(connection) = self.table.get_mut(key) {
            connection.set_stage(now, Stage::Closing);
        }
        self.mark_dirty(key);
        self.table.schedule(key, &self.config);
        self.ledger.closed_local.add(1);
        upper.closed(now, id, CloseCause::Local);
    }

    /// Closes all connections in order, drops handshakes and rejects further dials.
    pub(super) fn close_all<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        upper: &mut Upper<M, A>,
    ) {
        self.is_ending = true;
        let keys: Vec<_> = self.table.keys().collect();
        for key in keys {
            let Some(connection) = self.table.get_mut(key) else {
                continue;
            };
            match connection.stage {
                Stage::Open(id) => self.close(now, id, upper),
                Stage::Closing | Stage::Lingering => {}
                Stage::Connecting | Stage::Handshaking => {
                    let side = connection.side;
                    self.table.remove(key);
                    self.ledger.failed_shutdown.add(1);
                    if let Side::Dialled(command, _) = side {
                        upper.dialled(now, command, Err(DialError::Ended));
                    }
                }
            }
        }
    }

    /// Ends the connections that passed their deadline by `as_of`.
    pub(super) fn run_deadlines<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        (now, as_of): (Instant, Instant),
        upper: &mut Upper<M, A>,
    ) {
        while let Some(key) = self.table.pop_due(as_of) {
            let Some(connection) = self.table.get_mut(key) else {
                continue;
            };
            match connection.patience.deadline(connection.stage, &self.config) {
                Some((at, deadline)) if at <= as_of => {
                    self.fail(now, key, Fault::Late(deadline), upper);
                }
                Some(_) | None => self.table.schedule(key, &self.config),
            }
        }
    }

    fn count_failed(&self, fault: Fault) {
        let ledger = &self.ledger;
        let count = match fault {
            Fault::Finished | Fault::Reset => &ledger.failed_gone,
            Fault::Unreachable(_) => &ledger.failed_unreachable,
            Fault::Stranger(_) | Fault::Certificate(_) | Fault::BadProof => &ledger.failed_identity,
            Fault::Refused => &ledger.failed_refused,
            Fault::Late(_) => &ledger.failed_timeout,
            Fault::Tls | Fault::TooLong | Fault::Overrun => &ledger.failed_tls,
        };
        count.add(1);
    }

    fn count_closed(&self, fault: Fault) {
        let ledger = &self.ledger;
        let count = match fault {
            Fault::Finished => &ledger.closed_finished,
            Fault::Reset | Fault::Unreachable(_) => &ledger.closed_reset,
            Fault::TooLong => &ledger.closed_too_long,
            Fault::Overrun => &ledger.closed_overrun,
            Fault::Late(Deadline::Record) => &ledger.closed_slow,
            Fault::Late(Deadline::Stall) => &ledger.closed_stalled,
            Fault::Late(_) => &ledger.closed_idle,
            Fault::Stranger(_)
            | Fault::Certificate(_)
            | Fault::BadProof
            | Fault::Refused
            | Fault::Tls => &ledger.closed_tls,
        };
        count.add(1);
    }
}

/// Returns the dial error for the fault that ended a dial.
const fn dial_error(fault: Fault, expected: Expected) -> DialError {
    match fault {
        Fault::Stranger(found) => match expected {
            Expected::Node(expected) => DialError::WrongNode { expected, found },
            Expected::Host => DialError::Malformed,
        },
        Fault::Certificate(fault) => DialError::Certificate(fault),
        Fault::Unreachable(kind) => DialError::Unreachable(kind),
        Fault::Refused => DialError::Refused,
        Fault::Late(_) => DialError::TimedOut,
        Fault::Finished | Fault::Reset => DialError::Gone,
        Fault::BadProof | Fault::Tls | Fault::TooLong | Fault::Overrun => DialError::Malformed,
    }
}

/// Size of a socket read, bytes.
const READ_LEN: usize = 64 << 10;

/// Size of a plaintext read, bytes: one TLS record.
const PLAINTEXT_LEN: usize = 16 << 10;
