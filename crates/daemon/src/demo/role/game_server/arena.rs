//! One match on one endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;

use crypto::Ring;
use lockstep::{MatchServer, PeerId, ServerEvent, TickRate};
use matchmaker_core::record::Assign;
use servicer::{Application, StreamRequests};
use udp_proto::{ChannelId, CloseCode, Endpoint, Event, Peer, Proof, SessionId};
use wire::{Arrival, ClientId, CommandId, Instant, MatchId, Seat};

use crate::demo::message::News;
use crate::demo::plan::{Plan, TICK_RATE_HZ};
use crate::demo::role::post::Write;
use crate::demo::role::{Failure, Voice};
use crate::game::{Buttons, Game};
use crate::talk::{Digest, ECHO, LOCKSTEP, PING, SessionKind, UNRELIABLE, match_id, player_of};

/// What the link to the matchmaker asks of the game.
#[derive(Debug)]
pub(super) enum Ask {
    /// Keep these seats, for who comes with a token for one of them.
    Assign(Assign),
    /// Forget the seats of a match.
    Release(MatchId),
}

/// What the matchmaker shall be told.
#[derive(Debug)]
pub(super) enum Tell {
    /// A player has entered a match.
    Entered(MatchId),
    /// A match is over, and how.
    Finished(MatchId, Vec<u8>),
}

/// The match, and who is in it.
pub(super) struct Arena {
    server: MatchServer<Buttons>,
    /// Played along, so that players are judged by the server's own state.
    game: Game,
    match_id: MatchId,
    digest: Digest,
    /// Who has a seat, of each match that the matchmaker has assigned.
    assigned: BTreeMap<MatchId, BTreeSet<ClientId>>,
    /// Sessions with a token but without a seat, which were closed.
    strangers: u64,
    /// The way to the matchmaker.
    tell: Sender<Tell>,
    /// Sessions that play, up to two for each seat.
    players: BTreeMap<SessionId, Seat>,
    /// By which of them each player was heard last.
    sessions: BTreeMap<Seat, SessionId>,
    /// What is received or sent; kept for its memory.
    buffer: Vec<u8>,
    voice: Voice,
    /// The way to the node that writes mails.
    post: StreamRequests<Write>,
    /// Ticks of the match.
    ticks: u32,
    /// Ticks that were counted.
    counted: u32,
}

impl Arena {
    pub(super) fn new(
        plan: &Plan,
        now: Instant,
        (voice, post, tell): (Voice, StreamRequests<Write>, Sender<Tell>),
    ) -> Result<Self, Failure> {
        let mut config = lockstep::Config::default();
        config.seats = plan.options().players;
        config.tick_rate = TickRate::new(TICK_RATE_HZ).unwrap_or(TickRate::DEFAULT);
        config.input_delay = INPUT_DELAY;
        let match_id = match_id(plan);
        Ok(Self {
            server: MatchServer::new(config, match_id, plan.seed(), now)?,
            game: Game::new(plan.seed(), plan.options().players),
            match_id,
            digest: Digest::new(plan, None),
            assigned: BTreeMap::new(),
            strangers: 0,
            tell,
            players: BTreeMap::new(),
            sessions: BTreeMap::new(),
            buffer: Vec::new(),
            voice,
            post,
            ticks: plan.ticks(),
            counted: 0,
        })
    }

    /// Lets a session in whose token is for a seat that the matchmaker has assigned; closes others.
    fn admit(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        (session, peer): (SessionId, &Peer),
    ) {
        let Some((match_id, seat, kind)) = self.seat_of(peer) else {
            self.strangers = self.strangers.saturating_add(1);
            // One that has ended by itself needs no end.
            endpoint
                .close(now, session, CloseCode::App, b"no seat")
                .ok();
            return;
        };
        // Nobody listens any more where the process ends.
        drop(self.tell.send(Tell::Entered(match_id)));
        if kind != SessionKind::Measure {
            self.seat(now, session, seat);
        }
    }

    /// Returns the seat that the token of a peer is for.
    fn seat_of(&self, peer: &Peer) -> Option<(MatchId, Seat, SessionKind)> {
        let Proof::Token(grant) = &peer.proof else {
            return None;
        };
        let clients = self.assigned.get(&grant.match_id)?;
        let kind = SessionKind::of_user(&grant.user)?;
        let seat = player_of(grant.client_id, kind)?;
        let has_seat = clients.contains(&grant.client_id);
        has_seat.then_some((grant.match_id, seat, kind))
    }

    fn seat(&mut self, now: Instant, session: SessionId, seat: Seat) {
        if self.sessions.contains_key(&seat) {
            // The player's other way.
            self.players.insert(session, seat);
            return;
        }
        match self.server.join(now, PeerId(seat.0.into()), seat) {
            Ok(()) => {
                self.players.insert(session, seat);
                self.sessions.insert(seat, session);
            }
            Err(error) => self.voice.say(News::Failed {
                reason: format!("player {seat} was not seated: {error}"),
            }),
        }
    }

