//! Receiving and sending: socket bytes to plaintext to records, and back.

use wire::{Instant, Outbound, StreamMachine};

use super::links::Links;
use crate::Clock;
use crate::tcp::application::StreamApplication;
use crate::tcp::connection::{ConnState, Fault, ReadProgress, Side};
use crate::tcp::record::TooLong;
use crate::tcp::table::Key;

impl<M: StreamMachine, A: StreamApplication<M>> Links<M, A> {
    /// Reads once from each ready socket. Returns the bytes read.
    pub(super) fn receive_round(&mut self, clock: Clock) -> usize {
        let mut bytes = 0_usize;
        let mut round = std::mem::take(&mut self.spare);
        std::mem::swap(&mut round, &mut self.ready);
        for key in round.drain(..) {
            if self.is_paused(clock.now(), key) || self.is_deferred(key) {
                self.ready.push(key);
                continue;
            }
            match self.receive(clock, key) {
                Ok(more) => bytes = bytes.saturating_add(more),
                Err(fault) => {
                    // A close counts as work, because the machine may respond to it.
                    bytes = bytes.saturating_add(1);
                    self.fail(clock.now(), key, fault);
                    continue;
                }
            }
            if let Some(connection) = self.table.get_mut(key) {
                if connection.is_ready.read {
                    self.ready.push(key);
                }
                self.mark_dirty(key);
                self.table.schedule(key, &self.config);
            }
        }
        self.spare = round;
        bytes
    }

    /// Returns whether a socket may hold data that the application would take.
    pub(super) fn is_behind(&self) -> bool {
        self.ready.iter().any(|key| self.may_read(*key))
    }

    /// Returns whether the application takes no records of this connection.
    fn is_paused(&mut self, now: Instant, key: Key) -> bool {
        let Some(connection) = self.table.get_mut(key) else {
            return false;
        };
        if let ConnState::Open(id) = connection.stage
            && !self.application.may_receive(&self.machine, id)
        {
            connection.deadlines.pause();
            return true;
        }
        connection.deadlines.resume(now);
        false
    }

    /// Returns whether a handshake socket must wait for the next turn, because this one has used
    /// its handshake budget.
    fn is_deferred(&mut self, key: Key) -> bool {
        let in_handshake = self.table.get_mut(key).is_some_and(|connection| {
            connection.stage == ConnState::Handshaking
                && matches!(connection.side, Side::Accepted(_))
        });
        if !in_handshake {
            return false;
        }
        match self.handshakes_left.checked_sub(1) {
            Some(left) => {
                self.handshakes_left = left;
                false
            }
            None => true,
        }
    }

    /// Reads one socket, up to a bound. Returns the bytes read.
    fn receive(&mut self, clock: Clock, key: Key) -> Result<usize, Fault> {
        let mut total = 0_usize;
        // Taken out because the calls below borrow `self`.
        let mut buffer = std::mem::take(&mut self.ciphertext);
        let mut result = Ok(());
        for _ in 0..READS_MAX {
            let Some(connection) = self.table.get_mut(key) else {
                break;
            };
            let len = match connection.read(&mut buffer) {
                Ok(Some(len)) => len,
                Ok(None) => break,
                Err(fault) => {
                    result = Err(fault);
                    break;
                }
            };
            total = total.saturating_add(len);
            let bytes = buffer.get(..len).unwrap_or_default();
            result = self.take(clock.now(), key, bytes);
            // The application may take nothing more after these bytes.
            if result.is_err() || len == buffer.len() || !self.may_read(key) {
                break;
            }
        }
        self.ciphertext = buffer;
        result.map(|()| total)
    }

    fn take(&mut self, now: Instant, key: Key, mut bytes: &[u8]) -> Result<(), Fault> {
        let mut progress = ReadProgress::default();
        let was_open = self.is_open(key);
        while !bytes.is_empty() {
            let Some(connection) = self.table.get_mut(key) else {
                return Ok(());
            };
            if matches!(connection.stage, ConnState::Closing | ConnState::Lingering) {
                return Ok(());
            }
            connection.decrypt(&mut bytes)?;
            if connection.stage == ConnState::Handshaking
                && matches!(connection.side, Side::Accepted(_))
                && connection.peer()?.is_some()
            {
                self.open(now, key)?;
            }
            self.take_plaintext(now, key, &mut progress)?;
        }
        if was_open && let Some(connection) = self.table.get_mut(key) {
            progress.partial = connection.reader.is_partial();
            connection.deadlines.on_received(now, progress);
        }
        Ok(())
    }

