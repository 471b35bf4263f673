//! The TCP ports of games.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use relay_mesh::TcpPort;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use wire::address::canonical;

/// A port that is listened on.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) io: TcpListener,
    pub(super) port: TcpPort,
    /// Whether somebody may stand before it.
    pub(super) may_hold: bool,
}

/// Listens on `address`, for IPv4 too if `is_dual`, the system can, and nobody has the port there.
pub(super) fn listen((address, is_dual): (SocketAddr, bool)) -> io::Result<TcpListener> {
    let address = canonical(address);
    let socket = socket(address)?;
    if address.is_ipv6() && is_dual {
        // OpenBSD has no sockets for both.
        socket.set_only_v6(false).ok();
    }
    // Elsewhere this would let two programs have the port at once.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    let bound = socket.bind(&SockAddr::from(address));
    let listening = bound.and_then(|()| socket.listen(BACKLOG));
    match listening {
        Ok(()) => Ok(TcpListener::from_std(socket.into())),
        Err(error) if is_dual && is_taken(&error) => listen((address, false)),
        Err(error) => Err(error),
    }
}

/// Begins to connect to `server`; what it comes to is told once the socket may be written.
pub(super) fn dial(server: SocketAddr, from: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = socket(server)?;
    if let Some(from) = from {
        socket.bind(&SockAddr::from(from))?;
    }
    match socket.connect(&SockAddr::from(server)) {
        Err(error) if !is_under_way(&error) => Err(error),
        Ok(()) | Err(_) => {
            let stream = TcpStream::from_std(socket.into());
            set_up(&stream)?;
            Ok(stream)
        }
    }
}

/// Has a connection send at once what it is given, notice after a while that nobody is there any more,
/// and end by a reset unless [`end_orderly`] says otherwise: whatever kills this process must not look
/// like the end of what was sent.
pub(super) fn set_up(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    let asks = TcpKeepalive::new().with_time(SILENCE);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let asks = asks.with_interval(ASK_GAP).with_retries(ASKS);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(GONE_AFTER))?;
    socket.set_tcp_keepalive(&asks)
}

/// Lets a connection end as one whose halves are both closed.
pub(super) fn end_orderly(stream: &TcpStream) {
    // Where it does not go, the other end has all and is told of a reset behind it.
    SockRef::from(stream).set_linger(None).ok();
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // Before it listens or connects, so that the window told to the other end fits.
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    Ok(socket)
}

/// Whether a connect goes on by itself; connect(2).
pub(in crate::relay) fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    let in_progress = error.raw_os_error() == Some(IN_PROGRESS);
    #[cfg(not(unix))]
    let in_progress = false;
    in_progress || error.kind() == io::ErrorKind::WouldBlock
}

/// `EINPROGRESS` of errno(3).
#[cfg(any(target_os = "android", target_os = "linux"))]
const IN_PROGRESS: i32 = 115;
/// The same elsewhere.
#[cfg(all(unix, not(any(target_os = "android", target_os = "linux"))))]
const IN_PROGRESS: i32 = 36;
/// Asked of the system for each direction of a connection, which takes twice as much (socket(7)): a slow
/// reader holds up so much, and not the megabytes that the system would grow to.
const BUFFER_BYTES: usize = 256 << 10;
/// Connections that the system may hold until they are accepted; less where its own limit is lower.
const BACKLOG: i32 = 1_024;
/// Silence after which the system asks whether the other end is there.
const SILENCE: Duration = Duration::from_secs(30);
/// Time between two such questions, and how many go unanswered before the connection ends: with [`SILENCE`] that
/// is [`GONE_AFTER`].
#[cfg(any(target_os = "android", target_os = "linux"))]
const ASK_GAP: Duration = Duration::from_secs(10);
#[cfg(any(target_os = "android", target_os = "linux"))]
const ASKS: u32 = 9;
/// How long bytes that were sent may wait to be acknowledged; `TCP_USER_TIMEOUT` of tcp(7). It also ends a
/// connection whose reader takes nothing for so long.
#[cfg(any(target_os = "android", target_os = "linux"))]
const GONE_AFTER: Duration = Duration::from_secs(120);

/// Ports that are listened on, by token. Those that somebody may stand before take turns, so that a
/// crowd at one holds up nobody at another.
#[derive(Debug, Default)]
pub(super) struct Doors {
    held: BTreeMap<usize, Door>,
    /// Who had the last turn.
    last: usize,
}

impl Doors {
    pub(super) fn insert(&mut self, token: usize, door: Door) {
        self.held.insert(token, door);
    }

