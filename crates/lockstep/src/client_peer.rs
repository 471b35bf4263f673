//! A client: sends its player's inputs and receives all players' turns.

mod clock;
mod report;
mod session;
mod snapshots;
mod stepping;

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Arrival, Generator, Instant, Machine, MatchId, Seat, Seed, Transmit};

use crate::chain::ReceivedChain;
use crate::checksum::StateHasher;
use crate::config::ClientConfig;
use crate::event::{
    ClientEvent, CloseReason, LeaveReason, Phase, Refusal, ReportError, SnapshotError, StallCause,
    SubmitError,
};
use crate::input::{Input, Turn, encode_into};
use crate::match_server::Past;
use crate::message::{
    Bundles, Chunk, DecodeError, Direction, Down, Question, Turns, Welcome, decode_chunk,
    decode_chunk_ack, decode_down_knowing, write_leave, write_ready,
};
use crate::repeat::{LEAVE_COPIES, jittered};
use crate::stats::ClientStats;
use crate::tick::{PeerId, Tick};
use session::Session;
use snapshots::SnapshotExchange;

/// Time between repeated `Ready` and leave datagrams, with 25 % jitter.
const REPEAT_INTERVAL_MILLIS: u64 = 50;

/// Queued events; beyond it, substitutions are only counted.
const EVENTS_MAX: usize = 64;

/// One player of a match.
///
/// Submit the player's input as often as it is read; the newest is stamped at each tick boundary.
/// Poll turns, run one simulation step for each, and report its hash:
///
/// ```no_run
/// # use lockstep::{ClientPeer, StateHasher};
/// # fn frame(now: wire::Instant, client: &mut ClientPeer<u16>, pad: u16, score: &mut [u64]) {
/// let _ = client.submit(now, &pad);
/// while let Some(turn) = client.poll_turn(now) {
///     for (seat, buttons, _) in turn.inputs() {
///         score[usize::from(seat.0)] += u64::from(buttons.count_ones());
///     }
///     let tick = turn.tick();
///     let mut hasher = StateHasher::new(client.match_id().unwrap());
///     score.iter().for_each(|points| hasher.u64(*points));
///     client.report(tick, hasher.finish()).unwrap();
/// }
/// # }
/// ```
///
/// Memory is allocated on the welcome and the first report, within the limits of [`ClientConfig`],
/// and does not grow.
#[derive(Debug)]
pub struct ClientPeer<I> {
    config: ClientConfig,
    server: PeerId,
    generator: Generator,
    state: State,
    /// The player's current input, `I::WIDTH` bits.
    held: Vec<u8>,
    exchange: SnapshotExchange,
    stall: StallWatch,
    events: VecDeque<ClientEvent>,
    stats: ClientStats,
    costs: Option<(Duration, Duration)>,
    now: Instant,
    input: PhantomData<fn(I)>,
}

#[derive(Debug)]
enum State {
    Waiting,
    Seated(Box<Session>),
    /// The player leaves; the leave is being repeated.
    Leaving {
        reason: LeaveReason,
        copies: u8,
        at: Instant,
        is_due: bool,
    },
    Closed,
}

impl<I: Input> ClientPeer<I> {
    /// Creates a client that waits for the welcome of `server`.
    #[must_use]
    pub fn new(config: ClientConfig, server: PeerId, seed: Seed, now: Instant) -> Self {
        let mut held = Vec::new();
        encode_into(&I::default(), &mut held);
        Self {
            config,
            server,
            generator: seed.generator(0),
            state: State::Waiting,
            held,
            exchange: SnapshotExchange::default(),
            stall: StallWatch::default(),
            events: VecDeque::with_capacity(EVENTS_MAX),
            stats: ClientStats::default(),
            costs: None,
            now,
            input: PhantomData,
        }
    }

    /// Takes the player's current input, and returns the tick it is for.
    ///
    /// It is stamped at the next tick boundary unless another input replaces it first, and at each
    /// later boundary until then: a held button stays held. If the server has to close the tick
    /// without it, [`ClientEvent::Substituted`] reports that.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. Before the match begins the input is kept for the first tick; a spectator's
    /// input never counts.
    pub fn submit(&mut self, now: Instant, input: &I) -> Result<Tick, SubmitError> {
        self.advance(now);
        if let State::Leaving { .. } | State::Closed = self.state {
            return Err(SubmitError::Closed);
        }
        if self.is_spectator() {
            return Err(SubmitError::Spectator);
        }
        encode_into(input, &mut self.held);
        let promised = self.session_mut().and_then(Session::promise);
        promised.ok_or(SubmitError::NotRunning)
    }

