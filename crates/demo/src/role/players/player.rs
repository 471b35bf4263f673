//! One player: its sessions, its side of the match, and a bot.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crypto::Ring;
use lockstep::{ClientConfig, ClientPeer, LeaveReason, PeerId, Tick};
use servicer::Application;
use udp_proto::{CloseReason, Endpoint, Event, SessionId};
use wire::{Arrival, CommandId, Instant, MatchId, Seat};

use super::probe::{Gap, Gaps};
use super::routes::{AssignedRoute, Line, Routes, Samples, Targets};
use crate::game::{Bot, Buttons, Game};
use crate::game_protocol::{Digest, ECHO, LOCKSTEP, UNRELIABLE};
use crate::message::{self, ChildEvent, Place, Status};
use crate::plan::Plan;
use crate::role::EventWriter;

#[derive(Debug)]
pub(in crate::role) enum PlayerRequest {
    /// Connect all sessions and play in this seat.
    Join(Place, Box<Targets>),
    Mark(u8),
    Conclude,
}

#[derive(Debug)]
pub(in crate::role) struct Measured {
    pub(super) player: Seat,
    pub(super) assigned: AssignedRoute,
    pub(super) samples: Samples,
}

pub(in crate::role) struct Player {
    number: Seat,
    plan: Plan,
    given: Place,
    routes: Routes,
    client: ClientPeer<Buttons>,
    /// Set by the first turn, which names the seat.
    match_state: Option<MatchState>,
    gaps: Gaps,
    status: Status,
    next_ping: Option<Instant>,
    next_status: Instant,
    buffer: Vec<u8>,
    events: EventWriter,
    measured: Sender<Measured>,
}

struct MatchState {
    match_id: MatchId,
    seat: Seat,
    game: Game,
    bot: Bot,
    digest: Digest,
    /// The tick at which this player's simulation is altered.
    sabotage: Option<u32>,
}

impl MatchState {
    fn new(plan: &Plan, number: Seat, (match_id, seat): (MatchId, Seat)) -> Self {
        let sabotage = plan.sabotage();
        Self {
            match_id,
            seat,
            game: Game::new(plan.seed(), plan.options().players),
            bot: Bot::new(plan.seed(), seat),
            digest: Digest::new(match_id, Some(number.0), plan.ticks()),
            sabotage: sabotage.and_then(|(target, tick)| (target == number).then_some(tick)),
        }
    }

    /// Simulates one tick; returns the hash of the state after it.
    fn step(&mut self, tick: Tick, inputs: impl Iterator<Item = (Seat, Buttons)>) -> u64 {
        self.game.step(inputs);
        if self.sabotage == Some(tick.0) {
            self.game.disturb(self.seat);
        }
        self.game.hash(self.match_id)
    }
}

impl Player {
    pub(in crate::role) fn new(
        plan: &Plan,
        number: Seat,
        now: Instant,
        (events, measured): (EventWriter, Sender<Measured>),
    ) -> Self {
        let mut seeds = plan.seed().generator(CLIENTS | u64::from(number.0));
        Self {
            number,
            plan: plan.clone(),
            given: Place::default(),
            routes: Routes::default(),
            client: ClientPeer::new(ClientConfig::default(), SERVER, seeds.seed(), now),
            match_state: None,
            gaps: Gaps::default(),
            status: Status {
                player: number.0,
                ..Status::default()
            },
            next_ping: None,
            next_status: now,
            buffer: Vec::new(),
            events,
            measured,
        }
    }

    fn connect(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, targets: Targets) {
        if let Err(error) = self.routes.connect(now, endpoint, targets) {
            self.events.send(ChildEvent::Failed {
                reason: format!("player {} cannot connect: {error}", self.number),
            });
        }
    }

    fn on_connected(&mut self, now: Instant, session: SessionId) {
        if self.routes.on_connected(session) {
            self.next_ping = Some(now);
            self.events.send(ChildEvent::Joined {
                player: self.number.0,
            });
        }
    }

    fn fail(&self, what: &str, session: SessionId, why: &dyn std::fmt::Display) {
        let which = if self.routes.is_for_play(session) {
            "a session to play by"
        } else {
            "the session that measures"
        };
        self.events.send(ChildEvent::Failed {
            reason: format!("player {}: {which} {what}: {why}", self.number),
        });
    }

    fn receive(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, session: SessionId) {
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        while endpoint.receive(now, session, &mut message).is_some() {
            match message.split_first_mut() {
                Some((&mut LOCKSTEP, datagram)) if self.routes.is_for_play(session) => {
                    self.gaps.on_arrival(now);
                    self.client
                        .handle_datagram(now, Arrival::from(SERVER), datagram);
                }
                Some((&mut ECHO, number)) => {
                    if let Ok(number) = (&*number).try_into() {
                        self.routes.on_echo(now, session, number);
                    }
                }
                // From a server of another version.
                Some(_) | None => {}
            }
            message.clear();
        }
        self.buffer = message;
        self.advance(now, endpoint);
    }

    /// Simulates the turns that arrived, and sends what is due.
    fn advance(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        while self.step(now) {}
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        message.push(LOCKSTEP);
        while self.client.poll_transmit(now, &mut message).is_some() {
            if let Some(session) = self.routes.played().session {
                // If a session has ended, its own event reports that.
                endpoint.send(now, session, UNRELIABLE, &message).ok();
            }
            message.truncate(1);
        }
        self.buffer = message;
        // The client counts substituted inputs; they are no error here.
        while self.client.poll_event().is_some() {}
    }

