//! One player: its sessions, the match before it, and a bot.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crypto::Ring;
use lockstep::{ClientConfig, ClientPeer, LeaveReason, PeerId, Tick};
use servicer::Application;
use udp_proto::{CloseReason, Endpoint, Event, SessionId};
use wire::{Arrival, CommandId, Instant, MatchId, Seat};

use super::gap::{Gap, Gaps};
use super::ways::{Line, Samples, Targets, Told, Ways};
use crate::game::{Bot, Buttons, Game};
use crate::message::{News, Place, Status};
use crate::plan::Plan;
use crate::role::Voice;
use crate::talk::{Digest, ECHO, LOCKSTEP, UNRELIABLE};

/// What the process asks of a player.
#[derive(Debug)]
pub(in crate::role) enum Ask {
    /// Connect all sessions, and play there.
    Join(Place, Box<Targets>),
    /// An accident is about to happen.
    Mark(u8),
    /// Hand over the samples.
    Conclude,
}

/// The round trips of one player.
#[derive(Debug)]
pub(in crate::role) struct Measured {
    pub(super) player: Seat,
    pub(super) told: Told,
    pub(super) samples: Samples,
}

/// One player.
pub(in crate::role) struct Player {
    /// Its number in the plan.
    number: Seat,
    plan: Plan,
    /// Where its ticket says that it plays.
    given: Place,
    ways: Ways,
    client: ClientPeer<Buttons>,
    /// From the first turn on, which tells the seat.
    table: Option<Table>,
    gaps: Gaps,
    status: Status,
    next_ping: Option<Instant>,
    next_status: Instant,
    buffer: Vec<u8>,
    voice: Voice,
    measured: Sender<Measured>,
}

/// The match, as a player has it before it.
struct Table {
    match_id: MatchId,
    seat: Seat,
    game: Game,
    bot: Bot,
    digest: Digest,
    /// The tick at which this player's simulation is altered.
    sabotage: Option<u32>,
}

impl Table {
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

