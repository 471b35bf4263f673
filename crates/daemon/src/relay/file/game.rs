//! Games of a node's file.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use relay_mesh::signed_config::ProxyRule;
use relay_mesh::{EntryGame, ExitGame, Game, Mode};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{NodeName, host};

/// A game that the mesh carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileGame {
    /// The same at entry and exit; at most 64 bytes. A UDP game and a TCP game may share a name.
    pub name: String,
    /// Its protocol; default `udp`.
    #[serde(default)]
    pub protocol: FileProtocol,
    /// Paths that its packets use.
    #[serde(default)]
    pub mode: FileMode,
    /// At an entry: addresses that players connect to.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// At an entry: exits that serve the game.
    #[serde(default)]
    pub exits: Vec<NodeName>,
    /// At an exit: the game server's address; a host name is resolved when the file is read and
    /// every 10 s.
    #[serde(default, deserialize_with = "host::optional")]
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

/// Paths that a game's packets use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileMode {
    /// One path.
    Single,
    /// A second path is kept ready.
    #[default]
    Shadow,
    /// Every packet is sent over two paths.
    Dup,
}

/// A game's transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileProtocol {
    /// Datagrams.
    #[default]
    Udp,
    /// Connections.
    Tcp,
}

impl FileGame {
    pub(super) fn game(&self) -> Game {
        Game {
            name: self.name.clone(),
            mode: match self.mode {
                FileMode::Single => Mode::Single,
                FileMode::Shadow => Mode::Shadow,
                FileMode::Dup => Mode::Dup,
            },
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
}
