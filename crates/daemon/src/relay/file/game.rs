//! Games of a node's file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use relay_mesh::proxy_header::{HeaderPolicy, TrustError, TrustedProxies};
use relay_mesh::signed_config::{Protocol, ProxyRule};
use relay_mesh::{EntryGame, ExitGame, Game, Mode, ServerProbe, UnprovedLimits};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::check::Fault;
use super::{FileConfig, NodeName};
use crate::exit::Failure;
use crate::hex;
use crate::relay::host_names;

/// A game that the mesh carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileGame {
    /// The same at entry and exit; at most 64 bytes. A UDP game and a TCP game may share a name.
    pub name: String,
    /// Its protocol; default `udp`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Paths that its packets use.
    #[serde(default)]
    pub mode: Mode,
    /// At an entry: addresses that players connect to.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// At an entry: exits that serve the game.
    #[serde(default)]
    pub exits: Vec<NodeName>,
    /// At an exit: the game server's address; a host name is resolved when the file is read and
    /// every 10 s.
    #[serde(default, deserialize_with = "host_names::optional")]
    pub server: Option<SocketAddr>,
    /// At an exit: entries that may send players; without it, all members.
    #[serde(default)]
    pub entries: Option<BTreeSet<NodeName>>,
    /// At an exit: PROXY headers that give the game server the player's address; `true`, `false` or
    /// an object. Only for servers that expect them from this host.
    #[serde(
        default,
        serialize_with = "write_proxy_header",
        deserialize_with = "read_proxy_header"
    )]
    pub proxy_header: Option<ProxyRule>,
}

impl FileGame {
    pub(super) fn game(&self) -> Game {
        Game {
            name: self.name.clone(),
            mode: self.mode,
            entry: (!self.listen.is_empty()).then(|| EntryGame {
                listen: self.listen.clone(),
                exits: self.exits.iter().map(|exit| exit.0).collect(),
            }),
            exit: self.server.map(|server| ExitGame {
                server,
                entries: self
                    .entries
                    .as_ref()
                    .map(|entries| entries.iter().map(|entry| entry.0).collect()),
                header: self.proxy_header.as_ref().map(ProxyRule::header),
            }),
        }
    }
}

/// Writes `true` for the default rule, `false` for none, otherwise the object.
#[expect(clippy::ref_option, reason = "serde calls it so")]
fn write_proxy_header<S: Serializer>(
    header: &Option<ProxyRule>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match header {
        Some(header) if *header != ProxyRule::default() => header.serialize(serializer),
        Some(_) => serializer.serialize_bool(true),
        None => serializer.serialize_bool(false),
    }
}

fn read_proxy_header<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ProxyRule>, D::Error> {
    deserializer.deserialize_any(HeaderVisitor)
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Option<ProxyRule>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or an object with \"version\", \"datagrams\" and \"extras\"")
    }

    fn visit_bool<E>(self, is_told: bool) -> Result<Self::Value, E> {
        Ok(is_told.then(ProxyRule::default))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        ProxyRule::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

/// How the round trip to a game's server is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum FileProbe {
    /// Not measured.
    None,
    /// An ICMP echo request, if `net.ipv4.ping_group_range` permits it.
    Icmp,
    /// A TCP connection.
    Connect {
        /// The port on the server's host.
        port: u16,
    },
    /// A datagram to the server; any answer counts.
    Query {
        /// Its bytes as hexadecimal digits; at most 512 bytes.
        hex: String,
    },
}

impl FileProbe {
    fn probe(&self) -> Option<ServerProbe> {
        match self {
            Self::None => Some(ServerProbe::None),
            Self::Icmp => Some(ServerProbe::Icmp),
            Self::Connect { port: 0 } => None,
            Self::Connect { port } => Some(ServerProbe::Connect { port: *port }),
            Self::Query { hex } => {
                let request = hex::decode(hex)?;
                let fits = request.len() <= ServerProbe::QUERY_LEN_MAX;
                fits.then_some(ServerProbe::Query { request })
            }
        }
    }
}

impl FileConfig {
    pub(super) fn server_probes(&self) -> Result<BTreeMap<String, ServerProbe>, Failure> {
        let probes = self.probes.iter().map(|(game, probe)| {
            let probe = probe.probe();
            let probe = probe.ok_or_else(|| Failure::usage(bad_probe(game)))?;
            Ok((game.clone(), probe))
        });
        probes.collect()
    }

    pub(super) fn probes_fault(&self) -> Option<Fault> {
        let is_known = |name: &String| {
            let mut games = self.games.iter();
            self.signed.is_some() || games.any(|game| game.name == *name && game.server.is_some())
        };
        if let Some(unknown) = self.probes.keys().find(|name| !is_known(name)) {
            let text =
                format!("\"probes\" are of {unknown:?}, which is no game with \"server\" here");
            return Some(Fault::new(format!("probes.{unknown}"), text));
        }
        let mut probes = self.probes.iter();
        let (game, _) = probes.find(|(_, probe)| probe.probe().is_none())?;
        Some(bad_probe(game))
    }
}