    /// Returns the next turn, in order, each once. `None` until it has arrived and, with
    /// [`ClientConfig::playout`], is due. Always `None` with [`ClientConfig::window`]: call
    /// [`next_step`](Self::next_step) instead.
    pub fn poll_turn(&mut self, now: Instant) -> Option<Turn<'_, I>> {
        self.advance(now);
        if self.exchange.is_waiting() {
            return None;
        }
        let State::Seated(session) = &mut self.state else {
            return None;
        };
        let read = session.read_turn(now)?;
        stepping::record_read(read, &mut self.events, &mut self.stats);
        Some(Turn::new(read.tick, session.row()))
    }

    /// Returns when the next turn is due, if it has arrived.
    pub fn next_turn_at(&self) -> Option<Instant> {
        if self.exchange.is_waiting() {
            return None;
        }
        self.session()?.next_turn_at()
    }

    /// Takes the state hash after the step of `tick`: the turn returned last or, with rollback, the
    /// tick that became final last. Hashes between hash steps are kept for bisection. If the
    /// state has sections, call [`report_state`](Self::report_state) instead.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        let session = self.session_mut().ok_or(ReportError::OutOfOrder)?;
        session.report(tick, state_hash, None)
    }

    /// Takes the state after the step of `tick` (as for [`report`](Self::report)), hashed by
    /// `state`: the root is compared, and the sections help to locate a desync.
    ///
    /// Report every tick, also between hash steps: a bisection finds only reported ticks.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        let session = self.session_mut().ok_or(ReportError::OutOfOrder)?;
        session.report(tick, state.finish(), Some(state))
    }

    /// Leaves the match, and notifies the server a few times.
    ///
    /// A reason that players cannot give ([`LeaveReason::is_players`]) is sent as
    /// [`LeaveReason::Quit`].
    pub fn leave(&mut self, now: Instant, reason: LeaveReason) {
        let now = self.advance(now);
        let reason = if reason.is_players() {
            reason
        } else {
            LeaveReason::Quit
        };
        match &self.state {
            State::Seated(_) => {
                self.state = State::Leaving {
                    reason,
                    copies: LEAVE_COPIES,
                    at: now,
                    is_due: false,
                };
            }
            State::Waiting => self.state = State::Closed,
            State::Leaving { .. } | State::Closed => {}
        }
    }

    /// Takes the state announced by [`ClientEvent::Snapshot`]: load it, [`report`](Self::report)
    /// its hash for the tick before `next`, and continue with the next turn. `None` if none is
    /// waiting. Trust the bytes as much as the server, or the player, that gave them.
    pub const fn take_snapshot(&mut self) -> Option<Vec<u8>> {
        self.exchange.take()
    }

    /// Gives the state after the turn returned last, on [`ClientEvent::SnapshotWanted`]. A game
    /// with rollback gives a save instead: [`offer_save`](Self::offer_save).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        self.offer(now, None, state)
    }

    fn offer(
        &mut self,
        now: Instant,
        next: Option<Tick>,
        state: &[u8],
    ) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        let State::Seated(session) = &self.state else {
            return Err(SnapshotError::NotWanted);
        };
        self.exchange
            .offer(now, (next, state), session, &self.config)
    }

    /// Continues in a new session after the old one was lost. `server` is the driver's id for it;
    /// the driver must also join the same seat again on the server.
    ///
    /// If more than 768 ticks are missing, they arrive as a [`ClientEvent::Snapshot`]. If no
    /// snapshot is available, the server removes us with
    /// [`CloseReason::Behind`](crate::CloseReason::Behind).
    pub fn reconnect(&mut self, now: Instant, server: PeerId) {
        let now = self.advance(now);
        self.server = server;
        if let State::Seated(session) = &mut self.state {
            session.forget_acks();
            self.exchange.restart();
            session.ready_at = Some(now);
        }
    }

    /// Handles one datagram.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        if arrival.peer != self.server {
            self.stats.dropped_unknown_peer = self.stats.dropped_unknown_peer.saturating_add(1);
            return;
        }
        if let Ok(chunk) = decode_chunk(datagram, Direction::Down) {
            self.on_chunk(now, &chunk);
            return;
        }
        if let Ok(ack) = decode_chunk_ack(datagram, Direction::Down) {
            self.exchange.on_ack(now, &ack);
            return;
        }
        match self.decode(datagram) {
            Ok(Down::Welcome(welcome)) => self.on_welcome(now, &welcome),
            Ok(Down::Turns(turns)) => self.on_turns(now, &turns),
            Ok(Down::Early(early, turns)) => {
                self.on_turns(now, &turns);
                if let Some(session) = self.session_mut() {
                    session.on_early(&early);
                }
            }
            Ok(Down::Bye(reason)) => self.on_bye(reason),
            Ok(Down::SnapshotAsk { id }) => {
                if self
                    .session()
                    .is_some_and(|session| session.reader.next > Tick(0))
                {
                    self.events.extend(self.exchange.on_asked(id));
                }
            }
            Ok(Down::Question(question)) => self.on_question(question),
            Err(_) => {
                self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
            }
        }
    }

    /// Stamps inputs for tick boundaries before `now`, and repeats unanswered datagrams.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        match &mut self.state {
            State::Seated(session) => {
                if session.ready_at.is_some_and(|at| at <= now) {
                    let wait = jittered(&mut self.generator, REPEAT_INTERVAL_MILLIS);
                    session.ready_at = Some(now + wait);
                    session.is_due = true;
                }
                session.is_due |= session.pass_boundaries(now, &self.held, &mut self.stats);
                if let Some(expected) = session.expected()
                    && self.events.len() < EVENTS_MAX
                {
                    self.events.extend(self.stall.on_time(now, &expected));
                }
            }
            State::Leaving {
                copies, at, is_due, ..
            } if *at <= now => {
                if *copies == 0 {
                    self.state = State::Closed;
                } else {
                    *copies = copies.saturating_sub(1);
                    *at = now + jittered(&mut self.generator, REPEAT_INTERVAL_MILLIS);
                    *is_due = true;
                }
            }
            State::Waiting | State::Leaving { .. } | State::Closed => {}
        }
    }

    /// Appends the next datagram to `buf`; `None` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        let now = self.advance(now);
        let start = buf.len();
        match &mut self.state {
            State::Seated(session) => {
                let len_max = self.config.report_len_max();
                if session.write_answer(len_max, buf) {
                    self.stats.bisect_answers = self.stats.bisect_answers.saturating_add(1);
                } else if self.exchange.transmit(now, buf) {
                } else if !core::mem::take(&mut session.is_due) {
                    return None;
                } else if session.ready_at.is_some() {
                    write_ready(buf, session.received.end);
                } else {
                    session.write_report(now, len_max, buf);
                }
            }
            State::Leaving {
                reason,
                is_due: is_due @ true,
                ..
            } => {
                *is_due = false;
                write_leave(buf, *reason);
            }
            State::Waiting | State::Leaving { .. } | State::Closed => return None,
        }
        let len = u64::try_from(buf.len().saturating_sub(start)).unwrap_or(u64::MAX);
        self.stats.datagrams_sent = self.stats.datagrams_sent.saturating_add(1);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(len);
        Some(Transmit::to(self.server))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Seated(session) => {
                let stall = session
                    .expected()
                    .and_then(|expected| self.stall.poll_timeout(&expected));
                let others = session.ready_at.into_iter().chain(session.boundary());
                others
                    .chain(self.exchange.poll_timeout())
                    .chain(stall)
                    .min()
            }
            State::Leaving { at, .. } => Some(*at),
            State::Waiting | State::Closed => None,
        }
    }

    /// Returns the state of the match, as far as known.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Seated(session) if session.boundary().is_some() => Phase::Running,
            State::Waiting | State::Seated(_) => Phase::Gathering,
            State::Leaving { .. } | State::Closed => Phase::Closed,
        }
    }

    /// Returns our seat, once the welcome arrived; a spectator has none.
    pub fn seat(&self) -> Option<Seat> {
        self.session()?.welcome.seat
    }

    /// Returns whether we were admitted without a seat: turns arrive as for a player, inputs are
    /// refused, and state hashes are not sent.
    pub fn is_spectator(&self) -> bool {
        self.session().is_some_and(Session::is_spectator)
    }

    /// Returns the match, once the welcome arrived.
    pub fn match_id(&self) -> Option<MatchId> {
        self.session().map(|session| session.welcome.match_id)
    }

    /// Returns the first tick that has not arrived; all before it have.
    pub fn ticks_confirmed(&self) -> u32 {
        self.session().map_or(0, |session| session.received.end.0)
    }

    /// Returns the hash over all returned turns; equal logs have equal hashes on all participants.
    pub fn log_hash(&self) -> Option<u64> {
        self.session().map(|session| session.log().finish())
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &ClientStats {
        &self.stats
    }

    /// Returns the heap bytes in use, accurate to about one allocation.
    pub fn memory_len(&self) -> usize {
        let events = self
            .events
            .capacity()
            .saturating_mul(size_of::<ClientEvent>());
        let session = self.session().map_or(0, Session::memory_len);
        events
            .saturating_add(self.held.capacity())
            .saturating_add(self.exchange.memory_len())
            .saturating_add(session)
    }

    /// Continues with `server`, which closes `next` and all later ticks. Bundles for these, inputs
    /// stamped for them, and snapshot transfers are dropped.
    pub(crate) fn migrate(&mut self, now: Instant, server: PeerId, next: Tick) {
        self.reconnect(now, server);
        if let Some(session) = self.session_mut() {
            session.restart(next);
        }
    }

    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        self.session().map(|session| &session.welcome)
    }

    pub(crate) fn past(&self) -> Option<Past<'_>> {
        self.session().map(Session::past)
    }

    pub(crate) fn take_closed(
        &mut self,
        now: Instant,
        first: Tick,
        end: Tick,
        bundles: &Bundles<'_>,
    ) {
        if let State::Seated(session) = &mut self.state {
            session.take_closed(now, (first, end), *bundles, &mut self.stats);
        }
    }

    /// Appends up to `len_max` bytes of closed ticks from `first` on; returns their number.
    pub(crate) fn write_closed(&self, first: Tick, len_max: usize, buf: &mut Vec<u8>) -> u32 {
        let Some(session) = self.session() else {
            return 0;
        };
        let ReceivedChain { chain, end, .. } = &session.received;
        chain.write_run(first, *end, len_max, buf)
    }

    fn session(&self) -> Option<&Session> {
        match &self.state {
            State::Seated(session) => Some(session),
            State::Waiting | State::Leaving { .. } | State::Closed => None,
        }
    }

    fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            State::Seated(session) => Some(session),
            State::Waiting | State::Leaving { .. } | State::Closed => None,
        }
    }

    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        self.now = self.now.max(now);
        self.now
    }
}

