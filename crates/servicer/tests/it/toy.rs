//! A machine that echoes, and an application that reports to a channel.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, UdpSocket as PlainSocket};
use std::num::NonZeroU16;
use std::ops::ControlFlow;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use servicer::{Application, Handle, SocketConfig, SocketIndex, UdpServicer, UdpSocket};
use wire::{Arrival, CommandId, Ecn, Instant, Machine, Transmit, UnixTime};

/// Sends back what it gets, and fires timers that it is told of.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// What waits to be sent.
    outbox: VecDeque<(Transmit<SocketAddr>, Vec<u8>)>,
    /// What waits to be told.
    news: VecDeque<News>,
    /// When the timer runs.
    deadline: Option<Instant>,
    /// Whether the timer stays due, against the contract.
    is_stuck: bool,
    /// Whether what comes is swallowed.
    is_mute: bool,
    /// Whom it never stops sending to.
    flooded: Option<SocketAddr>,
    received: u64,
    wall_clock: Option<UnixTime>,
}

/// What the echo machine tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Received {
        peer: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<Ecn>,
        bytes: Vec<u8>,
    },
    Fired {
        /// Time past the deadline.
        late: Duration,
        /// Datagrams that had been received by then.
        received: u64,
    },
    WallClock(UnixTime),
}

impl Echo {
    /// One that swallows what comes.
    pub(crate) fn mute() -> Self {
        Self {
            is_mute: true,
            ..Self::default()
        }
    }

    /// One that always has more to send to `peer`.
    pub(crate) fn flood(peer: SocketAddr) -> Self {
        Self {
            flooded: Some(peer),
            ..Self::default()
        }
    }

    /// One whose timer is due.
    pub(crate) fn overdue() -> Self {
        Self {
            deadline: Some(Instant::ZERO),
            ..Self::default()
        }
    }

    /// One whose timer stays due.
    pub(crate) fn stuck(mut self) -> Self {
        self.is_stuck = true;
        self
    }
}

impl Machine for Echo {
    type Peer = SocketAddr;
    type Event = News;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        self.received += 1;
        self.news.push_back(News::Received {
            peer: arrival.peer,
            local: arrival.local,
            ecn: arrival.ecn,
            bytes: datagram.to_vec(),
        });
        assert_ne!(datagram, b"panic", "the machine was told to");
        if !self.is_mute {
            let mut transmit = Transmit::to(arrival.peer);
            transmit.source = arrival.local;
            transmit.ecn = arrival.ecn;
            self.outbox.push_back((transmit, datagram.to_vec()));
        }
    }

    /// What says that it begins, and no bytes drawn at random.
    fn may_wait(&self, datagram: &[u8]) -> bool {
        datagram == b"Begin"
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(deadline) = self.deadline
            && deadline <= now
        {
            self.news.push_back(News::Fired {
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
        self.news.push_back(News::WallClock(unix));
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

    fn poll_event(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }
}

/// Passes the machine's news on, and does what it is asked.
#[derive(Debug)]
pub(crate) struct Reporter {
    news: Sender<News>,
    /// When its own step is due, and how far apart the steps are.
    pub(crate) step: Option<(Instant, Duration)>,
    /// Sent to for each step.
    pub(crate) steps: Option<Sender<Instant>>,
    /// Sent to for each report that the system dropped datagrams.
    pub(crate) drops: Option<Sender<(SocketIndex, u64)>>,
    /// Whether a shutdown finds nothing left to do.
    pub(crate) is_drained: bool,
    /// Sent to all of these when the shutdown begins.
    pub(crate) farewell: Vec<SocketAddr>,
}

/// What the tests ask.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Send these bytes.
    Send(Transmit<SocketAddr>, Vec<u8>),
    /// Fire after this span, which is answered by [`News::Fired`].
    Timer(Duration),
    /// Answer on this channel.
    Ping(Sender<()>),
    /// Wait for this channel to close, against the rules.
    Block(Receiver<()>),
    /// Panic.
    Panic,
    /// End.
    Stop,
}

impl Application<Echo> for Reporter {
    type Request = Ask;

    fn apply_request(&mut self, now: Instant, machine: &mut Echo, ask: Ask) -> ControlFlow<()> {
        match ask {
            Ask::Send(transmit, bytes) => machine.outbox.push_back((transmit, bytes)),
            Ask::Timer(span) => machine.deadline = Some(now + span),
            Ask::Ping(answer) => answer.send(()).unwrap(),
            Ask::Block(until) => drop(until.recv()),
            Ask::Panic => panic!("the application was told to"),
            Ask::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Echo, event: News) {
        // The test may have ended.
        drop(self.news.send(event));
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

/// An application, and the channel that it reports to.
pub(crate) fn reporter() -> (Reporter, Receiver<News>) {
    let (sender, news) = crossbeam_channel::unbounded();
    let reporter = Reporter {
        news: sender,
        step: None,
        steps: None,
        drops: None,
        is_drained: true,
        farewell: Vec::new(),
    };
    (reporter, news)
}

/// A servicer that echoes on a socket of its own at `ip`.
pub(crate) struct Service {
    pub(crate) handle: Handle<Ask>,
    pub(crate) address: SocketAddr,
    pub(crate) news: Receiver<News>,
}

impl Service {
    pub(crate) fn start(ip: &str) -> Self {
        Self::start_with(ip, Echo::default(), |_| {})
    }

    pub(crate) fn start_with(ip: &str, machine: Echo, set: impl FnOnce(&mut Reporter)) -> Self {
        let socket = bind(ip);
        let address = socket.local_address();
        let (mut application, news) = reporter();
        set(&mut application);
        let handle = UdpServicer::named("echo")
            .spawn(vec![socket], machine, application)
            .unwrap();
        Self {
            handle,
            address,
            news,
        }
    }

    /// Waits for the next news other than the wall clock's.
    pub(crate) fn next(&self) -> News {
        next(&self.news)
    }

    /// Waits until the servicer has applied all that was asked before.
    pub(crate) fn ping(&self) {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.handle.request(Ask::Ping(answer)).unwrap();
        answered.recv_timeout(PATIENCE).unwrap();
    }
}

/// Waits for the next news other than the wall clock's.
pub(crate) fn next(news: &Receiver<News>) -> News {
    loop {
        match news.recv_timeout(PATIENCE).unwrap() {
            News::WallClock(_) => {}
            other @ (News::Received { .. } | News::Fired { .. }) => return other,
        }
    }
}

/// Binds a socket at `ip`, with a port chosen by the system.
pub(crate) fn bind(ip: &str) -> UdpSocket {
    let address = SocketAddr::new(ip.parse().unwrap(), 0);
    UdpSocket::bind(address, &SocketConfig::default()).unwrap()
}

/// A plain socket at `ip` that waits for what comes.
pub(crate) fn plain(ip: &str) -> PlainSocket {
    let socket = PlainSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Receives one datagram.
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

/// After this a wait is given up, so that a fault ends the test; no test passes by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
