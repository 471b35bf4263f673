//! What an application does with a stream machine.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use wire::{CommandId, ConnectionId, Instant, NodeId, StreamMachine};

use super::authorities::{CertificateFault, Host};
use super::passage::OpenConnection;

/// The side of a stream machine that is no protocol: what others ask of it, and what it tells.
///
/// All methods run on the driver's thread between two waits, and none may block. After each of
/// them the driver drains the machine again. `now` never goes back.
pub trait StreamApplication<M: StreamMachine> {
    /// What other threads ask by [`StreamRequests`](super::StreamRequests), completions of
    /// commands included.
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

    /// Takes one command of the machine. Where it means a dial, it is returned as such: the driver
    /// dials and answers by [`on_dialled`](Self::on_dialled), once. The outcome of all others goes
    /// to [`handle_completed`](StreamMachine::handle_completed), now or by a later request.
    fn on_command(
        &mut self,
        now: Instant,
        machine: &mut M,
        id: CommandId,
        command: M::Command,
    ) -> Option<Dial>;

    /// Takes the end of a dial, to be made an outcome for
    /// [`handle_completed`](StreamMachine::handle_completed).
    ///
    /// Where it went well, [`handle_opened`](StreamMachine::handle_opened) has been called.
    fn on_dialled(
        &mut self,
        now: Instant,
        machine: &mut M,
        id: CommandId,
        result: Result<ConnectionId, DialError>,
    );

    /// Takes notice of a node that a listener has turned away, since it is not one of
    /// [`Admission::Only`](super::Admission::Only). It claims to be `claimed`, and has proved nothing: anybody may
    /// have this called as often as handshakes are begun. Nothing is done by default.
    fn on_stranger(&mut self, _now: Instant, _machine: &mut M, _claimed: NodeId) {}

    /// Returns whether the machine may be given more records of `connection`; always by default.
    ///
    /// While not, nothing is read from it, so that its other end has to wait; no time runs against
    /// it. Asked again in each turn. A system call's worth of records, up to 64 KiB, may come
    /// after it turned false.
    fn may_receive(&self, _machine: &M, _connection: ConnectionId) -> bool {
        true
    }

    /// Returns whether requests shall stay in their queue, because what was asked before is not
    /// done yet; never by default. Asked before each request, and after each drain.
    fn is_busy(&self, _machine: &M) -> bool {
        false
    }

    /// Returns an open connection for the driver to serve; none by default. Asked after each request
    /// until there is none.
    ///
    /// To the machine it is opened anew: [`handle_opened`](StreamMachine::handle_opened) with an id
    /// of this driver follows at once. Where the driver has no place for it, its end follows, too.
    fn poll_arrival(&mut self, _machine: &mut M) -> Option<OpenConnection> {
        None
    }

    /// Returns a connection that this driver shall give up, for another to serve; none by default.
    /// Asked in each drain until there is none.
    ///
    /// To the machine it is then closed, for a local cause; [`on_departed`](Self::on_departed)
    /// follows, unless the connection is not there.
    fn poll_departure(&mut self, _machine: &mut M) -> Option<ConnectionId> {
        None
    }

    /// Takes the connection that [`poll_departure`](Self::poll_departure) asked for. Dropping it, as
    /// by default, closes it.
    fn on_departed(&mut self, _now: Instant, _machine: &mut M, _connection: OpenConnection) {}

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed; never by default.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Runs what is due at `now`; then [`poll_timeout`](Self::poll_timeout) is later than `now` or
    /// `None`.
    fn handle_timeout(&mut self, _now: Instant, _machine: &mut M) {}

    /// Begins an orderly end: tell the peers. Called once. When [`is_drained`](Self::is_drained)
    /// and all is written, the driver closes what is open and ends; at `deadline` in any case.
    fn begin_shutdown(&mut self, _now: Instant, _machine: &mut M, _deadline: Instant) {}

    /// Returns whether nothing is left to do after
    /// [`begin_shutdown`](Self::begin_shutdown); at once by default.
    fn is_drained(&self, _machine: &M) -> bool {
        true
    }
}

/// A connection to open.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Where to. A name is looked up by whoever may block.
    pub address: SocketAddr,
    /// Who shall be there; anyone else is refused.
    pub peer: DialPeer,
}

/// Who shall be at the other end of a dial.
#[derive(Clone, Debug)]
pub enum DialPeer {
    /// The holder of an identity key, which is proved raw. Proves ours to it, where there is one.
    Node(NodeId),
    /// A host with a certificate for its name. It is proved nothing, and learns nobody's name.
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

/// Why a dial came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialError {
    /// There are as many connections as allowed, or the system gave no socket.
    Full,
    /// Nobody answers at the address.
    Unreachable(ErrorKind),
    /// It took longer than [`handshake_timeout`](super::StreamConfig::handshake_timeout).
    TimedOut,
    /// Another node is there, or somebody in between.
    WrongNode {
        /// Who should be there.
        expected: NodeId,
        /// Who proved to be, or claimed so.
        found: NodeId,
    },
    /// A host is there whose certificate is not believed.
    Certificate(CertificateFault),
    /// The other end refused the handshake: it does not let this node in, speaks another protocol,
    /// or is a node where a host was dialled, or the other way round.
    Refused,
    /// The other end left during the handshake.
    Gone,
    /// What answers does not speak this TLS, or its proof is bad.
    Malformed,
    /// The servicer shuts down.
    Ended,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room for one more connection"),
            Self::Unreachable(kind) => write!(f, "nobody was reached: {kind}"),
            Self::TimedOut => f.write_str("the handshake took too long"),
            Self::WrongNode { expected, found } => {
                write!(f, "found node {found} where {expected} was expected")
            }
            Self::Certificate(fault) => write!(f, "the host is not believed: {fault}"),
            Self::Refused => f.write_str("the other end refused the handshake"),
            Self::Gone => f.write_str("the other end left during the handshake"),
            Self::Malformed => f.write_str("the other end does not speak this protocol"),
            Self::Ended => f.write_str("the servicer has ended"),
        }
    }
}

impl std::error::Error for DialError {}
