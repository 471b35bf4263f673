//! Limits of a stream driver.

use std::num::NonZeroUsize;
use std::time::Duration;

/// How much a stream driver holds, waits and does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Maximum length of an inbound record, bytes; 66,560, which is 64 KiB of body and 1 KiB of
    /// headers. A connection that announces a longer record is closed. Each connection may buffer
    /// this much of an incomplete record.
    pub record_bytes_max: usize,
    /// Send buffer of a connection, bytes of records; 256 KiB, at least the longest record. It is
    /// the machine's initial credit, which is returned as bytes are written. In the worst case each
    /// connection holds this much, plus 4 bytes for each record.
    pub credit_bytes: usize,
    /// Maximum connections, including handshakes and dials; 4,096.
    pub connections_max: usize,
    /// Maximum accepted connections of one source, an IPv4 address or an IPv6 /64; 1,024. Dials do
    /// not count.
    pub connections_per_source_max: usize,
    /// Maximum accepted connections in the handshake; 256. Each holds up to 64 KiB. One more
    /// replaces the oldest of the source with the most handshakes, unless that is its own source.
    pub handshakes_max: usize,
    /// Maximum handshakes of one source; 32. Above half of it, each new connection replaces the
    /// oldest if that has had its [`handshake_grace`](Self::handshake_grace).
    pub handshakes_per_source_max: usize,
    /// Time before a handshake may be evicted for another of its source; 1 s. A shorter grace
    /// limits how long an attacker blocks others of its source, but cuts off peers with a long
    /// round trip.
    pub handshake_grace: Duration,
    /// Timeout of a handshake, from the first packet; 5 s.
    pub handshake_timeout: Duration,
    /// Timeout of a record, from its first byte to its last; 10 s. It sets the slowest usable link:
    /// 6.5 KiB/s for the longest record.
    pub record_timeout: Duration,
    /// Timeout without any byte of a record; 60 s. A machine that needs a shorter timeout closes
    /// the connection itself.
    pub idle_timeout: Duration,
    /// Timeout while the peer takes none of the bytes waiting for it; 30 s.
    pub stall_timeout: Duration,
    /// Time for the peer to take the last bytes of a connection closed here; 1 s.
    pub linger_timeout: Duration,
    /// Bytes read from all sockets before timers run, and bytes of records then taken from the
    /// machine; 1 MiB, about 1 ms of work. The result of one poll of all sockets is read
    /// completely, up to 256 KiB per socket in reads of up to 64 KiB. Of sockets in the handshake,
    /// only one is read per 64 KiB of this budget, because each costs a key agreement and a
    /// signature. After a gap of 250 ms between turns the read bound is 16 times as high, so that
    /// all data queued during a pause is read before timers run.
    pub bytes_per_turn: NonZeroUsize,
    /// Maximum queued requests; 4,096. The queue is allocated at the start.
    pub requests_max: NonZeroUsize,
}

impl StreamConfig {
    /// Maximum bytes of records that a connection holds for writing.
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
