//! The loop that joins a datagram machine, its application and sockets.
//!
//! One turn receives a bounded batch, applies requests, runs due timers, drains what the machine
//! wants sent or told, and waits. Timers run as of a moment before the sockets were last found
//! empty: a process that was paused therefore times nobody out whose datagrams were waiting.

mod application;
mod counters;
mod intake;
mod outlet;
mod request;
mod waiter;

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Duration;

use wire::{Arrival, Instant, Machine};

pub use application::{Application, PeerAddress, SocketIndex};
pub use counters::Counters;
#[cfg(feature = "conditioner")]
pub(crate) use counters::Ledger;
pub(crate) use intake::Envelope;
pub use request::{RequestError, Requests};

use intake::Intake;
use outlet::Outlet;
use request::Inbox;
use waiter::Waiter;

use crate::Clock;
#[cfg(feature = "conditioner")]
use crate::conditioner::{Conditioner, Direction};
use crate::udp::UdpSocket;

/// How much a driver does between two waits, and may be asked at once.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Datagrams taken from all sockets before timers run; 1,024, about 1 ms of work. What one
    /// system call yields is taken whole, so that up to 2,047 more may come. After a gap of
    /// 250 ms between turns the bound is 16 times as high, so that what waited through a pause
    /// is heard before timers judge the silence.
    pub datagrams_per_turn: NonZeroUsize,
    /// Requests that may wait; 4,096. More costs the memory of the requests.
    pub requests_max: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        const DATAGRAMS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
        const REQUESTS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
        Self {
            datagrams_per_turn: DATAGRAMS,
            requests_max: REQUESTS,
        }
    }
}

/// Drives one machine on its sockets, on the thread that calls [`run`](Self::run).
///
/// [`UdpServicer`](crate::UdpServicer) gives it a thread of its own.
#[derive(Debug)]
pub struct Driver<M: Machine, A: Application<M>> {
    machine: M,
    application: A,
    sockets: Vec<UdpSocket>,
    intake: Intake,
    outlet: Outlet,
    inbox: Inbox<A::Request>,
    waiter: Waiter,
    clock: Clock,
    config: Config,
    /// What `poll_transmit` writes to; empty between transmits.
    outbound: Vec<u8>,
    /// Delays what arrives, from peers that a rule names.
    #[cfg(feature = "conditioner")]
    inbound_conditioner: Option<Conditioner>,
    /// When the last turn began; `None` before the first.
    turned_at: Option<Instant>,
    /// When the machine was last told the wall clock.
    wall_clock_at: Option<Instant>,
    /// Whether the shutdown was announced to the application.
    is_stopping: bool,
    /// What was left when the turn ended.
    rest: Rest,
}

