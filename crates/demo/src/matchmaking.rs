//! What the matchmaker comes to: asked by its HTTP edge at the end of a run.

use std::time::Duration;

use servicer::Clock;

use super::http::{Answer, ask};
use super::plan::Plan;
use super::report::{Check, Report};
use crate::talk::SESSIONS;
use daemon::control::wait;

/// The last status of the matchmaker, or why there is none.
#[derive(Debug)]
pub(super) struct Matchmaking(Result<Answer, String>);

/// Asks until the match has ended for the matchmaker too, or time is up.
///
/// The game server tells the result by a call through the hub, which was killed meanwhile: so the
/// links of both are there again.
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
    /// Judges tickets, tokens, and whether the matchmaker got through to the end.
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

/// Whether the hub link is up, the server still has its lease, and no match is left.
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
    fn a_match_is_over_only_for_a_matchmaker_with_its_hub_and_its_server() {
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
