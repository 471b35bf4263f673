//! What a node tells its operator, and what it asks of its driver.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::ConnectFailure;
use wire::{Effect, NodeId};

use crate::flow_message::FlowEnd;
use crate::leg::SocketId;
use crate::routes::Path;
use crate::server_probe::ServerProbe;
use crate::signed_config::{Accepted, LeftOut, Protocol, Refused};

/// News of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session with a neighbour opened.
    LinkUp {
        /// Who it is.
        node: NodeId,
        /// Where its packets come from.
        address: SocketAddr,
    },
    /// The session with a neighbour ended.
    LinkDown {
        /// Who it was.
        node: NodeId,
    },
    /// A neighbour's path does not carry datagrams of 1,280 bytes, only of 1,200: player datagrams of more than 736
    /// bytes travel over it in two pieces.
    LinkTooSmall {
        /// Who it is.
        node: NodeId,
    },
    /// Dials of a node of the bootstrap list failed, and not for want of a place there; told at most once a minute
    /// for each node. Where nothing answers at a reachable address, the network secrets differ; where what answers
    /// has another key, the id is another node's.
    BootstrapFailed {
        /// Which node was dialled.
        node: NodeId,
        /// Where the bootstrap list has it.
        addresses: Vec<SocketAddr>,
        /// Why the last dial failed.
        failure: ConnectFailure,
        /// How many failed since it was told last.
        attempts: u64,
    },
    /// Nodes asked for a link and were refused; told at most once a minute for each reason.
    NodesRefused {
        /// Why.
        reason: NodeRefusal,
        /// How often since it was told last.
        count: u64,
    },
    /// Another node signs records with this node's key: it has a copy of the identity file. Each takes the other's links,
    /// and players of both lose packets. Told at most once a minute.
    IdentityInUse {
        /// Records of this node that it did not make, since it was told last.
        records: u64,
    },
    /// This node does not keep up: paths and links are not judged meanwhile. Told at most once a minute.
    Overloaded {
        /// How late it ran since it was last told.
        late: Duration,
        /// Datagrams that its own queues dropped since.
        dropped: u64,
    },
    /// Flows to another end took another path.
    RouteChanged {
        /// The other end.
        far_end: NodeId,
        /// The path they left; `None` at first.
        from: Option<Path>,
        /// The path they take.
        to: Path,
        /// Why.
        cause: RouteCause,
        /// How many they are.
        flows: usize,
    },
    /// A player's packets are carried.
    FlowOpened {
        /// The game.
        game: String,
        /// Whose.
        player: SocketAddr,
        /// The other end: the exit at an entry, the entry at an exit.
        far_end: NodeId,
    },
    /// They no longer are.
    FlowClosed {
        /// The game.
        game: String,
        /// Whose.
        player: SocketAddr,
        /// Why.
        reason: FlowEnd,
    },
    /// A game's port is open.
    Listening {
        /// The game.
        game: String,
        /// Where, as configured.
        address: SocketAddr,
    },
    /// A game's port could not be opened; it is tried again each 5 s.
    ListenFailed {
        /// The game.
        game: String,
        /// Where, as configured.
        address: SocketAddr,
    },
    /// A signed document came into force: what [`Node::stored_config`](crate::Node::stored_config)
    /// returns is to be stored, whole or not at all.
    ConfigAccepted(Accepted),
    /// A document came into force to which the admin keys of this node's own configuration do not lead
    /// any more: they changed more than [`LINKS_MAX`](crate::signed_config::LINKS_MAX) times. Put the
    /// present ones there before the node is started again.
    ConfigAdrift {
        /// Its version.
        version: u64,
    },
    /// A document that a neighbour sent was refused; the neighbour is not asked again for a while.
    ConfigRefused {
        /// Who sent it.
        node: NodeId,
        /// Why.
        why: Refused,
    },
    /// The time of the document in force is over, and no other came.
    ConfigEnded {
        /// Its version.
        version: u64,
    },
    /// A player came for a game of which no exit can be reached; told at most each 10 s for one game.
    NoExit {
        /// The game.
        game: String,
    },
    /// Players or their packets were turned away for one reason; told at most each 60 s for each game and
    /// reason.
    TurnedAway {
        /// The game.
        game: String,
        /// Why.
        reason: TurnedAway,
        /// How often since it was told last.
        count: u64,
    },
    /// The server of a game was reached, which was not, or was not measured before: at an exit.
    ServerReached {
        /// The game.
        game: String,
        /// Over what it is played.
        protocol: Protocol,
    },
    /// The server of a game was not reached three times in a row: at an exit. Entries send new players
    /// to exits that reach theirs.
    ServerLost {
        /// The game.
        game: String,
        /// Over what it is played.
        protocol: Protocol,
    },
    /// The system does not permit to measure a game's server as configured: it is not measured, and
    /// tried again each 10 min. Told once, until it was permitted meanwhile.
    ProbeNotPermitted {
        /// The game.
        game: String,
        /// Over what it is played.
        protocol: Protocol,
    },
    /// A game of the document is not carried by this node.
    GameLeftOut {
        /// The game.
        game: String,
        /// Why.
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
    /// It holds another network secret, or none: a node of another network, or forged packets.
    WrongSecret,
    /// It holds the network secret and is not among the members of the configuration or of the signed document, or
    /// its identity did not verify.
    NotMember,
}

