//! JSON bodies of requests and responses.

use std::collections::BTreeMap;

use crypto::UserData;
use matchmaker_core::{Assignment, Ending, FailReason, IdempotencyKey, TicketId, TicketState};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::hex;
use crate::http::count::Counts;
use crate::http::error_response::{ErrorResponse, FieldError};
use crate::matchmaking::Load;

/// Body of `POST /v1/tickets`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TicketBody {
    pub(super) client_id: u64,
    /// Data that the game server receives with the token; empty by default.
    pub(super) user: UserData,
}

/// The body with fields of any type, so that errors can name the field.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TicketFields {
    client_id: Field,
    user: Field,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Default)]
enum Field {
    #[default]
    Missing,
    Text(String),
    Other(String),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            // `null` counts as absent.
            Value::Null => Self::Missing,
            Value::String(text) => Self::Text(text),
            Value::Bool(value) => Self::Other(format!("the boolean {value}")),
            Value::Number(number) => Self::Other(format!("the number {number}")),
            Value::Array(_) => Self::Other("an array".to_owned()),
            Value::Object(_) => Self::Other("an object".to_owned()),
        })
    }
}

impl Field {
    /// Returns the text, or an empty one if the field is missing.
    fn optional(self, name: &str, form: &'static str) -> Result<String, ErrorResponse> {
        match self {
            Self::Missing => Ok(String::new()),
            Self::Text(_) | Self::Other(_) => self.required(name, form),
        }
    }

    fn required(self, name: &str, form: &'static str) -> Result<String, ErrorResponse> {
        let found = match self {
            Self::Text(text) => return Ok(text),
            Self::Missing => "nothing".to_owned(),
            Self::Other(found) => found,
        };
        Err(field_error("malformed_json", name, found, form))
    }
}

fn field_error(
    code: &'static str,
    name: &str,
    found: String,
    expected: &'static str,
) -> ErrorResponse {
    ErrorResponse::bad_field(
        code,
        FieldError {
            field: truncated(name),
            found,
            expected,
        },
    )
}

/// Shortens a client's text for an error message.
pub(super) fn truncated(text: &str) -> String {
    let mut letters = text.chars();
    let mut short: String = letters.by_ref().take(TRUNCATED_CHARS_MAX).collect();
    if letters.next().is_some() {
        short.push_str("...");
    }
    short
}

impl TicketBody {
    pub(super) fn read(body: &[u8]) -> Result<Self, ErrorResponse> {
        let whole = str::from_utf8(body).map_err(|_| malformed("is not UTF-8"))?;
        let whole: Value = serde_json::from_str(whole).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            malformed(&format!("is not JSON, at line {line} column {column}"))
        })?;
        if !whole.is_object() {
            return Err(malformed(
                "is not an object, such as {\"client_id\": \"42\"}",
            ));
        }
        let fields: TicketFields = serde_json::from_slice(body)
            .map_err(|error| malformed(&format!("cannot be read: {error}")))?;
        if let Some(name) = fields.others.keys().next() {
            let found = "a field of this name".to_owned();
            return Err(field_error(
                "malformed_json",
                name,
                found,
                "client_id or user",
            ));
        }
        let id = fields.client_id.required("client_id", CLIENT_ID)?;
        let client_id = decimal(&id).ok_or_else(|| {
            let found = format!("{:?}", truncated(&id));
            field_error("bad_client_id", "client_id", found, CLIENT_ID)
        })?;
        let user = fields.user.optional("user", USER)?;
        let user = hex::decode(&user)
            .and_then(|bytes| UserData::new(&bytes).ok())
            .ok_or_else(|| {
                // The text is the game's and is not echoed.
                let found = format!("{} characters", user.chars().count());
                field_error("bad_user", "user", found, USER)
            })?;
        Ok(Self { client_id, user })
    }
}

fn malformed(what: &str) -> ErrorResponse {
    ErrorResponse::bad("malformed_json", format!("the body {what}"))
}

