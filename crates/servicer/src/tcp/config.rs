//! Limits of a stream driver.

use std::num::NonZeroUsize;
use std::time::Duration;

/// How much a stream driver holds, waits and does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Longest record that is taken, bytes; 66,560, which is 64 KiB for a body and 1 KiB for what
    /// stands before it. A connection that announces a longer one is closed. Each connection may
    /// hold so much of a record whose end has not arrived.
    pub record_bytes_max: usize,
    /// Bytes of records that may wait to be written to one connection; 256 KiB, and never less
    /// than the longest record. What a machine may write at first, and again as it is written. At
    /// the worst each connection holds so much, and four bytes for each record.
    pub credit_bytes: usize,
    /// Connections, handshakes and dials included; 4,096.
    pub connections_max: usize,
    /// Connections of one source: an IPv4 address, or 64 bits of an IPv6 address; 1,024. Counts
    /// what is accepted, not what is dialled.
    pub connections_per_source_max: usize,
    /// Accepted connections that have not proved anything yet; 256. Each holds up to 64 KiB. One more
    /// takes the place of the oldest of the source that has the most, where that is not its own.
    pub handshakes_max: usize,
    /// The same of one source; 32. Above half of it, each new connection takes the place of the oldest,
    /// where that has had its [`handshake_grace`](Self::handshake_grace).
    pub handshakes_per_source_max: usize,
    /// Time that a handshake has before it gives way to another of its source; 1 s. Shorter keeps
    /// neighbours of an attacker out for less, and cuts off those whose round trip is long.
    pub handshake_grace: Duration,
    /// Time from the first packet to the end of the handshake; 5 s.
    pub handshake_timeout: Duration,
    /// Time from the first byte of a record to its last; 10 s. It sets how slow a link may be:
    /// 6.5 KiB/s for the longest record.
    pub record_timeout: Duration,
    /// Time without a byte of a record after which the other end is taken for gone; 60 s. A
    /// machine that has less patience closes by itself.
    pub idle_timeout: Duration,
    /// Time for which the other end may take nothing of what waits; 30 s.
    pub stall_timeout: Duration,
    /// Time that the other end gets to take the last bytes of a connection closed here; 1 s.
    pub linger_timeout: Duration,
    /// Bytes taken from all sockets before timers run, and bytes of records taken from the machine
    /// after that; 1 MiB, about 1 ms of work. What one look at all sockets yields is taken whole,
    /// up to 256 KiB of each, in reads of up to 64 KiB; but of sockets in the handshake only one for each 64 KiB of it, since
    /// a key agreement and a signature are as much work, however few bytes ask for them. After a gap of 250 ms between turns the bound of what is read is 16
    /// times as high, so that what waited through a pause is heard before timers judge the silence.
    pub bytes_per_turn: NonZeroUsize,
    /// Requests that may wait; 4,096. Room for all of them is allocated at the start.
    pub requests_max: NonZeroUsize,
}

impl StreamConfig {
    /// What a connection may hold to be written, bytes of records.
    pub(super) fn credit(&self) -> usize {
        self.credit_bytes.max(self.record_bytes_max)
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        const BYTES: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
        const REQUESTS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
        Self {
            record_bytes_max: 65 << 10,
            credit_bytes: 256 << 10,
            connections_max: 4_096,
            connections_per_source_max: 1_024,
            handshakes_max: 256,
            handshakes_per_source_max: 32,
            handshake_grace: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(5),
            record_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(1),
            bytes_per_turn: BYTES,
            requests_max: REQUESTS,
        }
    }
}
