//! What is at this node's end of a flow.

use core::net::{IpAddr, SocketAddr};

use wire::Instant;

use crate::exchange::Exchange;
use crate::leg::{Leg, SocketId};
use crate::ration::ProofState;

/// What is at this end of a flow.
#[derive(Debug)]
pub(super) enum Side {
    /// A player.
    Entry {
        /// The game's socket and the player.
        leg: Leg,
        /// The address of ours that the player spoke to last.
        local: Option<IpAddr>,
        /// Whether the player has proved to receive.
        proof: ProofState,
    },
    /// A game server; the socket is `None` while it is being opened.
    Exit {
        upstream: Upstream,
        /// What the player and the server said in turn.
        exchange: Exchange,
    },
    /// A player and a game server: this node is entry and exit of the flow, which passes no mesh.
    Here {
        /// As in [`Entry`](Self::Entry).
        leg: Leg,
        local: Option<IpAddr>,
        proof: ProofState,
        upstream: Upstream,
    },
    /// A tunnel, for the TCP games of both nodes.
    #[cfg(feature = "tcp")]
    Tunnel(TunnelSide),
}

impl Side {
    /// The player, where he is at this end: by which socket, which address of ours he spoke to last, and
    /// whether he has proved to receive.
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

    /// The way to the game server, where it is at this end.
    pub(super) const fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match self {
            Self::Exit { upstream, .. } | Self::Here { upstream, .. } => Some(upstream),
            Self::Entry { .. } => None,
            #[cfg(feature = "tcp")]
            Self::Tunnel(_) => None,
        }
    }

    /// Whether it is a player's, and no tunnel.
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

/// What an exit has of a flow's game server.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) server: SocketAddr,
    /// `None` while it is being opened.
    pub(super) socket: Option<SocketId>,
    /// When the server last said something.
    pub(super) answered_at: Option<Instant>,
    /// Names the flow in this run of the node: the number of the command that opens its socket.
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

/// Which end of a tunnel.
#[cfg(feature = "tcp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelSide {
    /// Players come in here.
    Entry,
    /// They go out here.
    Exit,
}
