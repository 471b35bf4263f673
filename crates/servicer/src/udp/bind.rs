//! How sockets are bound, and what the system made of it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wire::address::canonical;

/// How a socket is bound.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Bytes that may wait in the kernel to be received; 4 MiB. What a process that is paused
    /// for 100 ms gets at 40 MB/s. More costs kernel memory only while it is in use.
    pub receive_buffer_bytes: usize,
    /// Bytes that may wait in the kernel to be sent; 4 MiB.
    pub send_buffer_bytes: usize,
    /// Whether a socket that is bound to `[::]` also speaks IPv4; not by default.
    pub stack: Stack,
    /// The one peer that it speaks with; by default it speaks with all. The system drops what others send,
    /// and looks for the way once rather than for each datagram. It keeps the source address that it then has:
    /// where a host's address changes, the socket is to be opened again. Without effect but on Linux, and where
    /// the system knows no way to the peer yet.
    pub peer: Option<SocketAddr>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            stack: Stack::Single,
            peer: None,
        }
    }
}

/// Whether a socket has its port alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Alone,
    /// With others of the same user, among which the system divides what comes.
    Shared,
}

/// Whether a socket that is bound to `[::]` also speaks IPv4. No meaning for sockets that are bound to
/// another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// IPv6 only, whatever the system's default; give the driver a second socket for IPv4.
    Single,
    /// IPv4 too, where the system can. Peers that come by it are seen under their IPv4 address.
    Dual,
}

/// What was asked of the system for a socket, and what it granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketReport {
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// Receive buffer, bytes.
    pub receive_buffer: Granted,
    /// Send buffer, bytes.
    pub send_buffer: Granted,
    /// Whether routers may fragment what it sends, because the system cannot forbid it.
    pub may_fragment: bool,
    /// Datagrams that one system call may send (GSO).
    pub segments_out_max: usize,
    /// Datagrams that the system may hand over as one (GRO).
    pub segments_in_max: usize,
}

impl SocketReport {
    /// Reads what `socket` has; `asked` are receive and send buffer, bytes.
    pub(super) fn of(socket: &Socket, asked: Option<(usize, usize)>) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let address = address
            .as_socket()
            .ok_or_else(|| io::Error::from(ErrorKind::Unsupported))?;
        Ok(Self {
            address,
            receive_buffer: Granted {
                asked_bytes: asked.map(|(receive, _)| receive),
                granted_bytes: usable(socket.recv_buffer_size()?),
            },
            send_buffer: Granted {
                asked_bytes: asked.map(|(_, send)| send),
                granted_bytes: usable(socket.send_buffer_size()?),
            },
            may_fragment: false,
            segments_out_max: 1,
            segments_in_max: 1,
        })
    }
}

impl fmt::Display for SocketReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: receive buffer {}, send buffer {}, up to {} datagrams a send and {} a receive, {}",
            self.address,
            self.receive_buffer,
            self.send_buffer,
            self.segments_out_max,
            self.segments_in_max,
            if self.may_fragment {
                "routers may fragment"
            } else {
                "never fragmented"
            }
        )
    }
}

/// Size of a buffer in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What was asked for; `None` where the socket came from elsewhere.
    pub asked_bytes: Option<usize>,
    /// What the system granted. Linux counts its own bookkeeping in and so tells the double
    /// (socket(7), `SO_RCVBUF`); this is the half of that.
    pub granted_bytes: usize,
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.granted_bytes)?;
        match self.asked_bytes {
            Some(asked) if asked > self.granted_bytes => write!(
                f,
                " (asked {asked} B; the system's limit is lower, on Linux net.core.rmem_max and wmem_max)"
            ),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why an address could not be bound; the text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError {
    /// The address asked for.
    pub address: SocketAddr,
    /// What stood in the way.
    pub cause: BindCause,
}

impl BindError {
    pub(super) fn new(address: SocketAddr, error: &io::Error) -> Self {
        let kind = error.kind();
        let cause = [
            (ErrorKind::AddrInUse, BindCause::Busy),
            (ErrorKind::PermissionDenied, BindCause::Denied),
            (ErrorKind::AddrNotAvailable, BindCause::NotOurs),
            (ErrorKind::Unsupported, BindCause::NoFamily),
        ]
        .into_iter()
        .find_map(|(known, cause)| (known == kind).then_some(cause))
        .unwrap_or(BindCause::System(kind));
        Self { address, cause }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, cause } = self;
        match cause {
            BindCause::Busy => write!(f, "UDP port {address} is in use by another socket"),
            BindCause::Denied => write!(f, "this user may not bind UDP port {address}"),
            BindCause::NotOurs => write!(f, "this host has no address {}", address.ip()),
            BindCause::NoFamily => write!(
                f,
                "this host does not speak {}",
                if address.is_ipv4() { "IPv4" } else { "IPv6" }
            ),
            BindCause::NotShared => f.write_str(
                "this system does not divide what comes to a UDP port among sockets; use one shard",
            ),
            BindCause::System(kind) => write!(f, "UDP port {address} cannot be bound: {kind}"),
        }
    }
}

