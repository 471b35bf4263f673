//! Parses socket addresses, with errors that name the expected form.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Parses an IP address and port, such as `192.0.2.7:5029` or `[2001:db8::1]:5029`.
///
/// # Errors
///
/// [`AddressError`] if `text` is anything else; the message states what was found.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    match text.parse() {
        // Its last group may be meant as a port.
        Ok(IpAddr::V6(_)) => return Err(AddressError::NoBrackets),
        Ok(IpAddr::V4(_)) => return Err(AddressError::NoPort),
        Err(_) if is_bracketed(text) => return Err(AddressError::NoPort),
        Err(_) => {}
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(AddressError::NoPort);
    };
    if host.contains(':') && !host.starts_with('[') {
        let is_v6 = host.parse::<Ipv6Addr>().is_ok();
        return Err(if is_v6 {
            AddressError::NoBrackets
        } else {
            AddressError::Form
        });
    }
    check_port(port)?;
    let is_ip =
        host.starts_with('[') || host.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    Err(if is_ip {
        AddressError::Form
    } else {
        AddressError::HostName
    })
}

/// Parses the port of a destination.
///
/// # Errors
///
/// [`AddressError::Port`] if it is 0, above 65,535, or not a number.
pub fn check_port(text: &str) -> Result<u16, AddressError> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or(AddressError::Port)
}

fn is_bracketed(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// Why a text is not an IP address and port; the message says what to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is empty.
    Empty,
    /// The port is missing.
    NoPort,
    /// The port is not a number from 1 to 65,535.
    Port,
    /// An IPv6 address without brackets.
    NoBrackets,
    /// It is a host name, and names are not resolved here.
    HostName,
    /// Anything else.
    Form,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty | Self::Form => {
                "expected IP:port, like 192.0.2.7:5029 or [2001:db8::1]:5029"
            }
            Self::NoPort => "the port is missing; expected IP:port, like 192.0.2.7:5029",
            Self::Port => "the port is not within 1 to 65535",
            Self::NoBrackets => "an IPv6 address with a port needs brackets, like [::1]:5029",
            Self::HostName => {
                "host names are not resolved here; expected IP:port, like 192.0.2.7:5029"
            }
        })
    }
}

impl core::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_named() {
        for (text, expected) in [
            ("", AddressError::Empty),
            ("192.0.2.7", AddressError::NoPort),
            ("::1", AddressError::NoBrackets),
            ("[::1]", AddressError::NoPort),
            ("localhost", AddressError::NoPort),
            ("192.0.2.7:99999", AddressError::Port),
            ("192.0.2.7:502999", AddressError::Port),
            ("192.0.2.7:", AddressError::Port),
            ("localhost:http", AddressError::Port),
            ("localhost:-1", AddressError::Port),
            ("::1:17700", AddressError::NoBrackets),
            ("2001:db8::1:5029", AddressError::NoBrackets),
            ("localhost:8080", AddressError::HostName),
            ("game.example.org:5029", AddressError::HostName),
            ("192.0.2.256:5029", AddressError::Form),
            ("192.0.2:5029", AddressError::Form),
            ("http://a:80", AddressError::Form),
            ("a:b:80", AddressError::Form),
            ("[::1:80", AddressError::Form),
        ] {
            assert_eq!(parse_address(text), Err(expected), "{text:?}");
        }
        for text in ["192.0.2.7:0", "[::1]:65535", "0.0.0.0:9"] {
            assert_eq!(parse_address(text), Ok(text.parse().unwrap()));
        }
    }
}
