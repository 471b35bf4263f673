//! The header field `Forwarded`, RFC 7239.
//!
//! Published parsers split the value at every comma, even in a quoted string, so that
//! `host="a,for=192.0.2.1"` forges a source (rfc7239 0.1.3, forwarded-header-value 0.1.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The client in one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Address(IpAddr),
    /// Missing, `unknown`, obfuscated, or malformed.
    Hidden,
}

/// Parses a value of the field; returns the node of each element, in order.
///
/// Returns `None` if any part is malformed: a client may have opened a quoted string that swallows
/// what a proxy appended.
///
/// ```text
/// Forwarded         = 1#forwarded-element
/// forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] )
/// forwarded-pair    = token "=" ( token / quoted-string )
/// ```
///
/// Space around `;` is accepted: the grammar has none, but some proxies write it.
pub(super) fn nodes(value: &str) -> Option<Vec<Node>> {
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
mod tests {
    use super::*;

    fn of(ip: &str) -> Node {
        Node::Address(ip.parse().unwrap())
    }

    #[test]
    fn rfc7239_examples_are_read() {
        let v6 = || of("2001:db8:cafe::17");
        for (value, expected) in [
            // Section 4.
            ("for=\"_gazonk\"", vec![Node::Hidden]),
            ("For=\"[2001:db8:cafe::17]:4711\"", vec![v6()]),
            (
                "for=192.0.2.60;proto=http;by=203.0.113.43",
                vec![of("192.0.2.60")],
            ),
            (
                "for=192.0.2.43, for=198.51.100.17",
                vec![of("192.0.2.43"), of("198.51.100.17")],
            ),
            // Sections 6 and 7.
            (
                "for=192.0.2.43, for=\"[2001:db8:cafe::17]\"",
                vec![of("192.0.2.43"), v6()],
            ),
            ("for=\"192.0.2.43:47011\"", vec![of("192.0.2.43")]),
            ("for=_hidden, for=_SEVKISEK", vec![Node::Hidden; 2]),
            ("for=unknown;proto=https", vec![Node::Hidden]),
            // Sections 7.1 to 7.5.
            (
                "for=192.0.2.43,for=\"[2001:db8:cafe::17]\",for=unknown",
                vec![of("192.0.2.43"), v6(), Node::Hidden],
            ),
            (
                "for=_gazonk;secret=egah2CGj55fSJFs, for=10.1.2.3",
                vec![Node::Hidden, of("10.1.2.3")],
            ),
        ] {
            assert_eq!(nodes(value), Some(expected), "{value}");
        }
    }

    #[test]
    fn rfc7239_each_form_of_the_grammar_is_read() {
        let one = || Some(vec![of("192.0.2.1")]);
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
            assert_eq!(nodes(value), one(), "{value}");
        }
        for value in [
            "proto=http",
            "host=\"for=1.2.3.4\"",
            "for=UNKNOWN",
            "for=\"unknown:80\"",
        ] {
            assert_eq!(nodes(value), Some(vec![Node::Hidden]), "{value}");
        }
        for value in ["", " ", ",", " , ,", ";", ";;"] {
            assert_eq!(nodes(value), Some(Vec::new()), "{value}");
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
            assert_eq!(nodes(value), None, "{value}");
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
            assert_eq!(nodes(value), Some(vec![Node::Hidden]), "{value}");
            let behind = format!("{value}, for=192.0.2.1");
            let both = vec![Node::Hidden, of("192.0.2.1")];
            assert_eq!(nodes(&behind), Some(both), "{behind}");
        }
    }
}
