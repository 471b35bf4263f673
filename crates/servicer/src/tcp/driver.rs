//! The loop that joins a stream machine, its application and TCP connections.
//!
//! One turn reads a bounded amount, applies requests, runs due timers, drains what the machine
//! wants written or told, and waits. Timers run as of a moment before the sockets were last found
//! empty: a process that was paused therefore times nobody out whose records were waiting.

mod door;
mod intake;
mod links;
mod outlet;
mod passage;
mod upper;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use wire::{Instant, StreamMachine};

use super::application::StreamApplication;
use super::config::StreamConfig;
use super::counters::{StreamCounters, StreamLedger};
use super::listener::StreamListener;
use super::table::Key;
use super::tls::TlsIdentity;
use crate::Clock;
use crate::end::End;
use crate::request::Inbox;
use crate::waiter::Waiter;
use door::Door;
use links::Links;
use upper::Upper;

/// Sends requests to the application of a [`StreamDriver`], from any thread.
pub type StreamRequests<R> = crate::request::Requests<R, StreamCounters>;

/// Drives one stream machine on TCP connections, on the thread that calls [`run`](Self::run).
///
/// [`StreamServicer`](super::StreamServicer) gives it a thread of its own.
#[derive(Debug)]
pub struct StreamDriver<M: StreamMachine, A: StreamApplication<M>> {
    /// First, so that it is dropped first: once the application is gone, requests are refused.
    inbox: Inbox<A::Request, StreamLedger>,
    upper: Upper<M, A>,
    door: Door,
    links: Links,
    waiter: Waiter,
    clock: Clock,
    /// What `poll_outbound` writes to; empty between records.
    outbound: Vec<u8>,
    /// When the last turn began; `None` before the first.
    turned_at: Option<Instant>,
    /// Whether this turn takes more than others, after a pause.
    is_catching_up: bool,
    /// When the machine was last told the wall clock.
    wall_clock_at: Option<Instant>,
    shutdown: Shutdown,
    /// Whether requests wait for an application that was busy.
    is_held_up: bool,
    /// What was left when the turn ended.
    rest: Rest,
}

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    /// Nobody has asked for it.
    No,
    /// The application knows.
    Draining,
    /// All connections are closed, and wait for the other ends.
    Closing,
}

impl<M: StreamMachine, A: StreamApplication<M>> StreamDriver<M, A> {
    /// Makes a driver, and the queue to its application. Dials prove `identity`, or nothing.
    ///
    /// # Errors
    ///
    /// The system's, where it has no descriptor left to wait with.
    pub fn new(
        listeners: Vec<StreamListener>,
        identity: Option<TlsIdentity>,
        machine: M,
        application: A,
        config: StreamConfig,
    ) -> io::Result<(Self, StreamRequests<A::Request>)> {
        let (waiter, waker) = Waiter::new(EVENTS_MAX)?;
        let (requests, inbox) = Inbox::new(config.requests_max.get(), waker);
        let registry = waiter.registry().try_clone()?;
        let ledger = Arc::clone(inbox.ledger());
        let first_key = listeners.len();
        let driver = Self {
            inbox,
            upper: Upper {
                machine,
                application,
            },
            door: Door::new(listeners, &registry)?,
            links: Links::new(first_key, config, ledger, identity, registry),
            waiter,
            clock: Clock::new(),
            outbound: Vec::new(),
            turned_at: None,
            is_catching_up: false,
            wall_clock_at: None,
            shutdown: Shutdown::No,
            is_held_up: false,
            rest: Rest::Nothing,
        };
        Ok((driver, requests))
    }

    /// Turns and waits until the application breaks off or a shutdown is complete.
    pub fn run(mut self) -> End {
        let end = loop {
            if let ControlFlow::Break(end) = self.turn() {
                break end;
            }
            if let Err(error) = self.wait() {
                break End::Failed(error.kind());
            }
        };
        self.links.say_farewell();
        end
    }

    /// Does all there is to do now, without waiting; for loops that have other work too.
    pub fn turn(&mut self) -> ControlFlow<End> {
        self.inbox.ledger().turns.add(1);
        self.rest = Rest::Nothing;
        self.tell_wall_clock();
        let Received { now, as_of } = self.receive();
        // Asked first: what was requested before the end was asked for is applied before it begins.
        let stop_at = self.inbox.stop_at();
        if self.apply_requests(now).is_break() {
            self.drain();
            return ControlFlow::Break(End::Stopped);
        }
        if let Some(deadline) = stop_at
            && self.shutdown == Shutdown::No
            && !self.is_held_up
        {
            self.shutdown = Shutdown::Draining;
            self.door.shut();
            self.upper
                .application
                .begin_shutdown(now, &mut self.upper.machine, deadline);
        }
        self.run_timers(now);
        self.links.run_deadlines((now, as_of), &mut self.upper);
        self.drain();
        self.advance_shutdown(stop_at)
    }