    /// Listens no more on a port.
    pub(super) fn close(&mut self, port: TcpPort) {
        self.held.retain(|_, door| door.port != port);
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// The door whose turn it is, of those that somebody may stand before.
    pub(super) fn next(&self) -> Option<usize> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let round = self.held.range(behind).chain(self.held.range(..=self.last));
        let mut waiting = round.filter(|(_, door)| door.may_hold);
        waiting.next().map(|(token, _)| *token)
    }

    /// Gives a door its turn.
    pub(super) fn take_turn(&mut self, token: usize) -> Option<&mut Door> {
        self.last = token;
        self.get_mut(token)
    }

    pub(super) fn get_mut(&mut self, token: usize) -> Option<&mut Door> {
        self.held.get_mut(&token)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel has, for both sides: a player's connection and one to a game server.
    #[test]
    #[cfg(any(target_os = "android", target_os = "linux"))]
    fn mesh_a7_the_system_ends_a_connection_whose_peer_vanished_after_two_minutes() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = dial(server.local_addr().unwrap(), None).unwrap();
        let (accepted, _) = server.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let accepted = TcpStream::from_std(accepted);
        assert!(!SockRef::from(&accepted).keepalive().unwrap(), "by default");
        set_up(&accepted).unwrap();
        for stream in [&dialled, &accepted] {
            let socket = SockRef::from(stream);
            assert!(socket.keepalive().unwrap());
            let (idle, gap) = (
                socket.tcp_keepalive_time().unwrap(),
                socket.tcp_keepalive_interval().unwrap(),
            );
            let asks = socket.tcp_keepalive_retries().unwrap();
            assert_eq!((idle, gap, asks), (SILENCE, ASK_GAP, ASKS));
            assert_eq!(idle + gap * asks, GONE_AFTER, "with nothing to send");
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(GONE_AFTER));
        }
    }

    #[test]
    fn u1_a_port_on_all_ipv6_addresses_accepts_ipv4_if_the_node_says_so() {
        let any = "[::]:0".parse().unwrap();
        let Ok(dual) = listen((any, true)) else {
            // A host without IPv6.
            return;
        };
        let port = dual.local_addr().unwrap().port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let single = listen((any, false)).unwrap();
        let port = single.local_addr().unwrap().port();
        std::net::TcpListener::bind(("0.0.0.0", port)).expect("the port is free on IPv4");
    }

    #[test]
    fn u1_a_port_that_another_program_has_over_ipv4_is_opened_for_ipv6() {
        let other = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let all = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port));
        // A host without IPv6 says so.
        let Ok(ours) = listen((all, true)) else {
            return;
        };
        let here = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
        std::net::TcpStream::connect(here).unwrap();
        assert!(ours.accept().is_ok());
    }

    /// A door each for these tokens, none of which anybody stands before.
    fn doors(tokens: &[usize]) -> Doors {
        let mut doors = Doors::default();
        for &token in tokens {
            let door = Door {
                io: listen(("127.0.0.1:0".parse().unwrap(), false)).unwrap(),
                port: TcpPort(u32::try_from(token).unwrap()),
                may_hold: false,
            };
            doors.insert(token, door);
        }
        doors
    }

    fn crowd(doors: &mut Doors, tokens: &[usize]) {
        for &token in tokens {
            doors.get_mut(token).unwrap().may_hold = true;
        }
    }

    /// Who gets so many turns.
    fn turns(doors: &mut Doors, count: usize) -> Vec<usize> {
        let mut turn = || {
            let token = doors.next()?;
            doors.take_turn(token).map(|_| token)
        };
        (0..count).map_while(|_| turn()).collect()
    }

    #[test]
    fn a_crowd_at_one_door_has_one_turn_of_those_who_wait() {
        let mut doors = doors(&[0, 3, 7]);
        assert!(turns(&mut doors, 1).is_empty());
        crowd(&mut doors, &[0, 7]);
        assert_eq!(turns(&mut doors, 4), [7, 0, 7, 0]);
        crowd(&mut doors, &[3]);
        assert_eq!(turns(&mut doors, 5), [3, 7, 0, 3, 7]);
        for token in [0, 3] {
            doors.get_mut(token).unwrap().may_hold = false;
        }
        assert_eq!(turns(&mut doors, 2), [7, 7]);
    }

    #[test]
    fn a_turn_that_is_not_taken_is_not_lost_nor_is_one_whose_door_is_shut() {
        let mut doors = doors(&[1, 2, 3]);
        crowd(&mut doors, &[1, 2, 3]);
        assert_eq!(turns(&mut doors, 1), [1]);
        assert_eq!([doors.next(), doors.next()], [Some(2), Some(2)]);
        assert_eq!(turns(&mut doors, 1), [2]);
        doors.close(TcpPort(2));
        assert_eq!(turns(&mut doors, 3), [3, 1, 3]);
        doors.clear();
        assert_eq!((doors.next(), doors.len()), (None, 0));
    }
}
