//! The event loop that connects a datagram machine, its application and sockets.
//!
//! One turn receives a bounded batch, applies requests, runs due timers, drains the machine's
//! output and waits. Timers run with a time shortly before the sockets were last found empty. A
//! process that was paused therefore does not time out a peer whose datagrams are still queued.

mod application;
mod exits;
mod receive;
mod send;
mod sockets;

use std::io;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use mio::{Interest, Token};
use wire::{CommandId, Instant, Machine};

pub use application::{Application, PeerAddress};
use receive::{Dispatcher, ReceiveBuffers};
pub(crate) use send::Conditioners;
use send::Transmitter;
use sockets::Sockets;
pub use sockets::{SocketError, SocketOrder, SocketOutcome};

use crate::Clock;
#[cfg(feature = "conditioner")]
use crate::conditioner::{Conditioner, Direction};
use crate::counters::{Counters, Ledger};
use crate::handle::End;
use crate::request::Inbox;
use crate::socket::batch::Batch;
use crate::socket::{Batching, UdpSocket};
use crate::turn::{Pending, STUCK_TIMER_PAUSE, WALL_CLOCK_INTERVAL};
use crate::waiter::Waiter;

/// Sends requests to the application of a [`Driver`], from any thread.
pub type Requests<R> = crate::request::Requests<R, Counters>;

/// Drives one machine on its sockets, on the thread that calls [`run`](Self::run).
///
/// [`UdpServicer`](crate::UdpServicer) runs a driver on its own thread.
#[derive(Debug)]
pub struct Driver<M: Machine, A: Application<M>> {
    /// First field, so it is dropped first: requests are rejected before the application is
    /// dropped.
    inbox: Inbox<A::Request, Ledger>,
    machine: M,
    application: A,
    buffers: ReceiveBuffers,
    dispatcher: Dispatcher,
    transmitter: Transmitter,
    waiter: Waiter,
    clock: Clock,
    config: Config,
    /// When the last turn began; `None` before the first.
    turned_at: Option<Instant>,
    /// When the machine last received the wall-clock time.
    wall_clock_at: Option<Instant>,
    drops_at: Instant,
    is_stopping: bool,
    pending: Pending,
}

