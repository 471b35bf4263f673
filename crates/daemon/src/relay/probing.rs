//! Measures game servers with real sockets, for [`Command::Measure`](relay_mesh::Command::Measure).
//!
//! One thread polls all probes, so the node's own load does not delay the measurement. Each probe
//! has its own socket.

use std::collections::BTreeMap;
use std::io;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crypto::{Provider, Ring};
use mio::event::Source;
use mio::net::{TcpStream, UdpSocket};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use relay_mesh::{Outcome, ServerProbe};
use servicer::{Clock, Requests};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wire::{CommandId, Instant};

use super::machine::NodeRequest;
use crate::control::spawn;

#[derive(Debug)]
struct ProbeRequest {
    id: CommandId,
    server: SocketAddr,
    probe: ServerProbe,
}

#[derive(Debug)]
pub(super) struct ProbeQueue {
    requests: SyncSender<ProbeRequest>,
    waker: Arc<Waker>,
}

#[derive(Debug)]
pub(super) struct PendingProber {
    poll: Poll,
    requests: Receiver<ProbeRequest>,
    waker: Arc<Waker>,
    upstream: Option<IpAddr>,
}

#[derive(Debug)]
pub(super) struct Prober {
    waker: Arc<Waker>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Creates both ends of the queue. Probes leave from `upstream` if it has the server's address
/// family.
pub(super) fn open(upstream: Option<IpAddr>) -> io::Result<(ProbeQueue, PendingProber)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    let (sender, requests) = mpsc::sync_channel(REQUESTS_MAX);
    let queue = ProbeQueue {
        requests: sender,
        waker: Arc::clone(&waker),
    };
    let waiting = PendingProber {
        poll,
        requests,
        waker,
        upstream,
    };
    Ok((queue, waiting))
}

impl ProbeQueue {
    /// Queues a measurement; false if the queue is full or closed.
    pub(super) fn enqueue(&self, id: CommandId, server: SocketAddr, probe: ServerProbe) -> bool {
        let is_taken = self
            .requests
            .try_send(ProbeRequest { id, server, probe })
            .is_ok();
        is_taken && self.waker.wake().is_ok()
    }
}

impl PendingProber {
    pub(super) fn start(self, node: Requests<NodeRequest>) -> io::Result<Prober> {
        let (waker, is_stopping) = (Arc::clone(&self.waker), Arc::<AtomicBool>::default());
        let probe_loop = ProbeLoop {
            is_stopping: Arc::clone(&is_stopping),
            poll: self.poll,
            requests: self.requests,
            upstream: self.upstream,
            clock: Clock::new(),
            probes: BTreeMap::new(),
            next: 0,
            node,
        };
        let thread = spawn("probes", move || probe_loop.run())?;
        Ok(Prober {
            waker,
            is_stopping,
            thread: Some(thread),
        })
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let is_woken = self.waker.wake().is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            thread.join().ok();
        }
    }
}

struct ProbeLoop {
    is_stopping: Arc<AtomicBool>,
    poll: Poll,
    requests: Receiver<ProbeRequest>,
    upstream: Option<IpAddr>,
    clock: Clock,
    /// Running probes by token; bounded by the node and the queue.
    probes: BTreeMap<usize, Probe>,
    /// Token of the next probe; never reused.
    next: usize,
    node: Requests<NodeRequest>,
}

impl ProbeLoop {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            if self.is_stopping.load(Ordering::SeqCst) || !self.take_requests() {
                return;
            }
            let now = self.clock.now();
            let due = self.probes.values().map(Probe::deadline).min();
            let wait = due.map(|due| due.saturating_since(now));
            match self.poll.poll(&mut events, wait) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "probes of game servers cannot be waited for");
                    return;
                }
            }
            let now = self.clock.now();
            for event in &events {
                self.poll_probe(now, event.token().0);
            }
            self.fail_overdue(now);
        }
    }

    /// Starts the queued measurements; false if the queue is closed.
    fn take_requests(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(request) => self.start(request),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn start(&mut self, request: ProbeRequest) {
        let ProbeRequest { id, server, probe } = request;
        let token = self.next;
        self.next = self.next.saturating_add(1);
        let started = Probe::start(&self.clock, (id, server), &probe, self.upstream);
        let started = started.and_then(|mut probe| {
            probe.register(self.poll.registry(), Token(token))?;
            Ok(probe)
        });
        match started {
            Ok(probe) => {
                self.probes.insert(token, probe);
            }
            Err(error) if probe == ServerProbe::Icmp && is_not_permitted(&error) => {
                self.complete(id, Outcome::NotPermitted);
            }
            Err(_) => self.complete(id, Outcome::Failed),
        }
    }

    fn poll_probe(&mut self, now: Instant, token: usize) {
        let Some(probe) = self.probes.get_mut(&token) else {
            return;
        };
        let outcome = match probe.poll(now) {
            Progress::Pending => return,
            Progress::Answered(span) => Outcome::Measured(span),
            Progress::Failed => Outcome::Failed,
        };
        self.finish(token, outcome);
    }

    fn fail_overdue(&mut self, now: Instant) {
        let overdue = self
            .probes
            .iter()
            .filter(|(_, probe)| probe.deadline() <= now);
        let overdue: Vec<usize> = overdue.map(|(token, _)| *token).collect();
        for token in overdue {
            self.finish(token, Outcome::Failed);
        }
    }

    fn finish(&mut self, token: usize, outcome: Outcome) {
        if let Some(mut probe) = self.probes.remove(&token) {
            probe.deregister(self.poll.registry());
            self.complete(probe.id(), outcome);
        }
    }

    fn complete(&self, id: CommandId, outcome: Outcome) {
        let request = NodeRequest::new(move |now, node| node.handle_completed(now, id, outcome));
        // The node may have stopped.
        self.node.send(request).ok();
    }
}

