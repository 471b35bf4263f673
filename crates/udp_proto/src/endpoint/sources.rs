//! How many sessions each address has.

use std::collections::BTreeMap;

use core::net::IpAddr;

/// Sessions by IPv4 address or IPv6 /64; as many entries as there are sessions at the most.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    counts: BTreeMap<u128, u16>,
}

impl Sources {
    pub(crate) fn add(&mut self, source: IpAddr) {
        let count = self.counts.entry(key(source)).or_default();
        *count = count.saturating_add(1);
    }

    pub(crate) fn remove(&mut self, source: IpAddr) {
        let key = key(source);
        if let Some(count) = self.counts.get_mut(&key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }

    /// Returns whether both addresses are counted as one.
    pub(crate) const fn are_counted_together(a: IpAddr, b: IpAddr) -> bool {
        key(a) == key(b)
    }

    pub(crate) fn count(&self, source: IpAddr) -> u16 {
        self.counts.get(&key(source)).copied().unwrap_or(0)
    }
}

/// A v4 address, mapped into v6, counts alone; of a v6 address, the /64.
const fn key(source: IpAddr) -> u128 {
    match source {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() & (u128::MAX << 64),
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
