//! The game server, started by the matchmaker: registers its token key, closes the match's ticks,
//! simulates them, and reports players with a different state.

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

use super::mail::{self, Writer};
use super::{EventWriter, Failure};
use crate::game_protocol::readers;
use crate::link_faults::LinkFaults;
use crate::message::{ChildCommand, ChildEvent};
use crate::plan::{APP, Plan};
use arena::{Arena, MatchNotice};
use beacon::{Beacon, NoCommands};
use daemon::allocator::SlotEnvironment;
use daemon::control::ParentPipe;
use daemon::trust;

/// Serves until the matchmaker closes the pipe or does not renew the lease.
pub(super) fn run(plan: &Plan, directory: &Path) -> Result<(), Failure> {
    let parent: ParentPipe<ChildCommand> = ParentPipe::open()?;
    let (events, writer) = EventWriter::start()?;
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
    let writer_of_mail = Writer::new(readers(plan), events.clone())?;
    let node = mail::join(directory, "mail", writer_of_mail)?;
    let (send, assigned) = mpsc::channel();
    let arena = Arena::new(plan, (events.clone(), node.requests(), send));
    let faults = LinkFaults::of(plan, plan.server().ip());
    let servicer = faults.over(UdpServicer::named("game"));
    let handle = servicer.spawn(vec![socket], endpoint, arena)?;
    let socket = UdpSocket::bind(plan.beacon(), &SocketConfig::default())?;
    let servicer = faults.over(UdpServicer::named("beacon"));
    let beacon = servicer.spawn(vec![socket], Beacon::default(), NoCommands)?;
    events.send(ChildEvent::Ready);
    let link = lease::start(
        &environment,
        plan,
        (instance, token_key),
        (handle.requests(), events.clone()),
    )?;

    while parent.next(PATIENCE).is_ok() {
        for send in assigned.try_iter() {
            match send {
                MatchNotice::Entered(match_id) => link.entered(match_id)?,
                MatchNotice::Finished(match_id, result) => link.finished(match_id, result)?,
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
    // The matchmaker has ended this process.
    drop(link);
    drop(events);
    // Nothing is left to write, or the pipe is closed.
    drop(writer.join());
    if let servicer::End::Panicked(message) = report.end {
        return Err(message.into());
    }
    Ok(())
}

/// Interval of checks that the game runs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time to close the players' sessions.
const LINGER: Duration = Duration::from_millis(700);
