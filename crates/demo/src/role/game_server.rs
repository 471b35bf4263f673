//! The game server, started by the matchmaker: registers its token key, closes the match's ticks,
//! simulates them, and reports players with a different state.

mod arena;
pub(super) mod beacon;

use std::sync::mpsc;
use std::time::Duration;

use crypto::token::TokenKey;
use crypto::{AddressList, Ring, ServerKeys};
use daemon::allocator::SlotEnvironment;
use daemon::link::{GameLink, GameServer, LeaseConfig, LeaseEnd, LinkOptions, Offer};
use daemon::trust;
use matchmaker_core::record::{Assign, Verdict};
use servicer::{Clock, Requests, SocketConfig, UdpServicer, UdpSocket};
use udp_proto::{CidLen, Config, Endpoint, Listen};
use wire::{InstanceId, MatchId};

use super::mail::Writer;
use super::{EventWriter, Failure, Parent, RunOptions, mail};
use crate::game_protocol::{SESSIONS, readers};
use crate::link_faults::LinkFaults;
use crate::message::ChildEvent;
use crate::plan::{APP, Plan};
use arena::{Arena, GameRequest, MatchNotice};
use beacon::{Beacon, NoCommands};

/// Serves until the matchmaker closes the pipe or does not renew the lease.
pub(super) fn run(
    options: &RunOptions,
    parent: &Parent,
    events: &EventWriter,
) -> Result<(), Failure> {
    let (plan, directory) = (&options.plan(), &options.directory);
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
    let link = start_link(
        &environment,
        plan,
        (instance, token_key),
        (handle.requests(), events.clone()),
    )?;

    while parent.next(CHECK_INTERVAL).is_ok() {
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
    let report = handle.shutdown(SHUTDOWN_TIMEOUT);
    // The matchmaker has ended this process.
    drop(link);
    if let servicer::End::Panicked(message) = report.end {
        return Err(message.into());
    }
    Ok(())
}

const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(700);

/// Starts the link to the matchmaker, with the key under which it seals tokens.
fn start_link(
    environment: &SlotEnvironment,
    plan: &Plan,
    (instance, token_key): (InstanceId, TokenKey),
    (game, events): (Requests<GameRequest>, EventWriter),
) -> Result<GameLink, Failure> {
    let identity = trust::read_identity(&environment.identity)?;
    let join_file = trust::read_join_file(&environment.join_file)?;
    let options = LinkOptions {
        identity: &identity,
        join_file: &join_file,
        instance,
        offer: Offer {
            app_id: APP.0,
            capacity: plan.options().players.saturating_mul(SESSIONS.into()),
            identity_keys: ServerKeys::new(&[*identity.public_key()])
                .ok_or("a server has a key")?,
            addresses: AddressList::new(&[environment.listen])?,
        },
        token_key,
        config: LeaseConfig::default(),
    };
    Ok(GameLink::start(options, LeaseListener { game, events })?)
}

struct LeaseListener {
    game: Requests<GameRequest>,
    events: EventWriter,
}

impl GameServer for LeaseListener {
    fn on_assigned(&mut self, assign: &Assign) -> Verdict {
        // Queued before any player can hold a token for it.
        match self.game.send(GameRequest::Assign(assign.clone())) {
            Ok(()) => Verdict::Taken,
            Err(_) => Verdict::Full,
        }
    }

    fn on_released(&mut self, match_id: MatchId) {
        // No player holds a token for it, so a seat that stays is never used.
        self.game.send(GameRequest::Release(match_id)).ok();
    }

    fn on_token_key(&mut self, key: &TokenKey) -> bool {
        // Queued before the matchmaker can seal a token under it.
        self.game
            .send(GameRequest::TokenKey(Box::new(key.clone())))
            .is_ok()
    }

    fn on_token_key_lapsed(&mut self, id: u32) {
        // No valid token is left under it; the endpoint drops the oldest of too many keys.
        self.game.send(GameRequest::TokenKeyLapsed(id)).ok();
    }

    fn on_registered(&mut self) {
        self.game.send(GameRequest::Closed(false)).ok();
        self.events.send(ChildEvent::Leased);
    }

    fn on_cut_off(&mut self) {
        self.game.send(GameRequest::Closed(true)).ok();
    }

    fn on_ended(&mut self, _end: LeaseEnd) {
        // The main thread waits for it.
    }
}
