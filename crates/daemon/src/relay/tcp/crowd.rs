//! Who has not said yet whom it speaks for, counted by address.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Counts of addresses.
#[derive(Debug, Default)]
pub(super) struct Crowd(BTreeMap<Source, u32>);

/// Of IPv4 an address, of IPv6 a /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source(IpAddr);

impl Source {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(ip) => {
                let prefix = ip.to_bits() >> 64 << 64;
                IpAddr::V6(prefix.into())
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl Crowd {
    /// Counts one more; `None` where there are `max`.
    pub(super) fn join(&mut self, address: IpAddr, max: u32) -> Option<Source> {
        let source = Source::of(address);
        if max == 0 {
            return None;
        }
        let count = self.0.entry(source).or_default();
        if *count >= max {
            return None;
        }
        *count = count.saturating_add(1);
        Some(source)
    }

    /// Counts one less.
    pub(super) fn leave(&mut self, source: Option<Source>) {
        if let Some(source) = source
            && let Some(count) = self.0.get_mut(&source)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_household_has_so_many_places_and_gives_them_back() {
        let mut crowd = Crowd::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = crowd.join(at("2001:db8::1"), 2).unwrap();
        assert_eq!(crowd.join(at("2001:db8::2"), 2), Some(first));
        assert_eq!(crowd.join(at("2001:db8::3"), 2), None);
        assert!(crowd.join(at("2001:db8:0:1::1"), 2).is_some());
        assert!(crowd.join(at("192.0.2.1"), 1).is_some());
        assert_eq!(crowd.join(at("::ffff:192.0.2.1"), 1), None, "the same host");
        crowd.leave(Some(first));
        crowd.leave(Some(first));
        assert_eq!(crowd.0.len(), 2);
        assert_eq!(crowd.join(at("2001:db8::3"), 2), Some(first));
    }
}
