//! Sockets of the senders and sinks.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, recvmsg,
    sendmmsg, sendmsg, setsockopt, sockopt,
};

/// A loopback socket which sends and receives many datagrams per call.
pub struct Mass {
    socket: UdpSocket,
    rooms: Vec<u8>,
    incoming: MultiHeaders<SockaddrIn>,
    outgoing: MultiHeaders<SockaddrIn>,
    intake: Intake,
}

/// How a socket receives bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Intake {
    /// As separate datagrams, like game sockets.
    #[default]
    Single,
    /// Coalesced if the system supports it (GRO), like nodes.
    Joined,
}

impl Mass {
    /// Opens a socket on a port that the system chooses.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn new(intake: Intake) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        widen(&socket);
        if intake == Intake::Joined {
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        }
        Ok(Self {
            socket,
            rooms: vec![0; BATCH * ROOM],
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            intake,
        })
    }

    /// Returns its address.
    ///
    /// # Panics
    ///
    /// If the system does not report it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    /// Sends up to 64 datagrams. Datagrams are lost if the socket buffer is full.
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

    /// Sends at most [`burst`] concatenated datagrams of `segment` bytes in one call (GSO).
    /// Datagrams are lost if the socket buffer is full.
    pub fn send_burst(&self, to: SocketAddr, datagrams: &[u8], segment: usize) {
        let (SocketAddr::V4(to), Ok(segment)) = (to, u16::try_from(segment)) else {
            return;
        };
        let to = SockaddrIn::from(to);
        let cut = [ControlMessage::UdpGsoSegments(&segment)];
        let slices = [IoSlice::new(datagrams)];
        let fd = self.socket.as_raw_fd();
        sendmsg(fd, &slices, &cut, MsgFlags::empty(), Some(&to)).ok();
    }

    /// Passes each waiting datagram and its sender to `take`.
    pub fn receive(&mut self, take: impl FnMut(SocketAddr, &mut [u8])) {
        match self.intake {
            Intake::Single => self.receive_singly(take),
            Intake::Joined => self.receive_joined(take),
        }
    }

    fn receive_joined(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
        let mut control = cmsg_space!(i32);
        loop {
            let fd = self.socket.as_raw_fd();
            let mut slices = [IoSliceMut::new(&mut self.rooms)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let received = recvmsg::<SockaddrIn>(fd, &mut slices, Some(&mut control), flags);
            let (len, from, segment) = match received {
                Ok(came) => {
                    let said = came.cmsgs().into_iter().flatten();
                    let segment = said.into_iter().find_map(|said| {
                        if let ControlMessageOwned::UdpGroSegments(len) = said {
                            usize::try_from(len).ok()
                        } else {
                            None
                        }
                    });
                    (came.bytes, came.address, segment.unwrap_or(came.bytes))
                }
                Err(Errno::ECONNREFUSED) => continue,
                Err(_) => return,
            };
            let Some(from) = from.map(SocketAddrV4::from) else {
                continue;
            };
            let datagrams = self.rooms.get_mut(..len).unwrap_or_default();
            for datagram in datagrams.chunks_mut(segment.max(1)) {
                take(from.into(), datagram);
            }
        }
    }

    fn receive_singly(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
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
                let from = from.map(SocketAddrV4::from);
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

/// Requests the driver's buffer sizes. If the system refuses, the size stays.
pub fn widen(socket: &UdpSocket) {
    setsockopt(socket, sockopt::RcvBuf, &BUFFER).ok();
    setsockopt(socket, sockopt::SndBuf, &BUFFER).ok();
}

/// Returns the number of datagrams of `len` bytes per GSO call.
#[must_use]
pub fn burst(len: usize) -> usize {
    BURST_BYTES.checked_div(len).unwrap_or(BATCH).min(BATCH)
}

/// Datagrams per call.
pub const BATCH: usize = 64;
/// Maximum bytes per GSO call: the payload of an IPv4 packet.
const BURST_BYTES: usize = 65_507;
/// Buffer size per datagram.
const ROOM: usize = 2_048;
/// The driver's socket buffer size.
const BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_arrives_as_separate_datagrams() {
        for intake in [Intake::Single, Intake::Joined] {
            let (sender, mut receiver) = (Mass::new(intake).unwrap(), Mass::new(intake).unwrap());
            let bytes: Vec<u8> = (0..100).collect();
            sender.send_burst(receiver.address(), &bytes, 30);
            let mut came = Vec::new();
            receiver.receive(|from, datagram| {
                assert_eq!(from, sender.address());
                came.push(datagram.to_vec());
            });
            let sent: Vec<_> = bytes.chunks(30).map(<[u8]>::to_vec).collect();
            assert_eq!(came, sent, "{intake:?}");
        }
    }

    #[test]
    fn bursts_fit_the_limits_of_the_system() {
        assert_eq!([100, 1_200, 0, 70_000].map(burst), [64, 54, 64, 0]);
    }
}
