//! Trusted proxies.

use core::net::IpAddr;

use super::*;

const LINE: &[u8] = b"PROXY TCP4 203.0.113.9 127.0.0.1 4000 9\r\n";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn trusted(need: HeaderPolicy) -> TrustedProxies {
    TrustedProxies::parse(["10.0.0.0/8", "192.0.2.1", "2001:db8::/32"], need).unwrap()
}

#[test]
fn mesh_c1_only_trusted_proxies_are_believed() {
    let header = whole(LINE, LEN_USUAL);
    let reported = Some(ends(Transport::Stream, "203.0.113.9:4000", "127.0.0.1:9"));
    for need in [HeaderPolicy::Required, HeaderPolicy::Optional] {
        let set = trusted(need);
        for peer in [
            "10.255.0.1",
            "::ffff:10.0.0.1",
            "192.0.2.1",
            "2001:db8:9::1",
        ] {
            assert!(set.is_trusted(ip(peer)));
            assert_eq!(set.judge(ip(peer), Some(&header)), Ok(reported), "{peer}");
        }
        for peer in ["11.0.0.1", "192.0.2.2", "::10.0.0.1", "2001:db9::1", "::1"] {
            assert!(!set.is_trusted(ip(peer)));
            let judged = set.judge(ip(peer), Some(&header));
            assert_eq!(judged, Err(PolicyViolation::Untrusted), "{peer}");
            assert_eq!(set.judge(ip(peer), None), Ok(None), "{peer}");
        }
    }
    let nobody = TrustedProxies::default();
    assert_eq!(
        nobody.judge(ip("127.0.0.1"), Some(&header)),
        Err(PolicyViolation::Untrusted)
    );
}

#[test]
fn mesh_c1_a_trusted_proxy_without_a_required_header_is_refused() {
    let peer = ip("10.0.0.1");
    assert_eq!(
        trusted(HeaderPolicy::Required).judge(peer, None),
        Err(PolicyViolation::Missing)
    );
    assert_eq!(trusted(HeaderPolicy::Optional).judge(peer, None), Ok(None));
}

/// If a header has no addresses, the trusted proxy's own address applies.
#[test]
fn mesh_c1_a_header_without_addresses_leaves_the_proxys_own() {
    for bytes in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        block(0x20, 0x11, &V4),
        block(0x21, 0, &[]),
        block(0x21, 0x31, &[0; 216]),
    ] {
        let header = whole(&bytes, LEN_USUAL);
        let judged = trusted(HeaderPolicy::Required).judge(ip("10.0.0.1"), Some(&header));
        assert_eq!(judged, Ok(None), "{bytes:02x?}");
    }
}

#[test]
fn mesh_c1_prefixes_that_are_none_are_named() {
    for (text, fault) in [
        (
            "10.0.0/8",
            "\"10.0.0/8\": a prefix is an address, and maybe a slash and its bits",
        ),
        (
            "0.0.0.0/0",
            "\"0.0.0.0/0\": prefix of 0 bits is out of range",
        ),
        ("::/129", "\"::/129\": prefix of 129 bits is out of range"),
    ] {
        let error =
            TrustedProxies::parse(["10.0.0.0/8", text], HeaderPolicy::Required).unwrap_err();
        assert_eq!(error.to_string(), fault);
    }
    let many = |count| TrustedProxies::parse(vec!["10.0.0.0/8"; count], HeaderPolicy::Required);
    assert!(many(PREFIXES_MAX).is_ok());
    let too_many = TrustError::TooMany(PREFIXES_MAX + 1);
    assert_eq!(many(PREFIXES_MAX + 7), Err(too_many));
}