impl<I: Input> Machine for ClientPeer<I> {
    crate::event::machine!(ClientEvent);
}

impl<I: Input> ClientPeer<I> {
    /// Decodes a server datagram; bundles that are already held are not checked again.
    fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Down<'a>, DecodeError> {
        let session = self.session();
        let known = |first_low, index| session?.received.bundle_near(first_low, index);
        decode_down_knowing(datagram, session.map(Session::shape), known)
    }

    fn on_welcome(&mut self, now: Instant, welcome: &Welcome) {
        match &mut self.state {
            State::Waiting => {}
            State::Seated(session) => {
                // The server did not get our `Ready`, even if older turns arrived meanwhile.
                session.ready_at = Some(now);
                if session.lose_seat(welcome) {
                    self.events.push_back(admitted(welcome));
                }
                return;
            }
            State::Leaving { .. } | State::Closed => return,
        }
        let shape = welcome.shape;
        let refusal = if shape.width != I::WIDTH {
            Some(Refusal::Width {
                theirs: shape.width,
            })
        } else if shape.seats > self.config.seats_max
            || shape.bundle_len_max() > usize::from(self.config.bundle_len_max)
        {
            Some(Refusal::TooLarge { seats: shape.seats })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.events.push_back(ClientEvent::Refused(refusal));
            self.state = State::Leaving {
                reason: LeaveReason::Refused,
                copies: LEAVE_COPIES,
                at: now,
                is_due: false,
            };
            return;
        }
        let mut neutral = Vec::new();
        encode_into(&I::default(), &mut neutral);
        let session = Session::new(now, *welcome, neutral, &self.config);
        self.state = State::Seated(Box::new(session));
        self.forward_costs();
        self.events.push_back(admitted(welcome));
    }

    fn on_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) {
        if let State::Seated(session) = &mut self.state {
            session.ready_at = None;
            let event = self.exchange.on_chunk(now, chunk, session, &self.config);
            self.events.extend(event);
        }
    }

    fn on_turns(&mut self, now: Instant, turns: &Turns<'_>) {
        if let State::Seated(session) = &mut self.state {
            self.stall.last_received = Some(now);
            if let Some(ticks) = session.on_turns(now, turns, &mut self.stats)
                && self.events.len() < EVENTS_MAX
            {
                self.events.push_back(ClientEvent::InputDelay { ticks });
            }
            // For a spectator the first turns datagram, maybe empty, confirms the `Ready`.
            if session.boundary().is_some() || session.is_spectator() {
                session.ready_at = None;
            }
            if let Some(expected) = session.expected() {
                self.events.extend(self.stall.on_turns(now, &expected));
            }
        }
    }

    fn on_question(&mut self, question: Question) {
        let State::Seated(session) = &mut self.state else {
            return;
        };
        if !session.answers.push(question) {
            self.stats.bisect_dropped = self.stats.bisect_dropped.saturating_add(1);
            return;
        }
        if let Question::Diverged {
            tick_low,
            seat,
            cause,
            section,
        } = question
            && let Some(tick) = session.reader.next.widen_back(tick_low)
            && session.answers.is_new(tick, seat)
            && self.events.len() < EVENTS_MAX
        {
            let names = &session.hash_history.names;
            let section = section.and_then(|index| names.get(usize::from(index)).copied());
            self.events.push_back(ClientEvent::Diverged {
                tick,
                seat,
                cause,
                section,
            });
        }
    }

    fn on_bye(&mut self, reason: CloseReason) {
        match &self.state {
            State::Seated(_) | State::Waiting => {
                self.events.push_back(ClientEvent::Closed(reason));
                self.state = State::Closed;
            }
            State::Leaving { .. } => self.state = State::Closed,
            State::Closed => {}
        }
    }
}

