//! The event loop that connects a stream machine, its application and TCP connections.
//!
//! One turn reads a bounded amount, applies requests, runs due timers, drains the machine's output
//! and waits. Timers run with a time shortly before the sockets were last found empty. A process
//! that was paused therefore does not time out a peer whose records are still queued.

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

use crypto::tls::TlsIdentity;
use wire::{Instant, StreamMachine};

use super::application::StreamApplication;
use super::config::StreamConfig;
use super::counters::{StreamCounters, StreamLedger};
use super::listener::StreamListener;
use super::table::Key;
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
/// [`StreamServicer`](super::StreamServicer) runs a driver on its own thread.
#[derive(Debug)]
pub struct StreamDriver<M: StreamMachine, A: StreamApplication<M>> {
    /// First field, so it is dropped first: requests are rejected before the application is
    /// dropped.
    inbox: Inbox<A::Request, StreamLedger>,
    upper: Upper<M, A>,
    door: Door,
    links: Links,
    waiter: Waiter,
    clock: Clock,
    /// Output buffer of `poll_outbound`. Empty between records.
    outbound: Vec<u8>,
    /// When the last turn began; `None` before the first.
    turned_at: Option<Instant>,
    /// Whether this turn reads more than others, after a pause.
    is_catching_up: bool,
    /// When the machine last received the wall-clock time.
    wall_clock_at: Option<Instant>,
    shutdown: Shutdown,
    /// Whether requests stay queued because the application is busy.
    is_held_up: bool,
    /// The work left at the end of the turn.
    rest: Rest,
}

/// Stage of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    /// No shutdown was requested.
    No,
    /// The application was notified.
    Draining,
    /// All connections are closed and linger.
    Closing,
}

impl<M: StreamMachine, A: StreamApplication<M>> StreamDriver<M, A> {
    /// Creates a driver and the request queue of its application. Dials prove `identity`, if given.
    ///
    /// # Errors
    ///
    /// The system's error if it has no descriptor left for the waiter.
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

    /// Runs turns until the application returns `Break` or a shutdown completes.
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

    /// Runs one turn without waiting, for loops that also do other work.
    pub fn turn(&mut self) -> ControlFlow<End> {
        self.inbox.ledger().turns.add(1);
        self.rest = Rest::Nothing;
        self.tell_wall_clock();
        let Received { now, as_of } = self.receive();
        // Read first, so requests sent before the shutdown request are applied before the shutdown.
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

    /// Waits for a socket event, a request or a deadline.
    ///
    /// # Errors
    ///
    /// The system's error. None is known to occur while the driver's descriptors are open.
    pub fn wait(&mut self) -> io::Result<()> {
        if self.rest == Rest::Work {
            return Ok(());
        }
        self.waiter.wait(self.clock, self.next_deadline())?;
        self.gather();
        Ok(())
    }

    /// Returns when a wait must end, at the latest the shutdown deadline.
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

    /// Returns the machine, for example to read its statistics.
    pub const fn machine(&self) -> &M {
        &self.upper.machine
    }

    /// Returns the application.
    pub const fn application(&self) -> &A {
        &self.upper.application
    }

    /// Gives the machine the wall-clock time in the first turn, then at most once a second.
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

    /// Records the events of the last wait. Returns whether there were any.
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

    /// Reads from listeners and sockets, up to a bound.
    fn receive(&mut self) -> Received {
        let began = self.clock.now();
        let batch = self.links.config.bytes_per_turn.get();
        let last = self.turned_at.replace(began);
        // Never twice in a row: a machine that needs this long for one turn is slow, not paused.
        self.is_catching_up = !self.is_catching_up && is_stall(last, began);
        let bound = if self.is_catching_up {
            batch.saturating_mul(STALL_BATCHES)
        } else {
            batch
        };
        // The handshake budget is not raised, because handshakes do not affect idle timeouts.
        self.links.handshakes_left = (batch / HANDSHAKE_COST).max(1);
        let mut received = 0_usize;
        loop {
            // The next poll finds all data that arrived before this time.
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

    /// Drains records, commands and events of the machine, up to a bound for each.
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

    /// Gives records to the links. Returns whether there were any.
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

    /// Gives commands and events to the application. Returns whether there were any.
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

/// Two times of a receive phase.
struct Received {
    /// Later than all data read.
    now: Instant,
    /// All data that arrived before this time has been read. If a bound was reached, the start of
    /// the turn. A timer due by then is really late.
    as_of: Instant,
}

/// The work that a turn left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nothing to do until the next event.
    Nothing,
    /// A bound was reached. The next turn follows at once.
    Work,
    /// A timer is still due after it has run. The next turn follows after a pause.
    StuckTimer,
}

/// Returns whether the gap since the last turn is so long that much data may be queued.
fn is_stall(last: Option<Instant>, began: Instant) -> bool {
    last.is_none_or(|last| began.saturating_since(last) > STALL)
}

/// What one turn may still take of each kind. A machine with constant output thus cannot starve
/// sockets, requests or another kind of output.
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

/// Maximum records, commands and events per turn, each.
const DRAIN_MAX: usize = 16_384;

/// Gap between turns that counts as a pause.
const STALL: Duration = Duration::from_millis(250);

/// Batches read after a pause.
const STALL_BATCHES: usize = 16;

/// Cost of an accepted connection or a socket event, in bytes read.
const EVENT_COST: usize = 1 << 10;

/// Cost of a read in the handshake, in bytes read: about 0.1 ms of key agreement, signing and
/// verification.
const HANDSHAKE_COST: usize = 64 << 10;

/// Maximum socket events per wait. The next poll returns the rest.
const EVENTS_MAX: usize = 1_024;

/// Interval at which the machine receives the wall-clock time.
const WALL_CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a timer that is still due after it has run.
const STUCK_TIMER_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