    /// Makes one step; returns the hash of the state after it.
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
        (voice, measured): (Voice, Sender<Measured>),
    ) -> Self {
        let mut seeds = plan.seed().generator(CLIENTS | u64::from(number.0));
        Self {
            number,
            plan: plan.clone(),
            given: Place::default(),
            ways: Ways::default(),
            client: ClientPeer::new(ClientConfig::default(), SERVER, seeds.seed(), now),
            table: None,
            gaps: Gaps::default(),
            status: Status {
                player: number.0,
                ..Status::default()
            },
            next_ping: None,
            next_status: now,
            buffer: Vec::new(),
            voice,
            measured,
        }
    }

    fn connect(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, targets: Targets) {
        if let Err(error) = self.ways.connect(now, endpoint, targets) {
            self.voice.say(News::Failed {
                reason: format!("player {} cannot connect: {error}", self.number),
            });
        }
    }

    fn on_connected(&mut self, now: Instant, session: SessionId) {
        if self.ways.on_connected(session) {
            self.next_ping = Some(now);
            self.voice.say(News::Joined {
                player: self.number.0,
            });
        }
    }

    fn fail(&self, what: &str, session: SessionId, why: &dyn std::fmt::Display) {
        let which = if self.ways.is_for_play(session) {
            "a session to play by"
        } else {
            "the session that measures"
        };
        self.voice.say(News::Failed {
            reason: format!("player {}: {which} {what}: {why}", self.number),
        });
    }

    fn receive(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, session: SessionId) {
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        while endpoint.receive(now, session, &mut message).is_some() {
            match message.split_first_mut() {
                Some((&mut LOCKSTEP, datagram)) if self.ways.is_for_play(session) => {
                    self.gaps.on_arrival(now);
                    self.client
                        .handle_datagram(now, Arrival::from(SERVER), datagram);
                }
                Some((&mut ECHO, number)) => {
                    if let Ok(number) = (&*number).try_into() {
                        self.ways.on_echo(now, session, number);
                    }
                }
                // From a server of another build; nothing here understands it.
                Some(_) | None => {}
            }
            message.clear();
        }
        self.buffer = message;
        self.advance(now, endpoint);
    }

    /// Plays the turns that came, and sends what is due.
    fn advance(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        while self.step(now) {}
        let mut message = std::mem::take(&mut self.buffer);
        message.clear();
        message.push(LOCKSTEP);
        while self.client.poll_transmit(now, &mut message).is_some() {
            if let Some(session) = self.ways.played().session {
                // A session that has ended is told of by its own event.
                endpoint.send(now, session, UNRELIABLE, &message).ok();
            }
            message.truncate(1);
        }
        self.buffer = message;
        // Substituted inputs are counted by the client, and no fault here.
        while self.client.poll_event().is_some() {}
    }

    /// Makes one step of the simulation where its turn is there.
    fn step(&mut self, now: Instant) -> bool {
        let place = self.client.match_id().zip(self.client.seat());
        let Some(turn) = self.client.poll_turn(now) else {
            return false;
        };
        let tick = turn.tick();
        if tick.0 >= self.plan.ticks() {
            return true;
        }
        // A turn comes after the welcome.
        let Some(place) = place else {
            return true;
        };
        if tick.0 == 0 {
            self.ways.clear_samples();
        }
        let (plan, number) = (&self.plan, self.number);
        let table = self
            .table
            .get_or_insert_with(|| Table::new(plan, number, place));
        let hash = table.step(
            tick,
            turn.inputs().map(|(seat, buttons, _)| (seat, buttons)),
        );
        self.status.ticks = tick.0.saturating_add(1);
        self.status.hash = hash;
        // The turn was returned last, so the report is in order.
        self.client.report(tick, hash).ok();
        if tick.0 == 0 {
            let (match_id, seat) = place;
            self.voice.say(News::Seated {
                player: self.number.0,
                given: self.given.clone(),
                played: Place {
                    match_id: match_id.to_string(),
                    seat: seat.0,
                },
            });
        }
        if let Some(checkpoint) = table.digest.add(tick, hash) {
            self.voice.say(checkpoint);
        }
        let pressed = table.bot.press(&table.game);
        // Refused only once the match is over.
        self.client.submit(now, &pressed).ok();
        true
    }

    fn tell_status(&mut self, endpoint: &Endpoint<Ring>) {
        let stats = |line: &Line| {
            line.session
                .and_then(|session| endpoint.session_stats(session))
        };
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        if let Some(stats) = stats(&self.ways.measure) {
            self.status.direct_us = micros(stats.rtt);
        }
        if let Some(stats) = stats(self.ways.played()) {
            self.status.accelerated_us = micros(stats.rtt);
            self.status.loss_per_million = stats
                .packets_lost
                .saturating_mul(1_000_000)
                .checked_div(stats.packets_sent)
                .unwrap_or(0);
        }
        self.status.is_entered = self.ways.is_entered();
        self.voice.say(News::Status(self.status));
    }

    fn tell_gap(&self, gap: &Gap) {
        // The answer to what was sent a round trip earlier would have come after the accident.
        let round_trip = Duration::from_micros(self.status.accelerated_us);
        let from = gap.at.saturating_sub(round_trip);
        self.voice.say(News::Gap {
            accident: gap.accident,
            player: self.number.0,
            gap_us: u64::try_from(gap.span.as_micros()).unwrap_or(u64::MAX),
            lost_datagrams: self.ways.lost(from, gap.at + gap.span),
        });
    }
}

impl Application<Endpoint<Ring>> for Player {
    type Request = Ask;

    fn apply_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        ask: Ask,
    ) -> ControlFlow<()> {
        match ask {
            Ask::Join(place, targets) => {
                self.given = place;
                self.connect(now, endpoint, *targets);
            }
            Ask::Mark(accident) => self.gaps.on_accident(now, accident),
            Ask::Conclude => {
                while let Some(gap) = self.gaps.conclude(now) {
                    self.tell_gap(&gap);
                }
                let measured = Measured {
                    player: self.number,
                    told: self.ways.told(),
                    samples: self.ways.samples.clone(),
                };
                // Nobody waits any more where the process ends.
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
            // Ours: the process comes to its end.
            Event::Closed {
                reason: CloseReason::Local(_),
                ..
            } => {}
            Event::Closed { session, .. } if self.ways.on_lost(session) => {}
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
            self.ways.ping(now, endpoint);
            self.next_ping = Some(now + PING_INTERVAL);
        }
        if self.next_status <= now {
            self.tell_status(endpoint);
            self.next_status = now + STATUS_INTERVAL;
        }
        while let Some(gap) = self.gaps.poll(now) {
            self.tell_gap(&gap);
        }
    }

    fn begin_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, _: Instant) {
        self.client.leave(now, LeaveReason::Finished);
        endpoint.shutdown(now);
    }
}

/// The only peer of a client.
const SERVER: PeerId = PeerId(0);
/// One ping a tick, on either session.
const PING_INTERVAL: Duration = Duration::from_millis(33);
/// How often the parent hears of a player.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Streams of the seed; the seat is in the low bits.
const CLIENTS: u64 = 6 << 40;
