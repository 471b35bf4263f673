//! Addresses in a node's file: an IP address or a host name, and a port.
//!
//! Names are resolved when the file is read, within [`RESOLVE_TIMEOUT`] each;
//! [`HostNames`](super::super::host_names::HostNames) resolves them again later.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use relay_mesh::AddressUse;
use relay_mesh::config_text;
use relay_mesh::signed_config::Protocol;
use serde::{Deserialize, Deserializer, de};
use wire::{AddressError, parse_address};

use super::super::host_names::HostName;
use super::{FileConfig, FileProtocol};

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

/// Returns the host names among the addresses of `config`, which was read from `text`.
pub(super) fn names(text: &[u8], config: &FileConfig) -> Vec<HostName> {
    let Ok(targets) = config_text::read_json::<Targets>(text, |_| None) else {
        return Vec::new();
    };
    let own = targets.advertise.into_iter().zip(&config.advertise);
    let own = own.map(|(text, address)| (text, AddressUse::Own, *address));
    let bootstrap = targets.bootstrap.into_iter().zip(&config.bootstrap);
    let bootstrap = bootstrap.map(|(target, known)| {
        let of = AddressUse::Bootstrap(known.node.0);
        (target.address, of, known.address)
    });
    let servers = targets.games.into_iter().zip(&config.games);
    let servers = servers.filter_map(|(target, game)| {
        let of = AddressUse::Server {
            protocol: match game.protocol {
                FileProtocol::Udp => Protocol::Udp,
                FileProtocol::Tcp => Protocol::Tcp,
            },
            game: game.name.clone(),
        };
        Some((target.server?, of, game.server?))
    });
    own.chain(bootstrap)
        .chain(servers)
        .filter(|(text, _, _)| parse_address(text) == Err(AddressError::HostName))
        .map(|(text, of, address)| HostName {
            text,
            of,
            address,
            misses: 0,
        })
        .collect()
}

#[derive(Deserialize)]
struct Targets {
    #[serde(default)]
    advertise: Vec<String>,
    #[serde(default)]
    bootstrap: Vec<BootstrapTarget>,
    #[serde(default)]
    games: Vec<GameTarget>,
}

#[derive(Deserialize)]
struct BootstrapTarget {
    address: String,
}

#[derive(Deserialize)]
struct GameTarget {
    #[serde(default)]
    server: Option<String>,
}

/// Parses an address or resolves a name.
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
            // The caller may have timed out.
            answer.send(found.unwrap_or_default()).ok();
        });
    spawned.map_err(|_| Fault::NoAnswer)?;
    match found.recv_timeout(RESOLVE_TIMEOUT) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Fault::NoAddress),
        Err(_) => Err(Fault::NoAnswer),
    }
}

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
            Self::NoAnswer => f.write_str("resolving this host name took over 5 s"),
        }
    }
}

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_and_invalid_texts_are_rejected() {
        let found = resolve("localhost:4500").unwrap();
        assert!(found.ip().is_loopback() && found.port() == 4_500);
        assert_eq!(resolve("192.0.2.7:9"), Ok("192.0.2.7:9".parse().unwrap()));
        // RFC 6761, section 6.4: this name never resolves.
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
    fn addresses_in_a_file_may_be_host_names() {
        let text = r#"{"node": "0101010101010101010101010101010101010101010101010101010101010101", "address": "localhost:4500"}"#;
        let known: super::super::BootstrapNode = serde_json::from_str(text).unwrap();
        assert!(known.address.ip().is_loopback());
        let text = r#"{"name": "a", "server": "localhost:5029"}"#;
        let game: super::super::FileGame = serde_json::from_str(text).unwrap();
        assert!(game.server.unwrap().ip().is_loopback());
    }

    #[test]
    fn host_names_are_returned_with_their_use() {
        let node = "01".repeat(32);
        let text = format!(
            r#"{{
                "name": "one", "identity_file": "i", "secret_file": "s", "listen": "127.0.0.1:4500",
                "roles": ["exit"],
                "advertise": ["192.0.2.1:4500", "localhost:4500"],
                "bootstrap": [
                    {{"node": "{node}", "address": "192.0.2.2:4500"}},
                    {{"node": "{node}", "address": "localhost:4501"}}
                ],
                "games": [
                    {{"name": "a", "server": "127.0.0.1:5029"}},
                    {{"name": "b", "protocol": "tcp", "server": "localhost:5030"}},
                    {{"name": "c", "listen": ["127.0.0.1:9"]}}
                ]
            }}"#
        );
        let config: FileConfig = serde_json::from_str(&text).unwrap();
        let names = names(text.as_bytes(), &config);
        let returned: Vec<_> = names
            .iter()
            .map(|name| (name.text.as_str(), &name.of))
            .collect();
        let server = AddressUse::Server {
            protocol: Protocol::Tcp,
            game: "b".to_owned(),
        };
        let known = AddressUse::Bootstrap(wire::NodeId([1; 32]));
        assert_eq!(
            returned,
            [
                ("localhost:4500", &AddressUse::Own),
                ("localhost:4501", &known),
                ("localhost:5030", &server),
            ]
        );
        assert!(names.iter().all(|name| name.address.ip().is_loopback()));
    }
}
