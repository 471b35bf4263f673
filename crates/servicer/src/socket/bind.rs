//! Binding of sockets, with a report of what the system granted.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wire::address::canonical;

/// Options of a socket.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Receive buffer in the kernel, bytes; 4 MiB, which holds 100 ms at 40 MB/s. Kernel memory is
    /// only used while datagrams are queued.
    pub receive_buffer_bytes: usize,
    /// Send buffer in the kernel, bytes; 4 MiB.
    pub send_buffer_bytes: usize,
    /// Whether a socket bound to `[::]` also uses IPv4; by default not.
    pub stack: Stack,
    /// Connects the socket to one peer; by default it is unconnected. The system drops datagrams of
    /// other senders, and looks up the route once instead of per datagram. The source address is
    /// fixed at that time: if the host's address changes, open a new socket. Only effective on
    /// Linux, and only if the system has a route to the peer.
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

/// Whether a socket has its port exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Alone,
    /// Shared with sockets of the same user; the system distributes datagrams among them.
    Shared,
}

/// Whether a socket bound to `[::]` also uses IPv4. Ignored for other addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// IPv6 only, whatever the system's default. Give the driver a second socket for IPv4.
    Single,
    /// IPv4 too, if the system supports it. IPv4 peers have their IPv4 address.
    Dual,
}

/// The options that were requested for a socket, and those that the system granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketReport {
    /// The bound address.
    pub address: SocketAddr,
    /// Receive buffer, bytes.
    pub receive_buffer: Granted,
    /// Send buffer, bytes.
    pub send_buffer: Granted,
    /// Whether routers may fragment its datagrams, because the system cannot prevent it.
    pub may_fragment: bool,
    /// Maximum datagrams per segmented send (GSO).
    pub segments_out_max: usize,
    /// Maximum datagrams that the system merges into one receive (GRO).
    pub segments_in_max: usize,
}

impl SocketReport {
    /// Reads the options of `socket`. `asked` are receive and send buffer, bytes.
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

/// Size of a kernel buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Requested size, bytes; `None` if the socket was bound elsewhere.
    pub asked_bytes: Option<usize>,
    /// Granted size, bytes. Linux includes its overhead and reports twice the size (socket(7),
    /// `SO_RCVBUF`); this is half of that.
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

/// Why an address could not be bound. The text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError {
    /// The requested address.
    pub address: SocketAddr,
    /// The cause.
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

/// Why an address could not be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindCause {
    /// Another socket uses it.
    Busy,
    /// Permission denied. On Unix, ports below 1,024 are privileged.
    Denied,
    /// No interface of this host has the address.
    NotOurs,
    /// The host does not support the address family.
    NoFamily,
    /// The system cannot distribute a port's datagrams among sockets; Linux can.
    NotShared,
    /// Any other error.
    System(ErrorKind),
}

/// Binds `address` with the buffers of `config`. An IPv4-mapped address is treated as IPv4.
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
            // OpenBSD has no dual-stack sockets.
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
        // The error of socket() for an unsupported family has no `ErrorKind`.
        match Socket::new(Domain::for_address(address), Type::DGRAM, None) {
            Ok(_) => BindError::new(address, &error),
            Err(_) => BindError {
                address,
                cause: BindCause::NoFamily,
            },
        }
    })
}

/// Shares the port with other sockets of the same user; socket(7), `SO_REUSEPORT`.
#[cfg(has_linux_calls)]
fn share(socket: &Socket) -> io::Result<()> {
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::ReusePort, &true)?;
    Ok(())
}

/// On other systems the option means something else or is missing.
#[cfg(not(has_linux_calls))]
fn share(_: &Socket) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Requests `bytes`, and halves the size each time the system refuses.
///
/// Linux and Windows grant their limit if more is requested; the BSDs refuse.
fn ask(mut bytes: usize, set: impl Fn(usize) -> io::Result<()>) {
    while bytes >= BUFFER_BYTES_MIN && set(bytes).is_err() {
        bytes /= 2;
    }
}

/// The part of a buffer that is usable for datagrams.
const fn usable(bytes: usize) -> usize {
    if cfg!(any(target_os = "android", target_os = "linux")) {
        bytes / 2
    } else {
        bytes
    }
}

/// Smallest size requested, bytes. The systems' defaults are larger.
const BUFFER_BYTES_MIN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn halves_the_request_until_the_system_agrees() {
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
    fn does_not_request_less_than_system_defaults() {
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
    fn the_report_names_values_that_the_system_reduced() {
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
