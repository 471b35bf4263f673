//! `"proxy_header"` of a game: what its server is told of whom a flow is for.

use std::collections::BTreeSet;
use std::fmt;

use relay_mesh::proxy_header::Version;
use relay_mesh::{HeaderExtras, HeaderTiming, ServerHeader};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Headers of the PROXY protocol; `true` stands for the default, as an object of no fields does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileHeader {
    /// Form of the header.
    #[serde(default)]
    pub version: FileVersion,
    /// Before which datagrams it stands.
    #[serde(default)]
    pub datagrams: FileTiming,
    /// What it says besides the addresses.
    #[serde(default)]
    pub extras: BTreeSet<FileExtra>,
}

/// Form of a header, 1 or 2. Games over UDP have 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct FileVersion(pub Version);

impl TryFrom<u8> for FileVersion {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            1 => Ok(Self(Version::One)),
            2 => Ok(Self(Version::Two)),
            _ => Err("the PROXY protocol has versions 1 and 2"),
        }
    }
}

impl From<FileVersion> for u8 {
    fn from(version: FileVersion) -> Self {
        match version.0 {
            Version::One => 1,
            Version::Two => 2,
        }
    }
}

/// Which of a flow's datagrams begin with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileTiming {
    /// As long as the server has not answered within the last 2 s.
    #[default]
    First,
    /// All.
    Each,
}

/// What a header says besides the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileExtra {
    /// Its checksum.
    Crc32c,
    /// The flow's own name.
    SessionId,
    /// The nodes on the way.
    Nodes,
}

impl FileHeader {
    /// Makes of it what a node needs.
    pub(super) fn header(&self) -> ServerHeader {
        ServerHeader {
            version: self.version.0,
            timing: match self.datagrams {
                FileTiming::First => HeaderTiming::First,
                FileTiming::Each => HeaderTiming::Each,
            },
            extras: self
                .extras
                .iter()
                .fold(HeaderExtras::NONE, |extras, extra| {
                    extras
                        | match extra {
                            FileExtra::Crc32c => HeaderExtras::CHECKSUM,
                            FileExtra::SessionId => HeaderExtras::SESSION_ID,
                            FileExtra::Nodes => HeaderExtras::NODES,
                        }
                }),
        }
    }
}

/// Writes `true`, `false`, or the object where it says something.
#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(super) fn serialize<S: Serializer>(
    header: &Option<FileHeader>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match header {
        Some(header) if *header != FileHeader::default() => header.serialize(serializer),
        Some(_) => serializer.serialize_bool(true),
        None => serializer.serialize_bool(false),
    }
}

/// Reads `true`, `false` or an object.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<FileHeader>, D::Error> {
    deserializer.deserialize_any(HeaderVisitor)
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Option<FileHeader>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or an object with \"version\", \"datagrams\" and \"extras\"")
    }

    fn visit_bool<E>(self, is_told: bool) -> Result<Self::Value, E> {
        Ok(is_told.then(FileHeader::default))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        FileHeader::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::FileGame;

    /// A game whose `"proxy_header"` is `text`.
    fn game(text: &str) -> Result<FileGame, String> {
        let text =
            format!(r#"{{"name": "doom", "server": "127.0.0.1:9", "proxy_header": {text}}}"#);
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    fn header(text: &str) -> Option<ServerHeader> {
        let header = game(text).unwrap().proxy_header;
        header.as_ref().map(FileHeader::header)
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
    fn pgx10_what_is_no_header_is_named() {
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
