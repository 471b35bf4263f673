//! What a driver needs to know about addresses, and what an application does with a machine.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use wire::{CommandId, Instant, Machine};

use super::sockets::{SocketOrder, SocketOutcome};

/// Name of a socket of a driver: its place in the list that the driver was given. Those opened
/// later are counted on from there, and no name is used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketIndex(pub u32);

/// A peer that stands for an address, and maybe for the socket to reach it by.
pub trait PeerAddress: Copy {
    /// Makes the peer that a datagram from `address` came from, seen by `socket`.
    fn from_wire(socket: SocketIndex, address: SocketAddr) -> Self;

    /// Returns the socket to reach the peer by; `None` for the first one of its family.
    fn socket(&self) -> Option<SocketIndex>;

    /// Returns the address to send to.
    fn address(&self) -> SocketAddr;
}

/// A peer by its address alone: one socket, or one for each address family.
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

/// The side of a machine that is no protocol: what others ask of it, and what it tells.
///
/// All methods run on the driver's thread between two waits, and none may block. After each of
/// them the driver drains the machine again. `now` never goes back.
pub trait Application<M: Machine> {
    /// What other threads ask by [`Requests`](super::Requests), completions of commands included.
    type Request;

    /// Takes one request; `Break` ends the driver after a last drain.
    fn apply_request(
        &mut self,
        now: Instant,
        machine: &mut M,
        request: Self::Request,
    ) -> ControlFlow<()>;

    /// Takes one event of the machine.
    fn on_event(&mut self, now: Instant, machine: &mut M, event: M::Event);

    /// Takes one command of the machine; its outcome goes to
    /// [`handle_completed`](Machine::handle_completed), now or by a later request.
    fn on_command(&mut self, now: Instant, machine: &mut M, id: CommandId, command: M::Command);

    /// Returns what `command` asks of the driver's sockets, which the driver then does at once;
    /// `None`, as by default, where it is [`on_command`](Self::on_command)'s.
    fn socket_order(&self, _command: &M::Command) -> Option<SocketOrder> {
        None
    }

    /// Takes what became of the [`SocketOrder`] of a command, in its place: the outcome goes to
    /// [`handle_completed`](Machine::handle_completed).
    fn on_socket(&mut self, _now: Instant, _machine: &mut M, _id: CommandId, _: SocketOutcome) {}

    /// Takes that the system dropped `count` datagrams since the last time because the receive buffer of `socket`
    /// was full: the host does not keep up. The driver reads the count at its next turn, at most each 100 ms, on
    /// Linux 4.12 and later only.
    fn on_receive_drops(&mut self, _now: Instant, _machine: &mut M, _: SocketIndex, _count: u64) {}

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed; never by default.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Runs what is due at `now`, such as a simulation step; then
    /// [`poll_timeout`](Self::poll_timeout) is later than `now` or `None`.
    fn handle_timeout(&mut self, _now: Instant, _machine: &mut M) {}

    /// Begins an orderly end: tell the peers. Called once; the driver ends when
    /// [`is_drained`](Self::is_drained), or at `deadline`.
    fn begin_shutdown(&mut self, _now: Instant, _machine: &mut M, _deadline: Instant) {}

    /// Returns whether nothing is left to do after
    /// [`begin_shutdown`](Self::begin_shutdown); at once by default.
    fn is_drained(&self, _machine: &M) -> bool {
        true
    }
}
