//! Addresses in a node's file: an IP address or a host name, and a port. Names are resolved when the
//! file is read, and later periodically by [`HostNames`].

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use relay_mesh::{AddressUse, config_text};
use serde::{Deserialize, Deserializer, de};
use wire::{AddressError, parse_address};

use super::file::FileConfig;
use crate::control::spawn;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostName {
    /// `name:port`, as in the file.
    pub(super) text: String,
    pub(super) of: AddressUse,
    pub(super) address: SocketAddr,
    /// Consecutive answers without the address in use.
    pub(super) misses: u8,
}

/// Resolves the names periodically on its own thread, since resolving blocks.
///
/// Dropping it stops the thread after the current name, without waiting for it.
#[derive(Debug)]
pub(super) struct HostNames {
    _stop: SyncSender<Infallible>,
}

impl HostNames {
    pub(super) const INTERVAL: Duration = Duration::from_secs(10);

    /// Starts the thread. After three consecutive answers without the address in use it calls
    /// `replace` with the name and the new address; `replace` returns whether the new one is now in
    /// use.
    pub(super) fn start(
        mut names: Vec<HostName>,
        interval: Duration,
        mut resolve: impl FnMut(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
        mut replace: impl FnMut(&HostName, SocketAddr) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::sync_channel(0);
        let watch = move || {
            while !is_stopped(&stopped, interval) {
                for name in &mut names {
                    refresh(name, &mut resolve, &mut replace);
                }
            }
        };
        spawn("host names", watch)?;
        Ok(Self { _stop: stop })
    }
}

pub(super) fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    text.to_socket_addrs().map(Iterator::collect)
}

fn is_stopped(stopped: &Receiver<Infallible>, interval: Duration) -> bool {
    stopped.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected)
}

/// Resolves one name. The address in use stays until [`MISSES_MAX`] consecutive answers lack it,
/// because a name server may return a different subset each time. An address of the same family is
/// preferred.
fn refresh(
    name: &mut HostName,
    resolve: &mut impl FnMut(&str) -> io::Result<Vec<SocketAddr>>,
    replace: &mut impl FnMut(&HostName, SocketAddr) -> bool,
) {
    let found = resolve(&name.text).unwrap_or_default();
    if found.contains(&name.address) {
        name.misses = 0;
        return;
    }
    let same_family = |new: &&SocketAddr| new.is_ipv4() == name.address.is_ipv4();
    let Some(&new) = found.iter().find(same_family).or_else(|| found.first()) else {
        return;
    };
    name.misses = name.misses.saturating_add(1);
    if name.misses >= MISSES_MAX && replace(name, new) {
        (name.address, name.misses) = (new, 0);
    }
}

const MISSES_MAX: u8 = 3;

pub(super) fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    resolve_within(&String::deserialize(from)?).map_err(de::Error::custom)
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
            protocol: game.protocol,
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

fn resolve_within(text: &str) -> Result<SocketAddr, ResolveError> {
    match parse_address(text) {
        Err(AddressError::HostName) => {}
        other => return other.map_err(ResolveError::Form),
    }
    let (answer, found) = mpsc::sync_channel(1);
    let name = text.to_owned();
    let spawned = spawn("lookup", move || {
        let found = name.to_socket_addrs().map(|mut found| found.next());
        // The caller may have timed out.
        answer.send(found.unwrap_or_default()).ok();
    });
    spawned.map_err(|_| ResolveError::NoAnswer)?;
    match found.recv_timeout(RESOLVE_TIMEOUT) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(ResolveError::NoAddress),
        Err(_) => Err(ResolveError::NoAnswer),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResolveError {
    Form(AddressError),
    NoAddress,
    NoAnswer,
}

wire::display_text! { ResolveError {
    Self::Form(error) => "{error}",
    Self::NoAddress => "no address is known for this host name",
    Self::NoAnswer => "resolving this host name took over 5 s",
}}

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use relay_mesh::signed_config::Protocol;

    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], 4_500))
    }

    fn name() -> HostName {
        HostName {
            text: "exit.example.org:4500".to_owned(),
            of: AddressUse::Own,
            address: at(1),
            misses: 0,
        }
    }

    #[test]
    fn an_address_stays_until_its_name_resolves_to_another() {
        let mut name = name();
        let mut replaced = Vec::new();
        let failed = || Err(io::Error::from(io::ErrorKind::TimedOut));
        let elsewhere = || Ok(vec!["[2001:db8::1]:4500".parse().unwrap(), at(3), at(2)]);
        for (answer, is_taken) in [
            (Ok(vec![at(1)]), true),
            (failed(), true),
            (Ok(Vec::new()), true),
            // Resolvers rotate the order, and some return a subset.
            (Ok(vec![at(2), at(1)]), true),
            (Ok(vec![at(2)]), true),
            (Ok(vec![at(3)]), true),
            (Ok(vec![at(1)]), true),
            (elsewhere(), true),
            (elsewhere(), true),
            (failed(), true),
            (elsewhere(), false),
            (elsewhere(), true),
            (Ok(vec![at(2), at(3)]), true),
        ] {
            let mut answer = Some(answer);
            let mut resolve = |text: &str| {
                assert_eq!(text, "exit.example.org:4500");
                answer.take().unwrap()
            };
            refresh(&mut name, &mut resolve, &mut |name, new| {
                replaced.push((name.address, new));
                is_taken
            });
        }
        // The node did not answer the first call.
        assert_eq!(replaced, [(at(1), at(3)), (at(1), at(3))]);
        assert_eq!(name.address, at(3));
    }

    #[test]
    fn the_thread_resolves_periodically_and_ends_with_its_owner() {
        let (sender, changes) = mpsc::channel();
        let mut answers = [1, 2, 2, 2, 2, 3, 3, 3].map(at).into_iter();
        let watcher = HostNames::start(
            vec![name()],
            Duration::from_millis(1),
            move |_| {
                answers
                    .next()
                    .map(|at| vec![at])
                    .ok_or_else(|| io::ErrorKind::NotFound.into())
            },
            move |name, new| sender.send((name.address, new)).is_ok(),
        );
        let timeout = Duration::from_secs(20);
        let next = || changes.recv_timeout(timeout);
        assert_eq!(next(), Ok((at(1), at(2))));
        assert_eq!(next(), Ok((at(2), at(3))));
        drop(watcher);
        assert_eq!(next(), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn names_are_resolved_and_invalid_texts_are_rejected() {
        let found = resolve_within("localhost:4500").unwrap();
        assert!(found.ip().is_loopback() && found.port() == 4_500);
        assert_eq!(
            resolve_within("192.0.2.7:9"),
            Ok("192.0.2.7:9".parse().unwrap())
        );
        // RFC 6761, section 6.4: this name never resolves.
        let none = resolve_within("node.invalid:4500");
        assert!(
            matches!(none, Err(ResolveError::NoAddress | ResolveError::NoAnswer)),
            "{none:?}"
        );
        assert_eq!(
            resolve_within("::1:17700"),
            Err(ResolveError::Form(AddressError::NoBrackets))
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
