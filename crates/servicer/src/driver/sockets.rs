//! The sockets of a driver: those that it was given, and those opened while it runs.
//!
//! Those given are looked at in every turn. Those opened later may be many and mostly silent, so
//! that only those are looked at of which the system has told something since they were last
//! found empty.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use mio::{Interest, Token};

use super::EVENTS_MAX;
use super::application::SocketIndex;
use crate::udp::socket::full_buffers;
use crate::udp::{BindError, SocketConfig, UdpSocket};
use crate::waiter::{TOKENS_MAX, Waiter};

/// What an application asks of its driver while it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SocketOrder {
    /// Bind a socket.
    Open {
        /// Where; port 0 lets the system choose one.
        address: SocketAddr,
        /// How.
        config: SocketConfig,
    },
    /// Close a socket that was opened so.
    Close(SocketIndex),
}

/// What became of a [`SocketOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOutcome {
    /// The socket is open.
    Opened {
        /// Its name, which no other socket of the driver has had.
        socket: SocketIndex,
        /// What it is bound to, with the port that the system chose.
        address: SocketAddr,
    },
    /// The socket is closed.
    Closed,
    /// It could not be done.
    Failed(SocketError),
}

/// Why a [`SocketOrder`] could not be carried out; the text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketError {
    /// As many are open as [`Config::opened_max`](super::Config::opened_max) allows.
    TooMany,
    /// The address could not be bound.
    Bind(BindError),
    /// The system does not wait for so many.
    Watch(io::ErrorKind),
    /// No socket that was opened so has this name, or not any more.
    Unknown(SocketIndex),
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => f.write_str("as many sockets are open as the driver's limit allows"),
            Self::Bind(error) => error.fmt(f),
            Self::Watch(kind) => write!(f, "the system cannot wait for another socket: {kind}"),
            Self::Unknown(SocketIndex(index)) => write!(f, "no socket {index} has been opened"),
        }
    }
}

impl std::error::Error for SocketError {}

/// All sockets of a driver.
#[derive(Debug)]
pub(super) struct Sockets {
    /// By rising index.
    list: Vec<Entry>,
    /// How many of them were given.
    given: usize,
    /// How many may be open beside those.
    opened_max: usize,
    /// The next one opened.
    next: u32,
    /// Place of the socket whose drops are read next.
    drops_from: usize,
    /// How many datagrams the system had dropped for a full buffer, at all its sockets, when that was last read.
    full_buffers: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    index: SocketIndex,
    socket: UdpSocket,
    /// Whether it has to be looked at.
    may_hold: bool,
    /// Whether something came since its drops were last read.
    has_received: bool,
    /// The system's count of drops when it was last read; it wraps.
    drops: u32,
}

impl Entry {
    const fn new(index: SocketIndex, socket: UdpSocket) -> Self {
        Self {
            index,
            socket,
            may_hold: true,
            has_received: false,
            drops: 0,
        }
    }
}

/// Datagrams that the system dropped because the receive buffer of one socket was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveDrops {
    pub(super) socket: SocketIndex,
    /// How many since the last time.
    pub(super) count: u32,
    /// Whether the socket was opened while the driver ran.
    pub(super) is_opened: bool,
}

impl Sockets {
    /// Takes the sockets that were given.
    pub(super) fn new(given: Vec<UdpSocket>, opened_max: usize) -> Self {
        let list: Vec<Entry> = (0..)
            .map(SocketIndex)
            .zip(given)
            .map(|(index, socket)| Entry::new(index, socket))
            .collect();
        Self {
            given: list.len(),
            next: list.last().map_or(0, |last| last.index.0.saturating_add(1)),
            list,
            opened_max,
            drops_from: 0,
            full_buffers: None,
        }
    }

    /// Returns what the system dropped at sockets to which something came since they were last asked: of at most
    /// [`DROPS_READ_MAX`] of them, so that the others have their turn next time.
    pub(super) fn read_drops(&mut self) -> Vec<ReceiveDrops> {
        let given = self.given;
        let from = self.drops_from.min(self.list.len());
        let (before, after) = self.list.split_at_mut(from);
        let places = (from..).zip(after).chain((0..).zip(before));
        let mut dropped = Vec::new();
        let active = places.filter(|(_, entry)| entry.has_received);
        for (place, entry) in active.take(DROPS_READ_MAX) {
            self.drops_from = place.saturating_add(1);
            entry.has_received = false;
            let Some(drops) = entry.socket.receive_drops() else {
                continue;
            };
            let count = drops.wrapping_sub(std::mem::replace(&mut entry.drops, drops));
            if count > 0 {
                dropped.push(ReceiveDrops {
                    socket: entry.index,
                    count,
                    is_opened: place >= given,
                });
            }
        }
        self.keep_full_buffers(&mut dropped);
        dropped
    }

    /// Leaves no more of them than were dropped anywhere for a full buffer: the system counts datagrams with a wrong
    /// checksum for a socket, too, and these do not show that this host cannot keep up.
    fn keep_full_buffers(&mut self, dropped: &mut Vec<ReceiveDrops>) {
        if dropped.is_empty() {
            return;
        }
        let Some(now) = full_buffers() else {
            return;
        };
        // The first time nothing is known of what was dropped while the sockets waited for this driver.
        let Some(before) = self.full_buffers.replace(now) else {
            return;
        };
        let mut left = u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
        for drops in &mut *dropped {
            drops.count = drops.count.min(left);
            left = left.saturating_sub(drops.count);
        }
        dropped.retain(|drops| drops.count > 0);
    }

    /// Returns whether there are sockets beside those given.
    pub(super) const fn has_opened(&self) -> bool {
        self.list.len() > self.given
    }

