//! One TCP connection, and the bytes between its socket and the node.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};

use crypto::Ring;
use mio::net::TcpStream;
use relay_mesh::proxy_header::{HeaderStart, header_start};
use relay_mesh::tunnel::{ConnId, Greeting};
use relay_mesh::{Node, TcpPort};
use wire::Instant;

use super::TcpStats;

/// A player's connection, or one to a game server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) stage: Stage,
    /// By when it must have got further.
    pub(super) deadline: Option<Instant>,
    /// Of a player where only proxies may send a header: the port, until his first bytes can be none.
    pub(super) guard: Option<TcpPort>,
    /// Bytes read that the node has not taken: at most [`READ_MAX`] and a greeting's.
    pending: Vec<u8>,
    inbound: Inbound,
    may: May,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The node has not been asked.
    Coming,
    /// A proxy has not said yet whom it speaks for.
    Greeting {
        port: TcpPort,
        /// Whose proxies it may be from.
        game: String,
        greeting: Box<Greeting>,
        /// The proxy's address.
        proxy: IpAddr,
    },
    /// A game server has not answered.
    Dialling(ConnId),
    /// Bytes pass.
    Open(ConnId),
}

/// The half that leads to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    Open,
    /// The socket has no more; the node does not know yet.
    Ending,
    /// The node knows.
    Ended,
}

/// What the socket was not found unable to do.
#[derive(Clone, Copy, Debug)]
struct May {
    read: bool,
    write: bool,
}

/// What passing bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// All that goes now.
    All,
    /// The socket is of no more use.
    Broken,
    /// The node knows nothing of it any more.
    Gone,
    /// A player began with the header of a proxy.
    Header(TcpPort),
}

impl Connection {
    pub(super) const fn new(stream: TcpStream, stage: Stage, deadline: Option<Instant>) -> Self {
        Self {
            stream,
            stage,
            deadline,
            guard: None,
            pending: Vec::new(),
            inbound: Inbound::Open,
            may: May {
                read: true,
                write: true,
            },
        }
    }

    /// Opens it, with what came behind the greeting.
    pub(super) fn open(&mut self, conn: ConnId, rest: Vec<u8>) {
        self.stage = Stage::Open(conn);
        self.deadline = None;
        self.pending = rest;
    }

    /// Takes word that the socket may have bytes, and take some.
    pub(super) const fn note_ready(&mut self) {
        self.may = May {
            read: true,
            write: true,
        };
    }

    /// Returns the node's name of a connection that is open.
    pub(super) const fn open_conn(&self) -> Option<ConnId> {
        match &self.stage {
            Stage::Open(conn) => Some(*conn),
            Stage::Coming | Stage::Greeting { .. } | Stage::Dialling(_) => None,
        }
    }

    /// Returns the node's name of it.
    pub(super) const fn conn(&self) -> Option<ConnId> {
        match &self.stage {
            Stage::Open(conn) | Stage::Dialling(conn) => Some(*conn),
            Stage::Coming | Stage::Greeting { .. } => None,
        }
    }

    /// Gives the node what the socket has, as far as it takes it. What it does not take is asked for
    /// again when it does; the socket is not read meanwhile, and its sender stops.
    pub(super) fn give(
        &mut self,
        node: &mut Node<Ring>,
        room: &mut [u8],
        stats: &mut TcpStats,
    ) -> Passed {
        let Some(conn) = self.open_conn() else {
            return Passed::All;
        };
        if let Some(port) = self.guard {
            match self.check_start(room, stats) {
                Start::Clear => self.guard = None,
                Start::Unknown => return Passed::All,
                Start::Header => return Passed::Header(port),
                Start::Broken => return Passed::Broken,
            }
        }
        loop {
            if !self.pending.is_empty() {
                match node.tcp_write(conn, &self.pending) {
                    Ok(taken) => drop(self.pending.drain(..taken.min(self.pending.len()))),
                    Err(_) => return Passed::Gone,
                }
            }
            if !self.pending.is_empty() {
                return Passed::All;
            }
            if self.inbound == Inbound::Ending {
                self.inbound = Inbound::Ended;
                return match node.tcp_finish(conn) {
                    Ok(()) => Passed::All,
                    Err(_) => Passed::Gone,
                };
            }
            match self.read(room) {
                Taken::Bytes(len) => {
                    stats.bytes_in = stats.bytes_in.saturating_add(len.try_into().unwrap_or(0));
                    let bytes = room.get(..len).unwrap_or_default();
                    let Ok(taken) = node.tcp_write(conn, bytes) else {
                        return Passed::Gone;
                    };
                    let rest = bytes.get(taken..).unwrap_or_default();
                    self.pending.extend_from_slice(rest);
                }
                Taken::Nothing => return Passed::All,
                Taken::End => {}
                Taken::Broken => return Passed::Broken,
            }
        }
    }

    /// Reads a player's first bytes, and holds them back as long as they may be the start of a header.
    fn check_start(&mut self, room: &mut [u8], stats: &mut TcpStats) -> Start {
        loop {
            match header_start(&self.pending) {
                HeaderStart::Absent => return Start::Clear,
                HeaderStart::Complete => return Start::Header,
                HeaderStart::Partial => {}
            }
            match self.read(room) {
                Taken::Bytes(len) => {
                    stats.bytes_in = stats.bytes_in.saturating_add(len.try_into().unwrap_or(0));
                    let bytes = room.get(..len).unwrap_or_default();
                    self.pending.extend_from_slice(bytes);
                }
                Taken::Nothing => return Start::Unknown,
                // No more comes, so no header does.
                Taken::End => return Start::Clear,
                Taken::Broken => return Start::Broken,
            }
        }
    }

    /// Gives the socket what the node has for it, as far as it takes it.
    pub(super) fn take(&mut self, node: &mut Node<Ring>, stats: &mut TcpStats) -> Passed {
        let Some(conn) = self.open_conn() else {
            return Passed::All;
        };
        while self.may.write {
            let bytes = node.tcp_readable(conn);
            if bytes.is_empty() {
                break;
            }
            match self.stream.write(bytes) {
                Ok(0) => return Passed::Broken,
                Ok(len) => {
                    stats.bytes_out = stats.bytes_out.saturating_add(len.try_into().unwrap_or(0));
                    node.tcp_consume(conn, len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.may.write = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Passed::Broken,
            }
        }
        Passed::All
    }

    /// Closes the half that leads to the socket's other end: all for it has been written.
    pub(super) fn finish(&self) -> Passed {
        match self.stream.shutdown(Shutdown::Write) {
            Ok(()) => Passed::All,
            Err(_) => Passed::Broken,
        }
    }

    /// Reads into `room`, unless the socket was found empty or at its end.
    pub(super) fn read(&mut self, room: &mut [u8]) -> Taken {
        while self.may.read && self.inbound == Inbound::Open {
            match self.stream.read(room) {
                Ok(0) => {
                    self.inbound = Inbound::Ending;
                    return Taken::End;
                }
                Ok(len) => return Taken::Bytes(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.may.read = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Taken::Broken,
            }
        }
        Taken::Nothing
    }
}

/// What a player's first bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// No header.
    Clear,
    /// Too few to tell.
    Unknown,
    /// A header's.
    Header,
    Broken,
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The other end has closed its half.
    End,
    Broken,
}

/// Bytes read from a socket at a time.
pub(super) const READ_MAX: usize = 16 << 10;