fn bad_probe(game: &str) -> Fault {
    let text = format!(
        "the probe of game {game:?} has port 0, or a query that is no even number of hexadecimal \
         digits up to 1,024"
    );
    Fault::new(format!("probes.{game}"), text)
}

/// Trusted proxies in front of a game's ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProxies {
    /// Their addresses as prefixes, such as `10.0.0.0/8` or `2001:db8::/32`. Any other peer is a
    /// player and may not send a PROXY header.
    pub from: Vec<String>,
    /// Whether every connection must begin with a header; default true. Every datagram must,
    /// whatever this says.
    #[serde(default = "is_required")]
    pub required: bool,
    /// The game's protocol; without it, both protocols of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
}

impl FileProxies {
    fn are_before(&self, protocol: Protocol) -> bool {
        self.protocol.is_none_or(|only| only == protocol)
    }

    fn trusted(&self) -> Result<TrustedProxies, TrustError> {
        let need = if self.required {
            HeaderPolicy::Required
        } else {
            HeaderPolicy::Optional
        };
        TrustedProxies::parse(self.from.iter().map(String::as_str), need)
    }
}

impl FileConfig {
    pub(super) fn trusted_proxies(
        &self,
        protocol: Protocol,
    ) -> Result<BTreeMap<String, TrustedProxies>, Failure> {
        let proxies = self.proxies.iter();
        proxies
            .filter(|(_, proxies)| proxies.are_before(protocol))
            .map(|(game, proxies)| Ok((game.clone(), proxies.trusted().map_err(Failure::usage)?)))
            .collect()
    }

    pub(super) fn proxies_fault(&self) -> Option<Fault> {
        let mut proxies = self.proxies.iter();
        proxies.find_map(|(name, proxies)| {
            if let Err(error) = proxies.trusted() {
                return Some(Fault::new(
                    format!("proxies.{name}.from"),
                    error.to_string(),
                ));
            }
            let is_there = |protocol| {
                let mut games = self.games.iter();
                let is_it = |game: &FileGame| game.name == *name && game.protocol == protocol;
                // The games of documents are not known yet.
                proxies.are_before(protocol)
                    && (self.signed.is_some()
                        || games.any(|game| is_it(game) && !game.listen.is_empty()))
            };
            let fault = match (is_there(Protocol::Udp), is_there(Protocol::Tcp)) {
                (true, false) if !proxies.required => {
                    "have \"required\": false, but over UDP each datagram must begin with a header"
                }
                (true, _) | (_, true) => return None,
                (false, false) => match proxies.protocol {
                    Some(Protocol::Udp) => "match no UDP game with \"listen\" here",
                    Some(Protocol::Tcp) => "match no TCP game with \"listen\" here",
                    None => "match no game with \"listen\" here",
                },
            };
            let text = format!("\"proxies\" of {name:?} {fault}");
            Some(Fault::new(format!("proxies.{name}"), text))
        })
    }
}

const fn is_required() -> bool {
    true
}

/// Limits of a UDP game's players in one /24 or /48 who have not proved that they receive. Defaults
/// are those of [`UnprovedLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileUnprovedLimits {
    /// New players per second; 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newcomers_per_second: Option<u32>,
    /// Concurrent unproved players; 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproved: Option<u32>,
    /// Bytes per second sent to all of them; 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u32>,
}

impl FileUnprovedLimits {
    fn limits(&self) -> UnprovedLimits {
        let mut limits = UnprovedLimits::default();
        limits.newcomers = self.newcomers_per_second.unwrap_or(limits.newcomers);
        limits.unproved = self.unproved.unwrap_or(limits.unproved);
        limits.bytes = self.bytes_per_second.unwrap_or(limits.bytes);
        limits
    }
}

impl FileConfig {
    pub(super) fn unproved_limits_of(&self) -> BTreeMap<String, UnprovedLimits> {
        let games = self.unproved_limits.iter();
        games
            .map(|(game, limits)| (game.clone(), limits.limits()))
            .collect()
    }

    /// Returns limits of a game without a port here. With signed documents every name is accepted.
    pub(super) fn unproved_limits_fault(&self) -> Option<Fault> {
        let is_known = |name: &&String| {
            let mut games = self.games.iter();
            self.signed.is_some()
                || games.any(|game| {
                    let is_udp = game.protocol == Protocol::Udp;
                    game.name == **name && is_udp && !game.listen.is_empty()
                })
        };
        let unknown = self.unproved_limits.keys().find(|name| !is_known(name))?;
        let text =
            format!("found the game {unknown:?}; expected one over UDP with \"listen\" here");
        Some(Fault::new(format!("unproved_limits.{unknown}"), text))
    }
}

