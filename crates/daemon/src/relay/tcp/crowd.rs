//! Who has not said yet whom it speaks for, counted by address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use udp_proto::budget::{Prefix, prefix_of};
use wire::SourceKey;

/// Counts of addresses, and of the /24 and /48 that they are of; no entry is zero.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    sources: BTreeMap<SourceKey, u32>,
    prefixes: BTreeMap<Prefix, u32>,
}

/// How many there may be at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) of_source: u32,
    pub(super) of_prefix: u32,
}

impl Crowd {
    /// Counts one more; `None` where there is no place.
    pub(super) fn join(&mut self, address: IpAddr, places: Places) -> Option<SourceKey> {
        let source = SourceKey::of(address);
        let of_source = self.sources.get(&source).copied().unwrap_or(0);
        let of_prefix = self
            .prefixes
            .get(&prefix_of(source.ip()))
            .copied()
            .unwrap_or(0);
        if of_source >= places.of_source || of_prefix >= places.of_prefix {
            return None;
        }
        self.sources.insert(source, of_source.saturating_add(1));
        let of_prefix = of_prefix.saturating_add(1);
        self.prefixes.insert(prefix_of(source.ip()), of_prefix);
        Some(source)
    }

    /// Counts one less.
    pub(super) fn leave(&mut self, source: Option<SourceKey>) {
        if let Some(source) = source {
            leave(&mut self.sources, &source);
            leave(&mut self.prefixes, &prefix_of(source.ip()));
        }
    }
}

fn leave<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_household_has_so_many_places_and_gives_them_back() {
        let mut crowd = Crowd::default();
        let (one, two) = (of(1, 9), of(2, 9));
        let first = crowd.join(at("2001:db8::1"), two).unwrap();
        assert_eq!(crowd.join(at("2001:db8::2"), two), Some(first));
        assert_eq!(crowd.join(at("2001:db8::3"), two), None);
        assert!(crowd.join(at("2001:db8:0:1::1"), two).is_some());
        assert!(crowd.join(at("192.0.2.1"), one).is_some());
        let mapped = crowd.join(at("::ffff:192.0.2.1"), one);
        assert_eq!(mapped, None, "the same host");
        crowd.leave(Some(first));
        crowd.leave(Some(first));
        assert_eq!(crowd.sources.len(), 2);
        assert_eq!(crowd.join(at("2001:db8::3"), two), Some(first));
    }

    #[test]
    fn a_network_has_so_many_places_for_all_its_households() {
        let mut crowd = Crowd::default();
        let joined: Vec<Option<SourceKey>> = (0..9)
            .map(|line| crowd.join(at(&format!("2001:db8:0:{line}::1")), of(2, 6)))
            .collect();
        assert_eq!(joined.iter().flatten().count(), 6);
        assert_eq!(crowd.join(at("2001:db8::1"), of(2, 6)), None);
        assert!(crowd.join(at("2001:db8:1::1"), of(2, 6)).is_some());
        for source in joined {
            crowd.leave(source);
        }
        assert_eq!((crowd.sources.len(), crowd.prefixes.len()), (1, 1));
        assert!(crowd.join(at("2001:db8::1"), of(2, 6)).is_some());
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn of(of_source: u32, of_prefix: u32) -> Places {
        Places {
            of_source,
            of_prefix,
        }
    }
}
