#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod choice;
pub mod config_text;
pub mod cost;
pub mod gossip;
pub mod link_state;
pub mod measure;
pub mod message;
pub mod routes;
pub mod signed_config;

mod config;
mod data_plane;
pub mod detour;
mod event;
pub mod flow_key;
pub mod flow_message;
mod game;
pub mod game_edge;
mod grant;
pub mod hop;
mod hop_seal;
mod key_ring;
mod label;
mod link;
pub mod link_terms;
mod node;
mod outbox;
pub mod path_probe;
mod path_quality;
mod path_setup;
mod path_watch;
mod peer_addr;
mod pieces;
pub mod proxy_header;
mod reply_budget;
pub mod route_request;
mod selection;
pub mod shard;
mod splitmix;
mod stats;
#[cfg(feature = "tcp")]
mod tcp;
pub mod trunk;
#[cfg(feature = "tcp")]
pub mod tunnel;
mod view;

pub use config::{Config, NewError, Signed};
pub use event::{Command, Event, NodeRefusal, Outcome, RouteCause, TurnedAway};
pub use flow_key::FlowId;
pub use flow_message::FlowEnd;
pub use game::{
    EntryGame, ExitGame, Game, HeaderExtras, HeaderTiming, Mode, ServerHeader, ServerProbe,
};
pub use node::{AddressUse, Node};
pub use peer_addr::{PeerAddr, SocketId};
pub use pieces::{DATAGRAM_MAX, WHOLE_MAX};
pub use reply_budget::UnprovedLimits;
pub use shard::{Forwarder, STRAYS_MAX, Stray};
pub use stats::{FrameStats, NodeStats, RefusedRequests};
#[cfg(feature = "tcp")]
pub use tcp::{TcpConfig, TcpPort, TcpRefused, TcpWork};
pub use view::{Draining, EdgeView, GameEdgeView, LinkView, MeshView, NodeView, RouteView};

use std::net::SocketAddr;

use wire::NodeId;

/// Nodes that a starting node dials first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// Nodes to dial, in this order. The node skips its own entry.
    pub nodes: Vec<(NodeId, SocketAddr)>,
}
