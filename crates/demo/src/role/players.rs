//! All players, each with its own endpoint, thread and address.

pub(in crate::role) mod player;
mod probe;
pub(super) mod route_prober;
pub(crate) mod routes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use crypto::{ClientGrant, Ring};
use daemon::control::wait;
use daemon::hex;
use servicer::{Clock, Handle, SocketConfig, UdpServicer, UdpSocket};
use udp_proto::{Config, Endpoint, Target};
use wire::Seat;

use super::mail::Reader;
use super::{EventWriter, Failure, Parent, RunOptions, mail};
use crate::game_protocol::{SessionKind, client_of, readers};
use crate::link_faults::LinkFaults;
use crate::matchmaking::{Answer, ask};
use crate::message::{ChildCommand, ChildEvent, Medians, Place, Quantiles, median};
use crate::plan::{APP, NodeRole, Plan};
use player::{Measured, Player, PlayerRequest};
use route_prober::{ProbeApp, RouteProber};
use routes::{AssignedRoute, Targets};

/// Plays until the parent closes the pipe.
pub(super) fn run(
    options: &RunOptions,
    parent: &Parent,
    events: &EventWriter,
) -> Result<(), Failure> {
    let plan = &options.plan();
    let (samples, measured) = mpsc::channel();
    let mut players = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for seat in plan.seats() {
        players.insert(seat, start(plan, seat, (events, &samples))?);
    }
    let reader = Reader::new(readers(plan), events.clone());
    let reader = mail::join(&options.directory, "players", reader)?;
    reader
        .request(())
        .map_err(|_| "the reader of mails takes no requests")?;
    events.send(ChildEvent::Ready);
    while let Ok(command) = parent.next(CHECK_INTERVAL) {
        match command {
            Some(ChildCommand::FindRoute) => entries = find_routes(plan, events)?,
            Some(ChildCommand::Join) => join(plan, &entries, &players)?,
            Some(ChildCommand::Mark { fault }) => {
                for seat in players.keys() {
                    send(&players, *seat, PlayerRequest::Mark(fault))?;
                }
            }
            Some(ChildCommand::Conclude) => {
                for seat in players.keys() {
                    send(&players, *seat, PlayerRequest::Conclude)?;
                }
                events.send(pool(&measured, players.len()));
            }
            Some(ChildCommand::Degrade { .. }) | None => {}
        }
        if let Some(seat) = players
            .iter()
            .find_map(|(seat, player)| (!player.is_running()).then_some(seat))
        {
            return Err(format!("the thread of player {seat} has ended").into());
        }
    }
    reader.shutdown(Duration::ZERO);
    for (_, player) in players {
        player.shutdown(SHUTDOWN_TIMEOUT);
    }
    Ok(())
}

fn start(
    plan: &Plan,
    seat: Seat,
    (events, samples): (&EventWriter, &Sender<Measured>),
) -> Result<Handle<PlayerRequest>, Failure> {
    let host = plan.player(seat);
    let socket = UdpSocket::bind(SocketAddr::new(host, 0), &SocketConfig::default())?;
    let now = Clock::new().now();
    let endpoint = Endpoint::new(Config::default(), APP, Ring::new(), now)?;
    let player = Player::new(plan, seat, now, (events.clone(), samples.clone()));
    let servicer = UdpServicer::named(format!("player {seat}"));
    let servicer = LinkFaults::of(plan, host).over(servicer);
    Ok(servicer.spawn(vec![socket], endpoint, player)?)
}

/// Lets each player measure its routes. Returns the entries of those that shall use one.
fn find_routes(plan: &Plan, events: &EventWriter) -> Result<BTreeMap<Seat, u8>, Failure> {
    let entries: Vec<u8> = plan.hosts_with_role(NodeRole::Entry).collect();
    let mut beacons = vec![plan.beacon()];
    beacons.extend(entries.iter().map(|entry| plan.beacon_entry(*entry)));
    let (found, received) = mpsc::channel();
    let mut route_probers = Vec::new();
    for seat in plan.seats() {
        let host = plan.player(seat);
        let socket = UdpSocket::bind(SocketAddr::new(host, 0), &SocketConfig::default())?;
        let app = ProbeApp {
            seat,
            found: found.clone(),
        };
        let route_prober = RouteProber::new(&beacons, Clock::new().now());
        let servicer =
            LinkFaults::of(plan, host).over(UdpServicer::named(format!("route prober {seat}")));
        route_probers.push(servicer.spawn(vec![socket], route_prober, app)?);
    }
    let mut chosen = BTreeMap::new();
    for _ in &route_probers {
        let (seat, routes) = received.recv_timeout(route_prober::PROBING_MAX.saturating_mul(2))?;
        let (direct, routes) = routes.split_first().ok_or("a route prober has no route")?;
        let best = routes
            .iter()
            .zip(&entries)
            .filter_map(|(route, entry)| Some(((*route)?, *entry)))
            .min();
        // An entry that gains nothing is not used.
        let gains =
            |route: Duration| direct.is_none_or(|direct| route.saturating_add(GAIN_MIN) <= direct);
        let entry = best.and_then(|(route, entry)| gains(route).then_some(entry));
        events.send(ChildEvent::RouteFound {
            player: seat.0,
            entry,
            is_pinged: best.is_some(),
        });
        if let Some(entry) = entry {
            chosen.insert(seat, entry);
        }
    }
    for route_prober in route_probers {
        route_prober.shutdown(Duration::ZERO);
    }
    Ok(chosen)
}

