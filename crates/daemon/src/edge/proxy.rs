//! The source of a request that a proxy forwards.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use wire::SourceKey;

use super::ProxyHeader;
use super::forwarded::{self, Node};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proxies {
    trusted: Vec<IpAddr>,
    header: ProxyHeader,
}

impl Proxies {
    pub(super) fn new(trusted: &[IpAddr], header: ProxyHeader) -> Self {
        Self {
            trusted: trusted.iter().map(IpAddr::to_canonical).collect(),
            header,
        }
    }

    pub(super) fn contains(&self, peer: IpAddr) -> bool {
        self.trusted.contains(&peer.to_canonical())
    }

    /// Returns the source of a request: the right-most address that is not a trusted proxy.
    /// Anything to the left of it may be forged. If the header is missing or malformed, the proxy
    /// itself is the source.
    pub(super) fn source(&self, peer: IpAddr, headers: &HeaderMap) -> SourceKey {
        if !self.contains(peer) {
            return SourceKey::of(peer);
        }
        let name = match self.header {
            ProxyHeader::XForwardedFor => X_FORWARDED_FOR,
            ProxyHeader::Forwarded => header::FORWARDED,
        };
        let mut last_proxy = peer;
        for value in headers.get_all(name).iter().rev() {
            let nodes = match self.header {
                ProxyHeader::XForwardedFor => text(value).map(parse_list),
                ProxyHeader::Forwarded => text(value).and_then(forwarded::nodes),
            };
            let Some(nodes) = nodes else {
                return SourceKey::of(last_proxy);
            };
            for node in nodes.into_iter().rev() {
                match node {
                    Node::Address(ip) if self.contains(ip) => last_proxy = ip,
                    Node::Address(ip) => return SourceKey::of(ip),
                    Node::Hidden => return SourceKey::of(last_proxy),
                }
            }
        }
        SourceKey::of(last_proxy)
    }
}

/// Parses a value of `X-Forwarded-For`, a list of addresses that no RFC specifies.
fn parse_list(value: &str) -> Vec<Node> {
    let elements = value
        .split(',')
        .map(|element| element.trim_matches([' ', '\t']));
    let nodes = elements.filter(|element| !element.is_empty());
    nodes
        .map(|text| node(text).map_or(Node::Hidden, Node::Address))
        .collect()
}

/// Parses an address, with or without a port; IPv6 also in brackets (RFC 7239, section 6).
fn node(text: &str) -> Option<IpAddr> {
    let bare = || {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        inner.parse().ok().map(IpAddr::V6)
    };
    let with_port = || text.parse().ok().map(|node: SocketAddr| node.ip());
    text.parse().ok().or_else(with_port).or_else(bare)
}

/// A quoted string may contain non-ASCII characters.
fn text(value: &HeaderValue) -> Option<&str> {
    str::from_utf8(value.as_bytes()).ok()
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

#[cfg(test)]
mod tests {
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
}
