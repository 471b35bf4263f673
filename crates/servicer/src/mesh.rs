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
//!         node.record_receive_drops(now, Some(SocketId(socket)), count);
//!     }
//!     fn on_command(&mut self, _: Instant, _: &mut Node<Ring>, _: CommandId, _: Command) {
//!         // All commands of a node are socket orders.
//!     }
//! }
//! ```
//!
//! [`Application`]: crate::Application

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU8;

use relay_mesh::hop::ShardId;
use relay_mesh::shard::{STEERING, STEERING_SHIFT};
use relay_mesh::{Command, Outcome, PeerAddr, SocketId};
use wire::address::canonical;

use crate::driver::{PeerAddress, SocketOrder, SocketOutcome};
use crate::socket::{BindCause, BindError, SocketConfig, SocketIndex, Stack, UdpSocket};

impl PeerAddress for PeerAddr {
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

/// Binds a socket for each shard of a node to one port. The node's own socket is first. With port
/// 0, the system chooses the port. Each socket receives the datagrams of its shard, so none needs
/// to be forwarded, except perhaps datagrams that the system merged (GRO).
///
/// A single socket has its port exclusively, as with [`UdpSocket::bind`]. Several sockets are bound
/// only after an exclusive bind to the port has succeeded, so a second node on the port fails.
///
/// # Errors
///
/// As for [`UdpSocket::bind_shards`]. Also [`BindCause::NotShared`] for more than 8 shards, or if
/// the system cannot steer by a BPF program.
pub fn bind_shards(
    address: SocketAddr,
    config: &SocketConfig,
    count: NonZeroU8,
) -> Result<Vec<UdpSocket>, BindError> {
    if count == NonZeroU8::MIN {
        return Ok(vec![UdpSocket::bind(address, config)?]);
    }
    let refused = |address| {
        let cause = BindCause::NotShared;
        BindError { address, cause }
    };
    if count.get() > ShardId::COUNT_MAX {
        return Err(refused(address));
    }
    // Otherwise the sockets could share the port with those of a running node.
    let alone = UdpSocket::bind(address, config)?;
    let address = alone.local_address();
    drop(alone);
    let sockets = UdpSocket::bind_shards(address, config, count.into())?;
    if let Some(first) = sockets.first() {
        divide(first, &program(count)).map_err(|NotDivided| refused(first.local_address()))?;
    }
    Ok(sockets)
}

struct NotDivided;

/// Attaches `program` to the port. It applies to all sockets of the port.
#[cfg(all(target_os = "linux", has_linux_calls))]
fn divide(socket: &UdpSocket, program: &[Step]) -> Result<(), NotDivided> {
    use nix::libc::{sock_filter, sock_fprog};
    use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};

    let mut steps: Vec<sock_filter> = program
        .iter()
        .map(|step| sock_filter {
            code: step.code,
            jt: step.if_true,
            jf: step.if_false,
            k: step.operand,
        })
        .collect();
    let program = sock_fprog {
        len: u16::try_from(steps.len()).map_err(|_| NotDivided)?,
        filter: steps.as_mut_ptr(),
    };
    setsockopt(&socket.io, AttachReusePortCbpf, &program).map_err(|_| NotDivided)
}

#[cfg(not(all(target_os = "linux", has_linux_calls)))]
fn divide(_: &UdpSocket, _: &[Step]) -> Result<(), NotDivided> {
    Err(NotDivided)
}

/// One instruction of classic BPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    code: u16,
    /// Instructions to skip if the comparison holds.
    if_true: u8,
    /// Instructions to skip if it does not.
    if_false: u8,
    operand: u32,
}

impl Step {
    const fn new(code: u16, operand: u32) -> Self {
        Self {
            code,
            if_true: 0,
            if_false: 0,
            operand,
        }
    }
}

/// The classic BPF program for `count` sockets (socket(7), `SO_ATTACH_REUSEPORT_CBPF`), which
/// returns the index of a datagram's socket. Offsets count from the UDP payload. The first socket
/// receives datagrams without a valid shard, and those too short for an offset.
fn program(count: NonZeroU8) -> Vec<Step> {
    let mut steps = Vec::new();
    for rule in STEERING {
        steps.extend([
            Step::new(LOAD_BYTE, 0),
            Step {
                // If it does not match, skip to the next rule.
                if_false: RULE_LEN,
                ..Step::new(JUMP_IF_EQUAL, rule.first.into())
            },
            Step::new(LOAD_BYTE, u32::try_from(rule.at).unwrap_or(u32::MAX)),
            Step::new(SHIFT_RIGHT, STEERING_SHIFT),
            Step {
                if_false: 1,
                ..Step::new(JUMP_IF_AT_LEAST, count.get().into())
            },
            Step::new(RETURN, 0),
            Step::new(RETURN_BYTE, 0),
        ]);
    }
    steps.push(Step::new(RETURN, 0));
    steps
}

/// Instructions of a rule after its comparison.
const RULE_LEN: u8 = 5;

// Linux, include/uapi/linux/bpf_common.h and filter.h.
const LOAD_BYTE: u16 = 0x30;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const SHIFT_RIGHT: u16 = 0x74;
const RETURN: u16 = 0x06;
const RETURN_BYTE: u16 = 0x16;

#[cfg(test)]
mod tests;