    /// Waits until a socket, a request or a deadline calls for a turn.
    ///
    /// # Errors
    ///
    /// The system's; none is known to happen while the driver's descriptors are open.
    pub fn wait(&mut self) -> io::Result<()> {
        if self.rest == Rest::Work {
            return Ok(());
        }
        self.waiter.wait(self.clock, self.next_deadline())?;
        self.gather();
        Ok(())
    }

    /// Returns when a wait ends at the latest; where an end was asked for, not after it.
    fn next_deadline(&self) -> Option<Instant> {
        let pause = (self.rest == Rest::StuckTimer).then(|| self.clock.now() + STUCK_TIMER_PAUSE);
        if pause.is_some() {
            return pause.into_iter().chain(self.inbox.stop_at()).min();
        }
        [
            self.upper.machine.poll_timeout(),
            self.upper.application.poll_timeout(),
            self.links.table.poll_timeout(),
            self.door.poll_timeout(),
            self.inbox.stop_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the machine, such as to read its statistics.
    pub const fn machine(&self) -> &M {
        &self.upper.machine
    }

    /// Returns the application.
    pub const fn application(&self) -> &A {
        &self.upper.application
    }

    /// Tells the machine the wall clock, in the first turn and then in the first of a second.
    fn tell_wall_clock(&mut self) {
        let now = self.clock.now();
        if self
            .wall_clock_at
            .is_none_or(|told| now.saturating_since(told) >= WALL_CLOCK_INTERVAL)
        {
            self.wall_clock_at = Some(now);
            let unix = self.clock.unix_time();
            self.upper.machine.set_unix_time(now, unix);
        }
    }

    /// Takes note of what the last wait found; returns whether it was anything.
    fn gather(&mut self) -> bool {
        let now = self.clock.now();
        let mut found = false;
        for event in self.waiter.events() {
            if !self.door.note(event.token()) {
                let key = Key(event.token().0);
                self.links.note_event(now, (key, event), &mut self.upper);
            }
            found = true;
        }
        found
    }

    /// Takes what the ports and sockets hold, up to a bound.
    fn receive(&mut self) -> Received {
        let began = self.clock.now();
        let batch = self.links.config.bytes_per_turn.get();
        let last = self.turned_at.replace(began);
        // Not twice in a row: a machine that needs so long for so much is slow, not paused.
        self.is_catching_up = !self.is_catching_up && is_stall(last, began);
        let bound = if self.is_catching_up {
            batch.saturating_mul(STALL_BATCHES)
        } else {
            batch
        };
        // However much is caught up with: handshakes judge no silence.
        self.links.handshakes_left = (batch / HANDSHAKE_COST).max(1);
        let mut received = 0_usize;
        loop {
            // Whatever came before this is found by the look that follows.
            let as_of = self.clock.now();
            let found = self.waiter.look().is_ok() && self.gather();
            let accepted = self.door.accept(as_of, &mut self.links);
            let bytes = self.links.receive_round(self.clock, &mut self.upper);
            received = received
                .saturating_add(bytes)
                .saturating_add(accepted.saturating_mul(EVENT_COST));
            if found {
                received = received.saturating_add(EVENT_COST);
            } else if accepted == 0 && bytes == 0 {
                return Received { now: as_of, as_of };
            }
            if received >= bound {
                let now = self.clock.now();
                return Received { now, as_of: began };
            }
        }
    }

    fn apply_requests(&mut self, now: Instant) -> ControlFlow<()> {
        let mut waiting = self.inbox.begin_drain();
        while waiting > 0
            && !self.upper.application.is_busy(&self.upper.machine)
            && let Some(request) = self.inbox.next()
        {
            waiting = waiting.saturating_sub(1);
            self.inbox.ledger().requests.add(1);
            self.upper
                .application
                .apply_request(now, &mut self.upper.machine, request)?;
            self.receive_arrivals(now);
        }
        self.is_held_up = waiting > 0;
        ControlFlow::Continue(())
    }

    fn run_timers(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let Upper {
            machine,
            application,
        } = &mut self.upper;
        if is_due(machine.poll_timeout()) {
            self.inbox.ledger().timeouts.add(1);
            machine.handle_timeout(now);
        }
        if is_due(application.poll_timeout()) {
            application.handle_timeout(now, machine);
        }
        if is_due(machine.poll_timeout()) || is_due(application.poll_timeout()) {
            self.inbox.ledger().stuck_timers.add(1);
            self.rest = Rest::StuckTimer;
        }
    }

    /// Takes what the machine has to write, to ask and to tell, up to a bound for each.
    fn drain(&mut self) {
        let mut left = Drain::new(self.links.config.bytes_per_turn.get());
        loop {
            let now = self.clock.now();
            let mut told = self.write(now, &mut left);
            told |= self.links.flush(now, &mut self.upper);
            told |= self.tell(now, &mut left);
            told |= self.send_departures(now);
            if !told {
                break;
            }
            if left.is_spent() {
                self.rest = Rest::Work;
                break;
            }
        }
        let Upper {
            machine,
            application,
        } = &self.upper;
        let is_held_up = self.is_held_up && !application.is_busy(machine);
        if is_held_up || self.links.is_behind(&self.upper) || self.door.is_behind() {
            self.rest = Rest::Work;
        }
    }

    /// Gives records to the links; returns whether there were any.
    fn write(&mut self, now: Instant, left: &mut Drain) -> bool {
        let mut told = false;
        while left.records > 0
            && left.bytes > 0
            && let Some(outbound) = self.upper.machine.poll_outbound(now, &mut self.outbound)
        {
            left.records = left.records.saturating_sub(1);
            left.bytes = left.bytes.saturating_sub(self.outbound.len());
            told = true;
            self.links
                .push(now, (outbound, &self.outbound), &mut self.upper);
            self.outbound.clear();
        }
        told
    }

    /// Gives commands and events to the application; returns whether there were any.
    fn tell(&mut self, now: Instant, left: &mut Drain) -> bool {
        let mut told = false;
        while left.commands > 0
            && let Some((id, command)) = self.upper.machine.poll_command()
        {
            left.commands = left.commands.saturating_sub(1);
            told = true;
            self.inbox.ledger().commands.add(1);
            let Upper {
                machine,
                application,
            } = &mut self.upper;
            if let Some(dial) = application.on_command(now, machine, id, command) {
                self.links.dial(now, id, &dial, &mut self.upper);
            }
        }
        while left.events > 0
            && let Some(event) = self.upper.machine.poll_event()
        {
            left.events = left.events.saturating_sub(1);
            told = true;
            self.inbox.ledger().events.add(1);
            self.upper
                .application
                .on_event(now, &mut self.upper.machine, event);
        }
        told
    }

    fn advance_shutdown(&mut self, stop_at: Option<Instant>) -> ControlFlow<End> {
        let Some(deadline) = stop_at else {
            return ControlFlow::Continue(());
        };
        let is_drained = |it: &Self| {
            it.rest != Rest::Work
                && it.links.is_flushed()
                && it.upper.application.is_drained(&it.upper.machine)
        };
        if self.shutdown == Shutdown::Draining && is_drained(self) {
            self.shutdown = Shutdown::Closing;
            self.links.close_all(self.clock.now(), &mut self.upper);
            self.drain();
        }
        if self.shutdown == Shutdown::Closing && self.links.table.is_empty() {
            ControlFlow::Break(End::Drained)
        } else if deadline <= self.clock.now() {
            ControlFlow::Break(End::DeadlinePassed)
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Two times after the sockets were read.
struct Received {
    /// Later than all that was read.
    now: Instant,
    /// What came before this has been read, but where a bound was reached; then this is when the
    /// turn began. What is due by it is late indeed.
    as_of: Instant,
}

/// What a turn left undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// All is done until something happens.
    Nothing,
    /// A bound was reached; the next turn follows at once.
    Work,
    /// A timer is due although it has run; the next turn follows after a pause.
    StuckTimer,
}

/// Whether so much time has passed since the last turn that the sockets may hold much.
fn is_stall(last: Option<Instant>, began: Instant) -> bool {
    last.is_none_or(|last| began.saturating_since(last) > STALL)
}

/// How many of each kind one turn may still take, so that a machine that always has more keeps
/// the driver from neither its sockets nor its queue, nor one kind another.
#[derive(Debug)]
struct Drain {
    records: usize,
    /// Bytes of records.
    bytes: usize,
    commands: usize,
    events: usize,
}

impl Drain {
    const fn new(bytes: usize) -> Self {
        Self {
            records: DRAIN_MAX,
            bytes,
            commands: DRAIN_MAX,
            events: DRAIN_MAX,
        }
    }

    const fn is_spent(&self) -> bool {
        self.records == 0 || self.bytes == 0 || self.commands == 0 || self.events == 0
    }
}

/// Records, commands and events, of each, that one turn takes.
const DRAIN_MAX: usize = 16_384;

/// A gap between turns after which the sockets may hold much.
const STALL: Duration = Duration::from_millis(250);

/// Batches taken after such a gap.
const STALL_BATCHES: usize = 16;

/// What letting somebody in, or news of the system's, counts for, in bytes read.
const EVENT_COST: usize = 1 << 10;

/// What reading a socket in the handshake counts for, in bytes read: 0.1 ms or so of key agreement,
/// signing and checking.
const HANDSHAKE_COST: usize = 64 << 10;

/// Sockets that one wait tells of; the next look finds more.
const EVENTS_MAX: usize = 1_024;

/// How often the machine is told the wall clock.
const WALL_CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a timer that is due although it has run.
const STUCK_TIMER_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
