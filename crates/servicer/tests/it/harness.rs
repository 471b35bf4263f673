//! An echo machine, and an application that reports to a channel.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, UdpSocket as PlainSocket};
use std::num::NonZeroU16;
use std::ops::ControlFlow;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use servicer::{Application, Handle, SocketConfig, SocketIndex, UdpServicer, UdpSocket};
use wire::{Arrival, CommandId, Ecn, Instant, Machine, Transmit, UnixTime};

/// Echoes datagrams and fires timers.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Datagrams to send.
    outbox: VecDeque<(Transmit<SocketAddr>, Vec<u8>)>,
    /// Events to report.
    events: VecDeque<EchoEvent>,
    deadline: Option<Instant>,
    /// Whether the timer stays due, which violates the contract.
    is_stuck: bool,
    /// Whether received datagrams are dropped.
    drops_received: bool,
    /// A peer that it always has more to send to.
    flooded: Option<SocketAddr>,
    received: u64,
    wall_clock: Option<UnixTime>,
}

/// Events of the echo machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EchoEvent {
    Received {
        peer: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<Ecn>,
        bytes: Vec<u8>,
    },
    Fired {
        /// Time past the deadline.
        late: Duration,
        /// Datagrams received by then.
        received: u64,
    },
    WallClock(UnixTime),
}

impl Echo {
    /// A machine that drops received datagrams.
    pub(crate) fn silent() -> Self {
        Self {
            drops_received: true,
            ..Self::default()
        }
    }

    /// A machine that always has more to send to `peer`.
    pub(crate) fn flood(peer: SocketAddr) -> Self {
        Self {
            flooded: Some(peer),
            ..Self::default()
        }
    }

    /// A machine with a due timer.
    pub(crate) fn overdue() -> Self {
        Self {
            deadline: Some(Instant::ZERO),
            ..Self::default()
        }
    }

    /// A machine with a timer that stays due.
    pub(crate) fn stuck(mut self) -> Self {
        self.is_stuck = true;
        self
    }
}

impl Machine for Echo {
    type Peer = SocketAddr;
    type Event = EchoEvent;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        self.received += 1;
        self.events.push_back(EchoEvent::Received {
            peer: arrival.peer,
            local: arrival.local,
            ecn: arrival.ecn,
            bytes: datagram.to_vec(),
        });
        assert_ne!(datagram, b"panic", "the machine was told to");
        if !self.drops_received {
            let mut transmit = Transmit::to(arrival.peer);
            transmit.source = arrival.local;
            transmit.ecn = arrival.ecn;
            self.outbox.push_back((transmit, datagram.to_vec()));
        }
    }

    /// Only `Begin` may wait; random datagrams practically never equal it.
    fn may_wait(&self, datagram: &[u8]) -> bool {
        datagram == b"Begin"
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(deadline) = self.deadline
            && deadline <= now
        {
            self.events.push_back(EchoEvent::Fired {
                late: now.saturating_since(deadline),
                received: self.received,
            });
            if !self.is_stuck {
                self.deadline = None;
            }
        }
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn set_unix_time(&mut self, _: Instant, unix: UnixTime) {
        self.wall_clock = Some(unix);
        self.events.push_back(EchoEvent::WallClock(unix));
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        if let Some(peer) = self.flooded {
            buf.push(0);
            return Some(Transmit::to(peer));
        }
        let (transmit, bytes) = self.outbox.pop_front()?;
        buf.extend_from_slice(&bytes);
        Some(transmit)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<EchoEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }
}

/// Forwards the machine's events and executes requests.
#[derive(Debug)]
pub(crate) struct Reporter {
    events: Sender<EchoEvent>,
    /// Time of its next step, and the interval.
    pub(crate) step: Option<(Instant, Duration)>,
    /// Gets the time of each step.
    pub(crate) steps: Option<Sender<Instant>>,
    /// Gets each report of datagrams dropped by the system.
    pub(crate) drops: Option<Sender<(SocketIndex, u64)>>,
    /// Whether the machine is drained at shutdown.
    pub(crate) is_drained: bool,
    /// Each gets a datagram when the shutdown begins.
    pub(crate) farewell: Vec<SocketAddr>,
}

/// Requests of the tests.
#[derive(Debug)]
pub(crate) enum HarnessRequest {
    /// Send these bytes.
    Send(Transmit<SocketAddr>, Vec<u8>),
    /// Fire after this time, answered with [`EchoEvent::Fired`].
    Timer(Duration),
    /// Answer on this channel.
    Ping(Sender<()>),
    /// Block until this channel closes, which violates the rules.
    Block(Receiver<()>),
    Panic,
    Stop,
}