/// Why a player or a packet of one was turned away.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnedAway {
    /// A newcomer's /24 or /48 has as many unproved sources as [`RationLimits`](crate::RationLimits)
    /// allows, or had as many new ones of late; one of them may have given way.
    Ration,
    /// There were more newcomers than [`Config::open_rate`](crate::Config::open_rate).
    Rate,
    /// There was no place among the flows, or the newcomer's network has its share of them.
    Share,
    /// The exit refused a player's flow over UDP: it has no place or no socket left, was asked too often, or does not
    /// serve the game.
    Refused,
    /// A datagram was longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX), 1,472 bytes.
    TooLong,
    /// A player sent more over UDP than [`Config::flow_rate`](crate::Config::flow_rate), or a server sent one more.
    FlowRate,
    /// A TCP connection came, and no exit of its game could be reached.
    TcpNoExit,
    /// A TCP connection was reset for its PROXY header: a bad one, none where one must be, one of a source that is no
    /// proxy, or none so far while all places were taken.
    TcpGreeting,
    /// A TCP connection came over the share of its address or network, over all places, or too fast.
    TcpShare,
    /// An idle TCP connection was reset to make room for a newcomer.
    TcpIdle,
    /// A TCP connection waited at a game's port: all places were taken, and no connection was idle. Counts the
    /// times that it began, not the connections.
    TcpFull,
    /// A TCP connection that had been taken was reset: the exit refused it, the server did not answer or reset
    /// it, or its tunnel ended.
    TcpReset,
}

/// Why flows took another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteCause {
    /// They had none.
    First,
    /// The old one no longer carried.
    Killed,
    /// The old one had become slow or lossy.
    Degraded,
    /// The new one had been better for long enough.
    Better,
    /// A relay of the old one takes no flows any more: it is to be stopped, or may not relay.
    Drained,
}

/// What a node asks of its driver, besides sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Open a UDP socket bound to this address.
    Listen {
        /// Where.
        address: SocketAddr,
        /// Whether it receives IPv4 too: `[::]`, and no other address of the node has the port.
        is_dual: bool,
    },
    /// Open a UDP socket on a port of the system's choice, for an exchange with this server.
    Open {
        /// With whom.
        server: SocketAddr,
    },
    /// Close a socket. Its name is not used again.
    Close {
        /// Which.
        socket: SocketId,
    },
    /// See how long the answer of a game's server takes: [`Outcome::Measured`]. What comes after 2 s is
    /// not waited for.
    Measure {
        /// Where the server listens.
        server: SocketAddr,
        /// By what.
        probe: ServerProbe,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The socket is open under this name, which the driver has not used before.
    Opened(SocketId),
    /// The socket is closed.
    Closed,
    /// The server answered after so long.
    Measured(Duration),
    /// The system does not permit it, and will not soon.
    NotPermitted,
    /// It could not be done.
    Failed,
}

impl Effect for Command {
    type Outcome = Outcome;
}
