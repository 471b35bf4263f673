//! A peer of a match without a server.

mod clock;
pub(crate) mod commitment;
mod config;
mod datagrams;
mod input_queue;
mod membership;
mod setup;
mod ticking;

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Arrival, Generator, Instant, Machine, MatchId, Seat, Transmit};

use crate::bundle::Shape;
use crate::checksum::{LogHash, StateHasher};
use crate::event::{Phase, ReportError, SubmitError};
use crate::hash_comparator::HashComparator;
use crate::hash_history::ReportedHashes;
use crate::input::{Input, Row, encode_into};
use crate::message::{MESH_DELAY_MAX, Seats, bit, seats_in};
use crate::repair::{EncodedTicks, RepairLimits};
use crate::repeat::LEAVE_COPIES;
use crate::sim::{Step, Steps};
use crate::stepper::Stepper;
use crate::tick::{PeerId, Tick};
use crate::view::View;
use clock::MeshClock;
use commitment::LocalCommitments;
use datagrams::Due;
use input_queue::{InputQueue, LocalInputs};
use membership::{Link, PeerIndex};
use setup::HelloExchange;

pub use commitment::CommitSecret;
pub use config::{MeshClose, MeshConfig, MeshConfigError, MeshEvent, MeshStats};

/// Queued events; beyond it, stalls and silence are only counted.
const EVENTS_MAX: usize = 64;

/// One of 2 to 16 equal peers of a match.
///
/// Each peer sends its inputs to all others; a tick is confirmed once all inputs have arrived.
/// Submit the player's input as often as it is read; the newest is stamped at each tick boundary.
/// Execute the steps of [`next_step`](Self::next_step), and report the hash of final ticks:
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
/// This is plain lockstep; with a [`window`](MeshConfig::window) there are also saves and loads.
/// All memory is allocated in [`new`](Self::new). Malformed datagrams are counted in
/// [`stats`](Self::stats) and dropped.
#[derive(Debug)]
pub struct MeshPeer<I> {
    config: MeshConfig,
    /// Silence after which a peer is removed, in nanoseconds: at least 8 ticks.
    peer_timeout: u64,
    match_id: MatchId,
    shape: Shape,
    seat: Seat,
    generator: Generator,
    state: State,
    gathering: HelloExchange,
    peer_index: PeerIndex,
    /// The other peers, by seat; `None` for our own.
    links: Vec<Option<Link>>,
    view: View,
    queues: Vec<InputQueue>,
    local: LocalInputs,
    /// Set if inputs are committed to before they are revealed.
    committing: Option<LocalCommitments>,
    clock: MeshClock,
    /// Ticks by which the game may lag before the clock stops.
    lag: u32,
    resend_at: Instant,
    /// First tick with a missing input, and the seats it is missing from.
    known: Tick,
    awaited: Seats,
    read: Tick,
    stepper: Stepper,
    /// All inputs of the tick before `read`, and of the one before that.
    rows: (Row, Row),
    scratch: Vec<u8>,
    /// The last encoded bundles: most peers get the same.
    body: EncodedTicks,
    log: LogHash,
    /// Log after tick `t`, in slot `t % LOGS`.
    logs: Vec<LogHash>,
    last: Option<Tick>,
    hashes: ReportedHashes,
    hash_comparator: HashComparator,
    limits: RepairLimits,
    due: Due,
    /// The seat that the clock waits for, once reported.
    stalled: Option<Seat>,
    /// Since when inputs of a removed peer are requested.
    asking_since: Option<Instant>,
    /// The player's current input, `I::WIDTH` bits.
    held: Vec<u8>,
    neutral: Vec<u8>,
    events: VecDeque<MeshEvent>,
    stats: MeshStats,
    now: Instant,
    input: PhantomData<fn(I)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Gathering { hello_at: Instant },
    Running { state_at: Instant },
    Leaving { copies: u8, at: Instant },
    Closed,
}

impl<I: Input> MeshPeer<I> {
    /// Takes the player's current input, and returns the tick it is for.
    ///
    /// It is stamped at the next tick boundary unless another input replaces it first, and at each
    /// later boundary until then: a held button stays held.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. Before the match begins the input is kept for the first tick.
    pub fn submit(&mut self, now: Instant, input: &I) -> Result<Tick, SubmitError> {
        self.advance(now);
        match self.state {
            State::Gathering { .. } | State::Running { .. } => encode_into(input, &mut self.held),
            State::Leaving { .. } | State::Closed => return Err(SubmitError::Closed),
        }
        match self.state {
            State::Running { .. } => Ok(self.local.tick_for(self.clock.index)),
            State::Gathering { .. } | State::Leaving { .. } | State::Closed => {
                Err(SubmitError::NotRunning)
            }
        }
    }

