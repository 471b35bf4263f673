//! One match on one endpoint.

mod seats;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;

use crypto::Ring;
use crypto::token::TokenKey;
use lockstep::{ConfigError, InputDelay, MatchServer, PeerId, ServerEvent, Tick, TickRate};
use matchmaker_core::record::Assign;
use servicer::{Application, StreamRequests};
use udp_proto::{ChannelId, CloseCode, Endpoint, Event, Peer, Proof, SessionId};
use wire::{Arrival, CommandId, Instant, MatchId, Seat};

use crate::game::{Buttons, Game};
use crate::game_protocol::{Digest, ECHO, LOCKSTEP, PING, SessionKind, UNRELIABLE};
use crate::message::ChildEvent;
use crate::plan::{Plan, TICK_RATE_HZ};
use crate::role::mail::MailRequest;
use crate::role::{EventWriter, Failure};
use seats::{Admitted, Seats};

/// A request of the matchmaker's link to the game.
pub(super) enum GameRequest {
    /// Keep these seats for clients that hold a token for one of them.
    Assign(Assign),
    /// Forget the seats of a match.
    Release(MatchId),
    /// Accept tokens that are sealed under this key too.
    TokenKey(Box<TokenKey>),
    /// Accept no more tokens under the key of this id.
    TokenKeyLapsed(u32),
    /// Reject all joins from now on, or accept them again.
    Closed(bool),
}

// Prints no contents: they may hold a key.
wire::opaque_debug!(GameRequest);

#[derive(Debug)]
pub(super) enum MatchNotice {
    Entered(MatchId),
    Finished(MatchId, Vec<u8>),
}

pub(super) struct Arena {
    plan: Plan,
    /// `None` until the first player joins.
    match_run: Option<MatchRun>,
    seats: Seats,
    /// Whether the lease is lost. A player that joins now may have a seat elsewhere.
    is_closed: bool,
    /// Sessions with a token but without a seat, which were closed.
    unseated: u64,
    send: Sender<MatchNotice>,
    /// Sessions that play, up to two for each seat.
    players: BTreeMap<SessionId, Seat>,
    /// The session on which each player sent last.
    sessions: BTreeMap<Seat, SessionId>,
    buffer: Vec<u8>,
    events: EventWriter,
    mail: StreamRequests<MailRequest>,
    counted: u32,
}

struct MatchRun {
    server: MatchServer<Buttons>,
    /// Simulated here too, so that players are compared with the server's state.
    game: Game,
    digest: Digest,
}

impl MatchRun {
    fn new(plan: &Plan, match_id: MatchId, now: Instant) -> Result<Self, ConfigError> {
        let mut config = lockstep::Config::default();
        config.seats = plan.options().players;
        config.tick_rate = TickRate::new(TICK_RATE_HZ).unwrap_or(TickRate::DEFAULT);
        config.input_delay = INPUT_DELAY;
        Ok(Self {
            server: MatchServer::new(config, match_id, plan.seed(), now)?,
            game: Game::new(plan.seed(), plan.options().players),
            digest: Digest::new(match_id, None, plan.ticks()),
        })
    }

    fn hash(&self) -> u64 {
        self.game.hash(self.server.match_id())
    }

    /// Simulates the next closed turn. Returns its tick and a checkpoint, if there was a turn.
    fn step(&mut self) -> Option<(Tick, Option<ChildEvent>)> {
        let turn = self.server.poll_turn()?;
        let tick = turn.tick();
        self.game
            .step(turn.inputs().map(|(seat, buttons, _)| (seat, buttons)));
        let hash = self.hash();
        // Turns are closed in order, so the report is accepted.
        self.server.report(tick, hash).ok();
        Some((tick, self.digest.add(tick, hash)))
    }
}

impl Arena {
    pub(super) fn new(
        plan: &Plan,
        (events, mail, send): (
            EventWriter,
            StreamRequests<MailRequest>,
            Sender<MatchNotice>,
        ),
    ) -> Self {
        Self {
            plan: plan.clone(),
            match_run: None,
            seats: Seats::default(),
            is_closed: false,
            unseated: 0,
            send,
            players: BTreeMap::new(),
            sessions: BTreeMap::new(),
            buffer: Vec::new(),
            events,
            mail,
            counted: 0,
        }
    }

