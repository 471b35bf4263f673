//! Tickets: each player requests one for each of its sessions, and waits for the grants.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use servicer::Clock;
use wire::Seat;

use crate::game_protocol::{SessionKind, client_of};
use crate::http::{Answer, ask};
use crate::message::Place;
use crate::plan::Plan;
use crate::role::Failure;
use daemon::control::wait;
use daemon::hex;

/// Client grants of one player, as text, and its seat.
#[derive(Debug)]
pub(super) struct Grants {
    /// Where it plays.
    pub(super) place: Place,
    /// For play on the assigned route.
    pub(super) play: String,
    /// For measuring the direct route.
    pub(super) measure: String,
    /// For play on the direct route.
    pub(super) fallback: String,
}

/// A ticket and its secret.
struct PendingTicket {
    ticket: String,
    resume_key: String,
}

/// Requests tickets for all players, and returns the grants.
pub(super) fn grants(plan: &Plan) -> Result<BTreeMap<Seat, Grants>, Failure> {
    let edge = plan.edge();
    let mut held = BTreeMap::new();
    // The queue is FIFO, so this order gives every player a seat other than its number, if there
    // are two.
    let order = || plan.seats().skip(1).chain(plan.seats().take(1));
    // The tickets of each kind make one match.
    for kind in SessionKind::ALL {
        for seat in order() {
            held.insert((seat, kind), submit(edge, seat, kind)?);
        }
    }
    let mut grants = BTreeMap::new();
    for seat in plan.seats() {
        let grant = |kind| {
            let held = held.get(&(seat, kind)).ok_or("a ticket is missing")?;
            granted(edge, held)
        };
        let (place, play) = grant(SessionKind::Play)?;
        let of_player = Grants {
            place,
            play,
            measure: grant(SessionKind::Measure)?.1,
            fallback: grant(SessionKind::Fallback)?.1,
        };
        grants.insert(seat, of_player);
    }
    Ok(grants)
}

fn submit(edge: SocketAddr, seat: Seat, kind: SessionKind) -> Result<PendingTicket, Failure> {
    let client = client_of(seat, kind);
    let user = hex::encode(kind.user());
    let body = format!(r#"{{"client_id":"{}","user":"{user}"}}"#, client.0);
    let answer = patiently(edge, "POST /v1/tickets", &[], &body)?;
    if answer.status != 201 {
        return Err(refused(&answer).into());
    }
    Ok(PendingTicket {
        ticket: answer.text("ticket").to_owned(),
        resume_key: answer.text("resume_key").to_owned(),
    })
}

/// Waits for the seat and the grant of a ticket.
fn granted(edge: SocketAddr, held: &PendingTicket) -> Result<(Place, String), Failure> {
    let line = format!("GET /v1/tickets/{}?wait=10", held.ticket);
    let headers = [format!("Authorization: Bearer {}", held.resume_key)];
    let until = Clock::new().now() + SEAT_MAX;
    while Clock::new().now() < until {
        let answer = patiently(edge, &line, &headers, "")?;
        match answer.text("state") {
            "assigned" => {
                let seat = answer.number("seat").ok_or("a ticket has no seat")?;
                let place = Place {
                    match_id: answer.text("match_id").to_owned(),
                    seat: u16::try_from(seat)?,
                };
                return Ok((place, answer.text("grant").to_owned()));
            }
            "queued" | "allocating" => {}
            "ended" => return Err(format!("a ticket ended: {}", answer.text("reason")).into()),
            _ => return Err(refused(&answer).into()),
        }
    }
    Err("the matchmaker has no seat in time".into())
}

/// Sends a request; if the edge answers that the rate is exceeded, retries after a pause.
fn patiently(
    edge: SocketAddr,
    line: &str,
    headers: &[String],
    body: &str,
) -> Result<Answer, Failure> {
    let mut answer = ask(edge, line, headers, body)?;
    for _ in 0..REPEATS_MAX {
        if answer.status != 429 {
            break;
        }
        wait(PAUSE);
        answer = ask(edge, line, headers, body)?;
    }
    Ok(answer)
}

fn refused(answer: &Answer) -> String {
    let (status, error, detail) = (answer.status, answer.text("error"), answer.text("detail"));
    format!("the matchmaker refuses: {status} {error}: {detail}")
}

/// How long a seat may take.
const SEAT_MAX: Duration = Duration::from_secs(15);
/// Pause after a rate limit: a source earns 100 requests a second.
const PAUSE: Duration = Duration::from_millis(250);
const REPEATS_MAX: u32 = 20;
