//! A machine controlled by the tests, and an application that reports to a channel.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use crypto::{Identity, Ring};
use servicer::{
    Admission, Dial, DialError, HostCertificate, StreamApplication, StreamConfig, StreamCounters,
    StreamHandle, StreamListener, StreamServicer, TlsIdentity,
};
use wire::{
    CloseCause, CommandId, ConnectionId, Effect, Instant, NodeId, Outbound, PeerIdentity,
    StreamMachine,
};

/// Sends what it is asked to, within its credit, and reports what it receives.
#[derive(Debug, Default)]
pub(crate) struct Talker {
    /// Bytes that may still be written to each connection.
    credit: BTreeMap<ConnectionId, usize>,
    /// Queued jobs of each, in order.
    jobs: BTreeMap<ConnectionId, VecDeque<Job>>,
    /// The connection served last.
    turn: Option<ConnectionId>,
    commands: VecDeque<(CommandId, Call)>,
    events: VecDeque<TalkerEvent>,
    behaviour: Behaviour,
    deadline: Option<Instant>,
    /// The latest time that it was given.
    latest: Instant,
}

/// How a talker behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Reports received records.
    #[default]
    Plain,
    /// Echoes received records.
    Echo,
    /// Drops received records.
    Discard,
    /// Panics at the first record.
    PanicOnRecord,
    /// Writes without regard to its credit.
    IgnoreCredit,
}

#[derive(Debug)]
enum Job {
    Send(Vec<u8>),
    /// First number, count and length of records, each filled with its number.
    Flood(u32, u32, usize),
    Close(Vec<u8>),
}

/// The talker's only command.
#[derive(Debug)]
pub(crate) struct Call(Dial);

impl Effect for Call {
    type Outcome = Result<ConnectionId, DialError>;
}

/// Events of the talker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TalkerEvent {
    /// A node that the listener rejected.
    RawClient(NodeId),
    Opened(ConnectionId, PeerIdentity),
    Frame(ConnectionId, Vec<u8>),
    Closed(ConnectionId, CloseCause),
    Dialled(CommandId, Result<ConnectionId, DialError>),
    Fired,
}

impl Talker {
    pub(crate) fn of(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            ..Self::default()
        }
    }

    fn advance(&mut self, now: Instant) {
        assert!(self.latest <= now, "time goes back");
        self.latest = now;
    }

    fn push(&mut self, id: ConnectionId, job: Job) {
        self.jobs.entry(id).or_default().push_back(job);
    }

    /// Executes the first job of a connection, if its credit suffices.
    fn write(&mut self, id: ConnectionId, buf: &mut Vec<u8>) -> Option<Outbound> {
        let (record, close) = match self.jobs.get(&id)?.front()? {
            Job::Send(record) => (record.clone(), false),
            Job::Close(record) => (record.clone(), true),
            Job::Flood(number, _, len) => (numbered(*number, *len), false),
        };
        if !self.spend(id, record.len()) {
            return None;
        }
        let jobs = self.jobs.get_mut(&id)?;
        if let Some(Job::Flood(number, count, _)) = jobs.front_mut()
            && *count > 1
        {
            *number += 1;
            *count -= 1;
        } else {
            jobs.pop_front();
        }
        buf.extend_from_slice(&record);
        Some(Outbound {
            connection: id,
            close,
        })
    }

    fn spend(&mut self, id: ConnectionId, len: usize) -> bool {
        if self.behaviour == Behaviour::IgnoreCredit {
            return true;
        }
        let Some(credit) = self.credit.get_mut(&id) else {
            return false;
        };
        let left = credit.checked_sub(len);
        *credit = left.unwrap_or(*credit);
        left.is_some()
    }
}

impl StreamMachine for Talker {
    type Event = TalkerEvent;
    type Command = Call;

    fn handle_opened(&mut self, now: Instant, id: ConnectionId, peer: &PeerIdentity) {
        self.advance(now);
        assert!(self.credit.insert(id, 0).is_none(), "{id:?} opened twice");
        self.events.push_back(TalkerEvent::Opened(id, *peer));
    }

    fn handle_frame(&mut self, now: Instant, id: ConnectionId, record: &[u8]) {
        self.advance(now);
        assert!(self.credit.contains_key(&id), "{id:?} is not open");
        match self.behaviour {
            Behaviour::Plain | Behaviour::IgnoreCredit => {
                self.events
                    .push_back(TalkerEvent::Frame(id, record.to_vec()));
            }
            Behaviour::Echo => self.push(id, Job::Send(record.to_vec())),
            Behaviour::Discard => {}
            Behaviour::PanicOnRecord => panic!("the machine was told to"),
        }
    }

