//! The matchmaker's state at the end of a run, by its HTTP edge.

use std::time::Duration;

use servicer::Clock;

use super::http::{Answer, ask};
use super::plan::Plan;
use super::report::{Check, Report};
use crate::game_protocol::SESSIONS;
use daemon::control::wait;

/// Its last status, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Matchmaking(Result<Answer, String>);

/// Polls until the matchmaker has recorded the match's end, or time is up.
///
/// The game server reports the result by a call through the hub. The hub was killed meanwhile, so
/// both links have reconnected if the result arrives.
pub(super) fn at_the_end(plan: &Plan) -> Matchmaking {
    let clock = Clock::new();
    let until = clock.now() + NOTED_MAX;
    loop {
        let status = ask(plan.edge(), "GET /v1/status", &[], "");
        let is_noted = status.as_ref().is_ok_and(is_noted);
        if is_noted || clock.now() >= until {
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
        report.checks.push(Check {
            name: "the matchmaker gives each session a ticket and a token".to_owned(),
            ok: report.tickets == sessions && report.tokens_issued == sessions,
            detail: format!(
                "{} tickets taken and {} tokens made for {sessions} sessions",
                report.tickets, report.tokens_issued
            ),
        });
        report.checks.push(Check {
            name: "the match's result reaches the matchmaker, across the death of the hub"
                .to_owned(),
            ok: self.0.as_ref().is_ok_and(is_noted),
            detail: match &self.0 {
                Ok(status) => format!(
                    "hub link {}, {} server with a lease, {} matches left",
                    status.text("hub"),
                    status.number("servers").unwrap_or(0),
                    status.number("matches").unwrap_or(0)
                ),
                Err(error) => format!("its edge does not answer: {error}"),
            },
        });
    }
}

/// Whether the hub link is up, the server holds its lease, and no match is left.
fn is_noted(status: &Answer) -> bool {
    let numbers = ["servers", "matches"].map(|name| status.number(name));
    status.text("hub") == "up" && numbers == [Some(1), Some(0)]
}

/// How long the result may take.
const NOTED_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

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
        assert!(is_noted(&status("up", 1, 0)));
        assert!(!is_noted(&status("down", 1, 0)));
        assert!(!is_noted(&status("up", 0, 0)));
        assert!(!is_noted(&status("up", 1, 1)));
    }
}
