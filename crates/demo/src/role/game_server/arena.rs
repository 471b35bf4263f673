//! One match on one endpoint.

mod seats;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::fmt;
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
use crate::message::News;
use crate::plan::{Plan, TICK_RATE_HZ};
use crate::role::post::Write;
use crate::role::{Failure, Voice};
use crate::talk::{Digest, ECHO, LOCKSTEP, PING, SessionKind, UNRELIABLE};
use seats::{Pass, Seats};

/// What the link to the matchmaker asks of the game.
pub(super) enum Ask {
    /// Keep these seats, for who comes with a token for one of them.
    Assign(Assign),
    /// Forget the seats of a match.
    Release(MatchId),
    /// Open tokens that are sealed under this key too.
    TokenKey(Box<TokenKey>),
    /// Open none any more under the key of this id.
    TokenKeyLapsed(u32),
    /// Let nobody in from now on, whatever the token, or let players in again.
    Closed(bool),
}

impl fmt::Debug for Ask {
    /// Without what it holds, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask(..)")
    }
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
    plan: Plan,
    /// From its first player on.
    bout: Option<Bout>,
    /// What the matchmaker has assigned.
    seats: Seats,
    /// Whether there is no lease: who is not here may have a seat elsewhere.
    is_closed: bool,
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
    /// Ticks that were counted.
    counted: u32,
}

/// The match as the server has it.
struct Bout {
    server: MatchServer<Buttons>,
    /// Played along, so that players are judged by the server's own state.
    game: Game,
    digest: Digest,
}

impl Bout {
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

    /// Returns the hash of the state.
    fn hash(&self) -> u64 {
        self.game.hash(self.server.match_id())
    }

    /// Plays the next turn that was closed; returns a checkpoint, and whether there was a turn.
    fn step(&mut self) -> Option<(Tick, Option<News>)> {
        let turn = self.server.poll_turn()?;
        let tick = turn.tick();
        self.game
            .step(turn.inputs().map(|(seat, buttons, _)| (seat, buttons)));
        let hash = self.hash();
        // The turn was returned last, so the report is in order.
        self.server.report(tick, hash).ok();
        Some((tick, self.digest.add(tick, hash)))
    }
}

impl Arena {
    pub(super) fn new(
        plan: &Plan,
        (voice, post, tell): (Voice, StreamRequests<Write>, Sender<Tell>),
    ) -> Self {
        Self {
            plan: plan.clone(),
            bout: None,
            seats: Seats::default(),
            is_closed: false,
            strangers: 0,
            tell,
            players: BTreeMap::new(),
            sessions: BTreeMap::new(),
            buffer: Vec::new(),
            voice,
            post,
            counted: 0,
        }
    }

    /// Lets a session in whose token is for a seat that the matchmaker has assigned, while there is
    /// a lease; closes others.
    fn admit(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        (session, peer): (SessionId, &Peer),
    ) {
        let Some(pass) = self.pass(peer) else {
            self.strangers = self.strangers.saturating_add(1);
            // One that has ended by itself needs no end.
            endpoint
                .close(now, session, CloseCode::App, b"no seat")
                .ok();
            return;
        };
        // Nobody listens any more where the process ends.
        drop(self.tell.send(Tell::Entered(pass.match_id)));
        if pass.kind != SessionKind::Measure
            && let Err(error) = self.seat(now, session, pass.plays)
        {
            let (_, seat) = pass.plays;
            self.voice.say(News::Failed {
                reason: format!("seat {seat} was not taken: {error}"),
            });
        }
    }

    /// Returns what the token of a peer is for: only one match is played here.
    fn pass(&self, peer: &Peer) -> Option<Pass> {
        let Proof::Token(grant) = &peer.proof else {
            return None;
        };
        if self.is_closed {
            return None;
        }
        let pass = self.seats.pass(grant.into())?;
        let played = self.bout.as_ref().map(|bout| bout.server.match_id());
        let is_played = played.is_none_or(|played| played == pass.plays.0);
        is_played.then_some(pass)
    }

