//! Events for a node's operator, and commands for its driver.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::ConnectFailure;
use wire::{Effect, NodeId};

use crate::flow_message::FlowEnd;
use crate::game::ServerProbe;
use crate::peer_addr::SocketId;
use crate::routes::Path;
use crate::signed_config::{Accepted, LeftOut, Protocol, Refused};

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session with a neighbour is up.
    LinkUp {
        /// The neighbour.
        node: NodeId,
        /// Its packets' source address.
        address: SocketAddr,
    },
    /// The session with a neighbour has ended.
    LinkDown {
        /// The neighbour.
        node: NodeId,
    },
    /// The path to a neighbour carries datagrams of 1,200 bytes but not of 1,280: player datagrams
    /// of more than 736 bytes travel over it in two pieces.
    LinkTooSmall {
        /// The neighbour.
        node: NodeId,
    },
    /// Dials of a bootstrap node failed, and not because it was full; reported at most once a
    /// minute per node. If a reachable address does not answer, the network secrets differ.
    BootstrapFailed {
        /// The dialed node.
        node: NodeId,
        /// Its addresses in the bootstrap list.
        addresses: Vec<SocketAddr>,
        /// Why the last dial failed.
        failure: ConnectFailure,
        /// Number of failures since the last report.
        attempts: u64,
    },
    /// Nodes requested a link and were refused; reported at most once a minute per reason.
    NodesRefused {
        /// The reason.
        reason: NodeRefusal,
        /// Number since the last report.
        count: u64,
    },
    /// Another node signs records with this node's key, so it has a copy of the identity file. The
    /// two take over each other's links, and their players lose packets. Reported at most once a
    /// minute.
    IdentityInUse {
        /// Number of foreign records in this node's name since the last report.
        records: u64,
    },
    /// This node is overloaded, and judges no paths and links meanwhile; at most once a minute.
    Overloaded {
        /// How late it ran since the last report.
        late: Duration,
        /// Datagrams that its queues dropped since.
        dropped: u64,
    },
    /// Flows to a remote end use another path.
    RouteChanged {
        /// The remote end.
        remote_end: NodeId,
        /// The previous path; `None` at first.
        from: Option<Path>,
        /// The new path.
        to: Path,
        /// The reason.
        cause: RouteCause,
        /// Number of flows.
        flows: usize,
    },
    /// A flow for a player is open.
    FlowOpened {
        /// The game.
        game: String,
        /// The player.
        player: SocketAddr,
        /// The remote end: the exit at an entry, the entry at an exit.
        remote_end: NodeId,
    },
    /// A flow has ended.
    FlowClosed {
        /// The game.
        game: String,
        /// The player.
        player: SocketAddr,
        /// The reason.
        reason: FlowEnd,
    },
    /// A game's port is open.
    Listening {
        /// The game.
        game: String,
        /// The address as configured.
        address: SocketAddr,
    },
    /// A game's port could not be opened; retried every 5 s.
    ListenFailed {
        /// The game.
        game: String,
        /// The address as configured.
        address: SocketAddr,
    },
    /// A signed document came into force: store what
    /// [`Node::stored_config`](crate::Node::stored_config) returns, atomically.
    ConfigAccepted(Accepted),
    /// A document came into force that the admin keys of this node's own configuration no longer
    /// lead to: they changed more than [`LINKS_MAX`](crate::signed_config::LINKS_MAX) times.
    /// Configure the current keys before the next start.
    ConfigAdrift {
        /// Its version.
        version: u64,
    },
    /// A neighbour's document was refused; the neighbour is not asked again for a while.
    ConfigRefused {
        /// The neighbour.
        node: NodeId,
        /// The reason.
        why: Refused,
    },
    /// The document in force has expired, and no other has arrived.
    ConfigEnded {
        /// Its version.
        version: u64,
    },
    /// A player arrived and no exit of the game can be reached; at most every 10 s per game.
    NoExit {
        /// The game.
        game: String,
    },
    /// Players or packets were rejected; reported at most every 60 s per game and reason.
    TurnedAway {
        /// The game.
        game: String,
        /// The reason.
        reason: TurnedAway,
        /// Number since the last report.
        count: u64,
    },
    /// At an exit: players of an entry were refused because this node does not serve their game, or
    /// does not serve it for that entry. Reported at most every 60 s per entry.
    GameRefused {
        /// The entry.
        entry: NodeId,
        /// The game of the last refused player, as the entry named it.
        game: String,
        /// Players since the last report.
        count: u64,
    },
    /// At an exit: a game's server is reachable, and was not or was not measured before.
    ServerReached {
        /// The game.
        game: String,
        /// Its transport protocol.
        protocol: Protocol,
    },
    /// At an exit: three measurements in a row did not reach a game's server.
    ServerLost {
        /// The game.
        game: String,
        /// Its transport protocol.
        protocol: Protocol,
    },
    /// The system does not permit the configured measurement; retried every 10 min.
    ProbeNotPermitted {
        /// The game.
        game: String,
        /// Its transport protocol.
        protocol: Protocol,
    },
    /// This node does not carry a game of the document.
    GameLeftOut {
        /// The game.
        game: String,
        /// The reason.
        why: LeftOut,
    },
}

