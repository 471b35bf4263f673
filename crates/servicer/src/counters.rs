//! Lock-free counters: one thread increments them, any thread reads them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "udp")]
use wire::Instant;

/// Declares a counters struct and its atomic counterpart from one list of fields.
macro_rules! counters {
    (
        $(#[$counters_doc:meta])* $counters:ident,
        $(#[$ledger_doc:meta])* $ledger:ident,
        $($(#[$doc:meta])* $name:ident,)*
    ) => {
        $(#[$counters_doc])*
        /// A snapshot of a running driver is not atomic: each field is exact, but read at a
        /// slightly different time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Returns the sums, field by field.
            #[must_use]
            pub const fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name.saturating_add(other.$name),)* }
            }
        }

        $(#[$ledger_doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $ledger {
            $(pub(crate) $name: $crate::counters::Count,)*
        }

        impl $ledger {
            pub(crate) fn snapshot(&self) -> $counters {
                $counters { $($name: self.$name.get(),)* }
            }
        }

        impl $crate::counters::AtomicCounters for $ledger {
            type Counters = $counters;

            fn snapshot(&self) -> $counters {
                Self::snapshot(self)
            }

            fn count_refused_request(&self) {
                self.requests_refused.add(1);
            }
        }
    };
}
#[cfg(feature = "tcp")]
pub(crate) use counters;

/// The atomic counters of a driver.
pub(crate) trait AtomicCounters: fmt::Debug + Send + Sync {
    type Counters;

    fn snapshot(&self) -> Self::Counters;

    fn count_refused_request(&self);
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        if more > 0 {
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "udp")]
counters! {
    /// The counters of a driver.
    Counters,
    /// The counters of a running driver, which is the only writer of most of them.
    Ledger,
    /// Turns of the loop. An idle driver makes none.
    turns,
    /// Datagrams received and given to the machine.
    datagrams_in,
    /// Datagrams of these that were deferred within their turn: they start a handshake, and
    /// datagrams of sessions were handled first.
    datagrams_waited,
    /// Bytes of those datagrams.
    bytes_in,
    /// Receive system calls, including those that found nothing.
    receive_calls,
    /// Datagrams that the system accepted for sending.
    datagrams_out,
    /// Send system calls, including those that failed.
    send_calls,
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
    /// Dropped by the system: the receive buffer of a socket given at the start was full. Counted
    /// only on Linux 4.12 and later; 0 elsewhere.
    dropped_in_full,
    /// The same for sockets opened at run time.
    dropped_in_full_opened,
    /// Received and dropped: the source port is 0, so no answer is possible.
    dropped_in_unanswerable,
    /// PROXY headers of trusted exits.
    exit_headers,
    /// Received from a trusted exit and dropped: malformed PROXY header.
    dropped_in_exit_header,
    /// Received from a trusted exit and dropped: the header assigns an active flow to another
    /// address.
    dropped_in_exit_taken,
    /// Received from a trusted exit and dropped: the flow limit is reached, and all flows are
    /// active.
    dropped_in_exit_full,
    /// Reports by ICMP or the routing table that a datagram was undeliverable.
    unreachable,
    /// Failed receives with any other error.
    receive_errors,
    /// Not sent: the socket's send buffer was full.
    dropped_out_full,
    /// Not sent: longer than the MTU of the path or the interface.
    dropped_out_too_large,
    /// Not sent: no socket of the address family, or none with that index.
    dropped_out_no_socket,
    /// Not sent: the system rejected it for another reason.
    dropped_out_refused,
    /// Sockets opened at run time.
    sockets_opened,
    /// Sockets of these that were closed.
    sockets_closed,
    /// Socket orders that failed.
    socket_orders_failed,
    /// Time spent in turns on receiving, requests and timers, ns.
    receive_nanos,
    /// Time spent in turns on draining and sending, ns.
    send_nanos,
    /// Times that a timer was still due after it had run, a bug of the machine or the application.
    stuck_timers,
    /// Datagrams that the conditioner lost by its rules.
    conditioned_lost,
    /// Datagrams that the conditioner dropped because its limits were reached.
    conditioned_full,
}

#[cfg(feature = "udp")]
impl Ledger {
    /// Records the duration of a turn: from `began` to `received`, and from there to `sent`.
    pub(crate) fn record_turn(&self, began: Instant, received: Instant, sent: Instant) {
        let nanos = |from: Instant, to: Instant| to.as_nanos().saturating_sub(from.as_nanos());
        self.receive_nanos.add(nanos(began, received));
        self.send_nanos.add(nanos(received, sent));
    }
}

#[cfg(feature = "udp")]
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} turns, {} datagrams in, {} out",
            self.turns, self.datagrams_in, self.datagrams_out
        )
    }
}