    /// Admits a session with a token for an assigned seat, if the lease is held; closes others.
    fn admit(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        (session, peer): (SessionId, &Peer),
    ) {
        let Some(pass) = self.pass(peer) else {
            self.unseated = self.unseated.saturating_add(1);
            // A session that has ended needs no close.
            endpoint
                .close(now, session, CloseCode::App, b"no seat")
                .ok();
            return;
        };
        // If nobody receives it, the process is ending.
        drop(self.send.send(MatchNotice::Entered(pass.match_id)));
        if pass.kind != SessionKind::Measure
            && let Err(error) = self.seat(now, session, pass.plays)
        {
            let (_, seat) = pass.plays;
            self.events.send(ChildEvent::Failed {
                reason: format!("seat {seat} was not taken: {error}"),
            });
        }
    }

    /// Returns the seat of a peer's token, if it belongs to this match.
    fn pass(&self, peer: &Peer) -> Option<Admitted> {
        let Proof::Token(grant) = &peer.proof else {
            return None;
        };
        if self.is_closed {
            return None;
        }
        let pass = self.seats.pass(grant.into())?;
        let played = self
            .match_run
            .as_ref()
            .map(|match_run| match_run.server.match_id());
        let is_played = played.is_none_or(|played| played == pass.plays.0);
        is_played.then_some(pass)
    }

    /// Takes the assigned seat. The first seat of a match starts it.
    fn seat(
        &mut self,
        now: Instant,
        session: SessionId,
        (match_id, seat): (MatchId, Seat),
    ) -> Result<(), Failure> {
        let match_run = match &mut self.match_run {
            Some(match_run) => match_run,
            None => self
                .match_run
                .insert(MatchRun::new(&self.plan, match_id, now)?),
        };
        // Unless the player's other session has the seat already.
        if let Entry::Vacant(free) = self.sessions.entry(seat) {
            match_run.server.join(now, PeerId(seat.0.into()), seat)?;
            free.insert(session);
        }
        self.players.insert(session, seat);
        Ok(())
    }

    /// Lets a player continue on its other session; without one the player leaves the match.
    fn lose(&mut self, now: Instant, seat: Seat) {
        let mut others = self.players.iter().filter(|(_, of)| **of == seat);
        if let Some((session, _)) = others.next() {
            self.sessions.insert(seat, *session);
        } else {
            self.sessions.remove(&seat);
            if let Some(match_run) = &mut self.match_run {
                match_run.server.leave(now, PeerId(seat.0.into()));
            }
        }
    }

    fn receive(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, session: SessionId) {
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        while let Some(channel) = endpoint.receive(now, session, &mut message) {
            match message.split_first_mut() {
                Some((&mut LOCKSTEP, datagram)) => {
                    if let (Some(match_run), Some(seat)) =
                        (&mut self.match_run, self.players.get(&session))
                    {
                        // Answers take the route that the player used last.
                        self.sessions.insert(*seat, session);
                        let from = Arrival::from(PeerId(seat.0.into()));
                        match_run.server.handle_datagram(now, from, datagram);
                    }
                }
                Some((kind @ &mut PING, _)) => {
                    *kind = ECHO;
                    send(now, endpoint, session, channel, &message);
                }
                // From a client of another version.
                Some(_) | None => {}
            }
            message.clear();
        }
        self.buffer = message;
        self.advance(now, endpoint);
    }

    /// Simulates closed turns, and sends what is due.
    fn advance(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        while let Some((tick, checkpoint)) = self.match_run.as_mut().and_then(MatchRun::step) {
            if let Some(checkpoint) = checkpoint {
                self.events.send(checkpoint);
                self.count(tick.0.saturating_add(1));
            }
        }
        self.send(now, endpoint);
        while let Some(event) = self
            .match_run
            .as_mut()
            .and_then(|match_run| match_run.server.poll_event())
        {
            self.announce(event);
        }
    }

    /// Counts ticks, requests mails, and reports the result after the last tick.
    fn count(&mut self, ticks: u32) {
        // If the queue is full the count is lost, and the run's check finds that.
        self.mail
            .send(MailRequest::Count(
                ticks.saturating_sub(self.counted).into(),
            ))
            .ok();
        self.counted = ticks;
        let all = self.plan.ticks();
        write_at(&self.mail, ticks, all);
        if ticks == all {
            let hash = self.match_run.as_ref().map_or(0, MatchRun::hash);
            for match_id in self.seats.matches() {
                let result = hash.to_be_bytes().to_vec();
                // If nobody receives it, the process is ending.
                drop(self.send.send(MatchNotice::Finished(match_id, result)));
            }
        }
    }

