//! One of several equal peers who play without a server.

mod clock;
mod commitment;
mod datagrams;
mod event;
mod hashes;
mod lane;
mod link;
mod parting;
mod setup;
mod ticking;

use core::convert::Infallible;
use core::marker::PhantomData;
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Arrival, CommandId, Generator, Instant, Machine, MatchId, Seat, Transmit};

use crate::body::Body;
use crate::bundle::Shape;
use crate::checksum::{LogHash, StateHasher};
use crate::commitment::CommitSecret;
use crate::config::{Repair, SavePolicy, TickRate};
use crate::event::{Phase, ReportError, SubmitError};
use crate::hash_comparator::HashComparator;
use crate::input::{Input, encode_into};
use crate::message::{MESH_DELAY_MAX, Seats, bit};
use crate::repair::RepairLimits;
use crate::step::{Step, Steps};
use crate::stepper::Stepper;
use crate::tick::{PeerId, Tick};
use crate::turn::Row;
use crate::view::View;
use clock::MeshClock;
use commitment::Committing;
use datagrams::Due;
use hashes::OwnHashes;
use lane::Lane;
use lane::Own;
use link::Link;
use link::Roster;
use setup::Gathering;

pub use event::{MeshClose, MeshConfigError, MeshEvent, MeshStats};

/// Events that wait for the application; past it, stalls and silence are only counted.
const EVENTS_MAX: usize = 64;

/// One of 2 to 16 equal peers of a match.
///
/// Each sends its inputs to each other, and a tick is confirmed once all are there. Give it the
/// player's input as often as it is read; the machine stamps the newest at each tick boundary. Do
/// what [`next_step`](Self::next_step) says, and report the hash of ticks that are final:
///
/// ```no_run
/// # use lockstep::{MeshPeer, StateHasher, Step};
/// # fn frame(now: wire::Instant, peer: &mut MeshPeer<u16>, pad: u16, score: &mut [u64]) {
/// let _ = peer.submit(now, &pad);
/// while let Step::Advance { turn, .. } = peer.next_step(now) {
///     for (seat, buttons, _) in turn.inputs() {
///         score[usize::from(seat.0)] += u64::from(buttons.count_ones());
///     }
///     let tick = turn.tick();
///     let mut hasher = StateHasher::new(peer.match_id());
///     score.iter().for_each(|points| hasher.u64(*points));
///     peer.report(tick, hasher.finish()).unwrap();
/// }
/// # }
/// ```
///
/// That is lockstep; with a [`window`](MeshConfig::window) there are saves and loads too. All
/// memory is taken in [`new`](Self::new). Hostile bytes are counted in [`stats`](Self::stats) and
/// dropped.
#[derive(Debug)]
pub struct MeshPeer<I> {
    config: MeshConfig,
    /// Silence after which a peer is given up, in nanoseconds: never shorter than 8 ticks.
    peer_timeout: u64,
    match_id: MatchId,
    /// Seats and input width.
    shape: Shape,
    seat: Seat,
    /// Spreads what is repeated.
    generator: Generator,
    state: State,
    gathering: Gathering,
    /// Whose number has which seat.
    roster: Roster,
    /// The other peers, by seat; `None` on our own.
    links: Vec<Option<Link>>,
    /// Who plays.
    view: View,
    /// Everybody's inputs, by seat.
    lanes: Vec<Lane>,
    own: Own,
    /// Where inputs are committed to before they are shown.
    committing: Option<Committing>,
    clock: MeshClock,
    /// Ticks by which the game may be behind the clock before that stands.
    lag: u32,
    /// When to send again though no boundary was passed.
    resend_at: Instant,
    /// First tick that some seat's input is missing of, and the seats it is.
    known: Tick,
    awaited: Seats,
    /// First tick that the stepper was not given.
    read: Tick,
    stepper: Stepper,
    /// Inputs of all in the tick before `read`, and in the one before that.
    rows: (Row, Row),
    /// The bundle being worked on; kept for its memory.
    scratch: Vec<u8>,
    /// What was sent last: most peers get the same.
    body: Body,
    log: LogHash,
    /// Log after tick `t` at place `t % LOGS`.
    logs: Vec<LogHash>,
    /// The tick that became final last, until its hash is reported.
    last: Option<Tick>,
    hashes: OwnHashes,
    hash_comparator: HashComparator,
    limits: RepairLimits,
    due: Due,
    /// Whom the clock stands for, as the application was told.
    stalled: Option<Seat>,
    /// Since when inputs of one who left are asked for.
    asking_since: Option<Instant>,
    /// What the player does now, `I::WIDTH` bits.
    held: Vec<u8>,
    /// What an absent player does.
    neutral: Vec<u8>,
    events: VecDeque<MeshEvent>,
    stats: MeshStats,
    /// Latest time told.
    now: Instant,
    input: PhantomData<fn(I)>,
}

