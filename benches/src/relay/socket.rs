//! Sockets of those who send and who count.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt,
};

/// A socket on loopback that takes and gives many datagrams a call.
pub struct Mass {
    socket: UdpSocket,
    rooms: Vec<u8>,
    incoming: MultiHeaders<SockaddrIn>,
    outgoing: MultiHeaders<SockaddrIn>,
}

impl Mass {
    /// Opens one at a port of the system's choice.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        widen(&socket);
        Ok(Self {
            socket,
            rooms: vec![0; BATCH * ROOM],
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
        })
    }

    /// Returns where it is.
    ///
    /// # Panics
    ///
    /// Where the system does not know.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    /// Sends up to 64 datagrams; those that find no room are lost.
    pub fn send<'d>(&mut self, to: SocketAddr, datagrams: impl Iterator<Item = &'d [u8]>) {
        let SocketAddr::V4(to) = to else {
            return;
        };
        let addresses = [Some(SockaddrIn::from(to)); BATCH];
        let mut count = 0;
        let mut slices: [[IoSlice<'d>; 1]; BATCH] = core::array::from_fn(|_| [IoSlice::new(&[])]);
        for (slice, datagram) in slices.iter_mut().zip(datagrams) {
            *slice = [IoSlice::new(datagram)];
            count += 1;
        }
        let some = slices.iter().take(count);
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::empty();
        sendmmsg(fd, &mut self.outgoing, some, addresses, [], flags).ok();
    }

    /// Has `take` see each datagram that waits, and who sent it.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
        loop {
            let mut lengths = [(0, None); BATCH];
            let mut chunks = self.rooms.chunks_mut(ROOM);
            let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
                core::array::from_fn(|_| [IoSliceMut::new(chunks.next().unwrap_or_default())]);
            let fd = self.socket.as_raw_fd();
            let flags = MsgFlags::MSG_DONTWAIT;
            let mut count = 0;
            match recvmmsg(fd, &mut self.incoming, &mut slices, flags, None) {
                Ok(received) => {
                    for (place, came) in lengths.iter_mut().zip(received) {
                        *place = (came.bytes, came.address);
                        count += 1;
                    }
                }
                Err(Errno::ECONNREFUSED) => continue,
                Err(_) => return,
            }
            let rooms = self.rooms.chunks_mut(ROOM).zip(lengths).take(count);
            for (room, (len, from)) in rooms {
                let from = from.map(std::net::SocketAddrV4::from);
                if let (Some(from), Some(datagram)) = (from, room.get_mut(..len)) {
                    take(from.into(), datagram);
                }
            }
            if count < BATCH {
                return;
            }
        }
    }
}

impl core::fmt::Debug for Mass {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mass")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// Asks for buffers as the driver has them; what the system refuses is left as it is.
pub fn widen(socket: &UdpSocket) {
    setsockopt(socket, sockopt::RcvBuf, &BUFFER).ok();
    setsockopt(socket, sockopt::SndBuf, &BUFFER).ok();
}

/// Datagrams of a call.
pub const BATCH: usize = 64;
/// Bytes of room for a datagram.
const ROOM: usize = 2_048;
/// What the driver asks the system for.
const BUFFER: usize = 4 << 20;
