//! All players, each with its own endpoint, thread and address.

mod gap;
pub(in crate::role) mod player;
mod probe;
pub(super) mod route_prober;
pub(crate) mod routes;
mod tickets;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crypto::{ClientGrant, Ring};
use servicer::{Clock, Handle, SocketConfig, UdpServicer, UdpSocket};
use std::net::SocketAddr;
use udp_proto::{Config, Endpoint, Target};
use wire::Seat;

use super::mail::{self, Reader};
use super::{EventWriter, Failure};
use crate::game_protocol::readers;
use crate::link_faults::LinkFaults;
use crate::message::{ChildCommand, ChildEvent, Medians, Quantiles, median};
use crate::plan::{APP, NodeRole, Plan};
use daemon::control::ParentPipe;
use player::{Measured, Player, PlayerRequest};
use route_prober::{BeaconProber, RouteProber};
use routes::{AssignedRoute, Targets};

/// Plays until the parent closes the pipe.
pub(super) fn run(plan: &Plan, directory: &Path) -> Result<(), Failure> {
    let parent: ParentPipe<ChildCommand> = ParentPipe::open()?;
    let (events, writer) = EventWriter::start()?;
    let (samples, measured) = mpsc::channel();
    let mut players = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for seat in plan.seats() {
        players.insert(seat, start(plan, seat, (&events, &samples))?);
    }
    let reader = mail::join(
        directory,
        "players",
        Reader::new(readers(plan), events.clone()),
    )?;
    reader
        .request(())
        .map_err(|_| "the reader of mails does not listen")?;
    events.send(ChildEvent::Ready);
    while let Ok(order) = parent.next(PATIENCE) {
        match order {
            Some(ChildCommand::FindRoute) => entries = find_routes(plan, &events)?,
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
        player.shutdown(LINGER);
    }
    drop(events);
    // Nothing is left to write, or the pipe is closed.
    drop(writer.join());
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
    let entries: Vec<u8> = plan.on_duty(NodeRole::Entry).collect();
    let mut beacons = vec![plan.beacon()];
    beacons.extend(entries.iter().map(|entry| plan.beacon_entry(*entry)));
    let (found, received) = mpsc::channel();
    let mut route_probers = Vec::new();
    for seat in plan.seats() {
        let host = plan.player(seat);
        let socket = UdpSocket::bind(SocketAddr::new(host, 0), &SocketConfig::default())?;
        let beacon_prober = BeaconProber {
            seat,
            found: found.clone(),
        };
        let route_prober = RouteProber::new(&beacons, Clock::new().now());
        let servicer = LinkFaults::of(plan, host).over(UdpServicer::named(format!("scout {seat}")));
        route_probers.push(servicer.spawn(vec![socket], route_prober, beacon_prober)?);
    }
    let mut chosen = BTreeMap::new();
    for _ in &route_probers {
        let (seat, routes) = received.recv_timeout(route_prober::PATIENCE.saturating_mul(2))?;
        let (direct, routes) = routes.split_first().ok_or("a scout has no way")?;
        let best = routes
            .iter()
            .zip(&entries)
            .filter_map(|(route, entry)| Some(((*route)?, *entry)))
            .min();
        // An entry that gains nothing is not used.
        let gains =
            |route: Duration| direct.is_none_or(|direct| route.saturating_add(GAIN_MIN) <= direct);
        let entry = best.and_then(|(route, entry)| gains(route).then_some(entry));
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        events.send(ChildEvent::RouteFound {
            player: seat.0,
            entry,
            direct_us: direct.map(micros),
            entry_us: best.map(|(route, _)| micros(route)),
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

/// Lets all players get tickets and connect.
fn join(
    plan: &Plan,
    entries: &BTreeMap<Seat, u8>,
    players: &BTreeMap<Seat, Handle<PlayerRequest>>,
) -> Result<(), Failure> {
    for (seat, grants) in tickets::grants(plan)? {
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

/// Decodes a grant into a target to connect to.
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
        .map_err(|_| format!("player {seat} does not listen").into())
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
/// Interval of checks that players run.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long one player may take to return its samples.
const POOLING_MAX: Duration = Duration::from_millis(500);
/// Time for a player to close its sessions; players end one after the other.
const LINGER: Duration = Duration::from_millis(50);
