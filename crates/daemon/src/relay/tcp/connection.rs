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
    pub(super) guarded_port: Option<TcpPort>,
    /// Bytes read that the node has not taken: at most [`READ_MAX`] and a greeting's.
    pending: Vec<u8>,
    inbound: Inbound,
    ready: Readiness,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The node has not been asked.
    Accepted,
    /// A proxy has not said yet whom it speaks for.
    ProxyHeader {
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
struct Readiness {
    readable: bool,
    writable: bool,
}

/// What passing bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferResult {
    /// All that goes now.
    Done,
    /// The socket is of no more use.
    Broken,
    /// The node knows nothing of it any more.
    UnknownConn,
    /// A player began with the header of a proxy.
    ProxyHeader(TcpPort),
}

impl Connection {
    pub(super) const fn new(stream: TcpStream, stage: Stage, deadline: Option<Instant>) -> Self {
        Self {
            stream,
            stage,
            deadline,
            guarded_port: None,
            pending: Vec::new(),
            inbound: Inbound::Open,
            ready: Readiness {
                readable: true,
                writable: true,
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
    pub(super) const fn set_ready(&mut self) {
        self.ready = Readiness {
            readable: true,
            writable: true,
        };
    }

    /// Returns the node's name of a connection that is open.
    pub(super) const fn open_conn(&self) -> Option<ConnId> {
        match &self.stage {
            Stage::Open(conn) => Some(*conn),
            Stage::Accepted | Stage::ProxyHeader { .. } | Stage::Dialling(_) => None,
        }
    }

    /// Returns the node's name of it.
    pub(super) const fn conn(&self) -> Option<ConnId> {
        match &self.stage {
            Stage::Open(conn) | Stage::Dialling(conn) => Some(*conn),
            Stage::Accepted | Stage::ProxyHeader { .. } => None,
        }
    }

    /// Gives the node what the socket has, as far as it takes it. What it does not take is asked for
    /// again when it does; the socket is not read meanwhile, and its sender stops.
    pub(super) fn write_to_node(
        &mut self,
        node: &mut Node<Ring>,
        read_buffer: &mut [u8],
        stats: &mut TcpStats,
    ) -> TransferResult {
        let Some(conn) = self.open_conn() else {
            return TransferResult::Done;
        };
        if let Some(port) = self.guarded_port {
            match self.check_first_bytes(read_buffer, stats) {
                FirstBytes::Plain => self.guarded_port = None,
                FirstBytes::Undecided => return TransferResult::Done,
                FirstBytes::ProxyHeader => return TransferResult::ProxyHeader(port),
                FirstBytes::Broken => return TransferResult::Broken,
            }
        }
        loop {
            if !self.pending.is_empty() {
                match node.tcp_write(conn, &self.pending) {
                    Ok(taken) => drop(self.pending.drain(..taken.min(self.pending.len()))),
                    Err(_) => return TransferResult::UnknownConn,
                }
            }
            if !self.pending.is_empty() {
                return TransferResult::Done;
            }
            if self.inbound == Inbound::Ending {
                self.inbound = Inbound::Ended;
                return match node.tcp_finish(conn) {
                    Ok(()) => TransferResult::Done,
                    Err(_) => TransferResult::UnknownConn,
                };
            }
            match self.read(read_buffer) {
                ReadResult::Bytes(len) => {
                    stats.bytes_in = stats.bytes_in.saturating_add(len.try_into().unwrap_or(0));
                    let bytes = read_buffer.get(..len).unwrap_or_default();
                    let Ok(taken) = node.tcp_write(conn, bytes) else {
                        return TransferResult::UnknownConn;
                    };
                    let rest = bytes.get(taken..).unwrap_or_default();
                    self.pending.extend_from_slice(rest);
                }
                ReadResult::WouldBlock => return TransferResult::Done,
                ReadResult::Eof => {}
                ReadResult::Broken => return TransferResult::Broken,
            }
        }
    }

    /// Reads a player's first bytes, and holds them back as long as they may be the start of a header.
    fn check_first_bytes(&mut self, read_buffer: &mut [u8], stats: &mut TcpStats) -> FirstBytes {
        loop {
            match header_start(&self.pending) {
                HeaderStart::Absent => return FirstBytes::Plain,
                HeaderStart::Complete => return FirstBytes::ProxyHeader,
                HeaderStart::Partial => {}
            }
            match self.read(read_buffer) {
                ReadResult::Bytes(len) => {
                    stats.bytes_in = stats.bytes_in.saturating_add(len.try_into().unwrap_or(0));
                    let bytes = read_buffer.get(..len).unwrap_or_default();
                    self.pending.extend_from_slice(bytes);
                }
                ReadResult::WouldBlock => return FirstBytes::Undecided,
                // No more comes, so no header does.
                ReadResult::Eof => return FirstBytes::Plain,
                ReadResult::Broken => return FirstBytes::Broken,
            }
        }
    }

    /// Gives the socket what the node has for it, as far as it takes it.
    pub(super) fn write_to_socket(
        &mut self,
        node: &mut Node<Ring>,
        stats: &mut TcpStats,
    ) -> TransferResult {
        let Some(conn) = self.open_conn() else {
            return TransferResult::Done;
        };
        while self.ready.writable {
            let bytes = node.tcp_readable(conn);
            if bytes.is_empty() {
                break;
            }
            match self.stream.write(bytes) {
                Ok(0) => return TransferResult::Broken,
                Ok(len) => {
                    stats.bytes_out = stats.bytes_out.saturating_add(len.try_into().unwrap_or(0));
                    node.tcp_consume(conn, len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.ready.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return TransferResult::Broken,
            }
        }
        TransferResult::Done
    }

    /// Closes the half that leads to the socket's other end: all for it has been written.
    pub(super) fn close_write(&self) -> TransferResult {
        match self.stream.shutdown(Shutdown::Write) {
            Ok(()) => TransferResult::Done,
            Err(_) => TransferResult::Broken,
        }
    }

    /// Reads into `room`, unless the socket was found empty or at its end.
    pub(super) fn read(&mut self, read_buffer: &mut [u8]) -> ReadResult {
        while self.ready.readable && self.inbound == Inbound::Open {
            match self.stream.read(read_buffer) {
                Ok(0) => {
                    self.inbound = Inbound::Ending;
                    return ReadResult::Eof;
                }
                Ok(len) => return ReadResult::Bytes(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.ready.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ReadResult::Broken,
            }
        }
        ReadResult::WouldBlock
    }
}

/// What a player's first bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstBytes {
    /// No header.
    Plain,
    /// Too few to tell.
    Undecided,
    /// A header's.
    ProxyHeader,
    Broken,
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadResult {
    Bytes(usize),
    /// Nothing now.
    WouldBlock,
    /// The other end has closed its half.
    Eof,
    Broken,
}

/// Bytes read from a socket at a time.
pub(super) const READ_MAX: usize = 16 << 10;
