//! Steers the datagrams of a node's port to its shards.
//!
//! The system runs a classic BPF program on each datagram and delivers it to the socket whose index
//! the program returns (socket(7), `SO_ATTACH_REUSEPORT_CBPF`). Offsets count from the UDP payload.
//! If a datagram is too short for an offset, the first socket receives it.

use std::net::SocketAddr;
use std::num::NonZeroU8;

use relay_mesh::shard::{STEERING, STEERING_SHIFT, ShardId};

use crate::udp::{BindCause, BindError, SocketConfig, UdpSocket};

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

/// The system cannot steer by a BPF program.
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

/// The program for `count` sockets. The first socket receives datagrams without a valid shard.
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
