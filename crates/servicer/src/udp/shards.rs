//! Several servicers on one UDP port.
//!
//! The system distributes datagrams by the addresses of both ends (`SO_REUSEPORT`, socket(7)), so a
//! session stays on one socket while its client keeps its address. If the address changes, another
//! socket may receive the datagrams, whose machine does not know the session
//! ([`Machine::is_stray`]). Its thread then forwards the datagram to the next shard, and so on,
//! until a shard has the session. A datagram that no shard knows stays with the last one, which
//! alone may answer it (a stateless reset).
//!
//! To limit what a spoofing sender can cause, each thread forwards at most 16,384 datagrams per
//! second, and at most 1,024 from one IPv4 /24 or IPv6 /56, so that one prefix cannot block clients
//! that have migrated.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use wire::address::first_of_prefix;
use wire::{Arrival, CommandId, Effect, Instant, Machine, TokenBucket, Transmit, UnixTime};

use super::{Handle, Report, UdpServicer};
use crate::driver::{
    Application, Conditioners, Driver, PeerAddress, Requests, SocketOrder, SocketOutcome,
};
use crate::handle::SpawnError;
use crate::socket::{SocketIndex, UdpSocket};

/// Running servicers on one port. Dropping it shuts them down without a drain.
#[derive(Debug)]
pub struct Shards<R> {
    handles: Vec<Handle<R>>,
    forwarded: Arc<ForwardCounters>,
}

impl<R> Shards<R> {
    /// Returns the servicers in the order of their sockets.
    pub fn handles(&self) -> &[Handle<R>] {
        &self.handles
    }

    /// Returns how many datagrams were forwarded between servicers, each move counted.
    pub fn passed_on(&self) -> u64 {
        self.forwarded.moves.load(Ordering::Relaxed)
    }