/// Whether the process may not open such a socket, or the system has none.
fn is_not_permitted(error: &io::Error) -> bool {
    // EPROTONOSUPPORT and EAFNOSUPPORT of errno(3), on Linux and elsewhere.
    let is_unknown = matches!(error.raw_os_error(), Some(93 | 97 | 43 | 47));
    is_unknown
        || matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::Unsupported
        )
}

/// Token of the waker; probes count from 0.
const WAKER: Token = Token(usize::MAX);
/// Queued requests: twice the node's limit of running probes.
const REQUESTS_MAX: usize = 64;
/// Events per poll; the next poll returns the rest.
const EVENTS_MAX: usize = 64;
/// Time for an answer; slightly less than the node waits.
const TIMEOUT: Duration = Duration::from_millis(1_900);

#[derive(Debug)]
struct Probe {
    id: CommandId,
    started_at: Instant,
    io: Io,
}

#[derive(Debug)]
enum Io {
    Connect(TcpStream),
    /// Any datagram is the answer: the socket is connected to the server.
    Query(UdpSocket),
    /// A ping socket, and the nonce of the request.
    Echo(UdpSocket, Family, Nonce),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Pending,
    Answered(Duration),
    Failed,
}

impl Probe {
    fn start(
        clock: &Clock,
        (id, server): (CommandId, SocketAddr),
        probe: &ServerProbe,
        upstream: Option<IpAddr>,
    ) -> io::Result<Self> {
        let any = if server.is_ipv4() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let upstream = upstream.filter(|ip| ip.is_ipv4() == server.is_ipv4());
        let from = SocketAddr::new(upstream.unwrap_or(any), 0);
        let (started_at, io) = match probe {
            ServerProbe::Connect { port } => {
                let socket = socket(from, Type::STREAM, Protocol::TCP)?;
                let started_at = clock.now();
                let server = SocketAddr::new(server.ip(), *port);
                if let Err(error) = socket.connect(&SockAddr::from(server))
                    && !crate::relay::tcp::is_in_progress(&error)
                {
                    return Err(error);
                }
                (started_at, Io::Connect(TcpStream::from_std(socket.into())))
            }
            ServerProbe::Icmp => {
                let family = Family::of(server.ip());
                let socket = socket(from, Type::DGRAM, family.protocol())?;
                // From here on an error comes from a firewall or a route and may be temporary.
                let to = SockAddr::from(SocketAddr::new(server.ip(), 0));
                socket.connect(&to).map_err(io::Error::other)?;
                let mut nonce = Nonce::default();
                Ring::new().random(&mut nonce).map_err(io::Error::other)?;
                let started_at = clock.now();
                let request = echo_request(family, &nonce);
                socket.send(&request).map_err(io::Error::other)?;
                let socket = UdpSocket::from_std(socket.into());
                (started_at, Io::Echo(socket, family, nonce))
            }
            ServerProbe::Query { request } => {
                let socket = socket(from, Type::DGRAM, Protocol::UDP)?;
                socket.connect(&SockAddr::from(server))?;
                let started_at = clock.now();
                socket.send(request)?;
                (started_at, Io::Query(UdpSocket::from_std(socket.into())))
            }
            ServerProbe::None | _ => return Err(ErrorKind::Unsupported.into()),
        };
        Ok(Self { id, started_at, io })
    }

    const fn id(&self) -> CommandId {
        self.id
    }

    fn deadline(&self) -> Instant {
        self.started_at + TIMEOUT
    }