/// Why a node was refused a link.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeRefusal {
    /// It has another network secret or none: a node of another network, or forged packets.
    WrongSecret,
    /// It has the secret but is no member, or its identity did not verify.
    NotMember,
}

/// Why a player or packet was rejected.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnedAway {
    /// The newcomer's /24 or /48 has as many unproved or new sources as
    /// [`UnprovedLimits`](crate::UnprovedLimits) allows; one of them may have been evicted.
    Ration,
    /// More newcomers than [`Config::open_rate`](crate::Config::open_rate).
    Rate,
    /// No flow slot is free, or the newcomer's network has its share.
    Share,
    /// The exit refused a UDP player's flow: no slot or socket is free, its limit of requests is
    /// reached, or it does not serve the game.
    Refused,
    /// A datagram was longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX), 1,472 bytes.
    TooLong,
    /// A player or server exceeded [`Config::flow_rate`](crate::Config::flow_rate).
    FlowRate,
    /// A TCP connection arrived and no exit of its game could be reached.
    TcpNoExit,
    /// A TCP connection was reset because of its PROXY header: malformed, missing, from an
    /// untrusted source, or incomplete while all slots were in use.
    TcpGreeting,
    /// A TCP connection exceeded the share of its address or network, the slots, or the rate.
    TcpShare,
    /// An idle TCP connection was reset for a newcomer.
    TcpIdle,
    /// A TCP connection waited at a game's port: all slots were in use and no connection was idle.
    /// Counts the times that this began, not the connections.
    TcpFull,
    /// An accepted TCP connection was reset: by the exit, the server, or the end of its tunnel.
    TcpReset,
}

/// Why flows changed their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RouteCause {
    /// They had none.
    First,
    /// The old one died.
    Killed,
    /// The old one became slow or lossy.
    Degraded,
    /// The new one was better for long enough.
    Better,
    /// A relay of the old one accepts no flows: it drains, or may not relay.
    Drained,
}

/// A command for the node's driver, besides sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Open a UDP socket bound to this address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Whether it receives IPv4 too: it is `[::]`, and the only address of the port.
        is_dual: bool,
    },
    /// Open a UDP socket on an ephemeral port, for one server.
    Open {
        /// The server.
        server: SocketAddr,
    },
    /// Close a socket. Its id is not reused.
    Close {
        /// The socket.
        socket: SocketId,
    },
    /// Measure the round trip to a game's server: [`Outcome::Measured`]. The timeout is 2 s.
    Measure {
        /// The server's address.
        server: SocketAddr,
        /// The method.
        probe: ServerProbe,
    },
}

/// Result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The socket is open; its id was never used before.
    Opened(SocketId),
    /// The socket is closed.
    Closed,
    /// The server answered after this time.
    Measured(Duration),
    /// The system does not permit it; a retry will fail too.
    NotPermitted,
    /// It failed.
    Failed,
}

impl Effect for Command {
    type Outcome = Outcome;
}