    /// Simulates the next tick if its turn has arrived.
    fn step(&mut self, now: Instant) -> bool {
        let place = self.client.match_id().zip(self.client.seat());
        let Some(turn) = self.client.poll_turn(now) else {
            return false;
        };
        let tick = turn.tick();
        if tick.0 >= self.plan.ticks() {
            return true;
        }
        // A turn follows the welcome.
        let Some(place) = place else {
            return true;
        };
        if tick.0 == 0 {
            self.routes.clear_samples();
        }
        let (plan, number) = (&self.plan, self.number);
        let match_state = self
            .match_state
            .get_or_insert_with(|| MatchState::new(plan, number, place));
        let hash = match_state.step(
            tick,
            turn.inputs().map(|(seat, buttons, _)| (seat, buttons)),
        );
        self.status.ticks = tick.0.saturating_add(1);
        self.status.hash = hash;
        // Turns are returned in order, so the report is accepted.
        self.client.report(tick, hash).ok();
        if tick.0 == 0 {
            let (match_id, seat) = place;
            self.events.send(ChildEvent::Seated {
                player: self.number.0,
                given: self.given.clone(),
                played: Place {
                    match_id: match_id.to_string(),
                    seat: seat.0,
                },
            });
        }
        if let Some(checkpoint) = match_state.digest.add(tick, hash) {
            self.events.send(checkpoint);
        }
        let pressed = match_state.bot.press(&match_state.game);
        // Refused only after the match.
        self.client.submit(now, &pressed).ok();
        true
    }

    fn send_status(&mut self, endpoint: &Endpoint<Ring>) {
        let stats = |line: &Line| {
            line.session
                .and_then(|session| endpoint.session_stats(session))
        };
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        if let Some(stats) = stats(&self.routes.measure) {
            self.status.direct_us = micros(stats.rtt);
        }
        if let Some(stats) = stats(self.routes.played()) {
            self.status.accelerated_us = micros(stats.rtt);
            self.status.loss_per_million = stats
                .packets_lost
                .saturating_mul(1_000_000)
                .checked_div(stats.packets_sent)
                .unwrap_or(0);
        }
        self.status.is_entered = self.routes.is_entered();
        self.events.send(ChildEvent::Status(self.status));
    }

    fn send_gap(&self, gap: &Gap) {
        // The answer to a datagram of one round trip earlier would have arrived after the fault.
        let round_trip = Duration::from_micros(self.status.accelerated_us);
        let from = gap.at.saturating_sub(round_trip);
        self.events.send(ChildEvent::Gap(message::Gap {
            fault: gap.fault,
            player: self.number.0,
            silence_us: u64::try_from(gap.span.as_micros()).unwrap_or(u64::MAX),
            lost_datagrams: self.routes.lost(from, gap.at + gap.span),
        }));
    }
}

impl Application<Endpoint<Ring>> for Player {
    type Request = PlayerRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        request: PlayerRequest,
    ) -> ControlFlow<()> {
        match request {
            PlayerRequest::Join(place, targets) => {
                self.given = place;
                self.connect(now, endpoint, *targets);
            }
            PlayerRequest::Mark(fault) => self.gaps.on_fault(now, fault),
            PlayerRequest::Conclude => {
                while let Some(gap) = self.gaps.conclude(now) {
                    self.send_gap(&gap);
                }
                let measured = Measured {
                    player: self.number,
                    assigned: self.routes.assigned,
                    samples: self.routes.samples.clone(),
                };
                // If nobody receives it, the process is ending.
                drop(self.measured.send(measured));
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: Event) {
        match event {
            Event::Connected { session, .. } => self.on_connected(now, session),
            Event::ConnectFailed { session, failure } => {
                self.fail("was not opened", session, &failure);
            }
            // Closed by this process at its end.
            Event::Closed {
                reason: CloseReason::Local(_),
                ..
            } => {}
            Event::Closed { session, .. } if self.routes.on_lost(session) => {}
            Event::Closed {
                session, reason, ..
            } => self.fail("ended", session, &reason),
            Event::Readable { session } => self.receive(now, endpoint, session),
            Event::MtuChecked { .. } | Event::RateChanged { .. } | Event::Settled { .. } | _ => {}
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
        [
            self.client.poll_timeout(),
            self.next_ping,
            Some(self.next_status),
            self.gaps.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        self.client.handle_timeout(now);
        self.advance(now, endpoint);
        if self.next_ping.is_some_and(|at| at <= now) {
            self.routes.ping(now, endpoint);
            self.next_ping = Some(now + PING_INTERVAL);
        }
        if self.next_status <= now {
            self.send_status(endpoint);
            self.next_status = now + STATUS_INTERVAL;
        }
        while let Some(gap) = self.gaps.poll(now) {
            self.send_gap(&gap);
        }
    }

    fn begin_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, _: Instant) {
        self.client.leave(now, LeaveReason::Finished);
        endpoint.shutdown(now);
    }
}

const SERVER: PeerId = PeerId(0);
/// One ping a tick on each session.
const PING_INTERVAL: Duration = Duration::from_millis(33);
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Stream numbers of the seed; the low bits hold the seat.
const CLIENTS: u64 = 6 << 40;