    fn poll(&mut self, now: Instant) -> Progress {
        let is_answered = match &self.io {
            Io::Connect(stream) => match stream.take_error() {
                Ok(None) => match stream.peer_addr() {
                    Ok(_) => Ok(true),
                    Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
                    Err(error) => Err(error),
                },
                Ok(Some(error)) | Err(error) => Err(error),
            },
            Io::Query(socket) => received(socket, |_| true),
            Io::Echo(socket, family, nonce) => {
                received(socket, |answer| is_echo_reply(*family, nonce, answer))
            }
        };
        match is_answered {
            Ok(true) => Progress::Answered(now.saturating_since(self.started_at)),
            Ok(false) => Progress::Pending,
            Err(_) => Progress::Failed,
        }
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.io {
            Io::Connect(stream) => stream.register(registry, token, Interest::WRITABLE),
            Io::Query(socket) | Io::Echo(socket, ..) => {
                socket.register(registry, token, Interest::READABLE)
            }
        }
    }

    fn deregister(&mut self, registry: &Registry) {
        match &mut self.io {
            Io::Connect(stream) => registry.deregister(stream).ok(),
            Io::Query(socket) | Io::Echo(socket, ..) => registry.deregister(socket).ok(),
        };
    }
}

fn received(socket: &UdpSocket, is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    let mut buffer = [0; ANSWER_BYTES_MAX];
    for _ in 0..READS_MAX {
        match socket.recv(&mut buffer) {
            Ok(len) if is_wanted(buffer.get(..len).unwrap_or_default()) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // The server floods the socket without answering.
    Err(ErrorKind::InvalidData.into())
}

fn socket(from: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(from), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(from))?;
    Ok(socket)
}

/// Bytes read of a datagram; enough to recognize any answer.
const ANSWER_BYTES_MAX: usize = 256;
/// Datagrams read per poll before the probe fails.
const READS_MAX: usize = 64;

/// Echo requests of RFC 792 and RFC 4443 on a ping socket, icmp(7).
///
/// A process in a group of `net.ipv4.ping_group_range` may open one. The kernel fills in identifier
/// and checksum, and delivers every reply to that identifier from any source; so each request
/// carries a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    const fn protocol(self) -> Protocol {
        match self {
            Self::V4 => Protocol::ICMPV4,
            Self::V6 => Protocol::ICMPV6,
        }
    }

    const fn types(self) -> [u8; 2] {
        match self {
            Self::V4 => [8, 0],
            Self::V6 => [128, 129],
        }
    }
}

/// Proves that the sender of a reply has seen the request.
type Nonce = [u8; 16];

/// | 1 type | 1 code | 2 checksum | 2 identifier | 2 sequence | 16 nonce | data |
fn echo_request(family: Family, nonce: &Nonce) -> Vec<u8> {
    let [kind, _] = family.types();
    let head = [kind, 0, 0, 0, 0, 0, 0, 1];
    [&head[..], nonce, DATA].concat()
}

/// Whether `datagram` answers the request. Some systems prepend an IP header.
fn is_echo_reply(family: Family, nonce: &Nonce, datagram: &[u8]) -> bool {
    let [_, kind] = family.types();
    let is_it = |bytes: &[u8]| {
        bytes.first() == Some(&kind)
            && bytes.get(6..8) == Some(&[0, 1])
            && bytes.get(8..24) == Some(nonce)
            && bytes.get(24..) == Some(DATA)
    };
    let behind_header = match datagram.first() {
        Some(first) if first >> 4 == 4 => datagram.get(usize::from(first & 15) * 4..),
        _ => None,
    };
    is_it(datagram) || behind_header.is_some_and(is_it)
}

/// With the nonce, as long as what ping(8) sends.
const DATA: &[u8] = b"tickwire measures a game server here....";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg5_an_echo_reply_matches_only_its_request() {
        for (family, kind) in [(Family::V4, 0), (Family::V6, 129)] {
            let (nonce, other) = ([7; 16], [8; 16]);
            let is_echo_reply = |family, datagram: &[u8]| is_echo_reply(family, &nonce, datagram);
            let request = echo_request(family, &nonce);
            assert_eq!(request.len(), 64);
            assert!(!is_echo_reply(family, &request), "a request is not a reply");
            let mut answer = request;
            answer[0] = kind;
            answer[4..6].copy_from_slice(&[7, 7]);
            assert!(
                is_echo_reply(family, &answer),
                "the system chose the identifier"
            );
            let headed = [&[0x45; 20][..], &answer].concat();
            assert!(is_echo_reply(family, &headed));
            answer[8..24].copy_from_slice(&other);
            assert!(!is_echo_reply(family, &answer), "of another request");
            answer[8..24].copy_from_slice(&nonce);
            answer.pop();
            assert!(!is_echo_reply(family, &answer), "cut");
        }
        for datagram in [&[][..], &[0x4F], &[0x45; 30]] {
            assert!(!is_echo_reply(Family::V4, &[0; 16], datagram));
        }
    }
}
