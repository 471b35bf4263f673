//! One TCP connection, and the transfer between its socket and the node.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};

use crypto::Ring;
use mio::net::TcpStream;
use relay_mesh::proxy_header::{HeaderStart, header_start};
use relay_mesh::tunnel::{ConnId, InboundHeader};
use relay_mesh::{Node, TcpPort};
use wire::Instant;

use super::TcpStats;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) stage: SocketState,
    /// When the current stage times out.
    pub(super) deadline: Option<Instant>,
    /// The port, if only proxies may send a PROXY header on it and the player's first bytes are not
    /// checked yet.
    pub(super) guarded_port: Option<TcpPort>,
    /// Bytes read that the node has not accepted: at most [`READ_MAX`], plus what followed a PROXY
    /// header.
    pending: Vec<u8>,
    inbound: Inbound,
    ready: Readiness,
}

#[derive(Debug)]
pub(super) enum SocketState {
    /// Not known to the node yet.
    Accepted,
    /// Waiting for a proxy's header.
    ProxyHeader {
        port: TcpPort,
        /// The game; its proxies are trusted.
        game: String,
        inbound_header: Box<InboundHeader>,
        proxy: IpAddr,
    },
    Dialling(ConnId),
    Open(ConnId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    Open,
    /// Read to the end; not yet reported to the node.
    Ending,
    Ended,
}

/// Whether the socket may be readable or writable: cleared by `WouldBlock`, set by a poll event.
#[derive(Clone, Copy, Debug)]
struct Readiness {
    readable: bool,
    writable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferResult {
    /// Nothing more can be transferred now.
    Done,
    Broken,
    /// The node no longer knows the connection.
    UnknownConn,
    ProxyHeader(TcpPort),
}

impl Connection {
    pub(super) const fn new(
        stream: TcpStream,
        stage: SocketState,
        deadline: Option<Instant>,
    ) -> Self {
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

    /// Starts to transfer; `remainder` are bytes that followed the PROXY header.
    pub(super) fn open(&mut self, conn: ConnId, remainder: Vec<u8>) {
        self.stage = SocketState::Open(conn);
        self.deadline = None;
        self.pending = remainder;
    }

    pub(super) const fn set_ready(&mut self) {
        self.ready = Readiness {
            readable: true,
            writable: true,
        };
    }

    pub(super) const fn open_conn(&self) -> Option<ConnId> {
        match &self.stage {
            SocketState::Open(conn) => Some(*conn),
            SocketState::Accepted | SocketState::ProxyHeader { .. } | SocketState::Dialling(_) => {
                None
            }
        }
    }

    pub(super) const fn conn(&self) -> Option<ConnId> {
        match &self.stage {
            SocketState::Open(conn) | SocketState::Dialling(conn) => Some(*conn),
            SocketState::Accepted | SocketState::ProxyHeader { .. } => None,
        }
    }

    /// Moves bytes from the socket to the node as long as the node accepts them. If it does not,
    /// the socket is not read, which stops its sender, until the node asks again.
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
                    let remainder = bytes.get(taken..).unwrap_or_default();
                    self.pending.extend_from_slice(remainder);
                }
                ReadResult::WouldBlock => return TransferResult::Done,
                ReadResult::Eof => {}
                ReadResult::Broken => return TransferResult::Broken,
            }
        }
    }

    /// Reads a player's first bytes, and holds them while they may be the start of a PROXY header.
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
                // No header follows.
                ReadResult::Eof => return FirstBytes::Plain,
                ReadResult::Broken => return FirstBytes::Broken,
            }
        }
    }

    /// Moves bytes from the node to the socket as long as the socket accepts them.
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

    /// Shuts down the write half after all bytes were written.
    pub(super) fn close_write(&self) -> TransferResult {
        match self.stream.shutdown(Shutdown::Write) {
            Ok(()) => TransferResult::Done,
            Err(_) => TransferResult::Broken,
        }
    }

    /// Reads into `read_buffer`, unless the socket is known to be empty or at its end.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstBytes {
    Plain,
    /// Too few bytes to decide.
    Undecided,
    ProxyHeader,
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadResult {
    Bytes(usize),
    WouldBlock,
    /// The peer has closed its half.
    Eof,
    Broken,
}

pub(super) const READ_MAX: usize = 16 << 10;