const CLIENT_ID: &str =
    "a string of decimal digits, below 2^64, without sign and leading zeros, such as \"42\"";
const USER: &str = "a string of hexadecimal digits, for 0 to 512 bytes, such as \"00ff\"";
/// Characters of a client's text in an error message.
const TRUNCATED_CHARS_MAX: usize = 64;

/// Parses a decimal number without sign or leading zeros.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let is_one = match text.as_bytes() {
        [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    text.parse().ok().filter(|_| is_one)
}

#[derive(Debug, Serialize)]
pub(super) struct CreatedTicket<'a> {
    /// Secret of the ticket's holder.
    pub(super) resume_key: &'a str,
    #[serde(flatten)]
    pub(super) ticket: Ticket<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct Ticket<'a> {
    #[serde(rename = "ticket")]
    id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    seat: Option<Seat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Seat<'a> {
    #[serde(rename = "seat")]
    number: u16,
    team: u8,
    /// Unix time, seconds.
    expires_at: u64,
    server: Server,
    /// A client grant, `TWG1...`; secret of the ticket's holder.
    grant: &'a str,
}

#[derive(Debug, Serialize)]
struct Server {
    node: String,
    instance: String,
}

impl<'a> Ticket<'a> {
    pub(super) fn new(id: TicketId, state: &'a TicketState) -> Self {
        let ticket = Self {
            id: id.to_string(),
            state: "queued",
            match_id: None,
            seat: None,
            reason: None,
        };
        match state {
            TicketState::Allocating { match_id } => Self {
                state: "allocating",
                match_id: Some(match_id.to_string()),
                ..ticket
            },
            TicketState::Assigned(seat) => Self {
                state: "assigned",
                match_id: Some(seat.match_id.to_string()),
                seat: Some(seat.into()),
                ..ticket
            },
            TicketState::Ended(ending) => Self {
                state: "ended",
                reason: Some(reason(*ending)),
                ..ticket
            },
            TicketState::Queued | _ => ticket,
        }
    }
}

impl<'a> From<&'a Assignment> for Seat<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        Self {
            number: assignment.seat.0,
            team: assignment.team.0,
            expires_at: assignment.expires_at.as_secs(),
            server: Server {
                node: assignment.server.node.to_string(),
                instance: assignment.server.instance.to_string(),
            },
            grant: assignment.grant.expose(),
        }
    }
}

const fn reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Cancelled => "cancelled",
        Ending::Replaced => "replaced",
        Ending::Expired => "expired",
        Ending::Finished => "finished",
        Ending::Left => "left",
        Ending::Abandoned => "abandoned",
        Ending::NotEntered => "not_entered",
        Ending::Failed(FailReason::NoServer) => "no_server",
        Ending::Failed(FailReason::ServerLost) => "server_lost",
        Ending::Failed(FailReason::InMatch) => "in_match",
        Ending::Failed(_) | _ => "failed",
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Status {
    schema: u8,
    hub: &'static str,
    servers: usize,
    tickets_queued: usize,
    tickets_waiting: usize,
    matches: usize,
    players: usize,
    /// Since the start, as the next one.
    tickets_taken: u64,
    tokens_made: u64,
    edge: Counts,
}

impl Status {
    pub(super) const fn new(load: Load, edge: Counts) -> Self {
        Self {
            schema: 1,
            hub: if load.is_joined { "up" } else { "down" },
            servers: load.matchmaker.servers,
            tickets_queued: load.matchmaker.tickets_queued,
            tickets_waiting: load.matchmaker.tickets_waiting,
            matches: load.matchmaker.matches,
            players: load.matchmaker.players,
            tickets_taken: load.stats.tickets,
            tokens_made: load.stats.tokens,
            edge,
        }
    }
}

