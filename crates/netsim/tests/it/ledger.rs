//! A small stream machine, correct or broken in one way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wire::{
    CloseCause, CommandId, ConnectionId, Effect, Instant, Outbound, PeerIdentity, Reader,
    StreamMachine, Writer,
};

/// Stores the numbers that peers send, and confirms each once it is stored.
pub(crate) struct Ledger {
    fault: Fault,
    now: Instant,
    /// In the order in which records are sent.
    connections: BTreeMap<ConnectionId, Connection>,
    commands: VecDeque<(CommandId, Store)>,
    /// Numbers that are being stored, and the connection that waits for each.
    open: BTreeMap<CommandId, (ConnectionId, u64)>,
    next_command: u64,
    greeting_at: Option<Instant>,
    /// Used only with [`Fault::Hoards`].
    hoard: Vec<Vec<u8>>,
}

/// The defect of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Writes regardless of credit.
    IgnoresCredit,
    /// Keeps the queue of closed connections, and writes it.
    WritesToTheDead,
    /// Sends a greeting on every timeout call.
    EarlyTimer,
    /// Keeps every record it has seen.
    Hoards,
}

#[derive(Debug)]
#[expect(dead_code, reason = "the transcript shows the number")]
pub(crate) struct Store(u64);

impl Effect for Store {
    type Outcome = bool;
}

#[derive(Default)]
struct Connection {
    credit: usize,
    outbox: VecDeque<(u8, u64)>,
    /// Closes once its outbox is empty.
    closing: bool,
}

impl Ledger {
    pub(crate) const fn new(now: Instant, fault: Fault) -> Self {
        Self {
            fault,
            now,
            connections: BTreeMap::new(),
            commands: VecDeque::new(),
            open: BTreeMap::new(),
            next_command: 0,
            greeting_at: None,
            hoard: Vec::new(),
        }
    }

    pub(crate) fn publish(&mut self, now: Instant, number: u64) {
        self.tell(now);
        for connection in self.connections.values_mut() {
            connection.push(NUMBER, number);
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let outboxes = self.connections.values().map(|c| c.outbox.len());
        let hoard: usize = self.hoard.iter().map(Vec::len).sum();
        hoard + 64 * (outboxes.sum::<usize>() + self.connections.len() + self.open.len())
    }

    fn tell(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    fn store(&mut self, connection: ConnectionId, number: u64) {
        if self.open.len() >= OPEN_MAX {
            return;
        }
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.open.insert(id, (connection, number));
        self.commands.push_back((id, Store(number)));
    }

    fn greet(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            connection.push(GREETING, 0);
        }
        self.greeting_at = (!self.connections.is_empty()).then_some(now + GREETING_PERIOD);
    }
}

impl Connection {
    fn push(&mut self, kind: u8, number: u64) {
        if self.outbox.len() < OUTBOX_MAX && !self.closing {
            self.outbox.push_back((kind, number));
        }
    }
}

impl StreamMachine for Ledger {
    type Event = (ConnectionId, u64);
    type Command = Store;

    fn handle_opened(&mut self, now: Instant, connection: ConnectionId, _peer: &PeerIdentity) {
        let now = self.tell(now);
        if self.connections.len() < CONNECTIONS_MAX {
            self.connections.insert(connection, Connection::default());
            self.greeting_at.get_or_insert(now + GREETING_PERIOD);
        }
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, record: &[u8]) {
        self.tell(now);
        let mut reader = Reader::new(record);
        let Some(from) = self.connections.get_mut(&connection) else {
            return;
        };
        if self.fault == Fault::Hoards {
            self.hoard.push(record.to_vec());
        }
        match (reader.u8(), reader.u64()) {
            (Ok(NUMBER), Ok(number)) => self.store(connection, number),
            (Ok(CONFIRMED | GREETING), Ok(_)) => {}
            _ => from.closing = true,
        }
    }

    fn handle_credit(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        self.tell(now);
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.credit += bytes;
        }
    }

    fn handle_closed(&mut self, now: Instant, connection: ConnectionId, _cause: CloseCause) {
        self.tell(now);
        if self.fault != Fault::WritesToTheDead {
            self.connections.remove(&connection);
        }
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        self.tell(now);
        let ignores_credit = self.fault == Fault::IgnoresCredit;
        let writable = |(_, connection): &(&ConnectionId, &mut Connection)| {
            let credit = connection.credit >= RECORD_LEN || ignores_credit;
            (credit && !connection.outbox.is_empty())
                || (connection.closing && connection.outbox.is_empty())
        };
        let (&id, connection) = self.connections.iter_mut().find(writable)?;
        let mut close = false;
        if let Some((kind, number)) = connection.outbox.pop_front() {
            let mut writer = Writer::new(buf);
            writer.u8(kind);
            writer.u64(number);
            buf.resize(RECORD_LEN, 0);
            connection.credit = connection.credit.saturating_sub(RECORD_LEN);
        } else {
            close = true;
            self.connections.remove(&id);
        }
        Some(Outbound {
            connection: id,
            close,
        })
    }

    fn handle_timeout(&mut self, now: Instant) {
        let now = self.tell(now);
        let due = self.greeting_at.is_some_and(|at| at <= now);
        if due || self.fault == Fault::EarlyTimer {
            self.greet(now);
        }
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, stored: bool) {
        self.tell(now);
        if let Some((waiting, number)) = self.open.remove(&id)
            && let Some(connection) = self.connections.get_mut(&waiting)
            && stored
        {
            connection.push(CONFIRMED, number);
        }
    }

    fn poll_command(&mut self) -> Option<(CommandId, Store)> {
        self.commands.pop_front()
    }

    fn poll_event(&mut self) -> Option<(ConnectionId, u64)> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.greeting_at
    }
}

pub(crate) const NUMBER: u8 = 1;
const CONFIRMED: u8 = 2;
const GREETING: u8 = 3;
/// Kind, number, and padding, so that few records use up a connection's credit.
const RECORD_LEN: usize = 1_000;
pub(crate) const OPEN_MAX: usize = 32;
pub(crate) const OUTBOX_MAX: usize = 128;
pub(crate) const CONNECTIONS_MAX: usize = 8;
const GREETING_PERIOD: Duration = Duration::from_secs(3);
