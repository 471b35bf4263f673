//! The source of a request that a proxy forwards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use wire::SourceKey;

use super::ProxyHeader;

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
                ProxyHeader::Forwarded => text(value).and_then(forwarded_nodes),
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
        .map(|text| address(text).map_or(Node::Hidden, Node::Address))
        .collect()
}

/// Parses an address, with or without a port; IPv6 also in brackets (RFC 7239, section 6).
fn address(text: &str) -> Option<IpAddr> {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Address(IpAddr),
    /// Missing, `unknown`, obfuscated, or malformed.
    Hidden,
}

/// Parses a value of `Forwarded`, RFC 7239; returns the node of each element, in order.
///
/// Returns `None` if any part is malformed: a client may have opened a quoted string that swallows
/// what a proxy appended. A parser that splits at every comma, even in a quoted string, lets
/// `host="a,for=192.0.2.1"` forge a source.
///
/// ```text
/// Forwarded         = 1#forwarded-element
/// forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] )
/// forwarded-pair    = token "=" ( token / quoted-string )
/// ```
///
/// Space around `;` is accepted: the grammar has none, but some proxies write it.
fn forwarded_nodes(value: &str) -> Option<Vec<Node>> {
    let mut reader = Reader(value);
    let mut nodes = Vec::new();
    loop {
        nodes.extend(reader.element()?);
        reader.space();
        match reader.next() {
            Some(',') => {}
            Some(_) => return None,
            None => return Some(nodes),
        }
    }
}

struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let mut rest = self.0.chars();
        let next = rest.next();
        self.0 = rest.as_str();
        next
    }

    fn skip(&mut self, letter: char) -> bool {
        let rest = self.0.strip_prefix(letter);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn space(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// Parses one element; `[]` for an empty one, which a list may have (RFC 9110, section
    /// 5.6.1.2).
    fn element(&mut self) -> Option<Vec<Node>> {
        let mut names = Vec::new();
        let mut asker = None;
        loop {
            self.space();
            if self.0.starts_with(is_token_letter) {
                let name = self.token()?.to_ascii_lowercase();
                if !self.skip('=') {
                    return None;
                }
                let value = self.value()?;
                if name == "for" {
                    asker = node(&value);
                }
                // Each parameter occurs once (RFC 7239, section 4).
                if names.contains(&name) {
                    return None;
                }
                names.push(name);
            }
            self.space();
            if !self.skip(';') {
                let is_empty = names.is_empty();
                let node = (!is_empty).then(|| asker.unwrap_or(Node::Hidden));
                return Some(node.into_iter().collect());
            }
        }
    }

    fn token(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches(is_token_letter);
        let token = self.0.strip_suffix(rest).filter(|token| !token.is_empty());
        self.0 = rest;
        token
    }

    /// Parses a token or a quoted string (RFC 9110, section 5.6.4).
    fn value(&mut self) -> Option<String> {
        if !self.skip('"') {
            return self.token().map(str::to_owned);
        }
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Some(text),
                '\\' => text.push(self.next().filter(|letter| is_text(*letter))?),
                letter if is_text(letter) => text.push(letter),
                _ => return None,
            }
        }
    }
}

/// `tchar` (RFC 9110, section 5.6.2).
fn is_token_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter)
}

/// Whether a character may occur in a quoted string or after a backslash.
fn is_text(letter: char) -> bool {
    letter == '\t' || !letter.is_control()
}

/// Parses a node (RFC 7239, section 6).
///
/// ```text
/// node     = nodename [ ":" node-port ]
/// nodename = IPv4address / "[" IPv6address "]" / "unknown" / obfnode
/// ```
fn node(text: &str) -> Option<Node> {
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']')?;
        let ip: Ipv6Addr = name.parse().ok()?;
        let port = rest.strip_prefix(':');
        if port.is_none() && !rest.is_empty() {
            return None;
        }
        (Node::Address(IpAddr::V6(ip)), port)
    } else {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        };
        let is_hidden = name.eq_ignore_ascii_case("unknown") || is_obfuscated(name);
        let node = match name.parse::<Ipv4Addr>() {
            Ok(ip) => Node::Address(IpAddr::V4(ip)),
            Err(_) if is_hidden => Node::Hidden,
            Err(_) => return None,
        };
        (node, port)
    };
    port.is_none_or(is_port).then_some(name)
}

fn is_port(text: &str) -> bool {
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number || is_obfuscated(text)
}

/// `obfnode` and `obfport`: `_` and characters of `A-Za-z0-9._-`.
fn is_obfuscated(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let rest = text.strip_prefix('_');
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_allowed))
}

#[cfg(test)]
mod tests;
