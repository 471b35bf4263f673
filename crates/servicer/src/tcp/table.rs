//! The connections of a driver, indexed by token, id and deadline, and counted by source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::{ConnectionId, Instant, SourceKey};

use super::StreamConfig;
use super::connection::{ConnState, Connection, Side};
use super::handshake_limiter::HandshakeLimiter;
use crate::waiter::TOKENS_MAX;

/// The token of a socket in the system's wait. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) usize);

#[derive(Debug)]
pub(super) struct Table {
    /// Boxed to keep the tree's nodes small: a TLS session has more than 1 KiB.
    connections: BTreeMap<Key, Box<Connection>>,
    keys: BTreeMap<ConnectionId, Key>,
    /// When to check each connection, never later than its deadline.
    deadlines: BTreeSet<(Instant, Key)>,
    scheduled: BTreeMap<Key, Instant>,
    limiter: HandshakeLimiter,
    next_key: usize,
    last_id: u32,
    /// Accepted connections that another driver serves.
    permits: usize,
    /// Receives the slots of those that have closed.
    released: Arc<ReleasedSlots>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSlot {
    Full,
    Handshakes,
    Source,
}

impl Table {
    pub(super) fn new(first_key: usize) -> Self {
        Self {
            connections: BTreeMap::new(),
            keys: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            scheduled: BTreeMap::new(),
            limiter: HandshakeLimiter::default(),
            next_key: first_key,
            last_id: 0,
            permits: 0,
            released: Arc::default(),
        }
    }

    /// Returns a key for a new connection, and the handshake to evict for it, if any.
    pub(super) fn reserve(
        &mut self,
        now: Instant,
        source: Option<SourceKey>,
        config: &StreamConfig,
    ) -> Result<(Key, Option<Key>), NoSlot> {
        self.collect_released();
        let open = self.connections.len().saturating_add(self.permits);
        if open >= config.connections_max || self.next_key >= TOKENS_MAX {
            return Err(NoSlot::Full);
        }
        let evicted = match source {
            Some(source) => self.limiter.admit(now, source, config)?,
            None => None,
        };
        let key = Key(self.next_key);
        self.next_key = self.next_key.saturating_add(1);
        Ok((key, evicted))
    }

    pub(super) fn insert(&mut self, now: Instant, key: Key, connection: Connection) {
        if let Side::Accepted(source) = connection.side {
            self.limiter.begin(now, source, key);
        }
        self.connections.insert(key, Box::new(connection));
    }

    /// Assigns an id to a connection after its handshake. Returns `None` if all ids are used up.
    pub(super) fn open(&mut self, now: Instant, key: Key) -> Option<ConnectionId> {
        let id = self.next_id()?;
        let connection = self.connections.get_mut(&key)?;
        if let Side::Accepted(source) = connection.side {
            self.limiter.end_handshake(source, key);
        }
        connection.set_stage(now, ConnState::Open(id));
        self.keys.insert(id, key);
        Some(id)
    }

    pub(super) fn next_id(&mut self) -> Option<ConnectionId> {
        self.last_id = self.last_id.checked_add(1)?;
        Some(ConnectionId(self.last_id))
    }

    pub(super) fn forget_id(&mut self, id: ConnectionId) {
        self.keys.remove(&id);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<Connection>> {
        let connection = self.take(key)?;
        if let Side::Accepted(source) = connection.side {
            self.limiter.leave(source, key);
        }
        Some(connection)
    }

    /// Removes a connection for another driver to serve. It keeps its slot in the limits.
    pub(super) fn hand_over(&mut self, key: Key) -> Option<Box<Connection>> {
        let connection = self.take(key)?;
        if let Side::Accepted(source) = connection.side {
            if connection.permit.is_some() {
                self.limiter.leave(source, key);
            } else {
                self.permits = self.permits.saturating_add(1);
            }
        }
        Some(connection)
    }

    /// Returns the permit of a connection that was handed over, which keeps its slot.
    pub(super) fn permit(&self, source: SourceKey, key: Key) -> SlotPermit {
        SlotPermit {
            source,
            key,
            released: Arc::clone(&self.released),
        }
    }

    /// Collects the slots of closed connections that another driver served.
    fn collect_released(&mut self) {
        if self.permits == 0 {
            return;
        }
        for (source, key) in self.released.take() {
            self.limiter.leave(source, key);
            self.permits = self.permits.saturating_sub(1);
        }
    }

    fn take(&mut self, key: Key) -> Option<Box<Connection>> {
        let connection = self.connections.remove(&key)?;
        if let Some(at) = self.scheduled.remove(&key) {
            self.deadlines.remove(&(at, key));
        }
        if let ConnState::Open(id) = connection.stage {
            self.keys.remove(&id);
        }
        Some(connection)
    }

    pub(super) fn get(&self, key: Key) -> Option<&Connection> {
        self.connections.get(&key).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Connection> {
        self.connections.get_mut(&key).map(Box::as_mut)
    }

    pub(super) fn key_of(&self, id: ConnectionId) -> Option<Key> {
        self.keys.get(&id).copied()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.connections.keys().copied()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values().map(Box::as_ref)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Makes sure that `key` is checked by its deadline. If that moves later, the old entry stays
    /// and is corrected when it is due, so an active connection costs nothing here.
    pub(super) fn schedule(&mut self, key: Key, config: &StreamConfig) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        let Some((at, _)) = connection.deadlines.next(connection.stage, config) else {
            return;
        };
        let known = self.scheduled.get(&key).copied();
        if known.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = known {
            self.deadlines.remove(&(known, key));
        }
        self.deadlines.insert((at, key));
        self.scheduled.insert(key, at);
    }

    /// Returns the next connection to check by `now`. The caller must schedule it again or remove
    /// it.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Key> {
        let (_, key) = self
            .deadlines
            .first()
            .copied()
            .filter(|(at, _)| *at <= now)?;
        self.deadlines.pop_first();
        self.scheduled.remove(&key);
        Some(key)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

/// The slot of a connection in the limits of the driver that accepted it, while another serves it.
#[derive(Debug)]
pub(super) struct SlotPermit {
    source: SourceKey,
    key: Key,
    released: Arc<ReleasedSlots>,
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.released.put(self.source, self.key);
    }
}

/// Slots of closed connections, until the driver that accepted them collects them.
#[derive(Debug, Default)]
struct ReleasedSlots(Mutex<Vec<(SourceKey, Key)>>);

impl ReleasedSlots {
    fn put(&self, source: SourceKey, key: Key) {
        self.lock().push((source, key));
    }

    fn take(&self) -> Vec<(SourceKey, Key)> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(SourceKey, Key)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
