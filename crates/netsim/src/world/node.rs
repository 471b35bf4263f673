//! Nodes of a world.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use wire::{Arrival, Ecn, Instant, UnixTime};

use super::WallClock;

/// A process with sockets: usually a [`Host`](crate::Host) with one machine and its application.
///
/// The world calls it in the order of a driver's turn: `set_unix_time`, a bounded batch of
/// `handle_datagram`, `handle_timeout` if due, `drain`. Implement it in a test if a machine's peers
/// are not addresses, or if several machines share a process.
pub trait Node: Any {
    /// Handles one datagram received at `local`, an address of this node.
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        arrival: Arrival<SocketAddr>,
        datagram: &mut [u8],
    );

    /// Runs timers that are due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Sets the wall clock, at the start of each turn if the node has one.
    fn set_unix_time(&mut self, _now: Instant, _unix: UnixTime) {}

    /// Sends all output, and handles commands and events until there are none.
    fn drain(&mut self, now: Instant, outbox: &mut Outbox<'_>);

    /// Returns when `handle_timeout` is next needed; `None` if not before new input.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// One datagram between two sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender as the receiver sees it.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// ECN mark.
    pub ecn: Option<Ecn>,
    /// Payload.
    pub bytes: Vec<u8>,
}

impl Datagram {
    /// Creates a datagram without an ECN mark.
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

/// Collects a node's output, which takes effect at the end of its turn.
#[derive(Debug)]
pub struct Outbox<'a> {
    /// Addresses of the node, in the order in which they were bound.
    pub(super) addresses: &'a [SocketAddr],
    pub(super) effects: &'a mut Vec<Effect>,
}

impl Outbox<'_> {
    /// Sends `bytes` as one datagram from the node's first address with the IP `source`, or else from
    /// the first address of the destination's family. If there is none, the datagram is dropped.
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
    /// Initial offset of the node's clock from the world's; 0.
    pub clock_offset: Duration,
    /// Drift of the node's clock in parts per million, at most 100,000 either way; 0.
    pub clock_drift_ppm: i32,
    /// The node's wall clock; exact.
    pub wall_clock: WallClock,
    /// Most datagrams taken from the socket in one turn; 256. Timers run after each batch.
    pub batch: usize,
    /// Capacity of the socket buffer in payload bytes; 212,992, the default of Linux
    /// (`net.core.rmem_default`). What does not fit is dropped and counted.
    pub socket_bytes: usize,
}

impl NodeConfig {
    /// Creates a node with one socket, an exact clock and default limits.
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

    /// Sets the clock's initial offset, and its drift in parts per million.
    #[must_use]
    pub const fn with_clock(mut self, offset: Duration, drift_ppm: i32) -> Self {
        self.clock_offset = offset;
        self.clock_drift_ppm = drift_ppm;
        self
    }

    /// Sets the node's wall clock.
    #[must_use]
    pub const fn with_wall_clock(mut self, wall_clock: WallClock) -> Self {
        self.wall_clock = wall_clock;
        self
    }

    /// Sets the batch size of a turn, in datagrams.
    #[must_use]
    pub const fn with_batch(mut self, datagrams: usize) -> Self {
        self.batch = datagrams;
        self
    }

    /// Sets the capacity of the socket buffer, in payload bytes.
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

/// Identifies a node of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub(super) u32);

/// Identifies a node of a world, with its type.
pub struct Handle<T> {
    pub(super) index: NodeIndex,
    pub(super) node: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// Returns the index without the type.
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
