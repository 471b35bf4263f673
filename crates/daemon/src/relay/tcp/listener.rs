//! Listening sockets of TCP games, and socket options of connections.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use relay_mesh::TcpPort;
use servicer::tcp::socket;
use socket2::{SockAddr, SockRef, Socket, TcpKeepalive};
use wire::address::canonical;

#[derive(Debug)]
pub(super) struct PortListener {
    pub(super) io: TcpListener,
    pub(super) port: TcpPort,
    /// Whether a connection may be waiting; cleared when accept would block.
    pub(super) may_have_pending: bool,
}

/// Listens on `address`; also for IPv4 if `is_dual`, the system supports it, and the port is free
/// there.
pub(super) fn listen((address, is_dual): (SocketAddr, bool)) -> io::Result<TcpListener> {
    let address = canonical(address);
    let socket = buffered(address)?;
    if address.is_ipv6() && is_dual {
        // OpenBSD has no dual-stack sockets.
        socket.set_only_v6(false).ok();
    }
    match socket::listen(socket, address) {
        Err(error) if is_dual && error.kind() == ErrorKind::AddrInUse => listen((address, false)),
        listening => listening,
    }
}

/// Starts to connect to `server`; the socket becomes writable when the result is known.
pub(super) fn dial(server: SocketAddr, from: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = buffered(server)?;
    if let Some(from) = from {
        socket.bind(&SockAddr::from(from))?;
    }
    match socket.connect(&SockAddr::from(server)) {
        Err(error) if !is_in_progress(&error) => Err(error),
        Ok(()) | Err(_) => {
            let stream = TcpStream::from_std(socket.into());
            configure(&stream)?;
            Ok(stream)
        }
    }
}

/// Disables Nagle's algorithm, detects a vanished peer, and makes a close a reset unless
/// [`close_gracefully`] is called: killing this process must not look like the end of the stream.
pub(super) fn configure(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let keepalive = keepalive
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_tcp_keepalive(&keepalive)
}

/// Makes the close of this connection an orderly one.
pub(super) fn close_gracefully(stream: &TcpStream) {
    // On failure the peer has all bytes and sees a reset after them.
    SockRef::from(stream).set_linger(None).ok();
}

fn buffered(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket::open(address)?;
    // Set before listen and connect, so that the advertised window fits.
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    Ok(socket)
}

/// Whether a connect continues in the background; connect(2).
pub(in crate::relay) fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    let in_progress = error.raw_os_error() == Some(IN_PROGRESS);
    #[cfg(not(unix))]
    let in_progress = false;
    in_progress || error.kind() == ErrorKind::WouldBlock
}

/// `EINPROGRESS` of errno(3).
#[cfg(any(target_os = "android", target_os = "linux"))]
const IN_PROGRESS: i32 = 115;
/// `EINPROGRESS` on other systems.
#[cfg(all(unix, not(any(target_os = "android", target_os = "linux"))))]
const IN_PROGRESS: i32 = 36;
/// Buffer per direction and connection; the system reserves twice as much (socket(7)). It bounds
/// what a slow reader holds up; the system's default grows to megabytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Idle time before the first keep-alive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Interval and number of keep-alive probes; with [`KEEPALIVE_IDLE`] they take [`USER_TIMEOUT`].
#[cfg(any(target_os = "android", target_os = "linux"))]
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
#[cfg(any(target_os = "android", target_os = "linux"))]
const KEEPALIVE_PROBES: u32 = 9;
/// Time that sent bytes may stay unacknowledged, `TCP_USER_TIMEOUT` of tcp(7). It also ends a
/// connection if the peer keeps its window closed for that long.
#[cfg(any(target_os = "android", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(120);

/// Open ports by token. Ports with waiting connections take turns, so that a busy port does not
/// delay another.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_token: BTreeMap<usize, PortListener>,
    last: usize,
}

impl Listeners {
    pub(super) fn insert(&mut self, token: usize, listener: PortListener) {
        self.by_token.insert(token, listener);
    }

    pub(super) fn close(&mut self, port: TcpPort) {
        self.by_token.retain(|_, listener| listener.port != port);
    }

    pub(super) fn clear(&mut self) {
        self.by_token.clear();
    }