    fn handle_credit(&mut self, now: Instant, id: ConnectionId, bytes: usize) {
        self.advance(now);
        assert!(bytes > 0);
        *self.credit.get_mut(&id).expect("credit for what is open") += bytes;
    }

    fn handle_closed(&mut self, now: Instant, id: ConnectionId, cause: CloseCause) {
        self.advance(now);
        assert!(self.credit.remove(&id).is_some(), "{id:?} closed twice");
        self.jobs.remove(&id);
        self.events.push_back(TalkerEvent::Closed(id, cause));
    }

    fn poll_outbound(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        self.advance(now);
        let last = self.turn.unwrap_or(ConnectionId(0));
        let after = self.jobs.keys().copied().filter(|id| *id > last);
        let before = self.jobs.keys().copied().filter(|id| *id <= last);
        let order: Vec<_> = after.chain(before).collect();
        let outbound = order.into_iter().find_map(|id| self.write(id, buf))?;
        self.turn = Some(outbound.connection);
        Some(outbound)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.events.push_back(TalkerEvent::Fired);
        }
    }

    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: Result<ConnectionId, DialError>,
    ) {
        self.advance(now);
        if let Ok(connection) = outcome {
            assert!(self.credit.contains_key(&connection), "opened comes first");
        }
        self.events.push_back(TalkerEvent::Dialled(id, outcome));
    }

    fn poll_command(&mut self) -> Option<(CommandId, Call)> {
        self.commands.pop_front()
    }

    fn poll_event(&mut self) -> Option<TalkerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }
}

/// A record of a flood.
pub(crate) fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut record = number.to_be_bytes().repeat(len.div_ceil(4));
    record.truncate(len);
    record
}

/// Requests of the tests.
#[derive(Debug)]
pub(crate) enum HarnessRequest {
    Dial(u64, Dial),
    Send(ConnectionId, Vec<u8>),
    Flood(ConnectionId, u32, usize),
    Close(ConnectionId, Vec<u8>),
    Timer(Duration),
    Ping(Sender<()>),
    Block(Receiver<()>),
    Panic,
    Stop,
}

/// Forwards the machine's events and executes requests.
#[derive(Debug)]
pub(crate) struct Reporter {
    events: Sender<TalkerEvent>,
    is_paused: Arc<AtomicBool>,
    pub(crate) is_drained: bool,
    pub(crate) farewell: Option<(ConnectionId, Vec<u8>)>,
}

impl Reporter {
    /// A reporter without a receiver.
    pub(crate) fn without_receiver() -> Self {
        Self {
            events: crossbeam_channel::bounded(0).0,
            is_paused: Arc::default(),
            is_drained: true,
            farewell: None,
        }
    }
}

impl StreamApplication<Talker> for Reporter {
    type Request = HarnessRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        machine: &mut Talker,
        ask: HarnessRequest,
    ) -> ControlFlow<()> {
        match ask {
            HarnessRequest::Dial(id, dial) => {
                machine.commands.push_back((CommandId(id), Call(dial)));
            }
            HarnessRequest::Send(id, record) => machine.push(id, Job::Send(record)),
            HarnessRequest::Flood(id, count, len) => machine.push(id, Job::Flood(0, count, len)),
            HarnessRequest::Close(id, record) => machine.push(id, Job::Close(record)),
            HarnessRequest::Timer(span) => machine.deadline = Some(now + span),
            HarnessRequest::Ping(answer) => answer.send(()).unwrap(),
            HarnessRequest::Block(until) => drop(until.recv()),
            HarnessRequest::Panic => panic!("the application was told to"),
            HarnessRequest::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Talker, event: TalkerEvent) {
        // The test may have ended.
        drop(self.events.send(event));
    }

    fn on_command(&mut self, _: Instant, _: &mut Talker, _: CommandId, call: Call) -> Option<Dial> {
        Some(call.0)
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        machine: &mut Talker,
        id: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        machine.handle_completed(now, id, result);
    }

    fn on_unknown_node(&mut self, _: Instant, _: &mut Talker, claimed: NodeId) {
        drop(self.events.send(TalkerEvent::RawClient(claimed)));
    }

    fn may_receive(&self, _: &Talker, _: ConnectionId) -> bool {
        !self.is_paused.load(Ordering::SeqCst)
    }

    fn begin_shutdown(&mut self, _: Instant, machine: &mut Talker, _: Instant) {
        if let Some((id, record)) = self.farewell.take() {
            machine.push(id, Job::Send(record));
        }
    }

    fn is_drained(&self, _: &Talker) -> bool {
        self.is_drained
    }
}