#[cfg(test)]
mod tests {
    use relay_mesh::proxy_header::Version;
    use relay_mesh::{HeaderExtras, HeaderTiming, ServerHeader};

    use super::*;
    use crate::relay::FileGame;

    /// A game with this `"proxy_header"`.
    fn game(text: &str) -> Result<FileGame, String> {
        let text =
            format!(r#"{{"name": "doom", "server": "127.0.0.1:9", "proxy_header": {text}}}"#);
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    fn header(text: &str) -> Option<ServerHeader> {
        let header = game(text).unwrap().proxy_header;
        header.as_ref().map(ProxyRule::header)
    }

    #[test]
    fn pgx10_a_header_is_true_false_or_an_object() {
        let usual = ServerHeader::default();
        let each = ServerHeader {
            timing: HeaderTiming::Each,
            ..usual
        };
        let full = ServerHeader {
            extras: HeaderExtras::CHECKSUM | HeaderExtras::SESSION_ID | HeaderExtras::NODES,
            ..each
        };
        let line = ServerHeader {
            version: Version::One,
            ..usual
        };
        for (text, expected) in [
            ("false", None),
            ("true", Some(usual)),
            ("{}", Some(usual)),
            (
                r#"{"version": 2, "datagrams": "first", "extras": []}"#,
                Some(usual),
            ),
            (r#"{"version": 1}"#, Some(line)),
            (r#"{"datagrams": "each"}"#, Some(each)),
            (
                r#"{"datagrams": "each", "extras": ["nodes", "crc32c", "session_id"]}"#,
                Some(full),
            ),
        ] {
            assert_eq!(header(text), expected, "{text}");
            let game = game(text).unwrap();
            let again = serde_json::to_string(&game).unwrap();
            assert_eq!(serde_json::from_str::<FileGame>(&again).unwrap(), game);
        }
        let bare: FileGame = serde_json::from_str(r#"{"name": "doom"}"#).unwrap();
        assert_eq!(bare.proxy_header, None);
        let written =
            |text| serde_json::to_value(game(text).unwrap()).unwrap()["proxy_header"].clone();
        assert_eq!(written("true"), true);
        assert_eq!(written("{}"), true);
        assert_eq!(written("false"), false);
    }

    #[test]
    fn pgx10_invalid_header_rules_are_named() {
        for (text, fault) in [
            (
                "3",
                "expected true, false, or an object with \"version\", \"datagrams\" and \"extras\"",
            ),
            (
                r#"{"version": 3}"#,
                "the PROXY protocol has versions 1 and 2",
            ),
            (r#"{"datagrams": "some"}"#, "unknown variant `some`"),
            (r#"{"extras": ["crc"]}"#, "unknown variant `crc`"),
            (r#"{"crc32c": true}"#, "unknown field `crc32c`"),
        ] {
            let error = game(text).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
    }

    fn read(text: &str) -> Option<ServerProbe> {
        serde_json::from_str::<FileProbe>(text).ok()?.probe()
    }

    #[test]
    fn pg5_probes_are_parsed_as_documented() {
        assert_eq!(read(r#"{"by": "none"}"#), Some(ServerProbe::None));
        assert_eq!(read(r#"{"by": "icmp"}"#), Some(ServerProbe::Icmp));
        let connect = ServerProbe::Connect { port: 80 };
        assert_eq!(read(r#"{"by": "connect", "port": 80}"#), Some(connect));
        let request = vec![0, 255];
        let query = ServerProbe::Query { request };
        assert_eq!(read(r#"{"by": "query", "hex": "00ff"}"#), Some(query));
        let long = "00".repeat(513);
        for bad in [
            r#"{"by": "ping"}"#,
            r#"{"by": "connect"}"#,
            r#"{"by": "connect", "port": 0}"#,
            r#"{"by": "connect", "port": 80, "host": "other"}"#,
            r#"{"by": "query", "hex": "0"}"#,
            &format!(r#"{{"by": "query", "hex": "{long}"}}"#),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn missing_unproved_limits_have_the_defaults() {
        let read =
            |json: &str| serde_json::from_str::<FileUnprovedLimits>(json).map(|file| file.limits());
        assert_eq!(read("{}").unwrap(), UnprovedLimits::default());
        let mut some = UnprovedLimits::default();
        (some.newcomers, some.unproved, some.bytes) = (16, 64, 65_536);
        let json = r#"{"newcomers_per_second": 16, "unproved": 64, "bytes_per_second": 65536}"#;
        assert_eq!(read(json).unwrap(), some);
        assert!(read(r#"{"players": 1}"#).is_err());
    }
}