    /// Returns the next port in turn that may have a waiting connection.
    pub(super) fn next(&self) -> Option<usize> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let round = self
            .by_token
            .range(behind)
            .chain(self.by_token.range(..=self.last));
        let mut waiting = round.filter(|(_, listener)| listener.may_have_pending);
        waiting.next().map(|(token, _)| *token)
    }

    /// Records a port's turn and returns it.
    pub(super) fn take_turn(&mut self, token: usize) -> Option<&mut PortListener> {
        self.last = token;
        self.get_mut(token)
    }

    pub(super) fn get_mut(&mut self, token: usize) -> Option<&mut PortListener> {
        self.by_token.get_mut(&token)
    }

    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the options back from the kernel, for both directions of dialling.
    #[test]
    #[cfg(any(target_os = "android", target_os = "linux"))]
    fn mesh_a7_the_system_ends_a_connection_to_a_vanished_peer_after_2_min() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = dial(server.local_addr().unwrap(), None).unwrap();
        let (accepted, _) = server.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let accepted = TcpStream::from_std(accepted);
        assert!(!SockRef::from(&accepted).keepalive().unwrap(), "by default");
        configure(&accepted).unwrap();
        for stream in [&dialled, &accepted] {
            let socket = SockRef::from(stream);
            assert!(socket.keepalive().unwrap());
            let (idle, gap) = (
                socket.tcp_keepalive_time().unwrap(),
                socket.tcp_keepalive_interval().unwrap(),
            );
            let keepalive = socket.tcp_keepalive_retries().unwrap();
            assert_eq!(
                (idle, gap, keepalive),
                (KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES)
            );
            assert_eq!(idle + gap * keepalive, USER_TIMEOUT, "with nothing to send");
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        }
    }

    #[test]
    fn u1_a_dual_stack_port_accepts_ipv4() {
        let any = "[::]:0".parse().unwrap();
        let Ok(dual) = listen((any, true)) else {
            return;
        };
        let port = dual.local_addr().unwrap().port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let single = listen((any, false)).unwrap();
        let port = single.local_addr().unwrap().port();
        std::net::TcpListener::bind(("0.0.0.0", port)).expect("the port is free on IPv4");
    }

    #[test]
    fn u1_a_port_in_use_on_ipv4_is_opened_for_ipv6() {
        let other = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let all = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port));
        let Ok(ours) = listen((all, true)) else {
            return;
        };
        let here = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
        std::net::TcpStream::connect(here).unwrap();
        assert!(ours.accept().is_ok());
    }

    /// Listeners with these tokens, none of which has a waiting connection.
    fn listeners(tokens: &[usize]) -> Listeners {
        let mut listeners = Listeners::default();
        for &token in tokens {
            let listener = PortListener {
                io: listen(("127.0.0.1:0".parse().unwrap(), false)).unwrap(),
                port: TcpPort(u32::try_from(token).unwrap()),
                may_have_pending: false,
            };
            listeners.insert(token, listener);
        }
        listeners
    }

    fn set_pending(listeners: &mut Listeners, tokens: &[usize]) {
        for &token in tokens {
            listeners.get_mut(token).unwrap().may_have_pending = true;
        }
    }

    fn turns(listeners: &mut Listeners, count: usize) -> Vec<usize> {
        let mut turn = || {
            let token = listeners.next()?;
            listeners.take_turn(token).map(|_| token)
        };
        (0..count).map_while(|_| turn()).collect()
    }

    #[test]
    fn a_busy_port_has_one_turn_among_the_waiting_ports() {
        let mut listeners = listeners(&[0, 3, 7]);
        assert!(turns(&mut listeners, 1).is_empty());
        set_pending(&mut listeners, &[0, 7]);
        assert_eq!(turns(&mut listeners, 4), [7, 0, 7, 0]);
        set_pending(&mut listeners, &[3]);
        assert_eq!(turns(&mut listeners, 5), [3, 7, 0, 3, 7]);
        for token in [0, 3] {
            listeners.get_mut(token).unwrap().may_have_pending = false;
        }
        assert_eq!(turns(&mut listeners, 2), [7, 7]);
    }

    #[test]
    fn an_unused_turn_and_a_closed_port_skip_no_other_port() {
        let mut listeners = listeners(&[1, 2, 3]);
        set_pending(&mut listeners, &[1, 2, 3]);
        assert_eq!(turns(&mut listeners, 1), [1]);
        assert_eq!([listeners.next(), listeners.next()], [Some(2), Some(2)]);
        assert_eq!(turns(&mut listeners, 1), [2]);
        listeners.close(TcpPort(2));
        assert_eq!(turns(&mut listeners, 3), [3, 1, 3]);
        listeners.clear();
        assert_eq!((listeners.next(), listeners.len()), (None, 0));
    }
}
