//! Blocked prefixes.

use super::*;
use std::string::ToString;

#[test]
fn u13_a_prefix_parses_as_it_prints_with_a_zero_rest() {
    for (text, written) in [
        ("203.0.113.77/24", "203.0.113.0/24"),
        ("203.0.113.77", "203.0.113.77/32"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("2001:db8:1:2:3::9/64", "2001:db8:1:2::/64"),
        ("2001:db8::1", "2001:db8::1/128"),
        ("::ffff:203.0.113.77/24", "203.0.113.0/24"),
        ("::/16", "::/16"),
    ] {
        let prefix: Prefix = text.parse().unwrap();
        assert_eq!(prefix.to_string(), written);
        assert_eq!(written.parse(), Ok(prefix));
    }
}

#[test]
fn u13_invalid_and_too_large_prefixes_are_refused() {
    for text in ["", "/8", "10.0.0.0/", "10.0.0.0/a", "10.0.0/8", "::/200000"] {
        assert_eq!(text.parse::<Prefix>(), Err(BlockError::Text), "{text}");
    }
    for (text, bits) in [
        ("10.0.0.0/7", 7),
        ("10.0.0.0/33", 33),
        ("::/15", 15),
        ("::/129", 129),
    ] {
        assert_eq!(text.parse::<Prefix>(), Err(BlockError::Bits(bits)));
    }
}

#[test]
fn u13_no_prefix_of_ipv6_holds_an_ipv4_address() {
    let all: Prefix = "::/16".parse().unwrap();
    assert!(all.contains("::1".parse().unwrap()));
    assert!(!all.contains("1.2.3.4".parse().unwrap()));
    assert!(!all.contains("::ffff:1.2.3.4".parse().unwrap()));
}

const NOW: Instant = Instant::from_millis(1_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

#[test]
fn u13_blocks_a_prefix_and_no_more() {
    let mut list = BlockList::default();
    assert!(!list.contains(NOW, ip("203.0.113.9")));
    list.insert(NOW, prefix("203.0.113.0/24"), None).unwrap();
    list.insert(NOW, prefix("2001:db8::/32"), None).unwrap();
    assert!(list.contains(NOW, ip("203.0.113.9")));
    assert!(list.contains(NOW, ip("::ffff:203.0.113.9")));
    assert!(list.contains(NOW, ip("2001:db8:1::1")));
    assert!(!list.contains(NOW, ip("203.0.114.9")));
    assert!(list.remove(&prefix("203.0.113.77/24")));
    assert!(!list.remove(&prefix("203.0.113.77/24")));
    assert!(!list.contains(NOW, ip("203.0.113.9")));
    assert_eq!(
        list.iter().collect::<Vec<_>>(),
        [(prefix("2001:db8::/32"), None)]
    );
}

#[test]
fn u13_an_entry_expires_and_a_later_call_extends_it() {
    let mut list = BlockList::default();
    let (one, other) = (prefix("192.0.2.1"), prefix("192.0.2.2"));
    let at = Instant::from_millis;
    list.insert(NOW, one, Some(at(2_000))).unwrap();
    list.insert(NOW, other, Some(at(2_000))).unwrap();
    list.insert(NOW, other, None).unwrap();
    assert!(list.contains(at(1_999), one.first()));
    assert!(!list.contains(at(2_000), one.first()));
    assert_eq!(list.len(), 1);
    assert!(list.contains(at(9_000), other.first()));
    list.insert(at(9_000), other, Some(at(9_001))).unwrap();
    assert!(!list.contains(at(9_001), other.first()));
    assert!(list.is_empty() && list.ending.is_empty());
    assert!(list.lengths.iter().all(BTreeMap::is_empty));
}

/// If many entries end at once, a lookup removes 64 of them, and none of the rest blocks.
#[test]
fn u13_a_look_up_removes_at_most_64_expired_entries() {
    let mut list = BlockList::default();
    for index in 0..1_000 {
        let host = Prefix::of_host(IpAddr::V4(core::net::Ipv4Addr::from_bits(index)));
        list.insert(NOW, host, Some(Instant::from_millis(2_000)))
            .unwrap();
    }
    let late = Instant::from_millis(2_000);
    assert!(!list.contains(late, ip("0.0.3.231")));
    assert_eq!(list.len(), 936);
}

#[test]
fn u13_a_look_up_tries_each_length_in_use_once() {
    let mut list = BlockList::default();
    for (text, of_v4, of_v6) in [
        ("10.0.0.0/8", 1, 0),
        ("11.0.0.0/8", 1, 0),
        ("192.0.2.0/24", 2, 0),
        ("2001:db8::/32", 2, 1),
    ] {
        list.insert(NOW, prefix(text), None).unwrap();
        assert_eq!(list.candidates(ip("1.2.3.4")).count(), of_v4);
        assert_eq!(list.candidates(ip("::1")).count(), of_v6);
    }
    for bits in 16..=128 {
        list.insert(NOW, Prefix::new(ip("::1"), bits).unwrap(), None)
            .unwrap();
    }
    assert_eq!(list.candidates(ip("::2")).count(), 113);
}

#[test]
fn u13_the_list_holds_65_536_and_expired_entries_are_replaced() {
    let mut list = BlockList::default();
    let end = Some(Instant::from_millis(2_000));
    for index in 0..PREFIXES_MAX {
        let address = core::net::Ipv4Addr::from_bits(u32::try_from(index).unwrap());
        list.insert(NOW, Prefix::of_host(address.into()), end)
            .unwrap();
    }
    let another = prefix("9.9.9.9");
    assert_eq!(list.insert(NOW, another, None), Err(BlockError::Full));
    assert_eq!(list.insert(NOW, prefix("0.0.0.1"), end), Ok(()));
    assert_eq!(
        list.insert(Instant::from_millis(2_000), another, None),
        Ok(())
    );
}
