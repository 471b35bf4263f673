//! The JSON shapes of requests and answers.

use matchmaker_core::{Assignment, Ending, FailReason, IdempotencyKey, TicketId, TicketState};
use serde::{Deserialize, Serialize};

use super::count::Counts;
use crate::role::matchmaker::Load;

/// Body of `POST /v1/tickets`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// Decimal digits: JSON numbers lose the low bits of large ids.
    pub(super) client_id: String,
    /// What the game server gets with the token, hexadecimal; nothing by default.
    #[serde(default)]
    pub(super) user: String,
}

/// Reads a decimal number in its one spelling: digits, no sign, no zero before others.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let is_one = match text.as_bytes() {
        [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    text.parse().ok().filter(|_| is_one)
}

/// Answer to `POST /v1/tickets`.
#[derive(Debug, Serialize)]
pub(super) struct Made<'a> {
    /// Secret of the holder.
    pub(super) resume_key: &'a str,
    #[serde(flatten)]
    pub(super) ticket: Ticket<'a>,
}

/// What has become of a ticket.
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

/// A seat on a server.
#[derive(Debug, Serialize)]
struct Seat<'a> {
    #[serde(rename = "seat")]
    number: u16,
    team: u8,
    /// Unix time, seconds.
    expires_at: u64,
    server: Server,
    /// A client grant, `TWG1...`: secret of the holder.
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

/// The word for why a ticket has ended.
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

/// Answer to `GET /v1/status`.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    /// Version of this shape.
    schema: u8,
    /// `up` or `down`.
    hub: &'static str,
    servers: usize,
    tickets_queued: usize,
    tickets_waiting: usize,
    matches: usize,
    players: usize,
    /// Since the start.
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

/// Reads an idempotency key: 32 hexadecimal digits, as a UUID with its dashes too, in quotes or
/// not (a structured header field, RFC 9651, section 3.3.3, has them).
pub(super) fn idempotency_key(text: &str) -> Option<IdempotencyKey> {
    let text = text.trim();
    let text = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    bytes(&digits)?.try_into().ok().map(IdempotencyKey)
}

/// Reads pairs of hexadecimal digits.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|pair| {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            u8::try_from((high? << 4) | low?).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_is_read_in_all_its_forms() {
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

    #[test]
    fn waiting_tickets_say_only_what_they_know() {
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
