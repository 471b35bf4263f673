//! The matchmaker's state at the end of a run, by its HTTP edge.

use std::io;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use daemon::control::wait;
use daemon::http::client;
use daemon::http::client::Request;
use serde_json::Value;
use servicer::Clock;

use super::plan::Plan;
use super::report::Report;
use crate::game_protocol::SESSIONS;

/// Its last status, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Matchmaking(Result<Answer, String>);

/// Polls until the matchmaker has recorded the match's end, or time is up.
///
/// The game server reports the result by a call through the hub. The hub was killed meanwhile, so
/// both links have reconnected if the result arrives.
pub(super) fn at_the_end(plan: &Plan) -> Matchmaking {
    let clock = Clock::new();
    let until = clock.now() + RESULT_TIMEOUT;
    loop {
        let status = ask(plan.edge(), "GET /v1/status", &[], "");
        let is_recorded = status.as_ref().is_ok_and(is_recorded);
        if is_recorded || clock.now() >= until {
            return Matchmaking(status.map_err(|error| error.to_string()));
        }
        wait(PAUSE);
    }
}

impl Matchmaking {
    /// Judges tickets, tokens, and whether the matchmaker survived the faults.
    pub(super) fn judge(self, plan: &Plan, report: &mut Report) {
        let number = |name| self.0.as_ref().ok().and_then(|status| status.number(name));
        report.tickets = number("tickets_taken").unwrap_or(0);
        report.tokens_issued = number("tokens_made").unwrap_or(0);
        let sessions = u64::from(plan.options().players).saturating_mul(SESSIONS.into());
        let (tickets, tokens) = (report.tickets, report.tokens_issued);
        report.check(
            "the matchmaker gives each session a ticket and a token",
            tickets == sessions && tokens == sessions,
            format!("{tickets} tickets taken and {tokens} tokens made for {sessions} sessions"),
        );
        report.check(
            "the match's result reaches the matchmaker, across the death of the hub",
            self.0.as_ref().is_ok_and(is_recorded),
            match &self.0 {
                Ok(status) => format!(
                    "hub link {}, {} server with a lease, {} matches left",
                    status.text("hub"),
                    status.number("servers").unwrap_or(0),
                    status.number("matches").unwrap_or(0)
                ),
                Err(error) => format!("its edge does not answer: {error}"),
            },
        );
    }
}

/// Whether the hub link is up, the server holds its lease, and no match is left.
fn is_recorded(status: &Answer) -> bool {
    let numbers = ["servers", "matches"].map(|name| status.number(name));
    status.text("hub") == "up" && numbers == [Some(1), Some(0)]
}

const RESULT_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Value,
}

impl Answer {
    /// Returns a string field; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.json
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.json.get(name).and_then(Value::as_u64)
    }
}

/// Sends a request: `line` is method and path, `headers` are lines without their ends, `body` is
/// JSON or empty.
pub(crate) fn ask(
    edge: SocketAddr,
    line: &str,
    headers: &[String],
    body: &str,
) -> io::Result<Answer> {
    let request = Request {
        line,
        headers,
        body: (!body.is_empty()).then_some(("application/json", body.as_bytes())),
        timeout: TIMEOUT,
        answer_bytes_max: ANSWER_BYTES_MAX,
    };
    let answer = client::request(edge, request)?;
    let json = serde_json::from_slice(&answer.body).map_err(|_| ErrorKind::InvalidData)?;
    let status = answer.status;
    Ok(Answer { status, json })
}

/// Timeout of an answer; above the longest long poll.
const TIMEOUT: Duration = Duration::from_secs(15);
/// A ticket with its grant is below 3 KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_match_has_ended_only_if_the_matchmaker_has_hub_and_server() {
        let status = |hub: &str, servers: u64, matches: u64| Answer {
            status: 200,
            json: json!({ "hub": hub, "servers": servers, "matches": matches }),
        };
        assert!(is_recorded(&status("up", 1, 0)));
        assert!(!is_recorded(&status("down", 1, 0)));
        assert!(!is_recorded(&status("up", 0, 0)));
        assert!(!is_recorded(&status("up", 1, 1)));
    }
}
