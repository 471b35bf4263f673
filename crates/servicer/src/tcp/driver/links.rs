//! The connections of a driver, from open to close.

use std::sync::Arc;

use crypto::tls::TlsIdentity;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::{ServerConfig, ServerConnection};
use wire::{CloseCause, CommandId, ConnectionId, Instant, SourceKey, StreamMachine};

use crate::tcp::StreamConfig;
use crate::tcp::application::{Dial, DialError, DialPeer, StreamApplication};
use crate::tcp::connection::{
    ConnState, Connection, Deadline, Expected, Fault, OpenConnection, Side,
};
use crate::tcp::counters::StreamLedger;
use crate::tcp::table::{Key, NoSlot, Table};
use crate::tcp::tls;

/// The connections of a driver, with the machine and the application that they serve.
#[derive(Debug)]
pub(super) struct Links<M, A> {
    pub(super) machine: M,
    pub(super) application: A,
    pub(super) table: Table,
    /// Connections that may be readable.
    pub(super) ready: Vec<Key>,
    /// Connections that may have data to write.
    pub(super) dirty: Vec<Key>,
    /// Replaces one of the lists while that is iterated.
    pub(super) spare: Vec<Key>,
    pub(super) config: StreamConfig,
    pub(super) ledger: Arc<StreamLedger>,
    identity: Option<TlsIdentity>,
    pub(super) registry: Registry,
    pub(super) ciphertext: Box<[u8]>,
    pub(super) plaintext: Box<[u8]>,
    /// Reads of handshake sockets left in this turn.
    pub(super) handshakes_left: usize,
    /// Whether the driver is ending and rejects dials.
    is_ending: bool,
}

