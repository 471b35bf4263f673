//! How many sessions each address has.

use std::collections::BTreeMap;

use core::net::IpAddr;

use wire::SourceKey;

/// Sessions by IPv4 address or IPv6 /64; as many entries as there are sessions at the most.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    counts: BTreeMap<SourceKey, u16>,
}

impl Sources {
    pub(crate) fn add(&mut self, source: IpAddr) {
        let count = self.counts.entry(SourceKey::of(source)).or_default();
        *count = count.saturating_add(1);
    }

    pub(crate) fn remove(&mut self, source: IpAddr) {
        let key = SourceKey::of(source);
        if let Some(count) = self.counts.get_mut(&key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }

    /// Returns whether both addresses are counted as one.
    pub(crate) fn are_counted_together(a: IpAddr, b: IpAddr) -> bool {
        SourceKey::of(a) == SourceKey::of(b)
    }

    pub(crate) fn count(&self, source: IpAddr) -> u16 {
        self.counts
            .get(&SourceKey::of(source))
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_v6_by_64_and_v4_alone() {
        let mut sources = Sources::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        sources.add(ip("2001:db8::1"));
        sources.add(ip("2001:db8::2"));
        sources.add(ip("192.0.2.1"));
        assert_eq!(sources.count(ip("2001:db8::3")), 2);
        assert_eq!(sources.count(ip("2001:db8:0:1::3")), 0);
        assert_eq!(sources.count(ip("::ffff:192.0.2.1")), 1);
        assert_eq!(sources.count(ip("192.0.2.2")), 0);
        sources.remove(ip("2001:db8::9"));
        sources.remove(ip("2001:db8::9"));
        assert_eq!(sources.counts.len(), 1);
    }
}