fn join(
    plan: &Plan,
    entries: &BTreeMap<Seat, u8>,
    players: &BTreeMap<Seat, Handle<PlayerRequest>>,
) -> Result<(), Failure> {
    for (seat, grants) in grants(plan)? {
        let mut play = target(&grants.play)?;
        let assigned = match entries.get(&seat) {
            Some(entry) => {
                play.addresses = vec![plan.entry(*entry)];
                AssignedRoute::Through
            }
            None => AssignedRoute::Direct,
        };
        let targets = Targets {
            assigned,
            play,
            fallback: target(&grants.fallback)?,
            measure: target(&grants.measure)?,
        };
        let ask = PlayerRequest::Join(grants.place, Box::new(targets));
        send(players, seat, ask)?;
    }
    Ok(())
}

fn target(grant: &str) -> Result<Target, Failure> {
    let grant: ClientGrant = grant.parse()?;
    Ok(Target::from(&grant))
}

fn send(
    players: &BTreeMap<Seat, Handle<PlayerRequest>>,
    seat: Seat,
    request: PlayerRequest,
) -> Result<(), Failure> {
    let player = players
        .get(&seat)
        .ok_or_else(|| format!("there is no player {seat}"))?;
    player
        .request(request)
        .map_err(|_| format!("player {seat} takes no requests").into())
}

/// Waits for the samples of `count` players, and combines them.
fn pool(received: &Receiver<Measured>, count: usize) -> ChildEvent {
    let (mut direct, mut accelerated, mut mesh) = (Vec::new(), Vec::new(), Vec::new());
    let mut players = Vec::new();
    for _ in 0..count {
        if let Ok(Measured {
            player,
            assigned,
            samples,
        }) = received.recv_timeout(POOLING_MAX)
        {
            let is_mesh = assigned == AssignedRoute::Through;
            players.push(Medians {
                player: player.0,
                is_mesh,
                direct_us: median(samples.direct.clone()),
                accelerated_us: median(samples.assigned.clone()),
                played_us: median(samples.played),
            });
            direct.push(samples.direct);
            if is_mesh {
                mesh.push(samples.assigned.clone());
            }
            accelerated.push(samples.assigned);
        }
    }
    ChildEvent::Measured {
        direct: Quantiles::of(direct),
        accelerated: Quantiles::of(accelerated),
        mesh: Quantiles::of(mesh),
        players,
    }
}

/// Minimum saving of a round trip for which an entry is used.
const GAIN_MIN: Duration = Duration::from_millis(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How long one player may take to return its samples.
const POOLING_MAX: Duration = Duration::from_millis(500);
/// Time for a player to close its sessions; players end one after the other.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(50);

/// Client grants of one player, as text, and its seat.
#[derive(Debug)]
struct Grants {
    place: Place,
    play: String,
    measure: String,
    fallback: String,
}

struct PendingTicket {
    ticket: String,
    resume_key: String,
}

/// Requests tickets for all players, and returns the grants.
fn grants(plan: &Plan) -> Result<BTreeMap<Seat, Grants>, Failure> {
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
    let answer = ask_paced(edge, "POST /v1/tickets", &[], &body)?;
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
        let answer = ask_paced(edge, &line, &headers, "")?;
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
fn ask_paced(
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

const SEAT_MAX: Duration = Duration::from_secs(15);
/// Pause after a rate limit: a source earns 100 requests a second.
const PAUSE: Duration = Duration::from_millis(250);
const REPEATS_MAX: u32 = 20;
