//! The application of a stream machine.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use wire::{CommandId, ConnectionId, Instant, NodeId, StreamMachine};

use super::connection::OpenConnection;
use super::x509::{CertificateFault, Host};

/// The application of a stream machine: applies requests and handles the machine's events and
/// commands.
///
/// All methods run on the driver's thread and must not block. After each call the driver drains the
/// machine again. `now` never decreases.
pub trait StreamApplication<M: StreamMachine> {
    /// Requests of other threads, sent by [`StreamRequests`](super::StreamRequests). They include
    /// command completions.
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

    /// Handles one command of the machine.
    ///
    /// If the command asks for a dial, return it: the driver dials and calls
    /// [`on_dialled`](Self::on_dialled) once. The outcome of any other command must reach
    /// [`handle_completed`](StreamMachine::handle_completed), now or with a later request.
    fn on_command(
        &mut self,
        now: Instant,
        machine: &mut M,
        id: CommandId,
        command: M::Command,
    ) -> Option<Dial>;

    /// Handles the result of a dial, which the application converts into an outcome for
    /// [`handle_completed`](StreamMachine::handle_completed). The default is for applications that
    /// never dial; it panics in debug builds.
    ///
    /// If the dial succeeded, [`handle_opened`](StreamMachine::handle_opened) was called before.
    fn on_dialled(
        &mut self,
        _now: Instant,
        _machine: &mut M,
        _id: CommandId,
        _result: Result<ConnectionId, DialError>,
    ) {
        debug_assert!(false, "an application that dials handles the result");
    }

    /// Called when a listener rejects a node that is not in
    /// [`Admission::Only`](super::Admission::Only). `claimed` is unproved: anyone can cause these
    /// calls, once per handshake. Does nothing by default.
    fn on_unknown_node(&mut self, _now: Instant, _machine: &mut M, _claimed: NodeId) {}

    /// Returns whether the machine can take more records of `connection`; by default always.
    ///
    /// While false, the driver reads nothing from the connection, which pushes back on the peer,
    /// and suspends its receive deadlines. Called in each turn. Up to 64 KiB of records, one system
    /// call's worth, may still arrive after it became false.
    fn may_receive(&self, _machine: &M, _connection: ConnectionId) -> bool {
        true
    }

    /// Returns whether requests must stay queued because earlier ones are still in progress; by
    /// default never. Called before each request and after each drain.
    fn is_busy(&self, _machine: &M) -> bool {
        false
    }

    /// Returns an open connection for the driver to serve; by default none. Called after each
    /// request until it returns `None`.
    ///
    /// [`handle_opened`](StreamMachine::handle_opened) follows at once with a new id of this
    /// driver. If the driver's limits are reached, the connection's close follows too.
    fn poll_arrival(&mut self, _machine: &mut M) -> Option<OpenConnection> {
        None
    }

    /// Returns a connection that this driver hands over to another; by default none. Called in each
    /// drain until it returns `None`.
    ///
    /// The machine sees the connection close with a local cause. [`on_handed_over`](Self::on_handed_over)
    /// follows if the connection exists.
    fn poll_departure(&mut self, _machine: &mut M) -> Option<ConnectionId> {
        None
    }

    /// Takes the connection of [`poll_departure`](Self::poll_departure). Dropping it, the default,
    /// closes it.
    fn on_handed_over(&mut self, _now: Instant, _machine: &mut M, _connection: OpenConnection) {}

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due; by default never.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles timeouts due at `now`. Afterwards [`poll_timeout`](Self::poll_timeout) must return a
    /// later time or `None`.
    fn handle_timeout(&mut self, _now: Instant, _machine: &mut M) {}

    /// Begins the shutdown, for example by notifying peers. Called once. The driver closes all
    /// connections and ends when [`is_drained`](Self::is_drained) returns true and all data is
    /// written, or at `deadline`.
    fn begin_shutdown(&mut self, _now: Instant, _machine: &mut M, _deadline: Instant) {}

    /// Returns whether no work is left after [`begin_shutdown`](Self::begin_shutdown); by default
    /// at once.
    fn is_drained(&self, _machine: &M) -> bool {
        true
    }
}

/// A connection to open.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Destination. The caller resolves names, since that may block.
    pub address: SocketAddr,
    /// The expected peer. Any other peer is rejected.
    pub peer: DialPeer,
}

/// The expected peer of a dial.
#[derive(Clone, Debug)]
pub enum DialPeer {
    /// The holder of an identity key, proved as a raw public key. The dial proves this end's
    /// identity to it, if there is one.
    Node(NodeId),
    /// A host with a certificate for its name. This end stays anonymous.
    Host(Host),
}

impl From<NodeId> for DialPeer {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl From<Host> for DialPeer {
    fn from(host: Host) -> Self {
        Self::Host(host)
    }
}

/// Why a dial failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialError {
    /// The connection limit is reached, or the system has no socket left.
    Full,
    /// The address is unreachable.
    Unreachable(ErrorKind),
    /// The dial took longer than [`handshake_timeout`](super::StreamConfig::handshake_timeout).
    TimedOut,
    /// The peer is another node.
    WrongNode {
        /// The expected node.
        expected: NodeId,
        /// The node that the peer proved or claimed to be.
        found: NodeId,
    },
    /// The host's certificate is not valid.
    Certificate(CertificateFault),
    /// The peer rejected the handshake: it does not admit this node, it speaks another protocol, or
    /// it is a node and a host was dialled, or the reverse.
    Refused,
    /// The peer closed the connection during the handshake.
    Gone,
    /// The peer does not speak this TLS, or its proof is invalid.
    Malformed,
    /// The servicer is shutting down.
    Ended,
}

wire::error_text! { DialError {
    Self::Full => "no room for one more connection",
    Self::Unreachable(kind) => "nobody was reached: {kind}",
    Self::TimedOut => "the handshake took too long",
    Self::WrongNode { expected, found } => "found node {found} where {expected} was expected",
    Self::Certificate(fault) => "the host is not believed: {fault}",
    Self::Refused => "the other end refused the handshake",
    Self::Gone => "the other end left during the handshake",
    Self::Malformed => "the other end does not speak this protocol",
    Self::Ended => "the servicer has ended",
}}
