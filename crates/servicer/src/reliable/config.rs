//! How clients are divided among threads, and limits.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::backlog::Budget;
use super::letter::{LETTER_HEAD, MESSAGE_HEAD, REASON_BYTES_MAX};
use super::mailbox::Room;
use crate::tcp::StreamConfig;

/// How the clients of a reliable server are divided among threads.
///
/// Both keep the same promises, and the same tests run over both. A thread whom nobody calls on
/// waits without a turn either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpServicers {
    /// A thread for each client, from its acceptance to its end. The system's scheduler divides the
    /// work, and what one client costs delays no other on another core; each takes a stack, some 200
    /// KiB of buffers and four descriptors.
    ThreadPerClient,
    /// So many threads, each with its share of the clients: whoever is accepted goes where the fewest
    /// are. A message for all wakes no more threads than these.
    Pool {
        /// Threads beside the one that lets clients in.
        threads: NonZeroUsize,
    },
}

impl TcpServicers {
    /// Returns what suits so many clients: a thread each up to 64, a pool of up to three threads
    /// beyond, fewer where there are fewer cores.
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

/// Clients up to which each has a thread; design value, which keeps their stacks below 1 GiB of
/// address space.
const CLIENTS_WITH_THREADS: usize = 64;

/// Threads of a pool at most: with the one that lets clients in, four.
const POOL_THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// How much a reliable server or client holds and waits.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct ReliableConfig {
    /// Clients that may be accepted at a time; 1,024.
    pub clients_max: usize,
    /// How clients are divided among threads; `None`, as by default, for
    /// [`TcpServicers::for_clients`] of `clients_max`.
    pub servicers: Option<TcpServicers>,
    /// Bytes that may wait for one peer, 48 more for each message counted in; 256 KiB. What does not fit
    /// ends the connection, since a peer that loses a message has lost them all. Beside this the system
    /// holds up to twice `socket_buffer_bytes` for a connection.
    pub queued_bytes_max: usize,
    /// Time that a message may wait for one peer's socket to take it; 5 s. Beyond, the connection ends.
    pub queued_age_max: Duration,
    /// Bytes of a message, either way, and of what a client is told as it is accepted; 64 KiB. Lowered to
    /// what `queued_bytes_max` has room for.
    pub message_bytes_max: usize,
    /// Bytes of what a client says as it joins; 1 KiB. All that a stranger can have the server hold.
    pub join_bytes_max: usize,
    /// Time from the handshake to the end of the first record; 5 s.
    pub join_timeout: Duration,
    /// Orders that may wait for one servicer, of which a message to any number of its clients is one;
    /// 1,024. Room for all is allocated at the start.
    pub orders_max: NonZeroUsize,
    /// Events that may wait for the application; 4,096, and one more for each servicer. Beyond, nothing
    /// is read from clients, who then have to wait. With each servicer wait 256 more, and what the last
    /// read of a socket yielded, up to 64 KiB of messages: of the shortest that is 13,107, for which
    /// there are 1 MiB of places.
    pub events_max: usize,
    /// Bytes in them, 64 more for each message counted in; 4 MiB.
    pub event_bytes_max: usize,
    /// Bytes that the system may hold for one connection to be sent; 128 KiB, which lets a client 100
    /// ms away take 1.3 MB/s. Systems count their own bookkeeping in, and Linux grants twice as much.
    pub socket_buffer_bytes: usize,
    /// Time without a byte after which the system asks whether the other end is still there, and then as
    /// long between each time it asks; 15 s. No thread is woken for it, so a silent client costs nothing.
    pub keepalive: Duration,
    /// Limits of those who are not accepted yet, handshakes above all, and the rest of what a stream
    /// driver limits. What is named above is taken from there.
    pub stream: StreamConfig,
}

impl ReliableConfig {
    /// How clients are divided.
    pub(super) fn division(&self) -> TcpServicers {
        self.servicers
            .unwrap_or_else(|| TcpServicers::for_clients(self.clients_max))
    }

    pub(super) const fn budget(&self) -> Budget {
        Budget {
            bytes_max: self.queued_bytes_max,
            age_max: self.queued_age_max,
        }
    }

    pub(super) const fn room(&self) -> Room {
        Room {
            events_max: self.events_max,
            bytes_max: self.event_bytes_max,
        }
    }

    /// Longest message that is taken, bytes.
    pub(super) fn message_max(&self) -> usize {
        let room = self.queued_bytes_max.saturating_sub(RESERVE);
        self.message_bytes_max.min(room)
    }

    /// Limits of the driver that lets clients in.
    pub(super) const fn for_strangers(&self) -> StreamConfig {
        let held = self.stream.handshakes_max.saturating_mul(2);
        StreamConfig {
            record_bytes_max: self.join_bytes_max.saturating_add(LETTER_HEAD),
            credit_bytes: RESERVE,
            connections_max: self.clients_max.saturating_add(held),
            idle_timeout: self.join_timeout,
            record_timeout: self.join_timeout,
            requests_max: self.orders_max,
            ..self.stream
        }
    }

    /// Limits of a driver that serves those who are accepted, or the other end of one.
    pub(super) fn for_members(&self) -> StreamConfig {
        StreamConfig {
            record_bytes_max: self
                .message_max()
                .saturating_add(MESSAGE_HEAD)
                .max(REASON_BYTES_MAX + LETTER_HEAD),
            // The reason for a close fits in behind a full budget.
            credit_bytes: self.queued_bytes_max.saturating_add(RESERVE),
            connections_max: self.clients_max,
            connections_per_source_max: self.clients_max,
            // The system asks for those who are silent, and age judges those who take nothing.
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

/// What a connection may be written beside its budget: a reason and its head.
const RESERVE: usize = REASON_BYTES_MAX + LETTER_HEAD + 64;

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
    fn a_message_is_never_longer_than_what_may_wait() {
        let config = ReliableConfig {
            queued_bytes_max: 10_000,
            ..ReliableConfig::default()
        };
        assert!(config.message_max() < 10_000);
        assert_eq!(ReliableConfig::default().message_max(), 64 << 10);
    }
}
