//! Bodies of the newest messages.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Bodies by message number; the oldest is dropped first.
#[derive(Debug)]
pub(crate) struct Cache {
    bodies: BTreeMap<u64, Bytes>,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            bodies: BTreeMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(crate) fn put(&mut self, seq: u64, body: Bytes) {
        self.bytes = self.bytes.saturating_add(cost(&body));
        if let Some(old) = self.bodies.insert(seq, body) {
            self.bytes = self.bytes.saturating_sub(cost(&old));
        }
        while self.bytes > self.bytes_max
            && let Some((_, old)) = self.bodies.pop_first()
        {
            self.bytes = self.bytes.saturating_sub(cost(&old));
        }
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Bytes> {
        self.bodies.get(&seq)
    }
}

/// Memory of an entry, bytes.
const fn cost(body: &Bytes) -> usize {
    body.len().saturating_add(96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bodies_stay_within_the_limit() {
        let mut cache = Cache::new(1_000);
        for seq in 0..100 {
            cache.put(seq, Bytes::from(vec![0; 104]));
            assert!(cache.bytes <= 1_000);
        }
        assert!(cache.get(94).is_none() && cache.get(95).is_some() && cache.get(99).is_some());
        cache.put(99, Bytes::new());
        assert_eq!(cache.bytes, 4 * 200 + 96);
        cache.put(100, Bytes::from(vec![0; 2_000]));
        assert_eq!((cache.bytes, cache.bodies.len()), (0, 0));
    }
}
