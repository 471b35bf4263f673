//! The local end of a flow.

use core::net::{IpAddr, SocketAddr};

use wire::Instant;

use crate::exchange::Exchange;
use crate::leg::{Leg, SocketId};
use crate::ration::ProofState;

/// What a flow leads to at this node.
#[derive(Debug)]
pub(super) enum Side {
    /// A player.
    Entry {
        /// The game's socket and the player's address.
        leg: Leg,
        /// The local address that the player last sent to.
        local: Option<IpAddr>,
        /// Whether the player has proved that it receives replies.
        proof: ProofState,
    },
    /// A game server.
    Exit {
        upstream: Upstream,
        /// Requests and replies so far, which can prove that the player receives.
        exchange: Exchange,
    },
    /// A player and a game server: this node is entry and exit, and the flow does not use the mesh.
    Here {
        /// As in [`Entry`](Self::Entry).
        leg: Leg,
        local: Option<IpAddr>,
        proof: ProofState,
        upstream: Upstream,
    },
    /// A tunnel, which carries the TCP games of both nodes.
    #[cfg(feature = "tcp")]
    Tunnel(TunnelSide),
}

impl Side {
    /// If the player is at this end: its socket and address, the local address it last sent to, and
    /// whether it has proved that it receives.
    pub(super) const fn player_mut(
        &mut self,
    ) -> Option<(&mut Leg, &mut Option<IpAddr>, &mut ProofState)> {
        match self {
            Self::Entry { leg, local, proof }
            | Self::Here {
                leg, local, proof, ..
            } => Some((leg, local, proof)),
            Self::Exit { .. } => None,
            #[cfg(feature = "tcp")]
            Self::Tunnel(_) => None,
        }
    }

    /// The connection to the game server, if it is at this end.
    pub(super) const fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match self {
            Self::Exit { upstream, .. } | Self::Here { upstream, .. } => Some(upstream),
            Self::Entry { .. } => None,
            #[cfg(feature = "tcp")]
            Self::Tunnel(_) => None,
        }
    }

    /// Whether the flow belongs to one player; false for a tunnel.
    #[cfg_attr(
        not(feature = "tcp"),
        expect(clippy::unused_self, reason = "every flow is")
    )]
    pub(super) const fn is_of_player(&self) -> bool {
        #[cfg(feature = "tcp")]
        if let Self::Tunnel(_) = self {
            return false;
        }
        true
    }

    /// Whether this end opened the flow.
    pub(super) const fn is_opened_here(&self) -> bool {
        match self {
            Self::Entry { .. } | Self::Here { .. } => true,
            Self::Exit { .. } => false,
            #[cfg(feature = "tcp")]
            Self::Tunnel(side) => matches!(side, TunnelSide::Entry),
        }
    }
}

/// An exit's state for a flow's game server.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) server: SocketAddr,
    /// `None` until the driver has opened it.
    pub(super) socket: Option<SocketId>,
    /// When the server last sent a datagram.
    pub(super) answered_at: Option<Instant>,
    /// Identifies the flow while this node runs: the number of the command that opens its socket.
    pub(super) serial: u64,
}

impl Upstream {
    pub(super) const fn new(server: SocketAddr, serial: u64) -> Self {
        Self {
            server,
            socket: None,
            answered_at: None,
            serial,
        }
    }
}

/// Which end of a tunnel this node is.
#[cfg(feature = "tcp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelSide {
    /// Players connect here.
    Entry,
    /// Connections to game servers leave here.
    Exit,
}