/// What a peer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not all are ready.
    Gathering {
        /// When to say hello again.
        hello_at: Instant,
    },
    /// Ticks go on.
    Running {
        /// When to state again whom we suspect.
        state_at: Instant,
    },
    /// The player goes, and says so.
    Leaving { copies: u8, at: Instant },
    /// Over.
    Closed,
}

impl<I: Input> MeshPeer<I> {
    /// Takes what the player does now, and returns the tick it is for.
    ///
    /// It is stamped at the next tick boundary, unless another one replaces it first, and again at
    /// each later boundary until then: a button that is held stays held.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. Before the match begins the input is kept and counts for the first tick.
    pub fn submit(&mut self, now: Instant, input: &I) -> Result<Tick, SubmitError> {
        self.advance(now);
        match self.state {
            State::Gathering { .. } | State::Running { .. } => encode_into(input, &mut self.held),
            State::Leaving { .. } | State::Closed => return Err(SubmitError::Closed),
        }
        match self.state {
            State::Running { .. } => Ok(self.own.tick_for(self.clock.index())),
            State::Gathering { .. } | State::Leaving { .. } | State::Closed => {
                Err(SubmitError::NotRunning)
            }
        }
    }

    /// Changes the input delay, to at most 60 ticks; [`MeshEvent::InputDelay`] says what that
    /// costs. A raise repeats the last input in the gap; after a lower one the inputs of the next
    /// boundaries are dropped, their ticks being stamped.
    pub fn set_input_delay(&mut self, now: Instant, ticks: u8) {
        self.advance(now);
        let delay = ticks.min(MESH_DELAY_MAX);
        if delay == self.own.delay() {
            return;
        }
        let index = self.clock.index();
        let (repeated, dropped) = self.own.set_delay(delay, index);
        if let State::Running { .. } = self.state {
            let tick = self.own.tick_for(index);
            self.push_event(MeshEvent::InputDelay {
                delay,
                tick,
                repeated,
                dropped,
            });
        }
    }

