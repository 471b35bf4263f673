//! Runs mesh nodes on real sockets: maps a node's peers and commands to a driver's peers and
//! orders.
//!
//! [`bind_shards`] binds the socket of a node, or one for each of its shards.
//!
//! The first socket of the driver is the mesh socket, [`SocketId::MESH`]. The node requests all
//! others with commands, which its [`Application`] forwards:
//!
//! ```
//! use std::convert::Infallible;
//! use std::ops::ControlFlow;
//!
//! use crypto::Ring;
//! use relay_mesh::{Command, Event, Node, SocketId};
//! use servicer::{Application, SocketIndex, SocketOrder, SocketOutcome, mesh};
//! use wire::{CommandId, Instant};
//!
//! struct Operator;
//!
//! impl Application<Node<Ring>> for Operator {
//!     type Request = Infallible;
//!
//!     fn apply_request(
//!         &mut self,
//!         _: Instant,
//!         _: &mut Node<Ring>,
//!         request: Infallible,
//!     ) -> ControlFlow<()> {
//!         match request {}
//!     }
//!     fn on_event(&mut self, _: Instant, _: &mut Node<Ring>, _: Event) {}
//!     fn socket_order(&self, command: &Command) -> Option<SocketOrder> {
//!         mesh::order(command, None)
//!     }
//!     fn on_socket(
//!         &mut self,
//!         now: Instant,
//!         node: &mut Node<Ring>,
//!         id: CommandId,
//!         outcome: SocketOutcome,
//!     ) {
//!         node.handle_completed(now, id, mesh::outcome(outcome));
//!     }
//!     fn on_receive_drops(
//!         &mut self,
//!         now: Instant,
//!         node: &mut Node<Ring>,
//!         SocketIndex(socket): SocketIndex,
//!         count: u64,
//!     ) {
//!         node.note_receive_drops(now, Some(SocketId(socket)), count);
//!     }
//!     fn on_command(&mut self, _: Instant, _: &mut Node<Ring>, _: CommandId, _: Command) {
//!         // All commands of a node are socket orders.
//!     }
//! }
//! ```
//!
//! [`Application`]: crate::Application

mod steering;

pub use steering::bind_shards;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use relay_mesh::{Command, Leg, Outcome, SocketId};
use wire::address::canonical;

use crate::driver::{PeerAddress, SocketIndex, SocketOrder, SocketOutcome};
use crate::udp::{SocketConfig, Stack};

impl PeerAddress for Leg {
    fn from_wire(SocketIndex(index): SocketIndex, address: SocketAddr) -> Self {
        Self {
            socket: SocketId(index),
            address,
        }
    }

    fn socket(&self) -> Option<SocketIndex> {
        Some(SocketIndex(self.socket.0))
    }

    fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Returns the socket order for a node's command, or `None` if the command is not about the
/// driver's sockets.
///
/// Sockets to game servers bind to `upstream` if it is of the server's address family. Otherwise
/// the system chooses the address.
#[must_use]
pub fn order(command: &Command, upstream: Option<IpAddr>) -> Option<SocketOrder> {
    Some(match *command {
        Command::Listen { address, is_dual } => SocketOrder::Open {
            address,
            config: SocketConfig {
                stack: if is_dual { Stack::Dual } else { Stack::Single },
                ..SocketConfig::default()
            },
        },
        Command::Open { server } => {
            let server = canonical(server);
            let any = if server.is_ipv4() {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            } else {
                IpAddr::V6(Ipv6Addr::UNSPECIFIED)
            };
            let upstream = upstream.filter(|ip| ip.is_ipv4() == server.is_ipv4());
            SocketOrder::Open {
                address: SocketAddr::new(upstream.unwrap_or(any), 0),
                config: SocketConfig {
                    receive_buffer_bytes: FLOW_BUFFER_BYTES,
                    send_buffer_bytes: FLOW_BUFFER_BYTES,
                    peer: Some(server),
                    ..SocketConfig::default()
                },
            }
        }
        Command::Close {
            socket: SocketId(index),
        } => SocketOrder::Close(SocketIndex(index)),
        Command::Measure { .. } => return None,
    })
}

/// Returns the node's outcome for the outcome of an order.
#[must_use]
pub const fn outcome(outcome: SocketOutcome) -> Outcome {
    match outcome {
        SocketOutcome::Opened { socket, .. } => Outcome::Opened(SocketId(socket.0)),
        SocketOutcome::Closed => Outcome::Closed,
        SocketOutcome::Failed(_) => Outcome::Failed,
    }
}

/// Kernel buffer for one player's traffic: 100 ms at 2.6 MB/s.
const FLOW_BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_server_begins_at_an_address_of_its_family() {
        let bound = |server: &str, upstream: Option<&str>| {
            let command = Command::Open {
                server: server.parse().unwrap(),
            };
            match order(&command, upstream.map(|ip| ip.parse().unwrap())) {
                Some(SocketOrder::Open { address, .. }) => address.to_string(),
                order => panic!("a socket is to be opened, not {order:?}"),
            }
        };
        assert_eq!(bound("192.0.2.1:9", None), "0.0.0.0:0");
        assert_eq!(bound("[2001:db8::1]:9", None), "[::]:0");
        assert_eq!(bound("127.0.0.1:9", Some("127.0.0.7")), "127.0.0.7:0");
        assert_eq!(bound("[::1]:9", Some("127.0.0.7")), "[::]:0");
    }

    #[test]
    fn a_port_of_a_game_receives_both_families_if_the_node_says_so() {
        for (is_dual, stack) in [(true, Stack::Dual), (false, Stack::Single)] {
            let address = "[::]:7".parse().unwrap();
            match order(&Command::Listen { address, is_dual }, None) {
                Some(SocketOrder::Open { config, .. }) => assert_eq!(config.stack, stack),
                order => panic!("a socket is to be opened, not {order:?}"),
            }
        }
    }

    #[test]
    fn a_leg_names_the_socket_that_it_came_by() {
        let address: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let leg = Leg::from_wire(SocketIndex(0), address);
        assert_eq!(leg, Leg::mesh(address));
        let leg = Leg::from_wire(SocketIndex(70_000), address);
        assert_eq!(leg.socket(), Some(SocketIndex(70_000)));
    }
}
