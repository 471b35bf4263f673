//! Measures game servers with real sockets, for [`Command::Measure`](relay_mesh::Command::Measure).
//!
//! One thread polls all probes, so the node's own load does not delay the measurement. Each probe
//! has its own socket.

mod probe;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};
use relay_mesh::{Outcome, ServerProbe};
use servicer::{Clock, Requests};
use wire::{CommandId, Instant};

use super::machine::NodeRequest;
use probe::{Probe, Progress};

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

/// The thread's end of the queue, before the thread is started.
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
    /// Starts the thread, which reports the results to `node`.
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
        let thread = Builder::new().name("probes".to_owned());
        let thread = thread.spawn(move || probe_loop.run())?;
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
