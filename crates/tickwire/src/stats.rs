//! Counters of a server or client, and a per-second series of the last minute.
//!
//! [`Server::report`](crate::Server::report) and [`Client::report`](crate::Client::report) return a
//! [`Report`]. With feature `stats` it can be written as JSON or as Prometheus text. The
//! application decides how to export it, for example over HTTP on its own port.

#[cfg(feature = "stats")]
mod prometheus;
mod recorder;

#[cfg(feature = "stats")]
pub use prometheus::Page;
use servicer::Counters;
use udp_proto::{EndpointStats, SessionStats};

pub(crate) use recorder::{Recorder, Sample};

/// All counters of one server or client, and a series of the last 60 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// Version of this format, [`Report::SCHEMA`]. It increases when a field is removed or changes
    /// its meaning, not when a field is added.
    pub schema: u16,
    /// Milliseconds since the socket was opened.
    pub uptime_ms: u64,
    /// Number of open sessions.
    pub sessions: u32,
    /// Counters of the endpoint.
    pub endpoint: EndpointStats,
    /// Counters of the socket driver.
    pub driver: Counters,
    /// Traffic since the socket was opened, including closed sessions. Round trip and queueing are
    /// means over the open sessions.
    pub traffic: Traffic,
    /// Time spent per activity since the socket was opened.
    pub load: Load,
    /// The last 60 seconds, oldest first: at most 60 entries, without the current second.
    pub series: Vec<Second>,
    /// The open sessions with a series of their own, in slot order. A session gets a series if
    /// fewer than 256 sessions have one when it opens.
    pub session: Vec<SessionReport>,
}

impl Report {
    /// The current version of the format.
    pub const SCHEMA: u16 = 1;

    /// Returns the report as one line of JSON.
    #[cfg(feature = "stats")]
    #[must_use]
    pub fn to_json(&self) -> String {
        // Serialization to memory fails only for maps with non-string keys, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the counters as Prometheus text, format 0.0.4: `tickwire_endpoint_*`,
    /// `tickwire_driver_*`, `tickwire_traffic_*`, `tickwire_tick*` and, for sessions with a series,
    /// `tickwire_session_*` with label `session`. The series are not included.
    #[cfg(feature = "stats")]
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        prometheus::text(self)
    }
}

/// One second of a server or client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Second {
    /// End of the second, in milliseconds since the server or client was opened.
    pub end_ms: u64,
    /// Length in milliseconds: 1,000, or more if nobody polled at its end.
    pub span_ms: u64,
    /// Sessions that were open at its end.
    pub sessions: u32,
    /// Traffic in this second.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub traffic: Traffic,
    /// Time spent per activity in this second.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub load: Load,
}

/// One second of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionSecond {
    /// End of the second, in milliseconds since the server or client was opened.
    pub end_ms: u64,
    /// Length in milliseconds: 1,000, less for a session's first second, more if nobody polled.
    pub span_ms: u64,
    /// Traffic in this second.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub traffic: Traffic,
}

/// Traffic in a time span, and the state of the path at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Traffic {
    /// Datagrams received. For a session: packets that were decrypted.
    pub packets_received: u64,
    /// Bytes in the datagrams received.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub packets_sent: u64,
    /// Bytes in the datagrams sent.
    pub bytes_sent: u64,
    /// Sent packets that were acknowledged.
    pub packets_acknowledged: u64,
    /// Sent packets that were declared lost.
    pub packets_lost: u64,
    /// Smoothed round-trip time in microseconds, without the peer's acknowledgement delay. 0 before
    /// the first sample.
    pub rtt_us: u64,
    /// Queueing delay in microseconds: the smoothed round trip minus the smallest one.
    pub queueing_us: u64,
}

/// Time that a thread spent per activity in a time span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Load {
    /// Ticks that began.
    pub ticks: u64,
    /// Ticks that were skipped because the one before took too long.
    pub ticks_missed: u64,
    /// Microseconds of receiving: sockets, decryption, timers.
    pub receive_us: u64,
    /// Microseconds in the game: from the return of `wait_tick` or `poll` to the next call.
    pub game_us: u64,
    /// Microseconds of sending (packing, encryption, sockets) and of delivering events.
    pub send_us: u64,
}

/// Counters of a session and its last 60 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionReport {
    /// The session's id as text.
    pub session: String,
    /// Counters of the session, and the current state of its path.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub stats: SessionStats,
    /// Queueing delay in microseconds.
    pub queueing_us: u64,
    /// The last 60 seconds, oldest first: at most 60 entries, without the current second.
    pub series: Vec<SessionSecond>,
}
