//! Connections of proxies whose header has not come.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Connections that wait for their header, by token; tokens ascend, so the first is the oldest.
#[derive(Debug, Default)]
pub(super) struct HeaderWaits {
    all: BTreeSet<usize>,
    /// The same by the proxy's address; no entry is empty.
    by_proxy: BTreeMap<IpAddr, BTreeSet<usize>>,
}

impl HeaderWaits {
    /// Adds a connection of `proxy`.
    pub(super) fn add(&mut self, token: usize, proxy: IpAddr) {
        self.all.insert(token);
        self.by_proxy.entry(proxy).or_default().insert(token);
    }

    /// Removes it; nothing happens where it is not there.
    pub(super) fn remove(&mut self, token: usize, proxy: IpAddr) {
        self.all.remove(&token);
        if let Some(waits) = self.by_proxy.get_mut(&proxy) {
            waits.remove(&token);
            if waits.is_empty() {
                self.by_proxy.remove(&proxy);
            }
        }
    }

    /// Returns the oldest of `proxy`, if it has `max` connections or more.
    pub(super) fn oldest_of(&self, proxy: IpAddr, max: u32) -> Option<usize> {
        let waits = self.by_proxy.get(&proxy)?;
        let is_full = u32::try_from(waits.len()).map_or(true, |len| len >= max);
        waits.first().copied().filter(|_| is_full)
    }

    /// Returns the oldest of all.
    pub(super) fn oldest(&self) -> Option<usize> {
        self.all.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_proxy_that_has_its_share_gives_way() {
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut waits = HeaderWaits::default();
        assert_eq!((waits.oldest(), waits.oldest_of(one, 0)), (None, None));
        waits.add(3, other);
        waits.add(5, one);
        assert_eq!(waits.oldest_of(one, 2), None);
        waits.add(9, one);
        assert_eq!(waits.oldest_of(one, 2), Some(5));
        assert_eq!(waits.oldest_of(other, 2), None, "it has its own share");
        assert_eq!(waits.oldest(), Some(3));
        for (token, proxy) in [(3, other), (5, one), (5, one), (9, one)] {
            waits.remove(token, proxy);
        }
        assert!(waits.all.is_empty() && waits.by_proxy.is_empty());
    }
}
