//! Counters of a stream driver, which any thread reads without a lock.

use std::fmt;

use crate::counters::counters;

counters! {
    /// The counters of a stream driver.
    ///
    /// Each connection is counted exactly once per stage. `accepted` plus `dialled` equals the sum
    /// of all `refused_*`, all `failed_*`, `opened` and the running handshakes. `opened` plus
    /// `taken_over` equals the sum of all `closed_*`, `handed_over` and the open connections.
    StreamCounters,
    /// The counters of a running driver, which is the only writer of most of them.
    StreamLedger,
    /// Turns of the loop. An idle driver makes none.
    turns,
    /// Requests applied.
    requests,
    /// Requests rejected because the queue was full.
    requests_refused,
    /// Calls of the machine's `handle_timeout`.
    timeouts,
    /// Events given to the application.
    events,
    /// Commands given to the application.
    commands,
    /// Times that a timer was still due after it had run, a bug of the machine or the application.
    stuck_timers,
    /// Connections accepted.
    accepted,
    /// Connections dialled.
    dialled,
    /// Dials not begun: the connection limit was reached, or the system had no socket left.
    dials_refused,
    /// Failed accepts, for example for lack of descriptors.
    accept_errors,
    /// Closed at once: the connection limit was reached.
    refused_full,
    /// Closed at once: the handshake limit was reached, and no source had more handshakes than this
    /// one.
    refused_handshakes,
    /// Closed at once: the source's limit of connections or handshakes was reached.
    refused_source,
    /// Closed in the handshake: the peer did not speak this TLS.
    failed_tls,
    /// Closed in the handshake: the key was wrong, not admitted or missing, the proof was invalid,
    /// or the host's certificate was rejected.
    failed_identity,
    /// Closed in the handshake: the peer rejected it.
    failed_refused,
    /// Closed in the handshake: it timed out.
    failed_timeout,
    /// Closed in the handshake: evicted for a new connection. The oldest handshake of its own
    /// source or of the source with the most handshakes is evicted.
    failed_crowded,
    /// Closed in the handshake: the peer left.
    failed_gone,
    /// Dials to unreachable addresses.
    failed_unreachable,
    /// Dropped in the handshake: the servicer shut down.
    failed_shutdown,
    /// Connections that completed their handshake.
    opened,
    /// Open connections taken over from another driver.
    taken_over,
    /// Open connections handed over to another driver.
    handed_over,
    /// Closed in order by the peer.
    closed_finished,
    /// Closed by the machine or by the shutdown.
    closed_local,
    /// The peer left without a TLS close: a reset, or the end of the stream.
    closed_reset,
    /// Received data did not decrypt or broke TLS in another way.
    closed_tls,
    /// The peer announced a record longer than the limit.
    closed_too_long,
    /// A record took too long to arrive (`record_timeout`).
    closed_slow,
    /// No data arrived for too long (`idle_timeout`).
    closed_idle,
    /// The peer took no data for too long (`stall_timeout`).
    closed_stalled,
    /// The machine exceeded its credit, or wrote a record too long for a 4-byte length; a bug of
    /// the machine.
    closed_overrun,
    /// Records given to the machine.
    records_in,
    /// Bytes of those records.
    bytes_in,
    /// Records taken from the machine.
    records_out,
    /// Bytes of those records.
    bytes_out,
    /// Records for connections that are not open, dropped; a bug of the machine.
    dropped_out_closed,
    /// Times that a socket took no more data.
    writes_blocked,
}

impl fmt::Display for StreamCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} turns, {} connections, {} records in, {} out",
            self.turns, self.opened, self.records_in, self.records_out
        )
    }
}