/// Parses an idempotency key: 32 hexadecimal digits, optionally with the dashes of a UUID and in
/// quotes (a structured field string, RFC 9651, section 3.3.3).
pub(super) fn idempotency_key(text: &str) -> Option<IdempotencyKey> {
    let text = text.trim();
    let text = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    hex::decode(&digits)?.try_into().ok().map(IdempotencyKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_are_parsed_in_all_forms() {
        let key = IdempotencyKey([0xAB; 16]);
        for text in [
            "abababababababababababababababab",
            "\"ABABABAB-abab-abab-abab-abababababab\"",
            " abababab-abab-abab-abab-abababababab ",
        ] {
            assert_eq!(idempotency_key(text), Some(key), "{text}");
        }
        for text in ["", "ab", "zz", "abababababababababababababababab00"] {
            assert_eq!(idempotency_key(text), None, "{text}");
        }
    }

    fn refused(body: &str) -> (String, String) {
        let error_response = TicketBody::read(body.as_bytes()).unwrap_err();
        let text = format!("{error_response:?}");
        let code = text.split('"').nth(1).unwrap().to_owned();
        (code, text)
    }

    #[test]
    fn null_counts_as_an_absent_field() {
        let body = |body: &str| TicketBody::read(body.as_bytes()).unwrap();
        let plain = body(r#"{"client_id":"42"}"#);
        assert_eq!(body(r#"{"client_id":"42","user":null}"#), plain);
        assert_eq!(body(r#"{"user":"","client_id":"42"}"#), plain);
        assert_eq!(plain.client_id, 42);
        assert_eq!(
            body(r#"{"client_id":"42","user":"00fF"}"#).user,
            UserData::new(&[0, 255]).unwrap()
        );
    }

    #[test]
    fn errors_name_the_field_the_found_and_the_expected_value() {
        for (body, code, field, found) in [
            ("{}", "malformed_json", "client_id", "nothing"),
            (
                r#"{"client_id":null}"#,
                "malformed_json",
                "client_id",
                "nothing",
            ),
            (
                r#"{"client_id":42}"#,
                "malformed_json",
                "client_id",
                "the number 42",
            ),
            (
                r#"{"client_id":[]}"#,
                "malformed_json",
                "client_id",
                "an array",
            ),
            (
                r#"{"client_id":true}"#,
                "malformed_json",
                "client_id",
                "the boolean true",
            ),
            (
                r#"{"client_id":"042"}"#,
                "bad_client_id",
                "client_id",
                "042",
            ),
            (
                r#"{"client_id":"1","user":{}}"#,
                "malformed_json",
                "user",
                "an object",
            ),
            (
                r#"{"client_id":"1","user":"zz"}"#,
                "bad_user",
                "user",
                "2 characters",
            ),
            (
                r#"{"client_id":"1","usr":null}"#,
                "malformed_json",
                "usr",
                "a field of this name",
            ),
        ] {
            let (found_code, text) = refused(body);
            assert_eq!(found_code, code, "{text}");
            assert!(text.contains(&format!("field: \"{field}\"")), "{text}");
            assert!(
                text.contains(found) && text.contains("expected: "),
                "{text}"
            );
        }
        let (_, twice) = refused(r#"{"client_id":"1","client_id":"2"}"#);
        assert!(twice.contains("duplicate field `client_id`"), "{twice}");
        let long = format!(r#"{{"client_id":"1","{}":1}}"#, "x".repeat(4_000));
        assert!(refused(&long).1.len() < 500, "what is shown has a bound");
        for body in ["", "[]", "5", "{", "\u{0}", "\"client_id\""] {
            assert_eq!(refused(body).0, "malformed_json", "{body}");
        }
    }

    #[test]
    fn queued_and_failed_tickets_omit_unknown_fields() {
        let ticket = Ticket::new(TicketId(1), &TicketState::Queued);
        assert_eq!(
            serde_json::to_string(&ticket).unwrap(),
            r#"{"ticket":"0000000000000001","state":"queued"}"#
        );
        let ended = TicketState::Ended(Ending::Failed(FailReason::ServerLost));
        assert_eq!(
            serde_json::to_string(&Ticket::new(TicketId(1), &ended)).unwrap(),
            r#"{"ticket":"0000000000000001","state":"ended","reason":"server_lost"}"#
        );
    }
}
