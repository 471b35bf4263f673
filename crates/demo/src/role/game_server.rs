//! The game server, started by the matchmaker: registers its token key, closes the match's ticks,
//! plays along, and names whoever differs.

mod arena;
pub(super) mod beacon;
mod lease;

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crypto::Ring;
use crypto::token::TokenKey;
use servicer::{Clock, SocketConfig, UdpServicer, UdpSocket};
use udp_proto::{CidLen, Config, Endpoint, Listen};

use super::post::{self, Writer};
use super::{Failure, Voice};
use crate::message::{News, Order};
use crate::plan::{APP, Plan};
use crate::talk::readers;
use crate::wan::Weather;
use arena::{Arena, Tell};
use beacon::{Beacon, Quiet};
use daemon::allocator::SlotEnvironment;
use daemon::control::ParentPipe;
use daemon::trust;

/// Serves until the matchmaker lets go, or does not renew the lease.
pub(super) fn run(plan: &Plan, directory: &Path) -> Result<(), Failure> {
    let leash: ParentPipe<Order> = ParentPipe::open()?;
    let (voice, writer) = Voice::raise()?;
    let environment = SlotEnvironment::read()?;
    let socket = UdpSocket::bind(environment.listen, &SocketConfig::default())?;

    let mut provider = Ring::new();
    let instance = trust::random_instance(&mut provider)?;
    let token_key = TokenKey::generate(&mut provider, 1)?;

    let now = Clock::new().now();
    let identity = trust::read_identity(&environment.identity)?;
    let mut listen = Listen::new(identity, instance);
    let mut config = Config::for_server();
    let secret = trust::reset_secret(&environment.identity, environment.listen, &mut provider);
    if let Some(secret) = secret {
        config.cid_len = CidLen::Eight;
        listen = listen.with_resets(secret);
    }
    let mut endpoint = Endpoint::new(config, APP, provider, now)?;
    endpoint.listen(now, listen)?;
    endpoint.add_token_key(token_key.clone());
    let writer_of_mail = Writer::new(readers(plan), voice.clone())?;
    let node = post::join(directory, "mail", writer_of_mail)?;
    let (tell, told) = mpsc::channel();
    let arena = Arena::new(plan, (voice.clone(), node.requests(), tell));
    let weather = Weather::of(plan, plan.server().ip());
    let servicer = weather.over(UdpServicer::named("game"));
    let handle = servicer.spawn(vec![socket], endpoint, arena)?;
    let socket = UdpSocket::bind(plan.beacon(), &SocketConfig::default())?;
    let servicer = weather.over(UdpServicer::named("beacon"));
    let beacon = servicer.spawn(vec![socket], Beacon::default(), Quiet)?;
    voice.say(News::Ready);
    let link = lease::start(
        &environment,
        plan,
        (instance, token_key),
        (handle.requests(), voice.clone()),
    )?;

    while leash.next(PATIENCE).is_ok() {
        for tell in told.try_iter() {
            match tell {
                Tell::Entered(match_id) => link.entered(match_id)?,
                Tell::Finished(match_id, result) => link.finished(match_id, result)?,
            }
        }
        if let Some(end) = link.wait_end(Duration::ZERO) {
            return Err(end.to_string().into());
        }
        if !handle.is_running() {
            return Err("the game's thread has ended".into());
        }
    }
    beacon.shutdown(Duration::ZERO);
    node.shutdown(Duration::ZERO);
    let report = handle.shutdown(LINGER);
    // The matchmaker that it would tell has ended the process.
    drop(link);
    drop(voice);
    // The writer has nothing left to write, or nobody to write to.
    drop(writer.join());
    if let servicer::End::Panicked(message) = report.end {
        return Err(message.into());
    }
    Ok(())
}

/// How often to look whether the game still runs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time to say good-bye to players.
const LINGER: Duration = Duration::from_millis(700);