impl<M: StreamMachine, A: StreamApplication<M>> Links<M, A> {
    pub(super) fn new(
        (machine, application): (M, A),
        (config, identity): (StreamConfig, Option<TlsIdentity>),
        first_key: usize,
        ledger: Arc<StreamLedger>,
        registry: Registry,
    ) -> Self {
        Self {
            machine,
            application,
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
        let (key, evicted) = match self.table.reserve(now, Some(source), &self.config) {
            Ok(slot) => slot,
            Err(NoSlot::Full) => return self.ledger.refused_full.add(1),
            Err(NoSlot::Handshakes) => return self.ledger.refused_handshakes.add(1),
            Err(NoSlot::Source) => return self.ledger.refused_source.add(1),
        };
        if let Some(evicted) = evicted {
            self.table.remove(evicted);
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

    pub(super) fn dial(&mut self, now: Instant, id: CommandId, dial: &Dial) {
        if let Err(error) = self.try_dial(now, id, dial) {
            self.on_dialled(now, id, Err(error));
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
            .reserve(now, None, &self.config)
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

    pub(super) fn is_busy(&self) -> bool {
        self.application.is_busy(&self.machine)
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        command: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        self.application
            .on_dialled(now, &mut self.machine, command, result);
    }

    /// Registers a new connection with the system's wait.
    fn register(&mut self, now: Instant, key: Key, mut connection: Connection) -> Option<()> {
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

    pub(super) fn on_socket_event(&mut self, now: Instant, key: Key, event: &mio::event::Event) {
        let Some(connection) = self.table.get_mut(key) else {
            return;
        };
        if connection.stage == ConnState::Connecting {
            match connection.is_connected() {
                Ok(true) => connection.stage = ConnState::Handshaking,
                Ok(false) => return,
                Err(fault) => return self.fail(now, key, fault),
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
            self.mark_dirty(key);
        }
    }

    pub(super) fn open(&mut self, now: Instant, key: Key) -> Result<(), Fault> {
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
        self.machine.handle_opened(now, id, &peer);
        self.machine.handle_credit(now, id, self.config.credit());
        if let Side::Dialled(command, _) = side {
            self.on_dialled(now, command, Ok(id));
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
    pub(super) fn fail(&mut self, now: Instant, key: Key, fault: Fault) {
        let Some(mut connection) = self.table.remove(key) else {
            return;
        };
        match connection.stage {
            ConnState::Closing | ConnState::Lingering => {}
            ConnState::Connecting | ConnState::Handshaking => {
                tracing::debug!(?fault, side = ?connection.side, "handshake failed");
                self.count_failed(fault);
                match (connection.side, fault) {
                    (Side::Dialled(command, expected), fault) => {
                        let error = dial_error(fault, expected);
                        self.on_dialled(now, command, Err(error));
                    }
                    (Side::Accepted(_), Fault::UnknownNode(claimed)) => {
                        self.application
                            .on_unknown_node(now, &mut self.machine, claimed);
                    }
                    (Side::Accepted(_), _) => {}
                }
            }
            ConnState::Open(id) => {
                tracing::debug!(?fault, connection = id.0, "closed");
                self.count_closed(fault);
                let cause = if fault == Fault::Finished {
                    connection.flush(now).ok();
                    connection.finish();
                    CloseCause::Finished
                } else {
                    CloseCause::Failed
                };
                self.machine.handle_closed(now, id, cause);
            }
        }
    }

    pub(super) fn close(&mut self, now: Instant, id: ConnectionId) {
        let Some(key) = self.table.key_of(id) else {
            return;
        };
        self.table.forget_id(id);
        if let Some(connection) = self.table.get_mut(key) {
            connection.set_stage(now, ConnState::Closing);
        }
        self.mark_dirty(key);
        self.table.schedule(key, &self.config);
        self.ledger.closed_local.add(1);
        self.machine.handle_closed(now, id, CloseCause::Local);
    }

    /// Closes all connections in order, drops handshakes and rejects further dials.
    pub(super) fn close_all(&mut self, now: Instant) {
        self.is_ending = true;
        let keys: Vec<_> = self.table.keys().collect();
        for key in keys {
            let Some(connection) = self.table.get_mut(key) else {
                continue;
            };
            match connection.stage {
                ConnState::Open(id) => self.close(now, id),
                ConnState::Closing | ConnState::Lingering => {}
                ConnState::Connecting | ConnState::Handshaking => {
                    let side = connection.side;
                    self.table.remove(key);
                    self.ledger.failed_shutdown.add(1);
                    if let Side::Dialled(command, _) = side {
                        self.on_dialled(now, command, Err(DialError::Ended));
                    }
                }
            }
        }
    }

    /// Ends the connections that passed their deadline by `as_of`.
    pub(super) fn run_deadlines(&mut self, now: Instant, as_of: Instant) {
        while let Some(key) = self.table.pop_due(as_of) {
            let Some(connection) = self.table.get_mut(key) else {
                continue;
            };
            match connection.deadlines.next(connection.stage, &self.config) {
                Some((at, deadline)) if at <= as_of => {
                    self.fail(now, key, Fault::DeadlinePassed(deadline));
                }
                Some(_) | None => self.table.schedule(key, &self.config),
            }
        }
    }

    /// Adopts the connections that the application has for the driver.
    pub(super) fn adopt_arrivals(&mut self, now: Instant) {
        while let Some(arrival) = self.application.poll_arrival(&mut self.machine) {
            self.adopt(now, arrival);
        }
    }

    fn adopt(&mut self, now: Instant, arrival: OpenConnection) {
        let OpenConnection {
            mut connection,
            peer,
        } = arrival;
        self.ledger.taken_over.add(1);
        connection.reset_for(&self.config);
        let slot = self.table.reserve(now, None, &self.config).ok();
        let opened = slot.and_then(|(key, _)| {
            self.register(now, key, *connection)?;
            Some((key, self.table.open(now, key)?))
        });
        match opened {
            Some((key, id)) => {
                self.machine.handle_opened(now, id, &peer);
                self.machine.handle_credit(now, id, self.config.credit());
                self.table.schedule(key, &self.config);
                self.mark_dirty(key);
            }
            None => {
                // The machine expects the open event, so it receives open and close together.
                if let Some(id) = self.table.next_id() {
                    self.ledger.closed_reset.add(1);
                    self.machine.handle_opened(now, id, &peer);
                    self.machine.handle_closed(now, id, CloseCause::Failed);
                }
            }
        }
    }

    /// Hands over the connections that the application names. Returns whether there were any.
    pub(super) fn hand_over_departures(&mut self, now: Instant) -> bool {
        let mut has_any = false;
        while let Some(id) = self.application.poll_departure(&mut self.machine) {
            has_any = true;
            if let Some(handed_over) = self.hand_over(now, id) {
                self.application
                    .on_handed_over(now, &mut self.machine, handed_over);
            }
        }
        has_any
    }

    /// Removes a connection for another driver. The machine sees it close.
    fn hand_over(&mut self, now: Instant, id: ConnectionId) -> Option<OpenConnection> {
        let key = self.table.key_of(id)?;
        let mut connection = self.table.hand_over(key)?;
        self.ledger.handed_over.add(1);
        self.machine.handle_closed(now, id, CloseCause::Local);
        self.registry.deregister(&mut connection.io).ok()?;
        // A connection counts in the table of the driver that accepted it, and in no other.
        if let Side::Accepted(source) = connection.side
            && connection.permit.is_none()
        {
            connection.permit = Some(self.table.permit(source, key));
        }
        let peer = connection.peer().ok().flatten()?;
        connection.stage = ConnState::Handshaking;
        Some(OpenConnection { connection, peer })
    }

    fn count_failed(&self, fault: Fault) {
        let ledger = &self.ledger;
        let count = match fault {
            Fault::Finished | Fault::Reset => &ledger.failed_gone,
            Fault::Unreachable(_) => &ledger.failed_unreachable,
            Fault::UnknownNode(_) | Fault::Certificate(_) | Fault::BadProof => {
                &ledger.failed_identity
            }
            Fault::Refused => &ledger.failed_refused,
            Fault::DeadlinePassed(_) => &ledger.failed_timeout,
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
            Fault::DeadlinePassed(Deadline::Record) => &ledger.closed_slow,
            Fault::DeadlinePassed(Deadline::Stall) => &ledger.closed_stalled,
            Fault::DeadlinePassed(_) => &ledger.closed_idle,
            Fault::UnknownNode(_)
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
        Fault::UnknownNode(found) => match expected {
            Expected::Node(expected) => DialError::WrongNode { expected, found },
            Expected::Host => DialError::Malformed,
        },
        Fault::Certificate(fault) => DialError::Certificate(fault),
        Fault::Unreachable(kind) => DialError::Unreachable(kind),
        Fault::Refused => DialError::Refused,
        Fault::DeadlinePassed(_) => DialError::TimedOut,
        Fault::Finished | Fault::Reset => DialError::Gone,
        Fault::BadProof | Fault::Tls | Fault::TooLong | Fault::Overrun => DialError::Malformed,
    }
}

const READ_LEN: usize = 64 << 10;

/// Size of a plaintext read, bytes: one TLS record.
const PLAINTEXT_LEN: usize = 16 << 10;