    /// Takes the seat that the matchmaker gave, the first one of a match beginning it.
    fn seat(
        &mut self,
        now: Instant,
        session: SessionId,
        (match_id, seat): (MatchId, Seat),
    ) -> Result<(), Failure> {
        let bout = match &mut self.bout {
            Some(bout) => bout,
            None => self.bout.insert(Bout::new(&self.plan, match_id, now)?),
        };
        // The player's other way has taken it, where there is one.
        if let Entry::Vacant(free) = self.sessions.entry(seat) {
            bout.server.join(now, PeerId(seat.0.into()), seat)?;
            free.insert(session);
        }
        self.players.insert(session, seat);
        Ok(())
    }

    /// Lets a player go on by its other session; without one it is out.
    fn lose(&mut self, now: Instant, seat: Seat) {
        let mut others = self.players.iter().filter(|(_, of)| **of == seat);
        if let Some((session, _)) = others.next() {
            self.sessions.insert(seat, *session);
        } else {
            self.sessions.remove(&seat);
            if let Some(bout) = &mut self.bout {
                bout.server.leave(now, PeerId(seat.0.into()));
            }
        }
    }

    fn receive(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, session: SessionId) {
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        while let Some(channel) = endpoint.receive(now, session, &mut message) {
            match message.split_first_mut() {
                Some((&mut LOCKSTEP, datagram)) => {
                    if let (Some(bout), Some(seat)) = (&mut self.bout, self.players.get(&session)) {
                        // Answers go the way that the player has chosen.
                        self.sessions.insert(*seat, session);
                        let from = Arrival::from(PeerId(seat.0.into()));
                        bout.server.handle_datagram(now, from, datagram);
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
        while let Some((tick, checkpoint)) = self.bout.as_mut().and_then(Bout::step) {
            if let Some(checkpoint) = checkpoint {
                self.voice.say(checkpoint);
                self.count(tick.0.saturating_add(1));
            }
        }
        self.send(now, endpoint);
        while let Some(event) = self.bout.as_mut().and_then(|bout| bout.server.poll_event()) {
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
        let all = self.plan.ticks();
        write_at(&self.post, ticks, all);
        if ticks == all {
            let hash = self.bout.as_ref().map_or(0, Bout::hash);
            for match_id in self.seats.matches() {
                let result = hash.to_be_bytes().to_vec();
                // Nobody listens any more where the process ends.
                drop(self.tell.send(Tell::Finished(match_id, result)));
            }
        }
    }

    fn send(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        let Some(bout) = &mut self.bout else {
            return;
        };
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        message.push(LOCKSTEP);
        while let Some(transmit) = bout.server.poll_transmit(now, &mut message) {
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
                seats: seats.into_iter().map(|seat| seat.0).collect(),
            }),
            // The first tick that differs, also if its hash was lost.
            ServerEvent::Divergence { seat, tick, .. } => self.voice.say(News::Desync {
                tick: tick.0,
                seats: vec![seat.0],
            }),
            ServerEvent::Left { seat, reason, .. } => self.voice.say(News::Left {
                seat: seat.0,
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
        endpoint: &mut Endpoint<Ring>,
        ask: Ask,
    ) -> ControlFlow<()> {
        match ask {
            Ask::Assign(assign) => self.seats.assign(&assign),
            Ask::Release(match_id) => self.seats.release(match_id),
            Ask::TokenKey(key) => {
                endpoint.add_token_key(*key);
            }
            Ask::TokenKeyLapsed(id) => {
                endpoint.remove_token_key(id);
            }
            Ask::Closed(is_closed) => self.is_closed = is_closed,
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
        self.bout.as_ref()?.server.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        if let Some(bout) = &mut self.bout {
            bout.server.handle_timeout(now);
        }
        self.advance(now, endpoint);
    }

    fn begin_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, _: Instant) {
        let stats = endpoint.stats();
        self.voice.say(News::Closed {
            joins_refused: stats
                .refused
                .saturating_add(self.strangers)
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
const INPUT_DELAY: InputDelay = match InputDelay::fixed(12) {
    Some(delay) => delay,
    None => InputDelay::DEFAULT,
};

#[cfg(test)]
mod tests;