impl<M, A> Driver<M, A>
where
    M: Machine<Peer: PeerAddress>,
    A: Application<M>,
{
    /// Creates a driver and the request queue of its application.
    ///
    /// # Errors
    ///
    /// The system's error if it has no descriptor left for the waiter.
    pub fn new(
        sockets: Vec<UdpSocket>,
        machine: M,
        application: A,
        config: Config,
    ) -> io::Result<(Self, Requests<A::Request>)> {
        Self::assemble(
            sockets,
            Conditioners::default(),
            machine,
            application,
            config,
        )
    }

    pub(crate) fn assemble(
        mut sockets: Vec<UdpSocket>,
        conditioners: Conditioners,
        machine: M,
        application: A,
        config: Config,
    ) -> io::Result<(Self, Requests<A::Request>)> {
        let (waiter, waker) = Waiter::new(EVENTS_MAX)?;
        for socket in &mut sockets {
            waiter
                .registry()
                .register(&mut socket.io, SOCKET, Interest::READABLE)?;
        }
        let (requests, inbox) = Inbox::new(config.requests_max.get(), waker);
        let driver = Self {
            inbox,
            machine,
            application,
            buffers: ReceiveBuffers::new(config.batching),
            dispatcher: Dispatcher::default(),
            transmitter: Transmitter {
                sockets: Sockets::new(sockets, config.opened_max),
                conditioners,
                batch: Batch::default(),
                batching: config.batching,
            },
            waiter,
            clock: Clock::new(),
            config,
            turned_at: None,
            wall_clock_at: None,
            drops_at: Instant::ZERO,
            is_stopping: false,
            pending: Pending::Nothing,
        };
        Ok((driver, requests))
    }

    /// Applies the rules of `conditioner` to the datagrams of one direction.
    #[cfg(feature = "conditioner")]
    pub fn set_conditioner(&mut self, direction: Direction, conditioner: Conditioner) {
        let conditioners = &mut self.transmitter.conditioners;
        match direction {
            Direction::Inbound => conditioners.inbound = Some(conditioner),
            Direction::Outbound => conditioners.outbound = Some(conditioner),
        }
    }

    /// Replaces the addresses of the trusted exits, see
    /// [`UdpServicer::with_trusted_exits`](crate::UdpServicer::with_trusted_exits).
    pub fn set_trusted_exits(&mut self, exits: &[IpAddr]) {
        self.dispatcher.set_exits(exits, self.config.exit_flows_max);
    }

    /// Runs turns until the application returns `Break` or a shutdown completes.
    pub fn run(mut self) -> End {
        loop {
            if let ControlFlow::Break(end) = self.turn() {
                return end;
            }
            if let Err(error) = self.wait() {
                return End::Failed(error.kind());
            }
        }
    }

    /// Runs one turn without waiting, for loops that also do other work.
    pub fn turn(&mut self) -> ControlFlow<End> {
        self.inbox.ledger().turns.add(1);
        let began = self.clock.now();
        self.pending = Pending::Nothing;
        self.update_wall_clock();
        let now = self.receive();
        self.read_drops(now);
        // Read first, so requests sent before the shutdown request are applied before the shutdown.
        let stop_at = self.inbox.stop_at();
        if self.apply_requests(now).is_break() {
            self.drain();
            return ControlFlow::Break(End::Stopped);
        }
        if let Some(deadline) = stop_at
            && !self.is_stopping
        {
            self.is_stopping = true;
            self.application
                .begin_shutdown(now, &mut self.machine, deadline);
        }
        self.run_timers(now);
        let received = self.clock.now();
        self.drain();
        let ledger = self.inbox.ledger();
        ledger.record_turn(began, received, self.clock.now());
        match stop_at {
            Some(_) if self.application.is_drained(&self.machine) && self.is_sent() => {
                ControlFlow::Break(End::Drained)
            }
            Some(deadline) if deadline <= self.clock.now() => {
                ControlFlow::Break(End::DeadlinePassed)
            }
            Some(_) | None => ControlFlow::Continue(()),
        }
    }

    /// Waits for a socket event, a request or a deadline.
    ///
    /// # Errors
    ///
    /// The system's error. None is known to occur while the driver's descriptors are open.
    pub fn wait(&mut self) -> io::Result<()> {
        let deadline = match self.pending {
            Pending::Work => return Ok(()),
            Pending::StuckTimer => Some(self.clock.now() + STUCK_TIMER_PAUSE),
            Pending::Nothing => earliest([
                self.machine.poll_timeout(),
                self.application.poll_timeout(),
                self.transmitter.conditioners.poll_timeout(),
                self.inbox.stop_at(),
            ]),
        };
        self.waiter.wait(self.clock, deadline)?;
        self.transmitter.sockets.mark_ready(&self.waiter);
        Ok(())
    }

    /// Lets the program use machine and application between two turns.
    ///
    /// What the machine queues for sending is sent in the next turn.
    pub fn act<R>(&mut self, action: impl FnOnce(Instant, &mut M, &mut A) -> R) -> R {
        action(self.clock.now(), &mut self.machine, &mut self.application)
    }

    /// Returns the machine, for example to read its statistics.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the application.
    pub const fn application(&self) -> &A {
        &self.application
    }

    /// Gives the machine the wall-clock time in the first turn, then at most once a second.
    fn update_wall_clock(&mut self) {
        let now = self.clock.now();
        if self
            .wall_clock_at
            .is_none_or(|last| now.saturating_since(last) >= WALL_CLOCK_INTERVAL)
        {
            self.wall_clock_at = Some(now);
            self.machine.set_unix_time(now, self.clock.unix_time());
        }
    }

    fn apply_requests(&mut self, now: Instant) -> ControlFlow<()> {
        for request in self.inbox.drain() {
            self.inbox.ledger().requests.add(1);
            self.application
                .apply_request(now, &mut self.machine, request)?;
        }
        ControlFlow::Continue(())
    }

    fn run_timers(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if is_due(self.machine.poll_timeout()) {
            self.inbox.ledger().timeouts.add(1);
            self.machine.handle_timeout(now);
        }
        if is_due(self.application.poll_timeout()) {
            self.application.handle_timeout(now, &mut self.machine);
        }
        if is_due(self.machine.poll_timeout()) || is_due(self.application.poll_timeout()) {
            self.inbox.ledger().stuck_timers.add(1);
            if self.pending == Pending::Nothing {
                self.pending = Pending::StuckTimer;
            }
        }
    }

    /// Drains datagrams, commands and events of the machine, up to a bound for each.
    fn drain(&mut self) {
        let mut left = TurnBudget::default();
        loop {
            let now = self.clock.now();
            self.send(now, &mut left.transmits);
            if !self.dispatch(now, &mut left) {
                break;
            }
        }
        if left.transmits == 0 || left.commands == 0 || left.events == 0 {
            self.pending = Pending::Work;
        }
        self.transmitter
            .release(self.clock.now(), self.inbox.ledger());
    }

    fn send(&mut self, now: Instant, left: &mut usize) {
        let transmitter = &mut self.transmitter;
        while *left > 0 {
            let start = transmitter.batch.len();
            let transmit = self.machine.poll_transmit(now, transmitter.batch.buffer());
            let Some(transmit) = transmit else {
                transmitter.batch.truncate(start);
                break;
            };
            *left = left.saturating_sub(1);
            self.dispatcher.on_sent(now, &transmit.destination);
            transmitter.take(now, (&transmit, start), self.inbox.ledger());
        }
        transmitter.flush(now, self.inbox.ledger());
    }

    /// Gives commands and events to the application. Returns whether there were any.
    fn dispatch(&mut self, now: Instant, left: &mut TurnBudget) -> bool {
        let mut has_output = false;
        while left.commands > 0
            && let Some((id, command)) = self.machine.poll_command()
        {
            left.commands = left.commands.saturating_sub(1);
            has_output = true;
            self.inbox.ledger().commands.add(1);
            match self.application.socket_order(&command) {
                Some(order) => self.execute(now, id, &order),
                None => self
                    .application
                    .on_command(now, &mut self.machine, id, command),
            }
        }
        while left.events > 0
            && let Some(event) = self.machine.poll_event()
        {
            left.events = left.events.saturating_sub(1);
            has_output = true;
            self.inbox.ledger().events.add(1);
            self.application.on_event(now, &mut self.machine, event);
        }
        has_output
    }

    fn execute(&mut self, now: Instant, id: CommandId, order: &SocketOrder) {
        let outcome = self.transmitter.sockets.execute(order, &self.waiter);
        let ledger = self.inbox.ledger();
        match outcome {
            SocketOutcome::Opened { .. } => ledger.sockets_opened.add(1),
            SocketOutcome::Closed => ledger.sockets_closed.add(1),
            SocketOutcome::Failed(_) => ledger.socket_orders_failed.add(1),
        }
        self.application
            .on_socket(now, &mut self.machine, id, outcome);
    }

    fn is_sent(&self) -> bool {
        self.pending != Pending::Work && self.transmitter.conditioners.is_sent()
    }
}

