//! The interfaces between a driver, its machine's addresses and its application.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use wire::{CommandId, Instant, Machine};

use super::sockets::{SocketOrder, SocketOutcome};
use crate::socket::SocketIndex;

/// A machine's peer type: an address, and optionally the socket to reach it by.
pub trait PeerAddress: Copy {
    /// Returns the peer for datagrams from `address` received on `socket`.
    fn from_wire(socket: SocketIndex, address: SocketAddr) -> Self;

    /// Returns the socket to send by; `None` for the first one of the address family.
    fn socket(&self) -> Option<SocketIndex>;

    /// Returns the address to send to.
    fn address(&self) -> SocketAddr;
}

/// A peer known by its address alone, for one socket, or one per address family.
impl PeerAddress for SocketAddr {
    fn from_wire(_: SocketIndex, address: SocketAddr) -> Self {
        address
    }

    fn socket(&self) -> Option<SocketIndex> {
        None
    }

    fn address(&self) -> SocketAddr {
        *self
    }
}

/// The application of a machine: applies requests and handles the machine's events and commands.
///
/// All methods run on the driver's thread and must not block. After each call the driver drains the
/// machine again. `now` never decreases.
pub trait Application<M: Machine> {
    /// Requests of other threads, sent by [`Requests`](super::Requests). They include command
    /// completions.
    type Request;

    /// Applies one request. `Break` ends the driver after a last drain.
    fn apply_request(
        &mut self,
        now: Instant,
        machine: &mut M,
        request: Self::Request,
    ) -> ControlFlow<()>;

    /// Handles one event of the machine.
    fn on_event(&mut self, now: Instant, machine: &mut M, event: M::Event);

    /// Handles one command of the machine. Its outcome must reach
    /// [`handle_completed`](Machine::handle_completed), now or with a later request.
    fn on_command(&mut self, now: Instant, machine: &mut M, id: CommandId, command: M::Command);

    /// Returns the socket order that `command` means, which the driver executes at once. If `None`,
    /// the default, [`on_command`](Self::on_command) is called instead.
    fn socket_order(&self, _command: &M::Command) -> Option<SocketOrder> {
        None
    }

    /// Handles the outcome of a command's [`SocketOrder`], for
    /// [`handle_completed`](Machine::handle_completed).
    fn on_socket(&mut self, _now: Instant, _machine: &mut M, _id: CommandId, _: SocketOutcome) {}

    /// Called when the system dropped `count` more datagrams because the receive buffer of `socket`
    /// was full, that is, the host is overloaded. The driver reads the count in its turns, at most
    /// every 100 ms, and only on Linux 4.12 and later.
    fn on_receive_drops(&mut self, _now: Instant, _machine: &mut M, _: SocketIndex, _count: u64) {}

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due; by default never.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles timeouts due at `now`, such as a simulation step. Afterwards
    /// [`poll_timeout`](Self::poll_timeout) must return a later time or `None`.
    fn handle_timeout(&mut self, _now: Instant, _machine: &mut M) {}

    /// Begins the shutdown, for example by notifying peers. Called once. The driver ends when
    /// [`is_drained`](Self::is_drained) returns true, or at `deadline`.
    fn begin_shutdown(&mut self, _now: Instant, _machine: &mut M, _deadline: Instant) {}

    /// Returns whether no work is left after [`begin_shutdown`](Self::begin_shutdown); by default
    /// at once.
    fn is_drained(&self, _machine: &M) -> bool {
        true
    }
}