    /// Returns what the game does next. It does it before it asks again.
    pub fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        let now = self.advance(now);
        self.step(now)
    }

    /// Takes the state hash after the step of `tick`, which became final last. Ticks between hash
    /// steps are ignored.
    ///
    /// # Errors
    ///
    /// [`ReportError`] where it is of another tick, or was reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        if self.last != Some(tick) {
            return Err(ReportError::OutOfOrder);
        }
        self.last = None;
        if self.wants_hash(tick) {
            self.on_own_hash(tick, state_hash)?;
        }
        Ok(())
    }

    /// Returns whether the hash of `tick` is of use; others need not be computed.
    #[must_use]
    pub fn wants_hash(&self, tick: Tick) -> bool {
        tick.0
            .is_multiple_of(self.config.hash_interval.get().into())
    }

    /// Takes what one save and one step of the game take, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    pub fn set_costs(&mut self, save: Duration, step: Duration) {
        self.stepper.costs(save, step);
    }

    /// Leaves the match, and says so a few times.
    pub fn leave(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            State::Running { .. } => {
                self.due.clear();
                self.state = State::Leaving {
                    copies: parting::LEAVE_COPIES,
                    at: now,
                };
            }
            State::Gathering { .. } => self.close(None),
            State::Leaving { .. } | State::Closed => {}
        }
    }

    /// Gives up the peer of `seat`, as after a silence: the transport has lost it.
    pub fn remove(&mut self, now: Instant, seat: Seat) {
        let now = self.advance(now);
        if let State::Running { .. } = self.state
            && self.view.suspect(bit(seat.0))
        {
            self.on_suspicion(now);
        }
    }

    /// Takes one datagram.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        self.receive(now, arrival.peer, datagram);
    }

    /// Passes the tick boundaries that lie behind `now`, and repeats what goes unanswered.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            State::Gathering { hello_at } => self.gather(now, hello_at),
            State::Running { state_at } => self.tick(now, state_at),
            State::Leaving { copies, at } => self.say_leave(now, copies, at),
            State::Closed => {}
        }
    }

    /// Appends the next datagram to `buf`; `None` when there is none.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        let now = self.advance(now);
        if self.due.is_empty() {
            return None;
        }
        let start = buf.len();
        let peer = self.transmit(now, buf)?;
        let len = u64::try_from(buf.len().saturating_sub(start)).unwrap_or(u64::MAX);
        self.stats.datagrams_sent = self.stats.datagrams_sent.saturating_add(1);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(len);
        Some(Transmit::to(peer))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<MeshEvent> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Gathering { hello_at } => {
                let start_at = self.gathering.start_at();
                Some(start_at.map_or(hello_at, |at| at.min(hello_at)))
            }
            State::Running { state_at } => {
                let deadline = self.clock.deadline();
                let next = if self.clock.index() <= self.limit() {
                    deadline
                } else {
                    deadline.max(self.resend_at)
                };
                if self.view.suspects() == 0 {
                    Some(next)
                } else {
                    Some(next.min(state_at))
                }
            }
            State::Leaving { at, .. } => Some(at),
            State::Closed => None,
        }
    }

    /// Returns what the match is doing, as far as is known.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Gathering { .. } => Phase::Gathering,
            State::Running { .. } => Phase::Running,
            State::Leaving { .. } | State::Closed => Phase::Closed,
        }
    }

    /// Returns our seat.
    #[must_use]
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Returns the match, by which state hashes are keyed.
    #[must_use]
    pub const fn match_id(&self) -> MatchId {
        self.match_id
    }

    /// Returns the seats that play, ours included, as last agreed.
    pub fn members(&self) -> impl Iterator<Item = Seat> + use<I> {
        let members = self.view.members();
        (0..16)
            .filter(move |seat| members & bit(*seat) != 0)
            .map(Seat)
    }

    /// Returns the first tick that is not confirmed; all before it are.
    #[must_use]
    pub const fn ticks_confirmed(&self) -> u32 {
        self.known.0
    }

    /// Returns the number of the next tick boundary; ticks before it may be simulated.
    #[must_use]
    pub const fn boundary(&self) -> u32 {
        self.clock.index()
    }

    /// Returns the hash over the inputs of all in the ticks that the game was given as confirmed;
    /// equal logs have equal hashes on all participants.
    #[must_use]
    pub const fn log_hash(&self) -> u64 {
        self.log.finish()
    }

    /// Returns the ticks between reading an input and the tick it is for.
    #[must_use]
    pub const fn input_delay(&self) -> u8 {
        self.own.delay()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &MeshStats {
        &self.stats
    }

    /// Whom datagrams go to: members that are listened to.
    fn others(&self) -> Seats {
        self.view.others()
    }

    /// Keeps an event, where there is room.
    fn push_event(&mut self, event: MeshEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// Ends the machine.
    fn close(&mut self, why: Option<MeshClose>) {
        self.due.clear();
        self.state = State::Closed;
        if let Some(why) = why {
            self.events.push_back(MeshEvent::Closed(why));
        }
    }

    /// Takes the time, which never goes back. After a pause of ours, nobody is blamed for what was
    /// not heard in it.
    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        let now = self.now.max(now);
        if now.as_nanos().saturating_sub(self.now.as_nanos()) > self.peer_timeout / 4 {
            for link in self.links.iter_mut().flatten() {
                link.forgive(now);
            }
        }
        self.now = now;
        now
    }
}

