//! Receiving: socket bytes to plaintext to records.

use wire::{Instant, StreamMachine};

use super::links::Links;
use super::upper::Upper;
use crate::Clock;
use crate::tcp::application::StreamApplication;
use crate::tcp::connection::{Connection, Fault, Side, Stage};
use crate::tcp::patience::Heard;
use crate::tcp::record::TooLong;
use crate::tcp::table::Key;

impl Links {
    /// Reads once from each ready socket. Returns the bytes read.
    pub(super) fn receive_round<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        clock: Clock,
        upper: &mut Upper<M, A>,
    ) -> usize {
        let mut bytes = 0_usize;
        let mut round = std::mem::take(&mut self.spare);
        std::mem::swap(&mut round, &mut self.ready);
        for key in round.drain(..) {
            if self.is_paused(clock.now(), key, upper) || self.is_put_off(key) {
                self.ready.push(key);
                continue;
            }
            match self.receive(clock, key, upper) {
                Ok(more) => bytes = bytes.saturating_add(more),
                Err(fault) => {
                    // A close counts as work, because the machine may respond to it.
                    bytes = bytes.saturating_add(1);
                    self.fail(clock.now(), key, fault, upper);
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
    pub(super) fn is_behind<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        upper: &Upper<M, A>,
    ) -> bool {
        let Self { ready, table, .. } = self;
        ready.iter().any(|key| {
            table
                .get_mut(*key)
                .is_some_and(|connection| takes(connection, upper))
        })
    }

    /// Returns whether the application takes no records of this connection.
    fn is_paused<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        upper: &Upper<M, A>,
    ) -> bool {
        let Some(connection) = self.table.get_mut(key) else {
            return false;
        };
        if let Stage::Open(id) = connection.stage
            && !upper.may_receive(id)
        {
            connection.patience.pause();
            return true;
        }
        connection.patience.resume(now);
        false
    }

    /// Returns whether a handshake socket must wait for the next turn, because this one has used
    /// its handshake budget.
    fn is_put_off(&mut self, key: Key) -> bool {
        let in_handshake = self.table.get_mut(key).is_some_and(|connection| {
            connection.stage == Stage::Handshaking && matches!(connection.side, Side::Accepted(_))
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
    fn receive<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        clock: Clock,
        key: Key,
        upper: &mut Upper<M, A>,
    ) -> Result<usize, Fault> {
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
            result = self.take(clock.now(), key, bytes, upper);
            // The application may take nothing more after these bytes.
            if result.is_err() || len == buffer.len() || !self.is_taken(key, upper) {
                break;
            }
        }
        self.ciphertext = buffer;
        result.map(|()| total)
    }

    /// Handles bytes received from a socket.
    fn take<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        mut bytes: &[u8],
        upper: &mut Upper<M, A>,
    ) -> Result<(), Fault> {
        let mut heard = Heard::default();
        let was_open = self.is_open(key);
        while !bytes.is_empty() {
            let Some(connection) = self.table.get_mut(key) else {
                return Ok(());
            };
            if matches!(connection.stage, Stage::Closing | Stage::Lingering) {
                return Ok(());
            }
            connection.decrypt(&mut bytes)?;
            if connection.stage == Stage::Handshaking
                && matches!(connection.side, Side::Accepted(_))
                && connection.peer()?.is_some()
            {
                self.open(now, key, upper)?;
            }
            self.take_plaintext(now, key, &mut heard, upper)?;
        }
        if was_open && let Some(connection) = self.table.get_mut(key) {
            heard.partial = connection.reader.is_partial();
            connection.patience.on_heard(now, heard);
        }
        Ok(())
    }

    /// Handles the plaintext that TLS has decrypted.
    fn take_plaintext<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        heard: &mut Heard,
        upper: &mut Upper<M, A>,
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
            heard.plaintext = true;
            let bytes = buffer.get(..len).unwrap_or_default();
            if let Err(fault) = self.take_records(now, key, (bytes, heard), upper) {
                break Err(fault);
            }
        };
        self.plaintext = buffer;
        result
    }

    /// Handles the records in plaintext.
    fn take_records<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        (mut bytes, heard): (&[u8], &mut Heard),
        upper: &mut Upper<M, A>,
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
            heard.record = true;
            let is_empty = record.is_empty();
            match stage {
                Stage::Open(id) => {
                    self.ledger.records_in.add(1);
                    self.ledger
                        .bytes_in
                        .add(u64::try_from(record.len()).unwrap_or(u64::MAX));
                    upper.frame(now, id, record);
                }
                // The accepter's empty first record: the dial has succeeded.
                Stage::Handshaking if is_empty => self.open(now, key, upper)?,
                Stage::Handshaking => return Err(Fault::Tls),
                Stage::Connecting | Stage::Closing | Stage::Lingering => return Ok(()),
            }
        }
    }

    /// Returns whether the application takes more records of this connection.
    fn is_taken<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        key: Key,
        upper: &Upper<M, A>,
    ) -> bool {
        let connection = self.table.get_mut(key);
        connection.is_some_and(|connection| takes(connection, upper))
    }

    fn is_open(&mut self, key: Key) -> bool {
        self.table
            .get_mut(key)
            .is_some_and(|connection| matches!(connection.stage, Stage::Open(_)))
    }
}

/// Returns whether to read from a connection. If open, the application decides.
fn takes<M: StreamMachine, A: StreamApplication<M>>(
    connection: &Connection,
    upper: &Upper<M, A>,
) -> bool {
    match connection.stage {
        Stage::Open(id) => upper.may_receive(id),
        Stage::Connecting | Stage::Handshaking | Stage::Closing | Stage::Lingering => true,
    }
}

/// Maximum reads of one socket per round, including the one that finds it empty.
const READS_MAX: usize = 4;
