//! Limits of reliable servers and clients, and the assignment of clients to threads.

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

use super::event_queue::QueueLimits;
use super::record::{Budget, HEADER_MAX, MESSAGE_HEADER, REASON_BYTES_MAX};
use crate::tcp::StreamConfig;

/// How a reliable server assigns clients to threads. The guarantees are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpServicers {
    /// One thread per client, from its acceptance to its close. Each needs a stack, some 200 KiB of
    /// buffers and four descriptors.
    ThreadPerClient,
    /// A fixed number of threads. A new client is assigned to the thread with the fewest. A message
    /// to all clients wakes at most this many threads.
    Pool {
        /// Threads, not counting the one that accepts clients.
        threads: NonZeroUsize,
    },
}

impl TcpServicers {
    /// Returns the default for a number of clients: one thread each up to 64, otherwise a pool of
    /// up to three threads, fewer on hosts with fewer cores.
    #[must_use]
    pub fn for_clients(clients_max: usize) -> Self {
        if clients_max <= CLIENTS_WITH_THREADS {
            return Self::ThreadPerClient;
        }
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self::Pool {
            threads: cores.min(POOL_THREADS),
        }
    }
}

/// Maximum clients with a thread each; their stacks take less than 1 GiB of address space.
const CLIENTS_WITH_THREADS: usize = 64;

/// Maximum threads of a pool; four with the accepting one.
const POOL_THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Limits of a reliable server or client.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct ReliableConfig {
    /// Maximum accepted clients. Default 1,024.
    pub clients_max: usize,
    /// How clients are assigned to threads; `None`, the default, for [`TcpServicers::for_clients`]
    /// of `clients_max`.
    pub servicers: Option<TcpServicers>,
    /// Maximum bytes queued for one peer, counting 48 more for each message. Default 256 KiB. If a
    /// message does not fit, the connection is closed, since the stream must not have gaps. In
    /// addition the system buffers up to twice `socket_buffer_bytes` per connection.
    pub queued_bytes_max: usize,
    /// Maximum time that a message may wait for the peer's socket. Default 5 s. Then the connection
    /// is closed.
    pub queued_age_max: Duration,
    /// Maximum length of a message in either direction, and of the welcome, bytes. Default 64 KiB.
    /// Lowered to what fits into `queued_bytes_max`.
    pub message_bytes_max: usize,
    /// Maximum length of a join payload, bytes. Default 1 KiB. The server buffers no more for an
    /// unaccepted client.
    pub join_bytes_max: usize,
    /// Timeout from the handshake to the end of the first record. Default 5 s.
    pub join_timeout: Duration,
    /// Maximum orders queued for one thread. Default 1,024. A message to any number of its clients
    /// is one order. The queue is allocated at the start.
    pub orders_max: NonZeroUsize,
    /// Maximum events queued for the application. Default 4,096, and one more per thread. If the
    /// queue is full, the server reads nothing from clients. In addition each thread holds 256
    /// events and the messages of its last socket read, up to 64 KiB.
    pub events_max: usize,
    /// Maximum bytes of queued events, counting 64 more for each message. Default 4 MiB.
    pub event_bytes_max: usize,
    /// Send buffer of a connection in the system, bytes. Default 128 KiB, which allows 1.3 MB/s at
    /// a round trip of 100 ms. Systems include their overhead, and Linux grants twice as much.
    pub socket_buffer_bytes: usize,
    /// TCP keepalive: idle time before the first probe, and interval between probes. Default 15 s.
    /// Probes wake no thread, so an idle client costs nothing.
    pub keepalive: Duration,
    /// Limits of unaccepted clients, mainly of their handshakes, and the other limits of a stream
    /// driver. The fields above override it.
    pub stream: StreamConfig,
}

impl ReliableConfig {
    pub(super) fn mode(&self) -> TcpServicers {
        self.servicers
            .unwrap_or_else(|| TcpServicers::for_clients(self.clients_max))
    }

    pub(super) const fn budget(&self) -> Budget {
        Budget {
            bytes_max: self.queued_bytes_max,
            age_max: self.queued_age_max,
        }
    }

    pub(super) const fn queue_limits(&self) -> QueueLimits {
        QueueLimits {
            events_max: self.events_max,
            bytes_max: self.event_bytes_max,
        }
    }

