//! The sockets of a driver: those given at the start, and those opened at run time.
//!
//! Sockets given at the start are read in every turn. Those opened later may be many and mostly
//! idle, so they are read only after an event, until they are empty.

use std::io;
use std::net::SocketAddr;

use mio::{Interest, Token};

use super::EVENTS_MAX;
use crate::socket::{BindError, SocketConfig, SocketIndex, UdpSocket, full_buffers};
use crate::waiter::{TOKENS_MAX, Waiter};

/// A socket operation that an application requests from its driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SocketOrder {
    /// Bind a socket.
    Open {
        /// The address; with port 0, the system chooses the port.
        address: SocketAddr,
        /// Options of the socket.
        config: SocketConfig,
    },
    /// Close a socket opened by an order.
    Close(SocketIndex),
}

/// Outcome of a [`SocketOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOutcome {
    /// The socket is open.
    Opened {
        /// The index, never used before by this driver.
        socket: SocketIndex,
        /// The bound address, with the port that the system chose.
        address: SocketAddr,
    },
    /// The socket is closed.
    Closed,
    /// The order failed.
    Failed(SocketError),
}

/// Why a [`SocketOrder`] failed. The text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketError {
    /// [`Config::opened_max`](super::Config::opened_max) is reached.
    TooMany,
    /// The address could not be bound.
    Bind(BindError),
    /// The system cannot register another socket for its wait.
    Watch(io::ErrorKind),
    /// No open socket of an order has this index.
    Unknown(SocketIndex),
}

wire::error_text! { SocketError {
    Self::TooMany => "as many sockets are open as the driver's limit allows",
    Self::Bind(error) => "{error}",
    Self::Watch(kind) => "the system cannot wait for another socket: {kind}",
    Self::Unknown(SocketIndex(index)) => "no socket {index} has been opened",
}}

#[derive(Debug)]
pub(super) struct Sockets {
    list: Vec<Entry>,
    given: usize,
    opened_max: usize,
    next: u32,
    /// Position of the next socket to read drops from.
    drops_from: usize,
    /// The system's count of drops on all its sockets due to full buffers, as last read.
    full_buffers: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    index: SocketIndex,
    socket: UdpSocket,
    may_hold: bool,
    /// Whether it has received since its drops were last read.
    has_received: bool,
    /// The system's drop count, as last read. It wraps.
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

/// Datagrams dropped because the receive buffer of a socket was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveDrops {
    pub(super) socket: SocketIndex,
    /// Number since the last read.
    pub(super) count: u32,
    pub(super) is_opened: bool,
}

impl Sockets {
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

    /// Returns the drops of sockets that have received since their last read. Reads at most
    /// [`DROPS_READ_MAX`] sockets, in rotation.
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
        self.cap_by_full_buffers(&mut dropped);
        dropped
    }

    /// Caps the drops at the system-wide number of drops due to full buffers. The socket's count
    /// includes datagrams with a wrong checksum, which do not mean that this host is overloaded.
    fn cap_by_full_buffers(&mut self, dropped: &mut Vec<ReceiveDrops>) {
        if dropped.is_empty() {
            return;
        }
        let Some(now) = full_buffers() else {
            return;
        };
        // At the first read, the number of earlier drops is unknown.
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

    pub(super) const fn has_opened(&self) -> bool {
        self.list.len() > self.given
    }

    /// Returns the sockets that may hold datagrams. The caller marks each as empty when it is.
    pub(super) fn ready(&mut self) -> impl Iterator<Item = ReadySocket<'_>> {
        let entries = self.list.iter_mut().enumerate();
        let given = self.given;
        entries
            .filter(|(_, entry)| entry.may_hold)
            .map(move |(place, entry)| ReadySocket {
                index: entry.index,
                socket: &entry.socket,
                has_received: &mut entry.has_received,
                may_hold: (place >= given).then_some(&mut entry.may_hold),
            })
    }

    /// Marks the opened sockets that had events in the last wait or poll.
    pub(super) fn mark_ready(&mut self, waiter: &Waiter) {
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

    /// Polls for events of opened sockets without waiting.
    ///
    /// If this consumes a wake, no request is lost: the queue is read later in the same turn.
    pub(super) fn poll_opened(&mut self, waiter: &mut Waiter) -> io::Result<()> {
        // Each poll returns as many events as fit. A socket reports no second event before it was
        // emptied, so the bound matters only on systems that do otherwise.
        for _ in 0..POLLS_MAX {
            waiter.poll_now()?;
            self.mark_ready(waiter);
            if waiter.events().count() < EVENTS_MAX {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn get_mut(&mut self, index: SocketIndex) -> Option<&mut UdpSocket> {
        let place = self.place(index)?;
        self.list.get_mut(place).map(|entry| &mut entry.socket)
    }

    /// Selects the socket with that index, or the first that reaches `destination`.
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

    pub(super) fn execute(&mut self, order: &SocketOrder, waiter: &Waiter) -> SocketOutcome {
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
        // The last index stays unused, so the next one is always new.
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
        // If the system no longer knows it, only the close is left.
        waiter.registry().deregister(&mut entry.socket.io).ok();
        Ok(SocketOutcome::Closed)
    }

    fn place(&self, index: SocketIndex) -> Option<usize> {
        self.list
            .binary_search_by_key(&index, |entry| entry.index)
            .ok()
    }
}

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

/// First token of opened sockets.
const OPENED: usize = 1;
/// Maximum sockets whose drops are read at a time, one system call each.
const DROPS_READ_MAX: usize = 64;
/// Maximum consecutive polls: 65,536 sockets.
const POLLS_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct ReadySocket<'a> {
    pub(super) index: SocketIndex,
    pub(super) socket: &'a UdpSocket,
    has_received: &'a mut bool,
    /// `None` for a socket that is read in every turn.
    may_hold: Option<&'a mut bool>,
}

impl ReadySocket<'_> {
    pub(super) const fn mark_received(&mut self) {
        *self.has_received = true;
    }

    pub(super) const fn mark_empty(self) {
        if let Some(may_hold) = self.may_hold {
            *may_hold = false;
        }
    }
}
