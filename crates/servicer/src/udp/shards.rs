//! Several servicers behind one UDP port.
//!
//! The system divides what comes by the addresses of both ends (`SO_REUSEPORT`, socket(7)), so that a
//! session stays with one of the sockets for as long as its client keeps its address. When that changes,
//! another socket gets its datagrams, whose machine knows nothing of the session
//! ([`Machine::is_stray`]): the servicer passes them on to the next, which passes on what it does not know
//! either, until one has the session: it answers from its own socket, which has the same port. What none
//! knows is left to the last one, so a machine that answers what it does not know (a stateless reset) does
//! so only where no shard does. That costs up to a move for each of the others, for those
//! who have moved and for strangers who send what looks like it: so each servicer passes on at most 16,384
//! datagrams a second, and at most 1,024 from one /24 of IPv4 or /56 of IPv6, lest one stranger keep all who
//! have moved from being served.

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

/// Running servicers behind one port. Dropping it shuts them down with no time left for an orderly end.
#[derive(Debug)]
pub struct Shards<R> {
    handles: Vec<Handle<R>>,
    passed: Arc<Passed>,
}

impl<R> Shards<R> {
    /// Returns the servicers, in the order of their sockets.
    pub fn handles(&self) -> &[Handle<R>] {
        &self.handles
    }

    /// Returns how many times one servicer has passed a datagram on to another.
    pub fn passed_on(&self) -> u64 {
        self.passed.on.load(Ordering::Relaxed)
    }

    /// Returns how many datagrams found no room there.
    pub fn dropped(&self) -> u64 {
        self.passed.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many datagrams were not passed on, because more came than a servicer passes on, in all
    /// or for one /24 of IPv4 or /56 of IPv6.
    pub fn refused(&self) -> u64 {
        self.passed.refused.load(Ordering::Relaxed)
    }

    /// Ends all in order, as [`Handle::shutdown`](crate::handle::Handle::shutdown) does one.
    pub fn shutdown(self, within: Duration) -> Vec<Report> {
        for handle in &self.handles {
            handle.stop(within);
        }
        let shut = |handle: Handle<R>| handle.shutdown(within);
        self.handles.into_iter().map(shut).collect()
    }
}

/// Counts of datagrams on their way between shards.
#[derive(Debug, Default)]
struct Passed {
    on: AtomicU64,
    dropped: AtomicU64,
    /// Datagrams, not copies.
    refused: AtomicU64,
}

impl UdpSocket {
    /// Binds `count` sockets to one port, for [`UdpServicer::spawn_shards`](super::UdpServicer::spawn_shards);
    /// port 0 lets the system choose it. Another program of the same user could bind it, too, and would get
    /// its share of what comes.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and [`BindCause::NotShared`](super::BindCause::NotShared) on systems other
    /// than Linux.
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
    /// Starts a thread for each socket, all of one port: see [`UdpSocket::bind_shards`]. `make` is asked
    /// for machine and application of each, by its place.
    ///
    /// What the machines have in common, such as limits for one source, each counts for itself. Sessions
    /// must have names that no two shards give alike, but by a chance that is borne: in `udp_proto`,
    /// connection ids of eight bytes. Each needs an instance and token keys of its own, so that a token
    /// is used up where it is used.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the system has no descriptor or thread left.
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

/// One of several machines behind a port.
#[derive(Debug)]
struct Shard<M: Machine, R> {
    machine: M,
    place: usize,
    strays: Receiver<Stray<M::Peer>>,
    /// All of the port, this one among them; set before any thread starts.
    others: Arc<Neighbours<M::Peer, R>>,
    passed: Arc<Passed>,
    /// How many datagrams it may pass on.
    allowance: Allowance,
}

/// All shards of a port, once they are known.
type Neighbours<P, R> = OnceLock<Vec<Neighbour<P, R>>>;

/// The way to a shard.
#[derive(Debug)]
struct Neighbour<P, R> {
    strays: Sender<Stray<P>>,
    requests: Requests<R>,
}

/// A datagram that came to a shard which has no use for it.
#[derive(Debug)]
struct Stray<P> {
    arrival: Arrival<P>,
    bytes: Vec<u8>,
    /// How many shards do not know it.
    unknown_to: usize,
}

/// Datagrams that wait for one shard, of which each has up to 64 KiB: 64 MiB at the worst, and 1.5 MiB
/// where they come by Ethernet.
const STRAYS_MAX: usize = 1_024;

impl<M: Machine, R> Shard<M, R>
where
    M::Peer: PeerAddress,
{
    /// Passes a datagram on to the next shard that lives; to the machine where all others had it.
    fn pass_on(&mut self, now: Instant, mut stray: Stray<M::Peer>) {
        let others = self.others.get().map_or(&[][..], Vec::as_slice);
        let (before, after) = others.split_at_checked(self.place).unwrap_or_default();
        // Those that it has met lie right before this one.
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
                // Its thread has ended, and its sessions with it.
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
        // As many as may wait, so that others who always have one keep nobody here for ever.
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