/// Limits of a driver's turn and of its queues.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Datagrams taken from all sockets before timers run. Default 1,024, about 1 ms of work. The
    /// result of one system call is taken completely, so up to 2,047 more may be taken. After a gap
    /// of 250 ms between turns the bound is 16 times as high, so that all datagrams queued during a
    /// pause are handled before timers run.
    pub datagrams_per_turn: NonZeroUsize,
    /// Maximum queued requests. Default 4,096. The queue is allocated at the start.
    pub requests_max: NonZeroUsize,
    /// Maximum sockets opened at run time, in addition to those given at the start. Default 1,024,
    /// which is also the default limit of open files on many systems.
    pub opened_max: usize,
    /// Maximum flows per trusted exit. Default 65,536, one per port of the exit to one socket,
    /// about 80 bytes each. If all of them have a session or a header from the last 5 s, datagrams
    /// of new flows are dropped.
    pub exit_flows_max: usize,
    /// Maximum datagrams per system call; by default as many as the system allows. For
    /// measurements, and for systems on which a mode is faulty.
    pub batching: Batching,
}

impl Default for Config {
    fn default() -> Self {
        const DATAGRAMS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
        const REQUESTS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
        Self {
            datagrams_per_turn: DATAGRAMS,
            requests_max: REQUESTS,
            opened_max: 1_024,
            exit_flows_max: 65_536,
            batching: Batching::default(),
        }
    }
}

/// What one turn may still take of each kind. A machine with constant output thus cannot starve
/// sockets, requests or another kind of output.
#[derive(Debug)]
struct TurnBudget {
    transmits: usize,
    commands: usize,
    events: usize,
}

impl Default for TurnBudget {
    fn default() -> Self {
        Self {
            transmits: DRAIN_MAX,
            commands: DRAIN_MAX,
            events: DRAIN_MAX,
        }
    }
}

/// Maximum transmits, commands and events per turn, each: one answer for each datagram of a turn
/// after a pause.
const DRAIN_MAX: usize = 16_384;

fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    deadlines.into_iter().flatten().min()
}

/// Maximum events per poll. The next poll returns the rest.
const EVENTS_MAX: usize = 64;

/// Token of all the sockets given at the start, which are read in every turn.
const SOCKET: Token = Token(0);