impl std::error::Error for BindError {}

/// What stood in the way of binding an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindCause {
    /// Another socket has it.
    Busy,
    /// The user may not; on Unix, ports below 1,024 are reserved.
    Denied,
    /// No interface of this host has the address.
    NotOurs,
    /// The host does not speak the address family.
    NoFamily,
    /// The system does not divide what comes to a port among sockets; Linux does.
    NotShared,
    /// Anything else.
    System(ErrorKind),
}

/// Binds `address` and asks for the buffers that `config` names. An IPv4-mapped address is the IPv4
/// address.
pub(super) fn bind(
    address: SocketAddr,
    config: &SocketConfig,
    sharing: Sharing,
) -> Result<(Socket, SocketReport), BindError> {
    let address = canonical(address);
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        if address.is_ipv6() {
            let is_dual = config.stack == Stack::Dual && address.ip().is_unspecified();
            // OpenBSD has no sockets for both.
            if !is_dual || socket.set_only_v6(false).is_err() {
                socket.set_only_v6(true)?;
            }
        }
        ask(config.receive_buffer_bytes, |bytes| {
            socket.set_recv_buffer_size(bytes)
        });
        ask(config.send_buffer_bytes, |bytes| {
            socket.set_send_buffer_size(bytes)
        });
        if sharing == Sharing::Shared {
            share(&socket)?;
        }
        socket.bind(&SockAddr::from(address))?;
        let asked = (config.receive_buffer_bytes, config.send_buffer_bytes);
        let report = SocketReport::of(&socket, Some(asked))?;
        Ok((socket, report))
    };
    if sharing == Sharing::Shared && !cfg!(has_linux_calls) {
        let cause = BindCause::NotShared;
        return Err(BindError { address, cause });
    }
    open().map_err(|error: io::Error| {
        // What socket() says where the kernel lacks the family has no `ErrorKind` of its own.
        match Socket::new(Domain::for_address(address), Type::DGRAM, None) {
            Ok(_) => BindError::new(address, &error),
            Err(_) => BindError {
                address,
                cause: BindCause::NoFamily,
            },
        }
    })
}

/// Lets others of the same user have the port, too; socket(7), `SO_REUSEPORT`.
#[cfg(has_linux_calls)]
fn share(socket: &Socket) -> io::Result<()> {
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::ReusePort, &true)?;
    Ok(())
}

/// Elsewhere the option has other meanings, or there is none.
#[cfg(not(has_linux_calls))]
fn share(_: &Socket) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Asks for `bytes`, then for half as often as the system refuses.
///
/// Linux and Windows grant their limit in place of more; the BSDs refuse.
fn ask(mut bytes: usize, set: impl Fn(usize) -> io::Result<()>) {
    while bytes >= BUFFER_BYTES_MIN && set(bytes).is_err() {
        bytes /= 2;
    }
}

/// The part of a buffer that datagrams can use.
const fn usable(told: usize) -> usize {
    if cfg!(any(target_os = "android", target_os = "linux")) {
        told / 2
    } else {
        told
    }
}

/// Below this, systems' own defaults are larger.
const BUFFER_BYTES_MIN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn asks_for_half_until_the_system_agrees() {
        let asked = RefCell::new(Vec::new());
        ask(4 << 20, |bytes| {
            asked.borrow_mut().push(bytes);
            if bytes > 1 << 20 {
                Err(ErrorKind::InvalidInput.into())
            } else {
                Ok(())
            }
        });
        assert_eq!(*asked.borrow(), [4 << 20, 2 << 20, 1 << 20]);
    }

    #[test]
    fn gives_up_below_what_systems_have_anyway() {
        let calls = RefCell::new(0);
        ask(4 << 20, |_| {
            *calls.borrow_mut() += 1;
            Err(ErrorKind::InvalidInput.into())
        });
        assert_eq!(*calls.borrow(), 7);
    }

    #[test]
    fn each_cause_is_one_sentence() {
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        for (cause, text) in [
            (
                BindCause::Busy,
                "UDP port 127.0.0.1:80 is in use by another socket",
            ),
            (
                BindCause::Denied,
                "this user may not bind UDP port 127.0.0.1:80",
            ),
            (BindCause::NotOurs, "this host has no address 127.0.0.1"),
            (BindCause::NoFamily, "this host does not speak IPv4"),
            (
                BindCause::NotShared,
                "this system does not divide what comes to a UDP port among sockets; use one shard",
            ),
        ] {
            assert_eq!(BindError { address, cause }.to_string(), text);
        }
    }

    #[test]
    fn the_report_says_where_the_system_gave_less() {
        let granted = Granted {
            asked_bytes: Some(4 << 20),
            granted_bytes: 212_992,
        };
        assert_eq!(
            granted.to_string(),
            "212992 B (asked 4194304 B; the system's limit is lower, on Linux net.core.rmem_max and wmem_max)"
        );
    }
}