    /// Lets a player go on by its other session; without one it is out.
    fn lose(&mut self, now: Instant, seat: Seat) {
        let mut others = self.players.iter().filter(|(_, of)| **of == seat);
        if let Some((session, _)) = others.next() {
            self.sessions.insert(seat, *session);
        } else {
            self.sessions.remove(&seat);
            self.server.leave(now, PeerId(seat.0.into()));
        }
    }

    fn receive(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, session: SessionId) {
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        while let Some(channel) = endpoint.receive(now, session, &mut message) {
            match message.split_first_mut() {
                Some((&mut LOCKSTEP, datagram)) => {
                    if let Some(seat) = self.players.get(&session) {
                        // Answers go the way that the player has chosen.
                        self.sessions.insert(*seat, session);
                        let from = Arrival::from(PeerId(seat.0.into()));
                        self.server.handle_datagram(now, from, datagram);
                    }
                }
                Some((kind @ &mut PING, _)) => {
                    *kind = ECHO;
                    send(now, endpoint, session, channel, &message);
                }
                // From a client of another build; nothing here understands it.
                Some(_) | None => {}
            }
            message.clear();
        }
        self.buffer = message;
        self.advance(now, endpoint);
    }

    /// Plays what was closed, and sends what is due.
    fn advance(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        while let Some(turn) = self.server.poll_turn() {
            let tick = turn.tick();
            self.game
                .step(turn.inputs().map(|(seat, buttons, _)| (seat, buttons)));
            let hash = self.game.hash(self.match_id);
            // The turn was returned last, so the report is in order.
            self.server.report(tick, hash).ok();
            if let Some(checkpoint) = self.digest.add(tick, hash) {
                self.voice.say(checkpoint);
                self.count(tick.0.saturating_add(1));
            }
        }
        self.send(now, endpoint);
        while let Some(event) = self.server.poll_event() {
            self.announce(event);
        }
    }

    /// Counts ticks, has mails written, and after the last tick tells how the match ended.
    fn count(&mut self, ticks: u32) {
        // A queue that is full loses the count, and the run's check finds that.
        self.post
            .send(Write::Count(ticks.saturating_sub(self.counted).into()))
            .ok();
        self.counted = ticks;
        write_at(&self.post, ticks, self.ticks);
        if ticks == self.ticks {
            let result = self.game.hash(self.match_id).to_be_bytes();
            for match_id in self.assigned.keys() {
                // Nobody listens any more where the process ends.
                drop(self.tell.send(Tell::Finished(*match_id, result.to_vec())));
            }
        }
    }

    fn send(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        message.push(LOCKSTEP);
        while let Some(transmit) = self.server.poll_transmit(now, &mut message) {
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
            ServerEvent::Started => self.voice.say(News::Started),
            ServerEvent::Desync { tick, seats, .. } => self.voice.say(News::Desync {
                tick: tick.0,
                players: seats.into_iter().map(|seat| seat.0).collect(),
            }),
            ServerEvent::Left { seat, reason, .. } => self.voice.say(News::Left {
                player: seat.0,
                reason: format!("{reason:?}"),
            }),
            ServerEvent::Ready { .. } | _ => {}
        }
    }
}

impl Application<Endpoint<Ring>> for Arena {
    type Request = Ask;

    fn apply_request(
        &mut self,
        _now: Instant,
        _endpoint: &mut Endpoint<Ring>,
        ask: Ask,
    ) -> ControlFlow<()> {
        match ask {
            Ask::Assign(assign) => {
                let clients = assign.players.iter().map(|seated| seated.client_id);
                self.assigned.insert(assign.match_id, clients.collect());
            }
            Ask::Release(match_id) => {
                self.assigned.remove(&match_id);
            }
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
            Event::ConnectFailed { .. } | Event::MtuChecked { .. } | _ => {}
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
        self.server.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        self.server.handle_timeout(now);
        self.advance(now, endpoint);
    }

    fn begin_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, _: Instant) {
        let stats = endpoint.stats();
        self.voice.say(News::Closed {
            joins_refused: stats
                .refused
                .saturating_add(self.strangers)
                .saturating_add(stats.dropped_token)
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

/// Sends what may be lost anyway: a session that has ended, or is full, loses it.
fn send(
    now: Instant,
    endpoint: &mut Endpoint<Ring>,
    session: SessionId,
    channel: ChannelId,
    message: &[u8],
) {
    endpoint.send(now, session, channel, message).ok();
}

/// Has mails written: a round each second, and without a pause in the middle of the match.
fn write_at(post: &StreamRequests<Write>, ticks: u32, of: u32) {
    let middle = of / 2;
    let is_middle = (middle..middle.saturating_add(TICK_RATE_HZ.into())).contains(&ticks);
    let ask = if is_middle {
        Write::Busily
    } else {
        Write::Round
    };
    if ticks < of {
        // A queue that is full has enough to write.
        post.send(ask).ok();
    }
}

/// Covers a round trip of 400 ms: 12 ticks.
const INPUT_DELAY: u8 = 12;

#[cfg(test)]
mod tests;
