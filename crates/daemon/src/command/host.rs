//! `HOST:PORT` on the command line.

use std::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use servicer::Authorities;

use crate::exit::{Exit, Failure};
use crate::http::client::{self, Answer, Request, Stream};

/// A host name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    /// As on the command line, without a scheme.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostPortError {
    NoPort,
    BadPort,
    BadHost,
    NoBrackets,
    Path,
    Scheme,
}

impl fmt::Display for HostPortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::NoPort => "there is no port",
            Self::BadPort => "the port is no number from 0 to 65535",
            Self::BadHost => "the host is no name and no address",
            Self::NoBrackets => "an IPv6 address must be in brackets",
            Self::Path => "there is a path behind the port",
            Self::Scheme => "the scheme is not http",
        };
        write!(
            f,
            "{what}; expected HOST:PORT, such as localhost:8080, 192.0.2.1:8080 or [::1]:8080"
        )
    }
}

impl std::error::Error for HostPortError {}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        // Processes print their address as a URL.
        let text = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
                rest.strip_suffix('/').unwrap_or(rest)
            }
            Some(_) => return Err(HostPortError::Scheme),
            None => text,
        };
        let (host, port) = text.rsplit_once(':').ok_or(HostPortError::NoPort)?;
        if port.contains('/') {
            return Err(HostPortError::Path);
        }
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || port.parse::<u16>().is_err() {
            return Err(if port.is_empty() || port.ends_with(']') {
                HostPortError::NoPort
            } else {
                HostPortError::BadPort
            });
        }
        let is_name = |host: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !host.is_empty() && host.bytes().all(is_allowed)
        };
        if host.starts_with('[') {
            let is_address = text.parse::<SocketAddr>().is_ok();
            is_address.then_some(()).ok_or(HostPortError::BadHost)?;
        } else if host.contains(':') {
            return Err(HostPortError::NoBrackets);
        } else if !is_name(host) {
            return Err(HostPortError::BadHost);
        }
        let text = text.to_owned();
        Ok(Self { text })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What protects the bytes of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protection<'a> {
    /// Nothing.
    Plain,
    /// Loopback: no other host gets them.
    Loopback,
    /// TLS with these authorities.
    Tls(&'a Authorities),
}

impl HostPort {
    /// Returns the addresses of the host, IPv4 first; at least one.
    fn addresses(&self, exit: Exit) -> Result<Vec<SocketAddr>, Failure> {
        let fail = |why: &dyn fmt::Display| {
            Failure::new(exit, format_args!("{self}: the host has no address: {why}"))
        };
        let found = self.text.to_socket_addrs().map_err(|error| fail(&error))?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        if addresses.is_empty() {
            return Err(fail(&"the system names none"));
        }
        Ok(addresses)
    }

    pub(super) fn listen(&self) -> Result<SocketAddr, Failure> {
        let first = self.addresses(Exit::Usage)?.into_iter().next();
        first.ok_or_else(|| Failure::usage(format_args!("{self}: the host has no address")))
    }

    /// Sends a request to `server_name`, without TLS.
    pub(super) fn send(&self, server_name: &str, request: Request<'_>) -> Result<Answer, Failure> {
        self.send_to(server_name, request, Protection::Plain)
    }

    /// Sends a request to `server_name`.
    pub(super) fn send_to(
        &self,
        server_name: &str,
        request: Request<'_>,
        protection: Protection<'_>,
    ) -> Result<Answer, Failure> {
        let (stream, address) = self.open(server_name, request.timeout, protection)?;
        let why = |error| client::failure(server_name, (address, request.timeout), &error);
        client::request_on(stream, &self.text, request).map_err(why)
    }

    /// Opens a connection to `server_name`.
    pub(super) fn connect(
        &self,
        server_name: &str,
        timeout: Duration,
        protection: Protection<'_>,
    ) -> Result<Stream, Failure> {
        let opened = self.open(server_name, timeout, protection);
        opened.map(|(stream, _)| stream)
    }