    /// Changes the input delay, to at most 60 ticks; [`MeshEvent::InputDelay`] reports the cost. A
    /// higher delay repeats the last input in the gap; a lower one drops the inputs of the next
    /// boundaries, whose ticks are already stamped.
    pub fn set_input_delay(&mut self, now: Instant, ticks: u8) {
        self.advance(now);
        let delay = ticks.min(MESH_DELAY_MAX);
        if delay == self.local.delay {
            return;
        }
        let index = self.clock.index;
        let (repeated, dropped) = self.local.set_delay(delay, index);
        if let State::Running { .. } = self.state {
            let tick = self.local.tick_for(index);
            self.push_event(MeshEvent::InputDelay {
                delay,
                tick,
                repeated,
                dropped,
            });
        }
    }

    /// Returns the game's next step. Execute it before calling again.
    pub fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        let now = self.advance(now);
        self.step(now)
    }

    /// Takes the state hash after the step of `tick`, which became final last. Ticks between hash
    /// steps are ignored.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
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

    /// Returns whether the hash of `tick` is needed.
    #[must_use]
    pub fn wants_hash(&self, tick: Tick) -> bool {
        tick.0
            .is_multiple_of(self.config.hash_interval.get().into())
    }

    /// Sets the cost of one save and one step of the game, for
    /// [`SavePolicy::Auto`](crate::SavePolicy::Auto).
    pub fn set_costs(&mut self, save: Duration, step: Duration) {
        self.stepper.costs(save, step);
    }

    /// Leaves the match, and notifies the others a few times.
    pub fn leave(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            State::Running { .. } => {
                self.due = Due::default();
                self.state = State::Leaving {
                    copies: LEAVE_COPIES,
                    at: now,
                };
            }
            State::Gathering { .. } => self.close(None),
            State::Leaving { .. } | State::Closed => {}
        }
    }

    /// Removes the peer of `seat`, as after a silence: the transport lost it.
    pub fn remove(&mut self, now: Instant, seat: Seat) {
        let now = self.advance(now);
        if let State::Running { .. } = self.state
            && self.view.suspect(bit(seat.0))
        {
            self.on_suspected(now);
        }
    }

    /// Handles one datagram.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        self.receive(now, arrival.peer, datagram);
    }

    /// Passes tick boundaries before `now`, and repeats unanswered datagrams.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            State::Gathering { hello_at } => self.gather(now, hello_at),
            State::Running { state_at } => self.tick(now, state_at),
            State::Leaving { copies, at } => self.repeat_leave(now, copies, at),
            State::Closed => {}
        }
    }

    /// Appends the next datagram to `buf`; `None` if there is none.
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
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Gathering { hello_at } => {
                let start_at = self.gathering.start_at;
                Some(start_at.map_or(hello_at, |at| at.min(hello_at)))
            }
            State::Running { state_at } => {
                let deadline = self.clock.deadline();
                let next = if self.clock.index <= self.limit() {
                    deadline
                } else {
                    deadline.max(self.resend_at)
                };
                if self.view.suspects == 0 {
                    Some(next)
                } else {
                    Some(next.min(state_at))
                }
            }
            State::Leaving { at, .. } => Some(at),
            State::Closed => None,
        }
    }

    /// Returns the state of the match, as far as known.
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Gathering { .. } => Phase::Gathering,
            State::Running { .. } => Phase::Running,
            State::Leaving { .. } | State::Closed => Phase::Closed,
        }
    }

    /// Returns our seat.
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Returns the match, which keys state hashes.
    pub const fn match_id(&self) -> MatchId {
        self.match_id
    }

    /// Returns the seats of the members, ours included, as last agreed.
    pub fn members(&self) -> impl Iterator<Item = Seat> + use<I> {
        seats_in(self.view.members)
    }

    /// Returns the first tick that is not confirmed; all before it are.
    pub const fn ticks_confirmed(&self) -> u32 {
        self.known.0
    }

    /// Returns the number of the next tick boundary; ticks before it may be simulated.
    pub const fn boundary(&self) -> u32 {
        self.clock.index
    }

    /// Returns the hash over all inputs of the confirmed ticks passed to the game; equal logs have
    /// equal hashes on all participants.
    pub const fn log_hash(&self) -> u64 {
        self.log.finish()
    }

    /// Returns the ticks between reading an input and the tick it is for.
    pub const fn input_delay(&self) -> u8 {
        self.local.delay
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &MeshStats {
        &self.stats
    }

    fn others(&self) -> Seats {
        self.view.others()
    }

    fn push_event(&mut self, event: MeshEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    fn close(&mut self, why: Option<MeshClose>) {
        self.due = Due::default();
        self.state = State::Closed;
        if let Some(why) = why {
            self.events.push_back(MeshEvent::Closed(why));
        }
    }

    /// After a pause of the process, the others' silence does not count.
    fn advance(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "the driver's clock went back");
        let now = self.now.max(now);
        if now.as_nanos().saturating_sub(self.now.as_nanos()) > self.peer_timeout / 4 {
            for link in self.links.iter_mut().flatten() {
                link.reset_silence(now);
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
    crate::event::machine!(MeshEvent);
}