/// A servicer with a talker.
pub(crate) struct Node {
    pub(crate) handle: StreamHandle<HarnessRequest>,
    pub(crate) events: Receiver<TalkerEvent>,
    pub(crate) id: NodeId,
    /// Its listening address.
    pub(crate) address: SocketAddr,
    is_paused: Arc<AtomicBool>,
}

/// Options of a node.
pub(crate) struct Setup {
    pub(crate) identity: TlsIdentity,
    pub(crate) admission: Admission,
    /// Set if it is a host that is dialled by name.
    pub(crate) certificate: Option<HostCertificate>,
    pub(crate) config: StreamConfig,
    pub(crate) machine: Talker,
    pub(crate) is_anonymous: bool,
    pub(crate) is_drained: bool,
    pub(crate) farewell: Option<(ConnectionId, Vec<u8>)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            identity: identity(),
            admission: Admission::AnyNode,
            certificate: None,
            config: StreamConfig::default(),
            machine: Talker::default(),
            is_anonymous: false,
            is_drained: true,
            farewell: None,
        }
    }
}

impl Setup {
    pub(crate) fn start(self) -> Node {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = match &self.certificate {
            Some(certificate) => StreamListener::bind_host(any, certificate),
            None => StreamListener::bind(any, &self.identity, self.admission),
        }
        .unwrap();
        let address = listener.local_address();
        let (sender, events) = crossbeam_channel::unbounded();
        let is_paused = Arc::new(AtomicBool::new(false));
        let application = Reporter {
            events: sender,
            is_paused: Arc::clone(&is_paused),
            is_drained: self.is_drained,
            farewell: self.farewell,
        };
        let mut servicer = StreamServicer::named("talker").with_config(self.config);
        if !self.is_anonymous {
            servicer = servicer.with_identity(&self.identity);
        }
        let handle = servicer
            .spawn(vec![listener], self.machine, application)
            .unwrap();
        Node {
            handle,
            events,
            id: self.identity.node_id(),
            address,
            is_paused,
        }
    }
}

impl Node {
    pub(crate) fn start() -> Self {
        Setup::default().start()
    }

    pub(crate) fn ask(&self, ask: HarnessRequest) {
        self.handle.request(ask).unwrap();
    }

    /// Waits for the next event.
    pub(crate) fn next(&self) -> TalkerEvent {
        self.events.recv_timeout(TIMEOUT).unwrap()
    }

    /// Dials; returns the outcome and the connection opened meanwhile.
    pub(crate) fn dial(
        &self,
        address: SocketAddr,
        node: NodeId,
    ) -> Result<ConnectionId, DialError> {
        let peer = node.into();
        self.ask(HarnessRequest::Dial(7, Dial { address, peer }));
        let mut event = self.next();
        if let TalkerEvent::Opened(_, peer) = event {
            assert_eq!(peer, PeerIdentity::Node(node));
            event = self.next();
        }
        let TalkerEvent::Dialled(CommandId(7), result) = event else {
            panic!("{event:?}")
        };
        result
    }

    /// Dials `other`; returns the connection's ids here and there.
    pub(crate) fn join(&self, other: &Self) -> (ConnectionId, ConnectionId) {
        let here = self.dial(other.address, other.id).unwrap();
        let TalkerEvent::Opened(there, peer) = other.next() else {
            panic!("nothing opened")
        };
        assert_eq!(peer, PeerIdentity::Node(self.id));
        (here, there)
    }

    /// Waits until all earlier requests are executed.
    pub(crate) fn ping(&self) {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.ask(HarnessRequest::Ping(answer));
        answered.recv_timeout(TIMEOUT).unwrap();
    }

    /// Waits until the counters match.
    pub(crate) fn wait_for(&self, what: impl Fn(&StreamCounters) -> bool) -> StreamCounters {
        let began = servicer::Clock::new().now();
        loop {
            let counters = self.handle.counters();
            if what(&counters) {
                return counters;
            }
            let waited = servicer::Clock::new().now().saturating_since(began);
            assert!(waited < TIMEOUT, "{counters:?}");
            std::thread::yield_now();
        }
    }

    /// Stops reading from all connections.
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
    }

    /// Resumes reading.
    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Ordering::SeqCst);
        self.handle.requests().wake();
    }
}

pub(crate) fn identity() -> TlsIdentity {
    TlsIdentity::new(&Identity::generate(&mut Ring::new()).unwrap()).unwrap()
}

/// Wait timeout, so that a fault ends the test; no test passes because of it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