impl Application<Echo> for Reporter {
    type Request = HarnessRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        machine: &mut Echo,
        ask: HarnessRequest,
    ) -> ControlFlow<()> {
        match ask {
            HarnessRequest::Send(transmit, bytes) => machine.outbox.push_back((transmit, bytes)),
            HarnessRequest::Timer(span) => machine.deadline = Some(now + span),
            HarnessRequest::Ping(answer) => answer.send(()).unwrap(),
            HarnessRequest::Block(until) => drop(until.recv()),
            HarnessRequest::Panic => panic!("the application was told to"),
            HarnessRequest::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Echo, event: EchoEvent) {
        // The test may have ended.
        drop(self.events.send(event));
    }

    fn on_command(&mut self, _: Instant, _: &mut Echo, _: CommandId, command: Infallible) {
        match command {}
    }

    fn on_receive_drops(&mut self, _: Instant, _: &mut Echo, socket: SocketIndex, count: u64) {
        if let Some(drops) = &self.drops {
            drops.send((socket, count)).unwrap();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.step.map(|(at, _)| at)
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut Echo) {
        while let Some((at, interval)) = self.step
            && at <= now
        {
            self.steps.as_ref().unwrap().send(at).unwrap();
            self.step = Some((at + interval, interval));
        }
    }

    fn begin_shutdown(&mut self, _: Instant, machine: &mut Echo, _: Instant) {
        for peer in self.farewell.drain(..) {
            machine
                .outbox
                .push_back((Transmit::to(peer), b"farewell".to_vec()));
        }
    }

    fn is_drained(&self, _: &Echo) -> bool {
        self.is_drained
    }
}

/// An application and its event channel.
pub(crate) fn reporter() -> (Reporter, Receiver<EchoEvent>) {
    let (sender, events) = crossbeam_channel::unbounded();
    let reporter = Reporter {
        events: sender,
        step: None,
        steps: None,
        drops: None,
        is_drained: true,
        farewell: Vec::new(),
    };
    (reporter, events)
}

/// A servicer that echoes on a socket of its own at `ip`.
pub(crate) struct Service {
    pub(crate) handle: Handle<HarnessRequest>,
    pub(crate) address: SocketAddr,
    pub(crate) events: Receiver<EchoEvent>,
}

impl Service {
    pub(crate) fn start(ip: &str) -> Self {
        Self::start_with(ip, Echo::default(), |_| {})
    }

    pub(crate) fn start_with(ip: &str, machine: Echo, set: impl FnOnce(&mut Reporter)) -> Self {
        let socket = bind(ip);
        let address = socket.local_address();
        let (mut application, events) = reporter();
        set(&mut application);
        let handle = UdpServicer::named("echo")
            .spawn(vec![socket], machine, application)
            .unwrap();
        Self {
            handle,
            address,
            events,
        }
    }

    /// Waits for the next event other than the wall clock's.
    pub(crate) fn next(&self) -> EchoEvent {
        next(&self.events)
    }

    /// Waits until the servicer has executed all earlier requests.
    pub(crate) fn ping(&self) {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.handle.request(HarnessRequest::Ping(answer)).unwrap();
        answered.recv_timeout(TIMEOUT).unwrap();
    }
}

/// Waits for the next event other than the wall clock's.
pub(crate) fn next(events: &Receiver<EchoEvent>) -> EchoEvent {
    loop {
        match events.recv_timeout(TIMEOUT).unwrap() {
            EchoEvent::WallClock(_) => {}
            other @ (EchoEvent::Received { .. } | EchoEvent::Fired { .. }) => return other,
        }
    }
}

/// Binds a socket at `ip`, with a port chosen by the system.
pub(crate) fn bind(ip: &str) -> UdpSocket {
    let address = SocketAddr::new(ip.parse().unwrap(), 0);
    UdpSocket::bind(address, &SocketConfig::default()).unwrap()
}

/// A blocking plain socket at `ip`.
pub(crate) fn plain(ip: &str) -> PlainSocket {
    let socket = PlainSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

pub(crate) fn receive(socket: &PlainSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 1 << 16];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    bytes.truncate(len);
    (bytes, from)
}

/// A burst of datagrams of `len` bytes each, to one peer.
pub(crate) fn burst(peer: SocketAddr, len: u16) -> Transmit<SocketAddr> {
    let mut transmit = Transmit::to(peer);
    transmit.segment_len = NonZeroU16::new(len);
    transmit
}

/// Wait timeout, so that a fault ends the test; no test passes because of it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