    fn send(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        let Some(match_run) = &mut self.match_run else {
            return;
        };
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        message.push(LOCKSTEP);
        while let Some(transmit) = match_run.server.poll_transmit(now, &mut message) {
            let seat = Seat(u16::try_from(transmit.destination.0).unwrap_or(u16::MAX));
            if let Some(session) = self.sessions.get(&seat) {
                send(now, endpoint, *session, UNRELIABLE, &message);
            }
            message.truncate(1);
        }
        self.buffer = message;
    }

    fn announce(&self, event: ServerEvent) {
        match event {
            ServerEvent::Started => self.events.send(ChildEvent::Started),
            ServerEvent::Desync { tick, seats, .. } => self.events.send(ChildEvent::Desync {
                tick: tick.0,
                seats: seats.into_iter().map(|seat| seat.0).collect(),
            }),
            // The first tick that differs, also if its hash was lost.
            ServerEvent::Divergence { seat, tick, .. } => self.events.send(ChildEvent::Desync {
                tick: tick.0,
                seats: vec![seat.0],
            }),
            ServerEvent::Left { seat, reason, .. } => self.events.send(ChildEvent::Left {
                seat: seat.0,
                reason: format!("{reason:?}"),
            }),
            ServerEvent::Ready { .. } | _ => {}
        }
    }
}

impl Application<Endpoint<Ring>> for Arena {
    type Request = GameRequest;

    fn apply_request(
        &mut self,
        _now: Instant,
        endpoint: &mut Endpoint<Ring>,
        request: GameRequest,
    ) -> ControlFlow<()> {
        match request {
            GameRequest::Assign(assign) => self.seats.assign(&assign),
            GameRequest::Release(match_id) => self.seats.release(match_id),
            GameRequest::TokenKey(key) => {
                endpoint.add_token_key(*key);
            }
            GameRequest::TokenKeyLapsed(id) => {
                endpoint.remove_token_key(id);
            }
            GameRequest::Closed(is_closed) => self.is_closed = is_closed,
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: Event) {
        match event {
            Event::Connected { session, peer } => {
                self.admit(now, endpoint, (session, &peer));
                self.advance(now, endpoint);
            }
            Event::Readable { session } => self.receive(now, endpoint, session),
            Event::Closed { session, .. } => {
                if let Some(seat) = self.players.remove(&session) {
                    self.lose(now, seat);
                    self.advance(now, endpoint);
                }
            }
            Event::ConnectFailed { .. }
            | Event::MtuChecked { .. }
            | Event::RateChanged { .. }
            | Event::Settled { .. }
            | _ => {}
        }
    }

    fn on_command(
        &mut self,
        _now: Instant,
        _endpoint: &mut Endpoint<Ring>,
        _id: CommandId,
        command: Infallible,
    ) {
        match command {}
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.match_run.as_ref()?.server.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        if let Some(match_run) = &mut self.match_run {
            match_run.server.handle_timeout(now);
        }
        self.advance(now, endpoint);
    }

    fn begin_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, _: Instant) {
        let stats = endpoint.stats();
        self.events.send(ChildEvent::Closed {
            joins_refused: stats
                .refused
                .saturating_add(self.unseated)
                .saturating_add(stats.dropped_token)
                .saturating_add(stats.dropped_token_expired)
                .saturating_add(stats.dropped_token_clock)
                .saturating_add(stats.dropped_token_used)
                .saturating_add(stats.dropped_psk)
                .saturating_add(stats.dropped_mode),
        });
        endpoint.shutdown(now);
    }

    fn is_drained(&self, endpoint: &Endpoint<Ring>) -> bool {
        endpoint.sessions().next().is_none()
    }
}

/// Sends a datagram. A session that has ended or is full loses it, as the network may.
fn send(
    now: Instant,
    endpoint: &mut Endpoint<Ring>,
    session: SessionId,
    channel: ChannelId,
    message: &[u8],
) {
    endpoint.send(now, session, channel, message).ok();
}

/// Requests mails: a round each second, and a burst in the middle of the match.
fn write_at(mail: &StreamRequests<MailRequest>, ticks: u32, of: u32) {
    let middle = of / 2;
    let is_middle = (middle..middle.saturating_add(TICK_RATE_HZ.into())).contains(&ticks);
    let ask = if is_middle {
        MailRequest::Burst
    } else {
        MailRequest::Round
    };
    if ticks < of {
        // If the queue is full, the writer is busy.
        mail.send(ask).ok();
    }
}

/// Covers a round trip of 400 ms: 12 ticks.
const INPUT_DELAY: InputDelay = match InputDelay::fixed(12) {
    Some(delay) => delay,
    None => InputDelay::DEFAULT,
};

#[cfg(test)]
mod tests;
