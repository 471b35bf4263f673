//! `"proxy_header"` of a game: what its server is told of whom a flow is for. `true` stands for what is usual, as
//! an object of no fields does.

use std::fmt;

use relay_mesh::signed_config::ProxyRule;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes `true`, `false`, or the object where it says something.
#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(super) fn serialize<S: Serializer>(
    header: &Option<ProxyRule>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match header {
        Some(header) if *header != ProxyRule::default() => header.serialize(serializer),
        Some(_) => serializer.serialize_bool(true),
        None => serializer.serialize_bool(false),
    }
}

/// Reads `true`, `false` or an object.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
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

    /// A game whose `"proxy_header"` is `text`.
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
