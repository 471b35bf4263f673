use super::*;

const PROXY: &str = "127.0.0.1";

fn source(header: ProxyHeader, peer: &str, values: &[&'static str]) -> SourceKey {
    let trusted = [PROXY.parse().unwrap(), "10.0.0.7".parse().unwrap()];
    let mut headers = HeaderMap::new();
    for value in values {
        for name in [X_FORWARDED_FOR, header::FORWARDED] {
            headers.append(name, HeaderValue::from_static(value));
        }
    }
    Proxies::new(&trusted, header).source(peer.parse().unwrap(), &headers)
}

fn of(ip: &str) -> SourceKey {
    SourceKey::of(ip.parse().unwrap())
}

#[test]
fn the_source_is_the_right_most_untrusted_address() {
    let source = |values: &[&'static str]| source(ProxyHeader::XForwardedFor, PROXY, values);
    assert_eq!(source(&["192.0.2.1"]), of("192.0.2.1"));
    assert_eq!(source(&["192.0.2.9, 192.0.2.1"]), of("192.0.2.1"));
    assert_eq!(source(&["192.0.2.1,10.0.0.7"]), of("192.0.2.1"));
    assert_eq!(
        source(&["192.0.2.9", "192.0.2.1", "10.0.0.7"]),
        of("192.0.2.1")
    );
    assert_eq!(source(&["192.0.2.1:4711"]), of("192.0.2.1"));
    assert_eq!(source(&["2001:db8::1"]), of("2001:db8::1"));
    assert_eq!(source(&["[2001:db8::1]:80"]), of("2001:db8::1"));
}

#[test]
fn forwarded_elements_are_read() {
    let source = |values: &[&'static str]| source(ProxyHeader::Forwarded, PROXY, values);
    assert_eq!(source(&["for=192.0.2.1"]), of("192.0.2.1"));
    assert_eq!(
        source(&["for=192.0.2.9, proto=https; For=\"[2001:db8::1]:80\";by=_x"]),
        of("2001:db8::1")
    );
    assert_eq!(
        source(&["for=192.0.2.1,for=10.0.0.7;proto=https"]),
        of("192.0.2.1")
    );
    assert_eq!(source(&["for=\"[2001:db8::1]\""]), of("2001:db8::1"));
    assert_eq!(
        source(&["for=192.0.2.9", "for=192.0.2.1", "for=10.0.0.7"]),
        of("192.0.2.1")
    );
}

#[test]
fn a_comma_within_a_quoted_string_forges_no_source() {
    let source = |values: &[&'static str]| source(ProxyHeader::Forwarded, PROXY, values);
    assert_eq!(
        source(&["for=192.0.2.1;host=\"a,for=1.2.3.4\""]),
        of("192.0.2.1")
    );
    assert_eq!(source(&["host=\"a,for=1.2.3.4\""]), of(PROXY));
    // A quoted string that a client opens does not reach into the next field line, which the
    // proxy wrote.
    let open = "for=1.2.3.4;host=\"";
    assert_eq!(source(&[open, "for=192.0.2.1"]), of("192.0.2.1"));
    assert_eq!(source(&["for=junk, for=192.0.2.1"]), of("192.0.2.1"));
}

#[test]
fn a_proxy_without_a_valid_header_is_the_source() {
    for values in [
        [].as_slice(),
        &[""],
        &["unknown"],
        &["for=_hidden"],
        &["192.0.2.1, for=\"192.0.2.2"],
        &["for=192.0.2.1;host=\"a, for=\"[2001:db8::1]\""],
        &["192.0.2.1", "for=192.0.2.1", "junk"],
    ] {
        for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
            assert_eq!(source(header, PROXY, values), of(PROXY), "{values:?}");
        }
    }
    let behind = source(ProxyHeader::XForwardedFor, PROXY, &["junk, 10.0.0.7"]);
    assert_eq!(behind, of("10.0.0.7"));
}

#[test]
fn headers_of_untrusted_peers_are_ignored() {
    for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
        let values = &["192.0.2.1", "for=192.0.2.1"];
        assert_eq!(source(header, "192.0.2.66", values), of("192.0.2.66"));
    }
    // An IPv4-mapped address is trusted as the IPv4 address.
    let mapped = source(
        ProxyHeader::XForwardedFor,
        "::ffff:127.0.0.1",
        &["192.0.2.1"],
    );
    assert_eq!(mapped, of("192.0.2.1"));
}

fn node_of(ip: &str) -> Node {
    Node::Address(ip.parse().unwrap())
}

#[test]
fn rfc7239_examples_are_read() {
    let v6 = || node_of("2001:db8:cafe::17");
    for (value, expected) in [
        // Section 4.
        ("for=\"_gazonk\"", vec![Node::Hidden]),
        ("For=\"[2001:db8:cafe::17]:4711\"", vec![v6()]),
        (
            "for=192.0.2.60;proto=http;by=203.0.113.43",
            vec![node_of("192.0.2.60")],
        ),
        (
            "for=192.0.2.43, for=198.51.100.17",
            vec![node_of("192.0.2.43"), node_of("198.51.100.17")],
        ),
        // Sections 6 and 7.
        (
            "for=192.0.2.43, for=\"[2001:db8:cafe::17]\"",
            vec![node_of("192.0.2.43"), v6()],
        ),
        ("for=\"192.0.2.43:47011\"", vec![node_of("192.0.2.43")]),
        ("for=_hidden, for=_SEVKISEK", vec![Node::Hidden; 2]),
        ("for=unknown;proto=https", vec![Node::Hidden]),
        // Sections 7.1 to 7.5.
        (
            "for=192.0.2.43,for=\"[2001:db8:cafe::17]\",for=unknown",
            vec![node_of("192.0.2.43"), v6(), Node::Hidden],
        ),
        (
            "for=_gazonk;secret=egah2CGj55fSJFs, for=10.1.2.3",
            vec![Node::Hidden, node_of("10.1.2.3")],
        ),
    ] {
        assert_eq!(forwarded_nodes(value), Some(expected), "{value}");
    }
}

#[test]
fn rfc7239_each_form_of_the_grammar_is_read() {
    let one = || Some(vec![node_of("192.0.2.1")]);
    for value in [
        "for=192.0.2.1",
        "FOR=192.0.2.1",
        "fOr=\"192.0.2.1\"",
        // quoted-pair
        "for=\"192\\.0\\.2\\.1\"",
        "for=\"192.0.2.1:0\"",
        "for=\"192.0.2.1:65535\"",
        "for=\"192.0.2.1:_port.1-a_b\"",
        "by=_x;for=192.0.2.1;host=\"example.com:80\"",
        // forwarded-pair is optional
        ";for=192.0.2.1",
        ";;for=192.0.2.1;;",
        "for=192.0.2.1 ; proto=http",
        // empty list elements, and spaces around commas
        ",, for=192.0.2.1\t,",
        " \tfor=192.0.2.1 ",
        // extension parameters
        "for=192.0.2.1;a!#$%&'*+-.^_`|~9=b",
        "for=192.0.2.1;host=\"\"",
        "host=\"a,for=1.2.3.4\";for=192.0.2.1",
        "host=\"a;for=1.2.3.4;\\\"\\\\,\";for=192.0.2.1",
        "host=\"\u{e4}\t \";for=192.0.2.1",
    ] {
        assert_eq!(forwarded_nodes(value), one(), "{value}");
    }
    for value in [
        "proto=http",
        "host=\"for=1.2.3.4\"",
        "for=UNKNOWN",
        "for=\"unknown:80\"",
    ] {
        assert_eq!(forwarded_nodes(value), Some(vec![Node::Hidden]), "{value}");
    }
    for value in ["", " ", ",", " , ,", ";", ";;"] {
        assert_eq!(forwarded_nodes(value), Some(Vec::new()), "{value}");
    }
}

#[test]
fn rfc7239_malformed_values_are_rejected() {
    for value in [
        // Unterminated strings: what a proxy appends becomes a part of them or breaks them.
        "host=\"a, for=192.0.2.1",
        "host=\"a, for=\"192.0.2.1\"",
        "host=\"a\\\", for=\"192.0.2.1\"",
        "for=192.0.2.1;host=\"a\\",
        "for=192.0.2.1;host=\"a\\\"",
        "for=192.0.2.1;host=\"\u{7f}\"",
        "for=\"192.0.2.1\"x",
        "for=x\"192.0.2.1\"",
        "for=192.0.2.1:80",
        "for=[2001:db8::1]",
        "for=2001:db8::1",
        "for=",
        "for",
        "=192.0.2.1",
        "for =192.0.2.1",
        "for= 192.0.2.1",
        "f\u{f6}r=192.0.2.1",
        "for=192.0.2.1 for=192.0.2.2",
        "192.0.2.1",
        "for=192.0.2.1;for=192.0.2.2",
        "for=192.0.2.1;For=192.0.2.2",
        "for=192.0.2.1;a=b;A=b",
        "for=192.0.2.1, for=\"",
        "for, for=192.0.2.1",
    ] {
        assert_eq!(forwarded_nodes(value), None, "{value}");
    }
}

#[test]
fn rfc7239_a_malformed_node_leaves_other_elements_valid() {
    for value in [
        "for=\"2001:db8::1\"",
        "for=\"[2001:db8::1\"",
        "for=\"[2001:db8::1]80\"",
        "for=\"[192.0.2.1]\"",
        "for=\"[fe80::1%eth0]\"",
        "for=\"192.0.2.1:\"",
        "for=\"192.0.2.1:123456\"",
        "for=\"192.0.2.1:-1\"",
        "for=192.0.2.256",
        "for=192.0.2",
        "for=_",
        "for=host.example",
        "for=\"\"",
    ] {
        assert_eq!(forwarded_nodes(value), Some(vec![Node::Hidden]), "{value}");
        let behind = format!("{value}, for=192.0.2.1");
        let both = vec![Node::Hidden, node_of("192.0.2.1")];
        assert_eq!(forwarded_nodes(&behind), Some(both), "{behind}");
    }
}