    /// Those that may hold something, each with the note to clear once it is found empty.
    pub(super) fn look(&mut self) -> impl Iterator<Item = Look<'_>> {
        let entries = self.list.iter_mut().enumerate();
        let given = self.given;
        entries
            .filter(|(_, entry)| entry.may_hold)
            .map(move |(place, entry)| Look {
                index: entry.index,
                socket: &entry.socket,
                has_received: &mut entry.has_received,
                may_hold: (place >= given).then_some(&mut entry.may_hold),
            })
    }

    /// Notes of which opened sockets the system has told something in the last wait or look.
    pub(super) fn note(&mut self, waiter: &Waiter) {
        for event in waiter.events() {
            let index = event.token().0.checked_sub(OPENED);
            let index = index.and_then(|index| u32::try_from(index).ok());
            if let Some(place) = index.and_then(|index| self.place(SocketIndex(index)))
                && let Some(entry) = self.list.get_mut(place)
            {
                entry.may_hold = true;
            }
        }
    }

    /// Notes which opened sockets have something by now, without waiting.
    ///
    /// A wake that is seen by this is not lost: the queue is looked at later in the same turn.
    ///
    /// # Errors
    ///
    /// The system's, as [`Waiter::wait`].
    pub(super) fn look_up(&mut self, waiter: &mut Waiter) -> io::Result<()> {
        // Each look takes what fits; a socket tells nothing again before it was emptied, so that
        // the bound is only there for a system that does not keep to that.
        for _ in 0..LOOKS_MAX {
            waiter.look()?;
            self.note(waiter);
            if waiter.events().count() < EVENTS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Returns the socket of that name.
    pub(super) fn get_mut(&mut self, index: SocketIndex) -> Option<&mut UdpSocket> {
        let place = self.place(index)?;
        self.list.get_mut(place).map(|entry| &mut entry.socket)
    }

    /// Chooses the socket of that index, or the first that reaches `destination`.
    pub(super) fn pick(
        &mut self,
        index: Option<SocketIndex>,
        destination: SocketAddr,
    ) -> Option<(SocketIndex, &mut UdpSocket)> {
        match index {
            Some(index) => self
                .get_mut(index)
                .filter(|socket| socket.reaches(destination))
                .map(|socket| (index, socket)),
            None => self
                .list
                .iter_mut()
                .find(|entry| entry.socket.reaches(destination))
                .map(|entry| (entry.index, &mut entry.socket)),
        }
    }

    /// Opens or closes a socket.
    pub(super) fn obey(&mut self, order: &SocketOrder, waiter: &Waiter) -> SocketOutcome {
        let result = match order {
            SocketOrder::Open { address, config } => self.open(*address, config, waiter),
            SocketOrder::Close(index) => self.close(*index, waiter),
        };
        result.unwrap_or_else(SocketOutcome::Failed)
    }

    fn open(
        &mut self,
        address: SocketAddr,
        config: &SocketConfig,
        waiter: &Waiter,
    ) -> Result<SocketOutcome, SocketError> {
        let opened = self.list.len().saturating_sub(self.given);
        // The last name stays unused, so that the next one is always a new one.
        if opened >= self.opened_max || self.next == u32::MAX {
            return Err(SocketError::TooMany);
        }
        let mut socket = UdpSocket::bind(address, config).map_err(SocketError::Bind)?;
        let index = SocketIndex(self.next);
        watch(waiter, &mut socket, index).map_err(|error| SocketError::Watch(error.kind()))?;
        self.next = self.next.saturating_add(1);
        let address = socket.local_address();
        self.list.push(Entry::new(index, socket));
        Ok(SocketOutcome::Opened {
            socket: index,
            address,
        })
    }

    fn close(&mut self, index: SocketIndex, waiter: &Waiter) -> Result<SocketOutcome, SocketError> {
        let place = self
            .place(index)
            .filter(|place| *place >= self.given)
            .ok_or(SocketError::Unknown(index))?;
        let mut entry = self.list.remove(place);
        // Where the system does not know it any more, closing it is all there is to do.
        waiter.registry().deregister(&mut entry.socket.io).ok();
        Ok(SocketOutcome::Closed)
    }

    fn place(&self, index: SocketIndex) -> Option<usize> {
        self.list
            .binary_search_by_key(&index, |entry| entry.index)
            .ok()
    }
}

/// Has the waiter tell of a socket that was opened.
fn watch(waiter: &Waiter, socket: &mut UdpSocket, index: SocketIndex) -> io::Result<()> {
    let token = usize::try_from(index.0)
        .ok()
        .and_then(|index| index.checked_add(OPENED))
        .filter(|token| *token < TOKENS_MAX)
        .ok_or(io::ErrorKind::Unsupported)?;
    waiter
        .registry()
        .register(&mut socket.io, Token(token), Interest::READABLE)
}

/// The first token of opened sockets.
const OPENED: usize = 1;
/// Sockets whose drops are read at a time, a system call each.
const DROPS_READ_MAX: usize = 64;
/// Looks in a row: 65,536 sockets.
const LOOKS_MAX: usize = 1_024;

/// A socket that may hold something.
#[derive(Debug)]
pub(super) struct Look<'a> {
    pub(super) index: SocketIndex,
    pub(super) socket: &'a UdpSocket,
    has_received: &'a mut bool,
    /// `None` for one that is looked at in any case.
    may_hold: Option<&'a mut bool>,
}

impl Look<'_> {
    /// Notes that something came.
    pub(super) const fn note_received(&mut self) {
        *self.has_received = true;
    }

    /// Notes that it was found empty.
    pub(super) const fn note_empty(self) {
        if let Some(may_hold) = self.may_hold {
            *may_hold = false;
        }
    }
}
