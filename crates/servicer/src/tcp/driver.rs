//! The event loop that connects a stream machine, its application and TCP connections.
//!
//! One turn reads a bounded amount, applies requests, runs due timers, drains the machine's output
//! and waits. Timers run with a time shortly before the sockets were last found empty. A process
//! that was paused therefore does not time out a peer whose records are still queued.

mod links;
mod transfer;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use crypto::tls::TlsIdentity;
use wire::{Instant, StreamMachine};

use super::StreamConfig;
use super::application::StreamApplication;
use super::counters::{StreamCounters, StreamLedger};
use super::listener::{Acceptor, StreamListener};
use super::table::Key;
use crate::Clock;
use crate::handle::End;
use crate::request::Inbox;
use crate::turn::{Pending, STALL_BATCHES, STUCK_TIMER_PAUSE, WALL_CLOCK_INTERVAL, is_stall};
use crate::waiter::Waiter;
use links::Links;

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
    links: Links<M, A>,
    acceptor: Acceptor,
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
    pending: Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
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
            acceptor: Acceptor::new(listeners, &registry)?,
            links: Links::new(
                (machine, application),
                (config, identity),
                first_key,
                ledger,
                registry,
            ),
            waiter,
            clock: Clock::new(),
            outbound: Vec::new(),
            turned_at: None,
            is_catching_up: false,
            wall_clock_at: None,
            shutdown: Shutdown::No,
            is_held_up: false,
            pending: Pending::Nothing,
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
        self.links.finish_all();
        end
    }

    /// Runs one turn without waiting, for loops that also do other work.
    pub fn turn(&mut self) -> ControlFlow<End> {
        self.inbox.ledger().turns.add(1);
        self.pending = Pending::Nothing;
        self.update_wall_clock();
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
            self.acceptor.close();
            self.links
                .application
                .begin_shutdown(now, &mut self.links.machine, deadline);
        }
        self.run_timers(now);
        self.links.run_deadlines(now, as_of);
        self.drain();
        self.advance_shutdown(stop_at)
    }

    /// Waits for a socket event, a request or a deadline.
    ///
    /// # Errors
    ///
    /// The system's error. None is known to occur while the driver's descriptors are open.
    pub fn wait(&mut self) -> io::Result<()> {
        if self.pending == Pending::Work {
            return Ok(());
        }
        self.waiter.wait(self.clock, self.next_deadline())?;
        self.gather();
        Ok(())
    }

    /// Returns when a wait must end, at the latest the shutdown deadline.
    fn next_deadline(&self) -> Option<Instant> {
        let pause =
            (self.pending == Pending::StuckTimer).then(|| self.clock.now() + STUCK_TIMER_PAUSE);
        if pause.is_some() {
            return pause.into_iter().chain(self.inbox.stop_at()).min();
        }
        [
            self.links.machine.poll_timeout(),
            self.links.application.poll_timeout(),
            self.links.table.poll_timeout(),
            self.acceptor.poll_timeout(),
            self.inbox.stop_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the machine, for example to read its statistics.
    pub const fn machine(&self) -> &M {
        &self.links.machine
    }

    /// Returns the application.
    pub const fn application(&self) -> &A {
        &self.links.application
    }

    /// Gives the machine the wall-clock time in the first turn, then at most once a second.
    fn update_wall_clock(&mut self) {
        let now = self.clock.now();
        if self
            .wall_clock_at
            .is_none_or(|last| now.saturating_since(last) >= WALL_CLOCK_INTERVAL)
        {
            self.wall_clock_at = Some(now);
            let unix = self.clock.unix_time();
            self.links.machine.set_unix_time(now, unix);
        }
    }

    /// Records the events of the last wait. Returns whether there were any.
    fn gather(&mut self) -> bool {
        let now = self.clock.now();
        let mut found = false;
        for event in self.waiter.events() {
            if !self.acceptor.mark_ready(event.token()) {
                let key = Key(event.token().0);
                self.links.on_socket_event(now, key, event);
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
            let found = self.waiter.poll_now().is_ok() && self.gather();
            let accepted = self
                .acceptor
                .accept(as_of, self.inbox.ledger(), |io, source, tls| {
                    self.links.accept(as_of, io, source, tls);
                });
            let bytes = self.links.receive_round(self.clock);
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
            && !self.links.is_busy()
            && let Some(request) = self.inbox.next()
        {
            waiting = waiting.saturating_sub(1);
            self.inbox.ledger().requests.add(1);
            self.links
                .application
                .apply_request(now, &mut self.links.machine, request)?;
            self.links.adopt_arrivals(now);
        }
        self.is_held_up = waiting > 0;
        ControlFlow::Continue(())
    }

    fn run_timers(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let Links {
            machine,
            application,
            ..
        } = &mut self.links;
        if is_due(machine.poll_timeout()) {
            self.inbox.ledger().timeouts.add(1);
            machine.handle_timeout(now);
        }
        if is_due(application.poll_timeout()) {
            application.handle_timeout(now, machine);
        }
        if is_due(machine.poll_timeout()) || is_due(application.poll_timeout()) {
            self.inbox.ledger().stuck_timers.add(1);
            self.pending = Pending::StuckTimer;
        }
    }

    /// Drains records, commands and events of the machine, up to a bound for each.
    fn drain(&mut self) {
        let mut left = TurnBudget::new(self.links.config.bytes_per_turn.get());
        loop {
            let now = self.clock.now();
            let mut has_output = self.write(now, &mut left);
            has_output |= self.links.flush(now);
            has_output |= self.dispatch(now, &mut left);
            has_output |= self.links.hand_over_departures(now);
            if !has_output {
                break;
            }
            if left.is_spent() {
                self.pending = Pending::Work;
                break;
            }
        }
        let is_held_up = self.is_held_up && !self.links.is_busy();
        if is_held_up || self.links.is_behind() || self.acceptor.is_behind() {
            self.pending = Pending::Work;
        }
    }

    /// Gives records to the links. Returns whether there were any.
    fn write(&mut self, now: Instant, left: &mut TurnBudget) -> bool {
        let mut has_output = false;
        while left.records > 0
            && left.bytes > 0
            && let Some(outbound) = self.links.machine.poll_outbound(now, &mut self.outbound)
        {
            left.records = left.records.saturating_sub(1);
            left.bytes = left.bytes.saturating_sub(self.outbound.len());
            has_output = true;
            self.links.push(now, outbound, &self.outbound);
            self.outbound.clear();
        }
        has_output
    }

    /// Gives commands and events to the application. Returns whether there were any.
    fn dispatch(&mut self, now: Instant, left: &mut TurnBudget) -> bool {
        let mut has_output = false;
        while left.commands > 0
            && let Some((id, command)) = self.links.machine.poll_command()
        {
            left.commands = left.commands.saturating_sub(1);
            has_output = true;
            self.inbox.ledger().commands.add(1);
            let links = &mut self.links;
            let dial = links
                .application
                .on_command(now, &mut links.machine, id, command);
            if let Some(dial) = dial {
                links.dial(now, id, &dial);
            }
        }
        while left.events > 0
            && let Some(event) = self.links.machine.poll_event()
        {
            left.events = left.events.saturating_sub(1);
            has_output = true;
            self.inbox.ledger().events.add(1);
            self.links
                .application
                .on_event(now, &mut self.links.machine, event);
        }
        has_output
    }

    fn advance_shutdown(&mut self, stop_at: Option<Instant>) -> ControlFlow<End> {
        let Some(deadline) = stop_at else {
            return ControlFlow::Continue(());
        };
        let is_drained = |it: &Self| {
            it.pending != Pending::Work
                && it.links.is_flushed()
                && it.links.application.is_drained(&it.links.machine)
        };
        if self.shutdown == Shutdown::Draining && is_drained(self) {
            self.shutdown = Shutdown::Closing;
            self.links.close_all(self.clock.now());
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

/// What one turn may still take of each kind. A machine with constant output thus cannot starve
/// sockets, requests or another kind of output.
#[derive(Debug)]
struct TurnBudget {
    records: usize,
    /// Bytes of records.
    bytes: usize,
    commands: usize,
    events: usize,
}

impl TurnBudget {
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

/// Cost of an accepted connection or a socket event, in bytes read.
const EVENT_COST: usize = 1 << 10;

/// Cost of a read in the handshake, in bytes read: about 0.1 ms of key agreement, signing and
/// verification.
const HANDSHAKE_COST: usize = 64 << 10;

/// Maximum socket events per wait. The next poll returns the rest.
const EVENTS_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
