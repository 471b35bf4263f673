//! Size of the live messages that wait for players.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::PlayerMessage;

/// Messages that wait in all queues. Queues share the body of a message to several players.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// How many messages have each body, by its address and length: they identify it while one of them
    /// waits.
    bodies: BTreeMap<(usize, usize), usize>,
    /// Size of all messages, each body once, bytes.
    bytes: usize,
}

fn key(message: &PlayerMessage) -> (usize, usize) {
    let body: &Bytes = message.body();
    (body.as_ptr().addr(), body.len())
}

impl Waiting {
    pub(super) fn add(&mut self, message: &PlayerMessage) {
        self.bytes = self.bytes.saturating_add(self.growth(message));
        let count = self.bodies.entry(key(message)).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn remove(&mut self, message: &PlayerMessage) {
        let key = key(message);
        let Some(count) = self.bodies.get_mut(&key) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.bodies.remove(&key);
        }
        self.bytes = self.bytes.saturating_sub(self.growth(message));
    }

    /// Returns by how much `message` would increase the size.
    pub(super) fn growth(&self, message: &PlayerMessage) -> usize {
        let (address, len) = key(message);
        let is_shared = self.bodies.contains_key(&(address, len));
        size_of::<PlayerMessage>().saturating_add(if is_shared { 0 } else { len })
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let bodies = self.bodies.len().saturating_mul(BODY_BYTES);
        self.bytes.saturating_add(bodies)
    }
}

/// Size of an entry for a body, bytes.
const BODY_BYTES: usize = 3 * size_of::<usize>() + 32;