    /// Returns how many datagrams were dropped because the next servicer's queue was full.
    pub fn dropped(&self) -> u64 {
        self.forwarded.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many datagrams exceeded a forwarding limit, of a servicer or of a prefix (an
    /// IPv4 /24 or IPv6 /56).
    pub fn refused(&self) -> u64 {
        self.forwarded.refused.load(Ordering::Relaxed)
    }

    /// Shuts all servicers down, each as [`Handle::shutdown`](crate::handle::Handle::shutdown)
    /// does.
    pub fn shutdown(self, within: Duration) -> Vec<Report> {
        for handle in &self.handles {
            handle.stop(within);
        }
        let shut = |handle: Handle<R>| handle.shutdown(within);
        self.handles.into_iter().map(shut).collect()
    }
}

#[derive(Debug, Default)]
struct ForwardCounters {
    moves: AtomicU64,
    dropped: AtomicU64,
    /// Datagrams, not moves.
    refused: AtomicU64,
}

impl UdpServicer {
    /// Starts a thread for each socket; all sockets must share a port, see
    /// [`UdpSocket::bind_shards`]. `make` creates machine and application for a shard's index.
    ///
    /// Each machine applies limits, such as those per source, on its own. Session names must be
    /// unique across shards, except for a negligible chance; in `udp_proto` these are the 8-byte
    /// connection ids. Each machine needs its own instance id and token keys.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no descriptor or thread left.
    pub fn spawn_shards<M, A>(
        self,
        sockets: Vec<UdpSocket>,
        mut make: impl FnMut(usize) -> (M, A),
    ) -> Result<Shards<A::Request>, SpawnError>
    where
        M: Machine<Peer: PeerAddress + Send> + Send + 'static,
        A: Application<M, Request: Send> + Send + 'static,
    {
        let forwarded = Arc::<ForwardCounters>::default();
        let others = Arc::new(OnceLock::new());
        let (mut drivers, mut queues) = (Vec::new(), Vec::new());
        for (place, socket) in sockets.into_iter().enumerate() {
            tracing::info!(servicer = self.name, place, socket = %socket.report(), "bound");
            let (machine, application) = make(place);
            let (strays, received) = crossbeam_channel::bounded(STRAYS_MAX);
            let shard = Shard {
                machine,
                place,
                strays: received,
                others: Arc::clone(&others),
                forwarded: Arc::clone(&forwarded),
                limiter: ForwardLimiter::default(),
            };
            let (mut driver, requests) = Driver::assemble(
                vec![socket],
                Conditioners::default(),
                shard,
                ShardAdapter(application),
                self.config,
            )?;
            driver.set_trusted_exits(&self.trusted_exits);
            queues.push(ShardQueue {
                strays,
                requests: requests.clone(),
            });
            drivers.push((driver, requests));
        }
        others.get_or_init(|| queues);
        let mut handles = Vec::new();
        for (place, (driver, requests)) in drivers.into_iter().enumerate() {
            let name = format!("{}-{place}", self.name);
            handles.push(Handle::start(name, requests, move || driver.run())?);
        }
        Ok(Shards { handles, forwarded })
    }
}

#[derive(Debug)]
struct Shard<M: Machine, R> {
    machine: M,
    place: usize,
    strays: Receiver<Stray<M::Peer>>,
    /// All shards of the port, including this one. Set before any thread starts.
    others: Arc<ShardQueues<M::Peer, R>>,
    forwarded: Arc<ForwardCounters>,
    limiter: ForwardLimiter,
}

/// All shards of a port, once all are started.
type ShardQueues<P, R> = OnceLock<Vec<ShardQueue<P, R>>>;

#[derive(Debug)]
struct ShardQueue<P, R> {
    strays: Sender<Stray<P>>,
    requests: Requests<R>,
}

/// A datagram that reached a shard without its session.
#[derive(Debug)]
struct Stray<P> {
    arrival: Arrival<P>,
    bytes: Vec<u8>,
    /// Number of shards that do not know it.
    unknown_to: usize,
}

/// Queue length of one shard. At up to 64 KiB each, this is 64 MiB in the worst case, or 1.5 MiB
/// with Ethernet-sized datagrams.
const STRAYS_MAX: usize = 1_024;

impl<M: Machine, R> Shard<M, R>
where
    M::Peer: PeerAddress,
{
    /// Forwards a datagram to the next running shard, or gives it to the machine if no other is
    /// left.
    fn forward(&mut self, now: Instant, mut stray: Stray<M::Peer>) {
        let others = self.others.get().map_or(&[][..], Vec::as_slice);
        let (before, after) = others.split_at_checked(self.place).unwrap_or_default();
        // The shards that it has visited are directly before this one.
        let rest = others.len().saturating_sub(stray.unknown_to);
        for next in after.iter().skip(1).chain(before).take(rest) {
            stray = match next.strays.try_send(stray) {
                Ok(()) => {
                    next.requests.wake();
                    self.forwarded.moves.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(TrySendError::Full(_)) => {
                    self.forwarded.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                // That shard's thread has ended, and its sessions with it.
                Err(TrySendError::Disconnected(stray)) => Stray {
                    unknown_to: stray.unknown_to.saturating_add(1),
                    ..stray
                },
            };
        }
        self.machine
            .handle_datagram(now, stray.arrival, &mut stray.bytes);
    }
}

impl<M, R> Machine for Shard<M, R>
where
    M: Machine<Peer: PeerAddress>,
{
    type Peer = M::Peer;
    type Event = M::Event;
    type Command = M::Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<M::Peer>, datagram: &mut [u8]) {
        if self.machine.is_stray(datagram) {
            if !self.limiter.take(now, arrival.peer.address().ip()) {
                self.forwarded.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let stray = Stray {
                arrival,
                bytes: datagram.to_vec(),
                unknown_to: 1,
            };
            self.forward(now, stray);
        } else {
            self.machine.handle_datagram(now, arrival, datagram);
        }
    }

    fn may_wait(&self, datagram: &[u8]) -> bool {
        self.machine.may_wait(datagram)
    }

    fn is_stray(&self, datagram: &[u8]) -> bool {
        self.machine.is_stray(datagram)
    }

    fn for_each_peer(&self, tell: &mut dyn FnMut(M::Peer)) {
        self.machine.for_each_peer(tell);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn handle_completed(
        &mut self,
        now: Instant,
        id: CommandId,
        outcome: <M::Command as Effect>::Outcome,
    ) {
        self.machine.handle_completed(now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        self.machine.set_unix_time(now, unix);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<M::Peer>> {
        // Bounded, so shards that keep forwarding cannot occupy this one forever.
        for _ in 0..STRAYS_MAX {
            if let Some(transmit) = self.machine.poll_transmit(now, buf) {
                return Some(transmit);
            }
            let mut stray = self.strays.try_recv().ok()?;
            if self.machine.is_stray(&stray.bytes) {
                stray.unknown_to = stray.unknown_to.saturating_add(1);
                self.forward(now, stray);
            } else {
                self.machine
                    .handle_datagram(now, stray.arrival, &mut stray.bytes);
            }
        }
        if let Some(own) = self.others.get().and_then(|all| all.get(self.place)) {
            own.requests.wake();
        }
        self.machine.poll_transmit(now, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, M::Command)> {
        self.machine.poll_command()
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

/// The application of a machine, as the application of its shard.
#[derive(Debug)]
struct ShardAdapter<A>(A);

impl<M, A: Application<M>> Application<Shard<M, A::Request>> for ShardAdapter<A>
where
    M: Machine<Peer: PeerAddress>,
{
    type Request = A::Request;

    fn apply_request(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        request: A::Request,
    ) -> ControlFlow<()> {
        self.0.apply_request(now, &mut shard.machine, request)
    }

    fn on_event(&mut self, now: Instant, shard: &mut Shard<M, A::Request>, event: M::Event) {
        self.0.on_event(now, &mut shard.machine, event);
    }

    fn on_command(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        id: CommandId,
        command: M::Command,
    ) {
        self.0.on_command(now, &mut shard.machine, id, command);
    }

    fn socket_order(&self, command: &M::Command) -> Option<SocketOrder> {
        self.0.socket_order(command)
    }

    fn on_socket(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        id: CommandId,
        outcome: SocketOutcome,
    ) {
        self.0.on_socket(now, &mut shard.machine, id, outcome);
    }

    fn on_receive_drops(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        socket: SocketIndex,
        count: u64,
    ) {
        self.0
            .on_receive_drops(now, &mut shard.machine, socket, count);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, shard: &mut Shard<M, A::Request>) {
        self.0.handle_timeout(now, &mut shard.machine);
    }

    fn begin_shutdown(
        &mut self,
        now: Instant,
        shard: &mut Shard<M, A::Request>,
        deadline: Instant,
    ) {
        self.0.begin_shutdown(now, &mut shard.machine, deadline);
    }

    fn is_drained(&self, shard: &Shard<M, A::Request>) -> bool {
        self.0.is_drained(&shard.machine)
    }
}

/// The forwarding limiter of a shard. Its size is fixed, 24 KiB.
#[derive(Debug)]
struct ForwardLimiter {
    all: TokenBucket,
    /// Buckets of the prefixes. Prefixes with the same hash share a bucket. The hash is keyed, so a
    /// sender cannot choose a collision.
    prefixes: Vec<TokenBucket>,
    hasher: RandomState,
}

/// Datagrams per second: those of 270 migrated clients at 60 per second. Each costs a copy of about
/// 0.5 us per shard.
const FORWARDED_PER_SECOND: u32 = 16_384;

/// Burst: the queue length of one shard.
const FORWARD_BURST: u32 = 1_024;

/// Datagrams per second of one prefix: those of 17 migrated clients.
const PREFIX_PER_SECOND: u32 = 1_024;

/// Burst of one prefix.
const PREFIX_BURST: u32 = 128;

const PREFIXES: usize = 1_024;

impl Default for ForwardLimiter {
    fn default() -> Self {
        Self {
            all: TokenBucket::new(FORWARDED_PER_SECOND, FORWARD_BURST, Instant::ZERO),
            prefixes: vec![
                TokenBucket::new(PREFIX_PER_SECOND, PREFIX_BURST, Instant::ZERO);
                PREFIXES
            ],
            hasher: RandomState::new(),
        }
    }
}

impl ForwardLimiter {
    /// Takes a token for one datagram from `source`. Returns false if the total or the prefix limit
    /// is reached.
    fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let place = self.bucket_index(source);
        let Some(prefix) = self.prefixes.get_mut(place) else {
            return false;
        };
        // A datagram that one bucket rejects takes no token of the other.
        self.all.holds(now, 1) && prefix.take(now, 1) && self.all.take(now, 1)
    }

    fn bucket_index(&self, source: IpAddr) -> usize {
        let hash = self.hasher.hash_one(prefix_of(source));
        let place = hash.checked_rem(PREFIXES as u64).unwrap_or(0);
        usize::try_from(place).unwrap_or(0)
    }
}

/// Returns the /24 of an IPv4 address, or the /56 of an IPv6 address: what one household or host is
/// assigned. For IPv6 that is longer than the /48 of [`wire::NetworkKey`].
const fn prefix_of(source: IpAddr) -> IpAddr {
    first_of_prefix(source, 24, 56)
}

#[cfg(test)]
mod tests;