impl<I: Input> Steps for MeshPeer<I> {
    type Input = I;

    fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        self.next_step(now)
    }

    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.report(tick, state.finish())
    }

    fn wants_hash(&self, tick: Tick) -> bool {
        self.wants_hash(tick)
    }

    fn match_id(&self) -> Option<MatchId> {
        Some(self.match_id)
    }

    fn window(&self) -> u8 {
        self.config.window
    }

    fn set_costs(&mut self, save: Duration, step: Duration) {
        self.set_costs(save, step);
    }
}

impl<I: Input> Machine for MeshPeer<I> {
    type Peer = PeerId;
    type Event = MeshEvent;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        self.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        self.poll_transmit(now, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<MeshEvent> {
        self.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

/// How a [`MeshPeer`](crate::MeshPeer) plays.
///
/// `seats`, `tick_rate`, `hash_interval`, `content` and whether there is a `commit` must be the same
/// on all peers, who compare them before ticks begin; so must the match id and the width of inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshConfig {
    /// Seats of the match, 2 to 16; 2. Datagrams, work and memory grow with it.
    pub seats: u16,
    /// Ticks a second; 60.
    pub tick_rate: TickRate,
    /// Ticks between reading an input and the tick it is for, 0 to 60; 6. Without a window it must
    /// cover the way to the slowest peer and its jitter, or ticks stall; each more is a tick of
    /// latency. May differ from peer to peer, and change while ticks run.
    pub input_delay: u8,
    /// Ticks that the game may go ahead of what is confirmed, with predicted inputs, 0 to 32; 0,
    /// which is lockstep.
    pub window: u8,
    /// Which states a game with a window saves; [`SavePolicy::Auto`].
    pub save: SavePolicy,
    /// Ticks in each datagram; 4.
    pub repair: Repair,
    /// Ticks from one state hash to the next; 1. Each costs 4 bytes to each other peer.
    pub hash_interval: NonZeroU8,
    /// Longest datagram, in bytes; 1,100, which leaves room for the transport's own within the
    /// 1,200 that every path carries (RFC 9000, section 14).
    pub datagram_len_max: u16,
    /// Bytes a second that a peer behind gets above its share; 36,000.
    pub catch_up_rate: u32,
    /// Bytes that a peer behind may get at once; 16,000.
    pub catch_up_burst: u32,
    /// Silence after which the others play on without a peer; 2 s. They wait until then.
    pub peer_timeout: Duration,
    /// Has nobody see an input for a tick before having committed to an own one, where there is a
    /// secret; `None`. Else who sends last sees first.
    ///
    /// Everybody sends heads of a hash chain over the inputs it stamped, and shows the inputs once the
    /// others' heads are over the same ticks (the lockstep protocol of Baughman and Levine, "Cheat-proof
    /// playout for centralized and distributed online games", INFOCOM 2001, without its turns). Inputs
    /// that are not what was committed to never count, and who shows them is given up:
    /// [`MeshEvent::CommitViolation`](crate::MeshEvent::CommitViolation).
    ///
    /// Costs one more way of latency (the input delay covers the way twice, two ticks, and one for each
    /// datagram lost in a row), 21 bytes a datagram and 8 for each tick in it, a SHA-256 for each input
    /// of anybody and two for each own one, and 25 kB of memory, with 13 kB for each other seat.
    pub commit: Option<CommitSecret>,
    /// What else must be the same on all peers, as a hash: the build, the level; 0.
    pub content: u64,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            seats: 2,
            tick_rate: TickRate::DEFAULT,
            input_delay: 6,
            window: 0,
            save: SavePolicy::Auto,
            repair: Repair::DEFAULT,
            hash_interval: NonZeroU8::MIN,
            datagram_len_max: 1_100,
            catch_up_rate: 36_000,
            catch_up_burst: 16_000,
            peer_timeout: Duration::from_secs(2),
            commit: None,
            content: 0,
        }
    }
}
