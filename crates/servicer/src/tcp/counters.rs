//! What a stream driver has done, readable from any thread without a lock.

use std::fmt;

use crate::count::counters;

counters! {
    /// What a stream driver has done so far.
    ///
    /// Every connection ends up in one place: `accepted` and `dialled` together are the sum of
    /// all `refused_*`, all `failed_*`, `opened` and the handshakes that run; `opened` and
    /// `taken_over` together are the sum of all `closed_*`, `handed_over` and the connections that
    /// are open.
    StreamCounters,
    /// The counters of a running driver, which alone adds to most of them.
    StreamLedger,
    /// Turns of the loop. A driver at rest makes none.
    turns,
    /// Requests applied.
    requests,
    /// Requests handed back because the queue was full.
    requests_refused,
    /// Calls of the machine's `handle_timeout`.
    timeouts,
    /// Events given to the application.
    events,
    /// Commands given to the application.
    commands,
    /// Times that a timer was still due after it had run; a fault of the machine or the
    /// application.
    stuck_timers,
    /// Connections that others made.
    accepted,
    /// Connections that were dialled.
    dialled,
    /// Dials not begun: there are as many connections as allowed, or the system gave no socket.
    dials_refused,
    /// Failed accepts, such as for want of a descriptor.
    accept_errors,
    /// Closed at once: as many connections as allowed.
    refused_full,
    /// Closed at once: as many handshakes as allowed, and no source has more than this one.
    refused_handshakes,
    /// Closed at once: as many connections or handshakes of one source as allowed.
    refused_source,
    /// Closed in the handshake: what came is not the TLS that is spoken here.
    failed_tls,
    /// Closed in the handshake: the wrong key, one that is not let in, none, a bad proof, or the
    /// certificate of a host that is not believed.
    failed_identity,
    /// Closed in the handshake: the other end refused it.
    failed_refused,
    /// Closed in the handshake: it took too long.
    failed_timeout,
    /// Closed in the handshake: as many ran as allowed, its source had the most of them, and one of
    /// another source came.
    failed_crowded,
    /// Closed in the handshake: the other end left.
    failed_gone,
    /// Dials that reached nobody.
    failed_unreachable,
    /// Dropped in the handshake: the servicer shuts down.
    failed_shutdown,
    /// Connections whose handshake ended well.
    opened,
    /// Open connections taken from another driver.
    taken_over,
    /// Open connections given to another driver.
    handed_over,
    /// Closed in order by the other end.
    closed_finished,
    /// Closed by the machine, or by the shutdown.
    closed_local,
    /// The other end is gone without a farewell: reset, or the end of the stream.
    closed_reset,
    /// What came does not decrypt, or breaks TLS in another way.
    closed_tls,
    /// A record longer than allowed was announced.
    closed_too_long,
    /// A record took too long from its first byte to its last.
    closed_slow,
    /// Nothing came for too long.
    closed_idle,
    /// Nothing of what waits was taken for too long.
    closed_stalled,
    /// The machine wrote more than its credit, or a record that four bytes cannot measure; a fault
    /// of the machine.
    closed_overrun,
    /// Records given to the machine.
    records_in,
    /// Bytes in them.
    bytes_in,
    /// Records taken from the machine.
    records_out,
    /// Bytes in them.
    bytes_out,
    /// Records taken from the machine for connections that are not open, and dropped; a fault of
    /// the machine.
    dropped_out_closed,
    /// Times that a socket would take no more of what waits.
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