impl<M, A> Driver<M, A>
where
    M: Machine<Peer: PeerAddress>,
    A: Application<M>,
{
    /// Makes a driver, and the queue to its application.
    ///
    /// # Errors
    ///
    /// The system's, where it has no descriptor left to wait with.
    pub fn new(
        mut sockets: Vec<UdpSocket>,
        machine: M,
        application: A,
        config: Config,
    ) -> io::Result<(Self, Requests<A::Request>)> {
        let (waiter, waker) = Waiter::new(&mut sockets)?;
        let (requests, inbox) = Inbox::new(config.requests_max.get(), waker);
        let driver = Self {
            machine,
            application,
            sockets,
            intake: Intake::new(),
            outlet: Outlet::default(),
            inbox,
            waiter,
            clock: Clock::new(),
            config,
            outbound: Vec::new(),
            #[cfg(feature = "conditioner")]
            inbound_conditioner: None,
            turned_at: None,
            wall_clock_at: None,
            is_stopping: false,
            rest: Rest::Nothing,
        };
        Ok((driver, requests))
    }

    /// Delays, loses and copies what `conditioner`'s rules name, in one direction.
    #[cfg(feature = "conditioner")]
    pub fn set_conditioner(&mut self, direction: Direction, conditioner: Conditioner) {
        match direction {
            Direction::Inbound => self.inbound_conditioner = Some(conditioner),
            Direction::Outbound => self.outlet.conditioner = Some(conditioner),
        }
    }

    /// Turns and waits until the application breaks off or a shutdown is complete.
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

    /// Does all there is to do now, without waiting; for loops that have other work too.
    pub fn turn(&mut self) -> ControlFlow<End> {
        self.inbox.ledger().turns.add(1);
        self.rest = Rest::Nothing;
        self.tell_wall_clock();
        let now = self.receive();
        if self.apply_requests(now).is_break() {
            self.drain();
            return ControlFlow::Break(End::Stopped);
        }
        let stop_at = self.inbox.stop_at();
        if let Some(deadline) = stop_at
            && !self.is_stopping
        {
            self.is_stopping = true;
            self.application
                .begin_shutdown(now, &mut self.machine, deadline);
        }
        self.run_timers(now);
        self.drain();
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

    /// Waits until a socket, a request or a deadline calls for a turn.
    ///
    /// # Errors
    ///
    /// The system's; none is known to happen while the driver's descriptors are open.
    pub fn wait(&mut self) -> io::Result<()> {
        let deadline = match self.rest {
            Rest::Work => return Ok(()),
            Rest::StuckTimer => Some(self.clock.now() + STUCK_TIMER_PAUSE),
            Rest::Nothing => earliest([
                self.machine.poll_timeout(),
                self.application.poll_timeout(),
                self.conditioner_timeout(),
                self.inbox.stop_at(),
            ]),
        };
        self.waiter.wait(self.clock, deadline)
    }

    /// Returns the machine, such as to read its statistics.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the application.
    pub const fn application(&self) -> &A {
        &self.application
    }

    /// Tells the machine the wall clock, at the start and then before the first input of a second.
    ///
    /// Only input makes a machine look at it, so that no wake-up is spent on it.
    fn tell_wall_clock(&mut self) {
        let now = self.clock.now();
        if self
            .wall_clock_at
            .is_none_or(|told| now.saturating_since(told) >= WALL_CLOCK_INTERVAL)
        {
            self.wall_clock_at = Some(now);
            self.machine.set_unix_time(now, self.clock.unix_time());
        }
    }

    /// Takes what the sockets hold, up to a batch; returns the time as of which timers may run.
    ///
    /// That is a time before the last look at the sockets found them empty: whatever arrived
    /// earlier has been taken, even if the process was paused between two lines of this.
    fn receive(&mut self) -> Instant {
        let began = self.clock.now();
        let paused = self
            .turned_at
            .is_none_or(|last| began.saturating_since(last) > STALL);
        self.turned_at = Some(began);
        let batch = self.config.datagrams_per_turn.get();
        let bound = if paused {
            batch.saturating_mul(STALL_BATCHES)
        } else {
            batch
        };
        let mut received = 0_usize;
        loop {
            let as_of = self.clock.now();
            let Some(more) = self.receive_round() else {
                #[cfg(feature = "conditioner")]
                self.release_inbound(as_of);
                return as_of;
            };
            received = received.saturating_add(more);
            if received >= bound {
                self.rest = Rest::Work;
                return self.clock.now();
            }
        }
    }

    /// Makes one receive on each socket; `None` where all are empty.
    fn receive_round(&mut self) -> Option<usize> {
        let Self {
            machine,
            sockets,
            intake,
            inbox,
            clock,
            #[cfg(feature = "conditioner")]
            inbound_conditioner,
            ..
        } = self;
        let ledger = inbox.ledger();
        let mut round = None;
        for (index, socket) in (0_u16..).map(SocketIndex).zip(sockets.iter()) {
            let mut stamp = None;
            let mut bytes = 0_usize;
            let received = intake.receive((index, socket), ledger, |envelope, datagram| {
                let now = *stamp.get_or_insert_with(|| clock.now());
                bytes = bytes.saturating_add(datagram.len());
                #[cfg(feature = "conditioner")]
                if let Some(conditioner) = inbound_conditioner
                    && conditioner.has_rule(&envelope)
                {
                    conditioner.take(now, envelope, datagram, ledger);
                    return;
                }
                ledger.datagrams_in.add(1);
                machine.handle_datagram(now, arrival(&envelope), datagram);
            });
            ledger
                .bytes_in
                .add(u64::try_from(bytes).unwrap_or(u64::MAX));
            if let Some(received) = received {
                // An error was taken instead of a datagram: counted, lest errors without end keep
                // the loop here.
                round = Some(round.unwrap_or(0_usize).saturating_add(received.max(1)));
            }
        }
        round
    }

    /// Gives the machine what the conditioner has delayed until `now`.
    #[cfg(feature = "conditioner")]
    fn release_inbound(&mut self, now: Instant) {
        while let Some((envelope, mut datagram)) = self
            .inbound_conditioner
            .as_mut()
            .and_then(|conditioner| conditioner.pop_due(now))
        {
            self.inbox.ledger().datagrams_in.add(1);
            self.machine
                .handle_datagram(now, arrival(&envelope), &mut datagram);
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
            if self.rest == Rest::Nothing {
                self.rest = Rest::StuckTimer;
            }
        }
    }

    /// Takes what the machine has to send, to ask and to tell, up to a bound.
    fn drain(&mut self) {
        let mut left = DRAIN_MAX;
        loop {
            let now = self.clock.now();
            while left > 0
                && let Some(transmit) = self.machine.poll_transmit(now, &mut self.outbound)
            {
                left -= 1;
                self.outlet.send(
                    now,
                    &mut self.sockets,
                    (&transmit, &self.outbound),
                    self.inbox.ledger(),
                );
                self.outbound.clear();
            }
            let told = self.tell(now, left);
            left -= told;
            if told == 0 {
                break;
            }
        }
        if left == 0 {
            self.rest = Rest::Work;
        }
        #[cfg(feature = "conditioner")]
        self.outlet
            .release(self.clock.now(), &mut self.sockets, self.inbox.ledger());
    }

    /// Gives up to `max` commands and events to the application; returns how many.
    fn tell(&mut self, now: Instant, max: usize) -> usize {
        let mut commands = 0;
        while commands < max
            && let Some((id, command)) = self.machine.poll_command()
        {
            commands += 1;
            self.application
                .on_command(now, &mut self.machine, id, command);
        }
        let mut events = 0;
        while commands + events < max
            && let Some(event) = self.machine.poll_event()
        {
            events += 1;
            self.application.on_event(now, &mut self.machine, event);
        }
        let ledger = self.inbox.ledger();
        ledger.commands.add(u64::try_from(commands).unwrap_or(0));
        ledger.events.add(u64::try_from(events).unwrap_or(0));
        commands + events
    }

    /// Returns when the conditioners next have something to deliver.
    #[cfg_attr(
        not(feature = "conditioner"),
        expect(
            clippy::unused_self,
            clippy::missing_const_for_fn,
            reason = "without conditioners there is nothing to ask"
        )
    )]
    fn conditioner_timeout(&self) -> Option<Instant> {
        #[cfg(feature = "conditioner")]
        return earliest([
            self.inbound_conditioner
                .as_ref()
                .and_then(Conditioner::poll_timeout),
            self.outlet
                .conditioner
                .as_ref()
                .and_then(Conditioner::poll_timeout),
        ]);
        #[cfg(not(feature = "conditioner"))]
        None
    }

    /// Returns whether nothing waits to be sent.
    fn is_sent(&self) -> bool {
        #[cfg(feature = "conditioner")]
        if let Some(conditioner) = &self.outlet.conditioner {
            return self.rest != Rest::Work && conditioner.poll_timeout().is_none();
        }
        self.rest != Rest::Work
    }
}

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The application broke off.
    Stopped,
    /// A shutdown was asked for, and the application had nothing left to do.
    Drained,
    /// A shutdown was asked for, and its deadline came first.
    DeadlinePassed,
    /// The system refused to wait.
    Failed(io::ErrorKind),
    /// The machine or the application panicked, with this message.
    Panicked(String),
    /// The thread did not end in time and was left behind; something in it blocks.
    Stuck,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped by the application"),
            Self::Drained => f.write_str("shut down in order"),
            Self::DeadlinePassed => f.write_str("shut down at the deadline"),
            Self::Failed(kind) => write!(f, "failed to wait: {kind}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Stuck => f.write_str("still running after the deadline"),
        }
    }
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

fn arrival<P: PeerAddress>(envelope: &Envelope) -> Arrival<P> {
    Arrival {
        peer: P::from_wire(envelope.socket, envelope.remote),
        real_source: None,
        local: envelope.local,
        ecn: envelope.ecn,
    }
}

fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    deadlines.into_iter().flatten().min()
}

/// Transmits, commands and events taken in one turn, so that a machine that always has more keeps
/// the driver from neither its sockets nor its queue.
const DRAIN_MAX: usize = 16_384;

/// A gap between turns after which the sockets may hold much: udp_proto's stall guard begins at
/// the same.
const STALL: Duration = Duration::from_millis(250);

/// Batches taken after such a gap. With the default batch, 16,384 datagrams: 4 MiB of receive
/// buffer hold fewer, since the kernel charges 512 bytes or more for the smallest.
const STALL_BATCHES: usize = 16;

/// How often the machine is told the wall clock.
const WALL_CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a timer that is due although it has run.
const STUCK_TIMER_PAUSE: Duration = Duration::from_millis(1);