    fn take_plaintext(
        &mut self,
        now: Instant,
        key: Key,
        progress: &mut ReadProgress,
    ) -> Result<(), Fault> {
        let mut buffer = std::mem::take(&mut self.plaintext);
        let result = loop {
            let Some(connection) = self.table.get_mut(key) else {
                break Ok(());
            };
            let len = match connection.plaintext(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(len) => len,
                Err(Fault::Finished) if connection.reader.is_partial() => break Err(Fault::Reset),
                Err(fault) => break Err(fault),
            };
            progress.plaintext = true;
            let bytes = buffer.get(..len).unwrap_or_default();
            if let Err(fault) = self.take_records(now, key, (bytes, progress)) {
                break Err(fault);
            }
        };
        self.plaintext = buffer;
        result
    }

    fn take_records(
        &mut self,
        now: Instant,
        key: Key,
        (mut bytes, progress): (&[u8], &mut ReadProgress),
    ) -> Result<(), Fault> {
        loop {
            let Some(connection) = self.table.get_mut(key) else {
                return Ok(());
            };
            let stage = connection.stage;
            let record = match connection.reader.next(&mut bytes) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                Err(TooLong) => return Err(Fault::TooLong),
            };
            progress.record = true;
            let is_empty = record.is_empty();
            match stage {
                ConnState::Open(id) => {
                    self.ledger.records_in.add(1);
                    self.ledger
                        .bytes_in
                        .add(u64::try_from(record.len()).unwrap_or(u64::MAX));
                    self.machine.handle_frame(now, id, record);
                }
                // The accepter's empty first record: the dial has succeeded.
                ConnState::Handshaking if is_empty => self.open(now, key)?,
                ConnState::Handshaking => return Err(Fault::Tls),
                ConnState::Connecting | ConnState::Closing | ConnState::Lingering => return Ok(()),
            }
        }
    }

    /// Returns whether to read from a connection. If it is open, the application decides.
    fn may_read(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(|it| match it.stage {
            ConnState::Open(id) => self.application.may_receive(&self.machine, id),
            ConnState::Connecting
            | ConnState::Handshaking
            | ConnState::Closing
            | ConnState::Lingering => true,
        })
    }

    fn is_open(&self, key: Key) -> bool {
        let connection = self.table.get(key);
        connection.is_some_and(|it| matches!(it.stage, ConnState::Open(_)))
    }

    pub(super) fn push(&mut self, now: Instant, outbound: Outbound, record: &[u8]) {
        let id = outbound.connection;
        let Some(key) = self.table.key_of(id) else {
            self.ledger.dropped_out_closed.add(1);
            return;
        };
        let Some(connection) = self.table.get_mut(key) else {
            return;
        };
        // An empty record with `close` means only the close.
        if !(outbound.close && record.is_empty()) {
            if let Err(fault) = connection.push(record) {
                return self.fail(now, key, fault);
            }
            self.ledger.records_out.add(1);
            self.ledger
                .bytes_out
                .add(u64::try_from(record.len()).unwrap_or(u64::MAX));
        }
        self.mark_dirty(key);
        if outbound.close {
            self.close(now, id);
        }
    }

    /// Writes queued data as far as the sockets take it. Returns whether the machine was called.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        let mut was_called = false;
        let mut round = std::mem::take(&mut self.spare);
        std::mem::swap(&mut round, &mut self.dirty);
        for key in round.drain(..) {
            was_called |= self.flush_one(now, key);
        }
        self.spare = round;
        was_called
    }

    fn flush_one(&mut self, now: Instant, key: Key) -> bool {
        let Some(connection) = self.table.get_mut(key) else {
            return false;
        };
        connection.is_dirty = false;
        let written = match connection.flush(now) {
            Ok(written) => written,
            Err(fault) => {
                self.fail(now, key, fault);
                return true;
            }
        };
        let is_flushed = connection.is_flushed();
        if !is_flushed && !connection.is_ready.write {
            self.ledger.writes_blocked.add(1);
        }
        let stage = connection.stage;
        if is_flushed && stage == ConnState::Closing {
            connection.finish();
            connection.set_stage(now, ConnState::Lingering);
        }
        self.table.schedule(key, &self.config);
        if let ConnState::Open(id) = stage
            && written > 0
        {
            self.machine.handle_credit(now, id, written);
            return true;
        }
        false
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.table
            .values()
            .all(|connection| match connection.stage {
                ConnState::Open(_) => connection.is_flushed(),
                ConnState::Connecting
                | ConnState::Handshaking
                | ConnState::Closing
                | ConnState::Lingering => true,
            })
    }

    /// Sends the TLS close on all open connections, without waiting.
    pub(super) fn finish_all(&mut self) {
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            if let Some(connection) = self.table.get_mut(key)
                && matches!(connection.stage, ConnState::Open(_))
            {
                connection.finish();
            }
        }
    }
}

/// Maximum reads of one socket per round, including the one that finds it empty.
const READS_MAX: usize = 4;
