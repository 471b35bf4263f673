//! Addresses of others in a node's file: an IP address or a host name, and a port.
//!
//! A name is looked up once, as the file is read and before the node runs: no thread of the node waits for
//! it. At most [`PATIENCE`] a name.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use wire::{AddressError, parse_address};

pub(super) fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    resolve(&String::deserialize(from)?).map_err(de::Error::custom)
}

pub(super) fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    let targets = Vec::<Target>::deserialize(from)?;
    Ok(targets.into_iter().map(|target| target.0).collect())
}

pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    Ok(Option::<Target>::deserialize(from)?.map(|target| target.0))
}

struct Target(SocketAddr);

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        address(from).map(Self)
    }
}

/// Reads an address, or looks a name up.
fn resolve(text: &str) -> Result<SocketAddr, Fault> {
    match parse_address(text) {
        Err(AddressError::HostName) => {}
        other => return other.map_err(Fault::Form),
    }
    let (answer, found) = mpsc::sync_channel(1);
    let name = text.to_owned();
    let spawned = thread::Builder::new()
        .name("lookup".to_owned())
        .spawn(move || {
            let found = name.to_socket_addrs().map(|mut found| found.next());
            // Nobody waits any more where it took too long.
            answer.send(found.unwrap_or_default()).ok();
        });
    spawned.map_err(|_| Fault::NoAnswer)?;
    match found.recv_timeout(PATIENCE) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Fault::NoAddress),
        Err(_) => Err(Fault::NoAnswer),
    }
}

/// Why a text leads to no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Form(AddressError),
    NoAddress,
    NoAnswer,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(error) => error.fmt(f),
            Self::NoAddress => f.write_str("no address is known for this host name"),
            Self::NoAnswer => f.write_str("the look-up of this host name took over 5 s"),
        }
    }
}

/// Time for one name.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_and_a_wrong_text_is_told() {
        let found = resolve("localhost:4500").unwrap();
        assert!(found.ip().is_loopback() && found.port() == 4_500);
        assert_eq!(resolve("192.0.2.7:9"), Ok("192.0.2.7:9".parse().unwrap()));
        // RFC 6761, section 6.4: nothing has this name.
        let none = resolve("node.invalid:4500");
        assert!(
            matches!(none, Err(Fault::NoAddress | Fault::NoAnswer)),
            "{none:?}"
        );
        assert_eq!(
            resolve("::1:17700"),
            Err(Fault::Form(AddressError::NoBrackets))
        );
    }

    #[test]
    fn targets_of_a_file_may_be_names() {
        let text = r#"{"node": "0101010101010101010101010101010101010101010101010101010101010101", "address": "localhost:4500"}"#;
        let known: super::super::BootstrapNode = serde_json::from_str(text).unwrap();
        assert!(known.address.ip().is_loopback());
        let text = r#"{"name": "a", "server": "localhost:5029"}"#;
        let game: super::super::FileGame = serde_json::from_str(text).unwrap();
        assert!(game.server.unwrap().ip().is_loopback());
    }
}
