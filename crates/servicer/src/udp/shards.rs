//! Several servicers on one UDP port.
//!
//! The system distributes datagrams by the addresses of both ends (`SO_REUSEPORT`, socket(7)), so a
//! session stays on one socket while its client keeps its address. If the address changes, another
//! socket may receive the session's datagrams, and its machine does not know the session
//! ([`Machine::is_stray`]). The servicer then forwards the datagram to the next shard, and so on,
//! until a shard has the session. That shard answers from its own socket, which has the same port.
//! A datagram that no shard knows stays with the last one. A machine that answers unknown datagrams
//! (a stateless reset) therefore does so only if no shard has the session.
//!
//! A stray datagram costs up to one move per shard. To limit what a spoofing sender can cause, each
//! servicer forwards at most 16,384 datagrams per second, and at most 1,024 from one IPv4 /24 or
//! IPv6 /56, so that one prefix cannot block clients that have migrated.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use wire::{Arrival, CommandId, Effect, Instant, Machine, Transmit, UnixTime};

use super::bind::{BindError, Sharing, SocketConfig};
use super::{Handle, Report, UdpServicer, UdpSocket};
use crate::driver::{Application, Conditioners, Driver, PeerAddress, Requests};
use crate::handle::SpawnError;

mod allowance;
mod lifted;

use allowance::Allowance;
use lifted::Lifted;

/// Running servicers on one port. Dropping it shuts them down without a drain.
#[derive(Debug)]
pub struct Shards<R> {
    handles: Vec<Handle<R>>,
    passed: Arc<Passed>,
}

impl<R> Shards<R> {
    /// Returns the servicers in the order of their sockets.
    pub fn handles(&self) -> &[Handle<R>] {
        &self.handles
    }

    /// Returns how many datagrams were forwarded between servicers, each move counted.
    pub fn passed_on(&self) -> u64 {
        self.passed.on.load(Ordering::Relaxed)
    }

    /// Returns how many datagrams were dropped because the next servicer's queue was full.
    pub fn dropped(&self) -> u64 {
        self.passed.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many datagrams exceeded a forwarding limit, of a servicer or of a prefix (an
    /// IPv4 /24 or IPv6 /56).
    pub fn refused(&self) -> u64 {
        self.passed.refused.load(Ordering::Relaxed)
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

/// Counters of datagrams forwarded between shards.
#[derive(Debug, Default)]
struct Passed {
    on: AtomicU64,
    dropped: AtomicU64,
    /// Datagrams, not moves.
    refused: AtomicU64,
}

impl UdpSocket {
    /// Binds `count` sockets to one port, for
    /// [`UdpServicer::spawn_shards`](super::UdpServicer::spawn_shards). With port 0, the system
    /// chooses the port. Another program of the same user can also bind the port, and then receives
    /// a share of the datagrams.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and [`BindCause::NotShared`](super::BindCause::NotShared) on
    /// systems other than Linux.
    pub fn bind_shards(
        mut address: SocketAddr,
        config: &SocketConfig,
        count: NonZeroUsize,
    ) -> Result<Vec<Self>, BindError> {
        let mut sockets = Vec::new();
        for _ in 0..count.get() {
            let socket = Self::bind_as(address, config, Sharing::Shared)?;
            address = socket.local_address();
            sockets.push(socket);
        }
        Ok(sockets)
    }
}

impl UdpServicer {
    /// Starts a thread for each socket; all sockets must share a port, see
    /// [`UdpSocket::bind_shards`]. `make` creates machine and application for a shard's index.
    ///
    /// Each machine applies shared limits, such as those per source, on its own. Session names must
    /// be unique across shards, except for a negligible chance; in `udp_proto` these are the 8-byte
    /// connection ids. Each machine needs its own instance id and token keys, so a token is redeemed
    /// only on the shard that issued it.
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
        let passed = Arc::<Passed>::default();
        let others = Arc::new(OnceLock::new());
        let (mut drivers, mut neighbours) = (Vec::new(), Vec::new());
        for (place, socket) in sockets.into_iter().enumerate() {
            tracing::info!(servicer = self.name, place, socket = %socket.report(), "bound");
            let (machine, application) = make(place);
            let (strays, received) = crossbeam_channel::bounded(STRAYS_MAX);
            let shard = Shard {
                machine,
                place,
                strays: received,
                others: Arc::clone(&others),
                passed: Arc::clone(&passed),
                allowance: Allowance::default(),
            };
            let (mut driver, requests) = Driver::assemble(
                vec![socket],
                Conditioners::default(),
                shard,
                Lifted(application),
                self.config,
            )?;
            driver.set_trusted_exits(&self.trusted_exits);
            neighbours.push(Neighbour {
                strays,
                requests: requests.clone(),
            });
            drivers.push((driver, requests));
        }
        others.get_or_init(|| neighbours);
        let mut handles = Vec::new();
        for (place, (driver, requests)) in drivers.into_iter().enumerate() {
            let name = format!("{}-{place}", self.name);
            handles.push(Handle::start(name, requests, move || driver.run())?);
        }
        Ok(Shards { handles, passed })
    }
}

/// One of several machines on a port.
#[derive(Debug)]
struct Shard<M: Machine, R> {
    machine: M,
    place: usize,
    strays: Receiver<Stray<M::Peer>>,
    /// All shards of the port, including this one. Set before any thread starts.
    others: Arc<Neighbours<M::Peer, R>>,
    passed: Arc<Passed>,
    /// The forwarding limits.
    allowance: Allowance,
}

/// All shards of a port, once all are started.
type Neighbours<P, R> = OnceLock<Vec<Neighbour<P, R>>>;

/// The queue to a shard.
#[derive(Debug)]
struct Neighbour<P, R> {
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
    fn pass_on(&mut self, now: Instant, mut stray: Stray<M::Peer>) {
        let others = self.others.get().map_or(&[][..], Vec::as_slice);
        let (before, after) = others.split_at_checked(self.place).unwrap_or_default();
        // The shards that it has visited are directly before this one.
        let rest = others.len().saturating_sub(stray.unknown_to);
        for next in after.iter().skip(1).chain(before).take(rest) {
            stray = match next.strays.try_send(stray) {
                Ok(()) => {
                    next.requests.wake();
                    self.passed.on.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(TrySendError::Full(_)) => {
                    self.passed.dropped.fetch_add(1, Ordering::Relaxed);
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
            if !self.allowance.take(now, arrival.peer.address().ip()) {
                self.passed.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let stray = Stray {
                arrival,
                bytes: datagram.to_vec(),
                unknown_to: 1,
            };
            self.pass_on(now, stray);
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

    fn tell_peers(&self, tell: &mut dyn FnMut(M::Peer)) {
        self.machine.tell_peers(tell);
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
                self.pass_on(now, stray);
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

#[cfg(test)]
mod tests;