const fn admitted(welcome: &Welcome) -> ClientEvent {
    let (seats, match_id) = (welcome.shape.seats, welcome.match_id);
    match welcome.seat {
        Some(seat) => ClientEvent::Welcome {
            seat,
            seats,
            match_id,
        },
        None => ClientEvent::Watching { seats, match_id },
    }
}

/// Ticks by which a turn may be late without an event: what redundancy covers.
const LATE_TICKS: u32 = 3;

#[derive(Debug, Default)]
struct StallWatch {
    stalled: Option<(Tick, Instant)>,
    last_received: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    tick: Tick,
    /// Its arrival time on a fast network.
    at: Instant,
    period: Duration,
}

impl Expected {
    fn deadline(&self) -> Instant {
        self.at + self.period.saturating_mul(LATE_TICKS)
    }
}

impl StallWatch {
    fn on_turns(&mut self, now: Instant, expected: &Expected) -> Option<ClientEvent> {
        let (tick, at) = self.stalled.filter(|(tick, _)| *tick < expected.tick)?;
        self.stalled = None;
        let late = now.saturating_since(at);
        Some(ClientEvent::Resumed { tick, late })
    }

    fn on_time(&mut self, now: Instant, expected: &Expected) -> Option<ClientEvent> {
        if self.stalled.is_some() || now < expected.deadline() {
            return None;
        }
        let tick = expected.tick;
        self.stalled = Some((tick, expected.at));
        let grace = expected.period.saturating_mul(LATE_TICKS);
        let is_received = self
            .last_received
            .is_some_and(|at| now.saturating_since(at) < grace);
        let cause = if is_received {
            StallCause::Server
        } else {
            StallCause::Link
        };
        Some(ClientEvent::Stalled { tick, cause })
    }

    fn poll_timeout(&self, expected: &Expected) -> Option<Instant> {
        self.stalled.is_none().then(|| expected.deadline())
    }
}