    /// Connects to the first of the addresses that accepts a connection.
    fn open(
        &self,
        server_name: &str,
        timeout: Duration,
        protection: Protection<'_>,
    ) -> Result<(Stream, SocketAddr), Failure> {
        let mut failed = None;
        let authorities = match protection {
            Protection::Tls(authorities) => Some(authorities),
            Protection::Plain | Protection::Loopback => None,
        };
        for address in self.addresses(Exit::Unreachable)? {
            let why = |error| client::failure(server_name, (address, timeout), &error);
            let is_loopback = address.ip().to_canonical().is_loopback();
            if matches!(protection, Protection::Loopback) && !is_loopback {
                let sentence = format_args!(
                    "{self}: {address} is another host, and a key is not sent to it in clear text: \
                     use TLS with --ca FILE"
                );
                failed = Some(Failure::usage(sentence));
                continue;
            }
            let connect_timeout = timeout.max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, connect_timeout) {
                Ok(stream) => {
                    let stream = Stream::new(stream, self.host(), (timeout, authorities));
                    return stream.map(|stream| (stream, address)).map_err(why);
                }
                Err(error) => failed = Some(why(error)),
            }
        }
        let none = || {
            Failure::new(
                Exit::Unreachable,
                format_args!("{self}: the host has no address"),
            )
        };
        Err(failed.unwrap_or_else(none))
    }

    /// Returns the host without brackets.
    fn host(&self) -> &str {
        let host = self.text.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_are_read_in_each_form() {
        for (text, plain) in [
            ("localhost:8080", "localhost:8080"),
            ("game-1.example.:80", "game-1.example.:80"),
            ("192.0.2.1:0", "192.0.2.1:0"),
            ("[::1]:65535", "[::1]:65535"),
            ("http://127.0.0.1:80", "127.0.0.1:80"),
            ("HTTP://[::1]:80/", "[::1]:80"),
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), plain);
        }
        for (text, error) in [
            ("", HostPortError::NoPort),
            ("localhost", HostPortError::NoPort),
            ("localhost:", HostPortError::NoPort),
            ("[::1]", HostPortError::NoPort),
            ("localhost:http", HostPortError::BadPort),
            ("localhost:65536", HostPortError::BadPort),
            ("localhost:+1", HostPortError::BadPort),
            (":80", HostPortError::BadHost),
            ("a b:80", HostPortError::BadHost),
            ("user@host:80", HostPortError::BadHost),
            ("[::1:80", HostPortError::BadHost),
            ("::1:80", HostPortError::NoBrackets),
            ("http://localhost:80/v1", HostPortError::Path),
            ("https://localhost:80", HostPortError::Scheme),
        ] {
            assert_eq!(text.parse::<HostPort>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_key_is_sent_without_tls_to_loopback_only() {
        let other: HostPort = "192.0.2.1:80".parse().unwrap();
        let second = Duration::from_secs(1);
        let failure = other.connect("hub", second, Protection::Loopback);
        let failure = failure.map(drop).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{failure}");
        assert!(failure.sentence.contains("--ca"), "{failure}");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own: HostPort = listener.local_addr().unwrap().to_string().parse().unwrap();
        assert!(own.connect("hub", second, Protection::Loopback).is_ok());
    }

    #[test]
    fn a_name_is_resolved() {
        let local: HostPort = "localhost:80".parse().unwrap();
        assert!(local.listen().unwrap().ip().is_loopback());
        let nobody: HostPort = "no-such-host.invalid:80".parse().unwrap();
        let failure = nobody.listen().unwrap_err();
        assert!(
            failure.sentence.starts_with("no-such-host.invalid:80: "),
            "{failure}"
        );
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(
            nobody.addresses(Exit::Unreachable).unwrap_err().exit,
            Exit::Unreachable
        );
    }
}
