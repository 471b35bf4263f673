//! A keyed hash table without iteration, for the data planes.

use core::hash::{BuildHasher, Hash};

use siphasher::sip::SipHasher13;

use crate::Generator;

/// A map with keys that peers choose.
///
/// It offers no iteration, so its order cannot affect the wire, events or checksums. Its hash is
/// keyed, so peers cannot choose keys that collide. If you need an order, use a `BTreeMap`.
pub struct Lookup<K, V> {
    /// Never iterated.
    #[expect(
        clippy::disallowed_types,
        reason = "this is the wrapper that the ban points to"
    )]
    entries: hashbrown::HashMap<K, V, Keyed>,
}

impl<K: Eq + Hash, V> Lookup<K, V> {
    /// Creates an empty map with a hash key from `generator`.
    #[must_use]
    #[expect(
        clippy::disallowed_types,
        reason = "this is the wrapper that the ban points to"
    )]
    pub fn new(generator: &mut Generator) -> Self {
        let key = Keyed {
            key0: generator.next_u64(),
            key1: generator.next_u64(),
        };
        Self {
            entries: hashbrown::HashMap::with_hasher(key),
        }
    }

    /// Sets the value of `key` and returns the old one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.entries.insert(key, value)
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key)
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Returns a mutable reference to the value of `key`.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Returns whether `key` has a value.
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

crate::debug_fields!([K, V] Lookup<K, V>, this { len: this.entries.len() });

/// SipHash-1-3 under a key that peers do not know.
#[derive(Clone)]
struct Keyed {
    key0: u64,
    key1: u64,
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key0, self.key1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn keeps_the_last_value_of_each_key() {
        let mut table = Lookup::new(&mut Seed::from_number(1).generator(0));
        assert_eq!(table.insert(3, 'a'), None);
        assert_eq!(table.insert(3, 'b'), Some('a'));
        assert_eq!(table.get(&3), Some(&'b'));
        assert_eq!(table.len(), 1);
        assert_eq!(table.remove(&3), Some('b'));
        assert!(table.is_empty());
    }
}
