//! Sending records to the sockets.

use wire::{Instant, Outbound, StreamMachine};

use super::links::Links;
use super::upper::Upper;
use crate::tcp::application::StreamApplication;
use crate::tcp::connection::Stage;
use crate::tcp::table::Key;

impl Links {
    /// Queues a record of the machine.
    pub(super) fn push<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        (outbound, record): (Outbound, &[u8]),
        upper: &mut Upper<M, A>,
    ) {
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
                return self.fail(now, key, fault, upper);
            }
            self.ledger.records_out.add(1);
            self.ledger
                .bytes_out
                .add(u64::try_from(record.len()).unwrap_or(u64::MAX));
        }
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(key);
        }
        if outbound.close {
            self.close(now, id, upper);
        }
    }

    /// Writes queued data as far as the sockets take it. Returns whether the machine was called.
    pub(super) fn flush<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        upper: &mut Upper<M, A>,
    ) -> bool {
        let mut told = false;
        let mut round = std::mem::take(&mut self.spare);
        std::mem::swap(&mut round, &mut self.dirty);
        for key in round.drain(..) {
            told |= self.flush_one(now, key, upper);
        }
        self.spare = round;
        told
    }

    fn flush_one<M: StreamMachine, A: StreamApplication<M>>(
        &mut self,
        now: Instant,
        key: Key,
        upper: &mut Upper<M, A>,
    ) -> bool {
        let Some(connection) = self.table.get_mut(key) else {
            return false;
        };
        connection.is_dirty = false;
        let gone = match connection.flush(now) {
            Ok(gone) => gone,
            Err(fault) => {
                self.fail(now, key, fault, upper);
                return true;
            }
        };
        let is_flushed = connection.is_flushed();
        if !is_flushed && !connection.is_ready.write {
            self.ledger.writes_blocked.add(1);
        }
        let stage = connection.stage;
        if is_flushed && stage == Stage::Closing {
            connection.finish();
            connection.set_stage(now, Stage::Lingering);
        }
        self.table.schedule(key, &self.config);
        if let Stage::Open(id) = stage
            && gone > 0
        {
            upper.credit(now, id, gone);
            return true;
        }
        false
    }

    /// Returns whether no data is queued.
    pub(super) fn is_flushed(&self) -> bool {
        self.table
            .values()
            .all(|connection| match connection.stage {
                Stage::Open(_) => connection.is_flushed(),
                Stage::Connecting | Stage::Handshaking | Stage::Closing | Stage::Lingering => true,
            })
    }

    /// Sends the TLS close on all open connections, without waiting.
    pub(super) fn say_farewell(&mut self) {
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            if let Some(connection) = self.table.get_mut(key)
                && matches!(connection.stage, Stage::Open(_))
            {
                connection.finish();
            }
        }
    }
}
