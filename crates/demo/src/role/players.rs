//! All players, each with an endpoint, a thread and an address of its own.

mod gap;
pub(in crate::role) mod player;
mod probe;
pub(super) mod scout;
mod tickets;
pub(crate) mod ways;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crypto::{ClientGrant, Ring};
use servicer::{Clock, Handle, SocketConfig, UdpServicer, UdpSocket};
use std::net::SocketAddr;
use udp_proto::{Config, Endpoint, Target};
use wire::Seat;

use super::post::{self, Reader};
use super::{Failure, Voice};
use crate::message::{Medians, News, Order, Quantiles, median};
use crate::plan::{APP, Duty, Plan};
use crate::talk::readers;
use crate::wan::Weather;
use daemon::control::ParentPipe;
use player::{Ask, Measured, Player};
use scout::{Herald, Scout};
use ways::{Targets, Told};

/// Plays until the parent lets go.
pub(super) fn run(plan: &Plan, directory: &Path) -> Result<(), Failure> {
    let leash: ParentPipe<Order> = ParentPipe::open()?;
    let (voice, writer) = Voice::raise()?;
    let (samples, measured) = mpsc::channel();
    let mut players = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for seat in plan.seats() {
        players.insert(seat, start(plan, seat, (&voice, &samples))?);
    }
    let reader = post::join(
        directory,
        "players",
        Reader::new(readers(plan), voice.clone()),
    )?;
    reader
        .request(())
        .map_err(|_| "the reader of mails does not listen")?;
    voice.say(News::Ready);
    while let Ok(order) = leash.next(PATIENCE) {
        match order {
            Some(Order::Scout) => entries = scout(plan, &voice)?,
            Some(Order::Join) => join(plan, &entries, &players)?,
            Some(Order::Mark { accident }) => {
                for seat in players.keys() {
                    tell(&players, *seat, Ask::Mark(accident))?;
                }
            }
            Some(Order::Conclude) => {
                for seat in players.keys() {
                    tell(&players, *seat, Ask::Conclude)?;
                }
                voice.say(pool(&measured, players.len()));
            }
            Some(Order::Degrade { .. }) | None => {}
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
    drop(voice);
    // The writer has nothing left to write, or nobody to write to.
    drop(writer.join());
    Ok(())
}

fn start(
    plan: &Plan,
    seat: Seat,
    (voice, samples): (&Voice, &Sender<Measured>),
) -> Result<Handle<Ask>, Failure> {
    let host = plan.player(seat);
    let socket = UdpSocket::bind(SocketAddr::new(host, 0), &SocketConfig::default())?;
    let now = Clock::new().now();
    let endpoint = Endpoint::new(Config::default(), APP, Ring::new(), now)?;
    let player = Player::new(plan, seat, now, (voice.clone(), samples.clone()));
    let servicer = UdpServicer::named(format!("player {seat}"));
    let servicer = Weather::of(plan, host).over(servicer);
    Ok(servicer.spawn(vec![socket], endpoint, player)?)
}

/// Lets each player find its shortest way; returns the entries of those who shall take one.
fn scout(plan: &Plan, voice: &Voice) -> Result<BTreeMap<Seat, u8>, Failure> {
    let entries: Vec<u8> = plan.on_duty(Duty::Entry).collect();
    let mut beacons = vec![plan.beacon()];
    beacons.extend(entries.iter().map(|entry| plan.beacon_entry(*entry)));
    let (found, heard) = mpsc::channel();
    let mut scouts = Vec::new();
    for seat in plan.seats() {
        let host = plan.player(seat);
        let socket = UdpSocket::bind(SocketAddr::new(host, 0), &SocketConfig::default())?;
        let herald = Herald {
            seat,
            found: found.clone(),
        };
        let scout = Scout::new(&beacons, Clock::new().now());
        let servicer = Weather::of(plan, host).over(UdpServicer::named(format!("scout {seat}")));
        scouts.push(servicer.spawn(vec![socket], scout, herald)?);
    }
    let mut chosen = BTreeMap::new();
    for _ in &scouts {
        let (seat, ways) = heard.recv_timeout(scout::PATIENCE.saturating_mul(2))?;
        let (direct, ways) = ways.split_first().ok_or("a scout has no way")?;
        let best = ways
            .iter()
            .zip(&entries)
            .filter_map(|(way, entry)| Some(((*way)?, *entry)))
            .min();
        // An entry that gains nothing is left alone: it would only be one more thing to fail.
        let gains =
            |way: Duration| direct.is_none_or(|direct| way.saturating_add(GAIN_MIN) <= direct);
        let entry = best.and_then(|(way, entry)| gains(way).then_some(entry));
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        voice.say(News::Way {
            player: seat.0,
            entry,
            direct_us: direct.map(micros),
            entry_us: best.map(|(way, _)| micros(way)),
        });
        if let Some(entry) = entry {
            chosen.insert(seat, entry);
        }
    }
    for scout in scouts {
        scout.shutdown(Duration::ZERO);
    }
    Ok(chosen)
}

/// Has all players ask for seats, and then connect.
fn join(
    plan: &Plan,
    entries: &BTreeMap<Seat, u8>,
    players: &BTreeMap<Seat, Handle<Ask>>,
) -> Result<(), Failure> {
    for (seat, grants) in tickets::grants(plan)? {
        let mut play = target(&grants.play)?;
        let told = match entries.get(&seat) {
            Some(entry) => {
                play.addresses = vec![plan.entry(*entry)];
                Told::Through
            }
            None => Told::Direct,
        };
        let targets = Targets {
            told,
            play,
            fallback: target(&grants.fallback)?,
            measure: target(&grants.measure)?,
        };
        let ask = Ask::Join(grants.place, Box::new(targets));
        tell(players, seat, ask)?;
    }
    Ok(())
}

/// Reads a grant as a target to connect to.
fn target(grant: &str) -> Result<Target, Failure> {
    let grant: ClientGrant = grant.parse()?;
    Ok(Target::from(&grant))
}

fn tell(players: &BTreeMap<Seat, Handle<Ask>>, seat: Seat, ask: Ask) -> Result<(), Failure> {
    let player = players
        .get(&seat)
        .ok_or_else(|| format!("there is no player {seat}"))?;
    player
        .request(ask)
        .map_err(|_| format!("player {seat} does not listen").into())
}

/// Waits for the samples of `count` players, and joins them.
fn pool(heard: &Receiver<Measured>, count: usize) -> News {
    let (mut direct, mut accelerated, mut mesh) = (Vec::new(), Vec::new(), Vec::new());
    let mut players = Vec::new();
    for _ in 0..count {
        if let Ok(Measured {
            player,
            told,
            samples,
        }) = heard.recv_timeout(POOLING_MAX)
        {
            let is_mesh = told == Told::Through;
            players.push(Medians {
                player: player.0,
                is_mesh,
                direct_us: median(samples.direct.clone()),
                accelerated_us: median(samples.told.clone()),
                played_us: median(samples.played),
            });
            direct.push(samples.direct);
            if is_mesh {
                mesh.push(samples.told.clone());
            }
            accelerated.push(samples.told);
        }
    }
    News::Measured {
        direct: Quantiles::of(direct),
        accelerated: Quantiles::of(accelerated),
        mesh: Quantiles::of(mesh),
        players,
    }
}

/// What an entry must save of a round trip to be taken.
const GAIN_MIN: Duration = Duration::from_millis(2);
/// How often to look whether players still play.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long one player may take to hand over its samples.
const POOLING_MAX: Duration = Duration::from_millis(500);
/// Time for a player to say good-bye; they do so one after the other.
const LINGER: Duration = Duration::from_millis(50);
