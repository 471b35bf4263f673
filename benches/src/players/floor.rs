//! Bare loops: they only receive and send as many datagrams as a match server.

use core::time::Duration;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt,
};

use super::ticker::Ticker;
use super::{Plan, TURNS};
use crate::floor::BareDirection;
use crate::measure::cpu_time_of;

/// The work of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Up to 32 datagrams per receive call and 64 per send call, as in the driver.
    Batches,
    /// The same, and header, AEAD and replay window for each datagram in and out.
    SealedBatches,
    /// One call per datagram.
    Single,
}

/// Datagram lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// From a player.
    pub up: usize,
    /// To a player.
    pub down: usize,
}

/// A loop on its own socket. It receives one datagram per player and tick, and sends one.
pub struct Floor {
    socket: UdpSocket,
    work: Work,
    pace: Ticker,
    everyone: Vec<SocketAddr>,
    directions: Vec<BareDirection>,
    /// Index of the next key.
    next: usize,
    plain: Vec<u8>,
    out: Vec<u8>,
    rooms: Vec<u8>,
    incoming: MultiHeaders<SockaddrIn>,
    outgoing: MultiHeaders<SockaddrIn>,
    addresses: Vec<Option<SockaddrIn>>,
    turns: usize,
    /// Datagrams in and out.
    datagrams: [u64; 2],
}

impl Floor {
    /// Opens a loopback socket with the driver's buffer sizes.
    ///
    /// # Panics
    ///
    /// If the system has no socket.
    #[must_use]
    pub fn new(plan: Plan, work: Work, lengths: Lengths) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER).expect("a socket");
        setsockopt(&socket, sockopt::SndBuf, &BUFFER).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let keys = if work == Work::SealedBatches {
            plan.players()
        } else {
            0
        };
        Self {
            socket,
            work,
            pace: Ticker::new(plan.turn()),
            everyone: Vec::new(),
            directions: (0..keys).map(|_| BareDirection::new()).collect(),
            next: 0,
            // The mean of both lengths, without header and tag.
            plain: vec![0x5A; (usize::midpoint(lengths.up, lengths.down)).saturating_sub(23)],
            out: vec![0x5A; lengths.down],
            rooms: vec![0; RECEIVES * ROOM],
            incoming: MultiHeaders::preallocate(RECEIVES, None),
            outgoing: MultiHeaders::preallocate(SENDS, None),
            addresses: Vec::with_capacity(SENDS),
            turns: 0,
            datagrams: [0; 2],
        }
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

    /// Receives until the plan's number of senders is known.
    ///
    /// # Panics
    ///
    /// If that takes longer than `limit`.
    pub fn gather(&mut self, plan: Plan, limit: Duration) {
        let end = self.pace.now() + limit;
        let count = usize::try_from(plan.players()).unwrap_or(usize::MAX);
        let mut buffer = vec![0; ROOM];
        while self.everyone.len() < count {
            self.pace.wait();
            while let Ok((_, from)) = self.socket.recv_from(&mut buffer) {
                self.everyone.push(from);
            }
            self.everyone.sort_unstable();
            self.everyone.dedup();
            assert!(self.pace.now() < end, "{} send", self.everyone.len());
        }
    }

    /// Receives and sends for `span`. Returns the CPU time.
    pub fn run(&mut self, span: Duration) -> Duration {
        let end = self.pace.now() + span;
        cpu_time_of(|| {
            while self.pace.now() < end {
                self.pace.wait();
                self.turn();
            }
        })
    }

    /// Returns the numbers of datagrams in and out.
    #[must_use]
    pub const fn datagrams(&self) -> [u64; 2] {
        self.datagrams
    }

    fn turn(&mut self) {
        loop {
            let received = match self.work {
                Work::Batches | Work::SealedBatches => self.receive_many(),
                Work::Single => self.receive_one(),
            };
            let Some(received) = received else {
                break;
            };
            self.seal(received);
            let [up, _] = &mut self.datagrams;
            *up += u64::try_from(received).unwrap_or(0);
        }
        let group = self.turns % usize::try_from(TURNS).unwrap_or(1);
        self.turns = self.turns.wrapping_add(1);
        let size = self.everyone.len() / usize::try_from(TURNS).unwrap_or(1);
        let range = group * size..(group + 1) * size;
        let sent = match self.work {
            Work::Batches | Work::SealedBatches => self.send_many(range),
            Work::Single => self.send_singly(range),
        };
        let [_, down] = &mut self.datagrams;
        *down += sent;
    }

    /// Returns how many datagrams one call received, or `None` if there were none.
    fn receive_many(&mut self) -> Option<usize> {
        let mut rooms = self.rooms.chunks_mut(ROOM);
        let mut slices: [[IoSliceMut<'_>; 1]; RECEIVES] =
            core::array::from_fn(|_| [IoSliceMut::new(rooms.next().unwrap_or_default())]);
        let found = recvmmsg(
            self.socket.as_raw_fd(),
            &mut self.incoming,
            &mut slices,
            MsgFlags::empty(),
            None,
        );
        match found {
            Ok(found) => Some(found.count()),
            Err(Errno::EAGAIN) => None,
            // The system reports a closed peer once.
            Err(_) => Some(0),
        }
    }

    fn receive_one(&mut self) -> Option<usize> {
        match self.socket.recv_from(&mut self.rooms) {
            Ok(_) => Some(1),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(0),
        }
    }

    /// Opens and seals `count` packets.
    fn seal(&mut self, count: usize) {
        for _ in 0..count {
            let Some(direction) = self.directions.get_mut(self.next) else {
                return;
            };
            direction.pass(&self.plain);
            self.next = (self.next + 1) % self.directions.len();
        }
    }

    fn send_many(&mut self, range: core::ops::Range<usize>) -> u64 {
        let mut sent = 0;
        let everyone = self.everyone.get(range).unwrap_or_default();
        for some in everyone.chunks(SENDS) {
            self.addresses.clear();
            let v4 = some.iter().map(|address| match address {
                SocketAddr::V4(address) => Some(SockaddrIn::from(*address)),
                SocketAddr::V6(_) => None,
            });
            self.addresses.extend(v4);
            let slices: [[IoSlice<'_>; 1]; SENDS] =
                core::array::from_fn(|_| [IoSlice::new(&self.out)]);
            let done = sendmmsg(
                self.socket.as_raw_fd(),
                &mut self.outgoing,
                slices.iter().take(some.len()),
                &self.addresses,
                [],
                MsgFlags::empty(),
            );
            sent += done.map_or(0, |done| u64::try_from(done.count()).unwrap_or(0));
        }
        sent
    }

    fn send_singly(&self, range: core::ops::Range<usize>) -> u64 {
        let everyone = self.everyone.get(range).unwrap_or_default();
        let sent = everyone
            .iter()
            .filter(|to| self.socket.send_to(&self.out, to).is_ok());
        u64::try_from(sent.count()).unwrap_or(0)
    }
}

impl core::fmt::Debug for Floor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Floor")
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

/// Datagrams per receive call: the number that the driver's library requests.
const RECEIVES: usize = 32;

/// Datagrams per send call: the number that the driver batches.
const SENDS: usize = 64;

/// Buffer size per datagram.
const ROOM: usize = 2_048;

/// The driver's socket buffer size.
const BUFFER: usize = 4 << 20;
