//! Tickets: each player asks the matchmaker's edge for its sessions, and waits for the grants.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use servicer::Clock;
use wire::Seat;

use crate::http::{Answer, ask};
use crate::message::Place;
use crate::plan::Plan;
use crate::role::Failure;
use crate::talk::{SessionKind, client_of};
use daemon::control::wait;
use daemon::hex;

/// Client grants of one player, as text, and its seat.
#[derive(Debug)]
pub(super) struct Grants {
    /// Where it plays.
    pub(super) place: Place,
    /// To play by the way that it is told.
    pub(super) play: String,
    /// To measure the direct way.
    pub(super) measure: String,
    /// To play directly.
    pub(super) fallback: String,
}

/// A ticket, and the key to it.
struct Held {
    ticket: String,
    resume_key: String,
}

/// Takes the tickets of all players, and returns the grants once all have come.
pub(super) fn grants(plan: &Plan) -> Result<BTreeMap<Seat, Grants>, Failure> {
    let edge = plan.edge();
    let mut held = BTreeMap::new();
    // First come, first served: so nobody's seat is its number in the plan, unless it is alone.
    let order = || plan.seats().skip(1).chain(plan.seats().take(1));
    // Kind by kind, each of which makes a match.
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

fn submit(edge: SocketAddr, seat: Seat, kind: SessionKind) -> Result<Held, Failure> {
    let client = client_of(seat, kind);
    let user = hex::encode(kind.user());
    let body = format!(r#"{{"client_id":"{}","user":"{user}"}}"#, client.0);
    let answer = patiently(edge, "POST /v1/tickets", &[], &body)?;
    if answer.status != 201 {
        return Err(refused(&answer).into());
    }
    Ok(Held {
        ticket: answer.text("ticket").to_owned(),
        resume_key: answer.text("resume_key").to_owned(),
    })
}

/// Waits for the seat of a ticket, and the grant for it.
fn granted(edge: SocketAddr, held: &Held) -> Result<(Place, String), Failure> {
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

/// Asks, and again after a pause where the edge says that it is too much at once.
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
/// Pause of one source that has asked too much: it earns 100 requests a second.
const PAUSE: Duration = Duration::from_millis(250);
const REPEATS_MAX: u32 = 20;
