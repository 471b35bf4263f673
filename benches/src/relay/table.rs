//! Bare forwarders: only a socket and a table of destinations by sender.

use std::io;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};
use wire::Seed;
use wire::lookup::Lookup;

use super::socket::widen;

/// Destinations by sender.
struct Table {
    to: Lookup<SocketAddr, SocketAddr>,
    sink: SocketAddr,
}

/// Number of entries of inactive senders.
const OTHERS: u16 = 10_000;

impl Table {
    fn new(sink: SocketAddr) -> Self {
        let mut to = Lookup::new(&mut Seed::from_number(1).generator(0));
        for port in 0..OTHERS {
            to.insert(SocketAddr::from(([198, 18, 0, 1], port)), sink);
        }
        Self { to, sink }
    }

    /// Returns a datagram's destination. A new sender is added with the sink as its destination.
    fn destination(&mut self, from: SocketAddr) -> SocketAddr {
        if let Some(to) = self.to.get(&from) {
            return *to;
        }
        self.to.insert(from, self.sink);
        self.sink
    }
}

/// Forwards datagrams with one call per datagram in each direction.
///
/// # Errors
///
/// The system's error.
pub fn plain(socket: &UdpSocket, sink: SocketAddr) -> io::Result<()> {
    widen(socket);
    let mut table = Table::new(sink);
    let mut buffer = vec![0; ROOM];
    loop {
        let (len, from) = match socket.recv_from(&mut buffer) {
            Err(error) if is_passing(&error) => continue,
            received => received?,
        };
        let datagram = buffer.get(..len).unwrap_or_default();
        match socket.send_to(datagram, table.destination(from)) {
            Err(error) if is_passing(&error) => {}
            sent => {
                sent?;
            }
        }
    }
}

/// Forwards datagrams, up to 64 per call.
///
/// # Errors
///
/// The system's error.
pub fn mmsg(socket: &UdpSocket, sink: SocketAddr) -> io::Result<()> {
    widen(socket);
    let mut table = Table::new(sink);
    let mut rooms = vec![0; BATCH * ROOM];
    let mut incoming: MultiHeaders<SockaddrIn> = MultiHeaders::preallocate(BATCH, None);
    let mut outgoing: MultiHeaders<SockaddrIn> = MultiHeaders::preallocate(BATCH, None);
    let mut addresses: Vec<Option<SockaddrIn>> = Vec::with_capacity(BATCH);
    let mut lengths: Vec<usize> = Vec::with_capacity(BATCH);
    loop {
        addresses.clear();
        lengths.clear();
        let mut chunks = rooms.chunks_mut(ROOM);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            core::array::from_fn(|_| [IoSliceMut::new(chunks.next().unwrap_or_default())]);
        let fd = socket.as_raw_fd();
        match recvmmsg(
            fd,
            &mut incoming,
            &mut slices,
            MsgFlags::MSG_WAITFORONE,
            None,
        ) {
            Ok(received) => {
                for came in received {
                    let from = came.address.map(SocketAddrV4::from).map(SocketAddr::from);
                    let to = table.destination(from.unwrap_or(sink));
                    addresses.push(v4(to));
                    lengths.push(came.bytes);
                }
            }
            Err(Errno::ECONNREFUSED | Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut bodies = rooms.chunks(ROOM).zip(&lengths);
        let slices: [[IoSlice<'_>; 1]; BATCH] = core::array::from_fn(|_| {
            let body = bodies.next().and_then(|(room, len)| room.get(..*len));
            [IoSlice::new(body.unwrap_or_default())]
        });
        let some = slices.iter().take(lengths.len());
        match sendmmsg(fd, &mut outgoing, some, &addresses, [], MsgFlags::empty()) {
            Ok(_) | Err(Errno::ECONNREFUSED | Errno::ENOBUFS) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Like [`plain`], with a socket towards the server per sender.
///
/// # Errors
///
/// The system's error.
pub fn upstreams(socket: &UdpSocket, server: SocketAddr) -> io::Result<()> {
    widen(socket);
    let mut sockets: Lookup<SocketAddr, UdpSocket> =
        Lookup::new(&mut Seed::from_number(1).generator(0));
    let mut buffer = vec![0; ROOM];
    loop {
        let (len, from) = match socket.recv_from(&mut buffer) {
            Err(error) if is_passing(&error) => continue,
            received => received?,
        };
        if !sockets.contains(&from) {
            let upstream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            upstream.connect(server)?;
            sockets.insert(from, upstream);
        }
        let datagram = buffer.get(..len).unwrap_or_default();
        if let Some(upstream) = sockets.get(&from) {
            match upstream.send(datagram) {
                Err(error) if is_passing(&error) => {}
                sent => {
                    sent?;
                }
            }
        }
    }
}

fn v4(address: SocketAddr) -> Option<SockaddrIn> {
    match address {
        SocketAddr::V4(address) => Some(address.into()),
        SocketAddr::V6(_) => None,
    }
}

/// Returns whether the error does not concern this socket: a peer has closed, or a signal arrived.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::Interrupted | ErrorKind::WouldBlock
    )
}

/// Buffer size per datagram.
const ROOM: usize = 2_048;
/// Datagrams per call.
const BATCH: usize = 64;
