//! What lives in a world.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use wire::{Arrival, Ecn, Instant, UnixTime};

use super::WallClock;

/// A process with sockets: usually a [`Host`](crate::Host) around one machine and its application.
///
/// The world calls it in the order of a driver's turn: `set_unix_time`, a bounded batch of
/// `handle_datagram`, `handle_timeout` where due, `drain`. A test implements it where a machine's
/// peers are no plain addresses, or where several machines share a process.
pub trait Node: Any {
    /// Takes one datagram that came to `local`, an address of this node.
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    );

    /// Runs what is due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Takes the wall clock, at the start of each turn of a node that has one.
    fn set_unix_time(&mut self, _now: Instant, _unix: UnixTime) {}

    /// Hands out everything to send, and serves commands and events until there are none.
    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>);

    /// Returns when `handle_timeout` is next needed; `None` means never, until new input.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// One datagram between two sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender as the receiver sees it.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Congestion mark.
    pub ecn: Option<Ecn>,
    /// Payload.
    pub bytes: Vec<u8>,
}

impl Datagram {
    /// Makes a datagram without a congestion mark.
    #[must_use]
    pub const fn new(source: SocketAddr, destination: SocketAddr, bytes: Vec<u8>) -> Self {
        Self {
            source,
            destination,
            ecn: None,
            bytes,
        }
    }
}

/// Where a node puts what it wants done at the end of its turn.
#[derive(Debug)]
pub struct Outbox<'a> {
    /// Addresses of the node, in the order in which they were bound.
    pub(super) addresses: &'a [SocketAddr],
    pub(super) effects: &'a mut Vec<Effect>,
}

impl Outbox<'_> {
    /// Sends `bytes` as one datagram from the node's first address with the IP `source`; without
    /// one, or where no address has it, from the first of the destination's family.
    ///
    /// A node without such an address sends nothing, as an operating system would refuse.
    pub fn send(
        &mut self,
        source: Option<IpAddr>,
        destination: SocketAddr,
        ecn: Option<Ecn>,
        bytes: &[u8],
    ) {
        let wanted = |address: &&SocketAddr| Some(address.ip()) == source;
        let fitting = |address: &&SocketAddr| address.is_ipv4() == destination.is_ipv4();
        let mut addresses = self.addresses.iter();
        let source = addresses
            .clone()
            .find(wanted)
            .or_else(|| addresses.find(fitting));
        if let Some(&source) = source {
            self.send_from(source, destination, ecn, bytes);
        }
    }

    /// Sends `bytes` as one datagram from `source`, which need not be an address of the node.
    pub fn send_from(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        ecn: Option<Ecn>,
        bytes: &[u8],
    ) {
        self.effects.push(Effect::Send(Datagram {
            source,
            destination,
            ecn,
            bytes: bytes.to_vec(),
        }));
    }

    /// Opens a socket at `address` when the turn ends.
    pub fn bind(&mut self, address: SocketAddr) {
        self.effects.push(Effect::Bind(address));
    }

    /// Closes the socket at `address` when the turn ends.
    pub fn unbind(&mut self, address: SocketAddr) {
        self.effects.push(Effect::Unbind(address));
    }
}

/// What a node asked for.
#[derive(Debug)]
pub(super) enum Effect {
    Send(Datagram),
    Bind(SocketAddr),
    Unbind(SocketAddr),
}

/// Addresses, clock and driver of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Sockets that are open from the start.
    pub addresses: Vec<SocketAddr>,
    /// How far the node's clock is ahead of the world's at first; 0.
    pub clock_offset: Duration,
    /// Nanoseconds that its clock gains in each millisecond, at most 100,000 either way; 0.
    pub clock_drift_ppm: i32,
    /// What it believes the wall clock shows; the truth.
    pub wall_clock: WallClock,
    /// Datagrams taken from the socket in one turn; 256. Timers run after each such batch.
    pub batch: usize,
    /// Payload bytes that wait in the socket while the node does not run; 212,992, the default of
    /// Linux (`net.core.rmem_default`). What does not fit is dropped and counted.
    pub socket_bytes: usize,
}

impl NodeConfig {
    /// Makes a node with one socket, an exact clock and a common driver.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            addresses: vec![address],
            clock_offset: Duration::ZERO,
            clock_drift_ppm: 0,
            wall_clock: WallClock::Exact,
            batch: 256,
            socket_bytes: 212_992,
        }
    }

    /// Adds a socket.
    #[must_use]
    pub fn with_address(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Sets how far the node's clock is ahead, and how many millionths it gains.
    #[must_use]
    pub const fn with_clock(mut self, offset: Duration, drift_ppm: i32) -> Self {
        self.clock_offset = offset;
        self.clock_drift_ppm = drift_ppm;
        self
    }

    /// Sets what the node believes the wall clock shows.
    #[must_use]
    pub const fn with_wall_clock(mut self, wall_clock: WallClock) -> Self {
        self.wall_clock = wall_clock;
        self
    }

    /// Sets how many datagrams one turn takes.
    #[must_use]
    pub const fn with_batch(mut self, datagrams: usize) -> Self {
        self.batch = datagrams;
        self
    }

    /// Sets how many payload bytes wait in the socket.
    #[must_use]
    pub const fn with_socket_bytes(mut self, bytes: usize) -> Self {
        self.socket_bytes = bytes;
        self
    }
}

impl From<SocketAddr> for NodeConfig {
    fn from(address: SocketAddr) -> Self {
        Self::at(address)
    }
}

/// Names a node of a world, whatever its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub(super) u32);

/// Names a node of a world and knows its type.
pub struct Handle<T> {
    pub(super) index: NodeIndex,
    pub(super) node: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// Returns the name without the type.
    #[must_use]
    pub const fn index(self) -> NodeIndex {
        self.index
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.index.0).finish()
    }
}

impl<T> From<Handle<T>> for NodeIndex {
    fn from(handle: Handle<T>) -> Self {
        handle.index
    }
}