    pub(super) fn message_max(&self) -> usize {
        let room = self.queued_bytes_max.saturating_sub(RESERVE);
        self.message_bytes_max.min(room)
    }

    /// Limits of the driver that accepts clients.
    pub(super) const fn for_joining(&self) -> StreamConfig {
        let held = self.stream.handshakes_max.saturating_mul(2);
        StreamConfig {
            record_bytes_max: self.join_bytes_max.saturating_add(HEADER_MAX),
            credit_bytes: RESERVE,
            connections_max: self.clients_max.saturating_add(held),
            idle_timeout: self.join_timeout,
            record_timeout: self.join_timeout,
            requests_max: self.orders_max,
            ..self.stream
        }
    }

    /// Limits of a driver for accepted clients, or of a client's driver.
    pub(super) fn for_members(&self) -> StreamConfig {
        StreamConfig {
            record_bytes_max: self
                .message_max()
                .saturating_add(MESSAGE_HEADER)
                .max(REASON_BYTES_MAX + HEADER_MAX),
            // The close reason fits in addition to a full budget.
            credit_bytes: self.queued_bytes_max.saturating_add(RESERVE),
            connections_max: self.clients_max,
            connections_per_source_max: self.clients_max,
            // TCP keepalive detects dead peers, and the age limit detects peers that do not read.
            idle_timeout: Duration::MAX,
            stall_timeout: Duration::MAX,
            requests_max: self.orders_max,
            ..self.stream
        }
    }
}

impl Default for ReliableConfig {
    fn default() -> Self {
        const ORDERS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
        Self {
            clients_max: 1_024,
            servicers: None,
            queued_bytes_max: 256 << 10,
            queued_age_max: Duration::from_secs(5),
            message_bytes_max: 64 << 10,
            join_bytes_max: 1 << 10,
            join_timeout: Duration::from_secs(5),
            orders_max: ORDERS,
            events_max: 4_096,
            event_bytes_max: 4 << 20,
            socket_buffer_bytes: 128 << 10,
            keepalive: Duration::from_secs(15),
            stream: StreamConfig::default(),
        }
    }
}

/// Room for the close reason and its header, beyond the budget, bytes.
const RESERVE: usize = REASON_BYTES_MAX + HEADER_MAX + 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct SocketOptions {
    /// Send buffer in the system, bytes.
    pub(super) send_buffer_bytes: usize,
    /// TCP keepalive: idle time before the first probe, and interval between probes.
    pub(super) keepalive: Duration,
}

impl SocketOptions {
    /// Sets the options. Errors are ignored: the buffer then has another size, or a dead peer is
    /// detected later.
    pub(super) fn apply(self, socket: &TcpStream) {
        if let Err(error) = self.set(socket) {
            tracing::debug!(%error, "socket options refused");
        }
    }

    fn set(self, socket: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(socket);
        let keepalive = TcpKeepalive::new()
            .with_time(self.keepalive)
            .with_interval(self.keepalive);
        socket.set_send_buffer_size(self.send_buffer_bytes)?;
        socket.set_tcp_keepalive(&keepalive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_64_clients_have_a_thread_each() {
        for clients in [0, 1, 64] {
            let servicers = TcpServicers::for_clients(clients);
            assert_eq!(servicers, TcpServicers::ThreadPerClient);
        }
        for clients in [65, 1_000] {
            let TcpServicers::Pool { threads } = TcpServicers::for_clients(clients) else {
                panic!("{clients} threads")
            };
            assert!(threads.get() <= 3);
        }
    }

    #[test]
    fn message_max_never_exceeds_the_queue_limit() {
        let config = ReliableConfig {
            queued_bytes_max: 10_000,
            ..ReliableConfig::default()
        };
        assert!(config.message_max() < 10_000);
        assert_eq!(ReliableConfig::default().message_max(), 64 << 10);
    }

    #[test]
    fn ls_19_socket_buffers_are_no_larger_than_requested() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let options = SocketOptions {
            send_buffer_bytes: 32 << 10,
            keepalive: Duration::from_secs(15),
        };
        options.set(&socket).unwrap();
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        // Linux grants twice the requested size: socket(7), `SO_SNDBUF`.
        assert!(socket.send_buffer_size().unwrap() <= 64 << 10);
    }
}
