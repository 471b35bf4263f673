//! What a driver has done, readable from any thread without a lock.

use std::fmt;

use wire::Instant;

use crate::count::counters;

counters! {
    /// What a driver has done so far.
    Counters,
    /// The counters of a running driver, which alone adds to most of them.
    Ledger,
    /// Turns of the loop. A driver at rest makes none.
    turns,
    /// Datagrams received and given to the machine.
    datagrams_in,
    /// Of these, how many waited for others of their turn: they began something, and the others went on
    /// with it.
    datagrams_waited,
    /// Bytes in them.
    bytes_in,
    /// System calls that received these, and those that found nothing.
    receive_calls,
    /// Datagrams given to the system to send.
    datagrams_out,
    /// System calls that sent these, and those that failed.
    send_calls,
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
    /// Dropped by the system: the receive buffer of a socket that the driver was given was full. Linux 4.12 and
    /// later tell; elsewhere this stays 0.
    dropped_in_full,
    /// The same of sockets opened while the driver ran.
    dropped_in_full_opened,
    /// Received and dropped: no answer is possible, because the source port is 0.
    dropped_in_unanswerable,
    /// Headers taken off that say whom a trusted exit speaks for.
    exit_headers,
    /// Received from a trusted exit and dropped: it begins like such a header and is none.
    dropped_in_exit_header,
    /// Received from a trusted exit and dropped: it says that a flow which is alive is for somebody else.
    dropped_in_exit_taken,
    /// Received from a trusted exit and dropped: as many of its flows as are remembered are alive.
    dropped_in_exit_full,
    /// Reports by ICMP, or by the routing table, that a datagram could not be delivered.
    unreachable,
    /// Failed receives that none of the above explains.
    receive_errors,
    /// Dropped instead of sent: the socket's send buffer was full.
    dropped_out_full,
    /// Dropped instead of sent: longer than the path or the interface carries.
    dropped_out_too_large,
    /// Dropped instead of sent: no socket of the address's family, or none of that index.
    dropped_out_no_socket,
    /// Dropped instead of sent: refused by the system for another reason.
    dropped_out_refused,
    /// Sockets opened while the driver ran.
    sockets_opened,
    /// Those of them that were closed again.
    sockets_closed,
    /// Orders to open or close a socket that could not be carried out.
    socket_orders_failed,
    /// Nanoseconds spent in turns on receiving, on requests and on timers.
    receive_nanos,
    /// Nanoseconds spent in turns on what the machine wants sent and told.
    send_nanos,
    /// Times that a timer was still due after it had run; a fault of the machine or the
    /// application.
    stuck_timers,
    /// Datagrams that the conditioner lost on purpose.
    conditioned_lost,
    /// Datagrams that the conditioner had no room to delay, and dropped.
    conditioned_full,
}

impl Ledger {
    /// Notes how long a turn took until `received`, and from then until `sent`.
    pub(super) fn note_turn(&self, began: Instant, received: Instant, sent: Instant) {
        let nanos = |from: Instant, to: Instant| to.as_nanos().saturating_sub(from.as_nanos());
        self.receive_nanos.add(nanos(began, received));
        self.send_nanos.add(nanos(received, sent));
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} turns, {} datagrams in, {} out",
            self.turns, self.datagrams_in, self.datagrams_out
        )
    }
}
