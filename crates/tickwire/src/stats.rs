//! What a server or client has counted, and how it has fared over the last minute.
//!
//! [`Server::report`](crate::Server::report) and [`Client::report`](crate::Client::report) make a
//! [`Report`]. With feature `stats` it is written as JSON or as Prometheus text; the application
//! offers that where it sees fit, such as over HTTP on a port of its own.

#[cfg(feature = "stats")]
mod prometheus;
mod recorder;

#[cfg(feature = "stats")]
pub use prometheus::Page;
use servicer::Counters;
use udp_proto::{EndpointStats, SessionStats};

pub(crate) use recorder::{Recorder, Sight};

/// All counters of one server or client, and a series of the last 60 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// Version of this shape, [`Report::SCHEMA`]: raised when a field leaves or changes its
    /// meaning, not when one is added.
    pub schema: u16,
    /// Milliseconds since it was opened.
    pub uptime_ms: u64,
    /// Sessions that are open.
    pub sessions: u32,
    /// What the endpoint has counted.
    pub endpoint: EndpointStats,
    /// What the driver of its sockets has counted.
    pub driver: Counters,
    /// What went over the wire since it was opened, sessions that have ended included, and how the
    /// paths look now: means over the open sessions.
    pub traffic: Traffic,
    /// Where the time went since it was opened.
    pub load: Load,
    /// The last 60 seconds, oldest first: at most 60 entries, the second under way not included.
    pub series: Vec<Second>,
    /// The open sessions that have a series of their own, in slot order: those that opened while
    /// fewer than 256 had one.
    pub session: Vec<SessionReport>,
}

impl Report {
    /// The shape that this version makes.
    pub const SCHEMA: u16 = 1;

    /// Returns the report as one line of JSON.
    #[cfg(feature = "stats")]
    #[must_use]
    pub fn to_json(&self) -> String {
        // Writing to memory fails only for maps whose keys are no strings, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the counters as Prometheus text, format 0.0.4: `tickwire_endpoint_*`,
    /// `tickwire_driver_*`, `tickwire_traffic_*`, `tickwire_tick*` and, for the sessions that have
    /// a series, `tickwire_session_*` with label `session`. Series are left to who scrapes it.
    #[cfg(feature = "stats")]
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        prometheus::text(self)
    }
}

/// One second of a server's or client's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Second {
    /// When it ended, in milliseconds since the server or client was opened.
    pub end_ms: u64,
    /// How long it was: 1,000 ms, and more where nobody polled at its end.
    pub span_ms: u64,
    /// Sessions that were open at its end.
    pub sessions: u32,
    /// What went over the wire.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub traffic: Traffic,
    /// Where the time went.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub load: Load,
}

/// One second of a session's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionSecond {
    /// When it ended, in milliseconds since the server or client was opened.
    pub end_ms: u64,
    /// How long it was: 1,000 ms, less for a session's first, and more where nobody polled.
    pub span_ms: u64,
    /// What went over the wire.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub traffic: Traffic,
}

/// What went over the wire in a span of time, and how the path looked at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Traffic {
    /// Datagrams received; of a session, packets that opened.
    pub packets_received: u64,
    /// Bytes of these.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub packets_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Packets of ours that were acknowledged.
    pub packets_acknowledged: u64,
    /// Packets of ours that count as lost.
    pub packets_lost: u64,
    /// Smoothed round trip, microseconds, without what the peer held its acknowledgement back; zero
    /// before the first sample.
    pub rtt_us: u64,
    /// How much of that is queueing, microseconds: what it exceeds the smallest round trip by. The
    /// rest is the path itself.
    pub queueing_us: u64,
}

/// Where a thread's time went in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Load {
    /// Ticks that began.
    pub ticks: u64,
    /// Ticks that were left out, because the one before took too long.
    pub ticks_missed: u64,
    /// Microseconds of receiving: sockets, decryption, timers.
    pub receive_us: u64,
    /// Microseconds between what `wait_tick` or `poll` returned and the next call: the game's own.
    pub game_us: u64,
    /// Microseconds of sending: packing, encryption, sockets; and of telling events.
    pub send_us: u64,
}

/// A session's counters and its last 60 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "stats", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionReport {
    /// Which: its id as text.
    pub session: String,
    /// What it has counted, and how its path looks now.
    #[cfg_attr(feature = "stats", serde(flatten))]
    pub stats: SessionStats,
    /// How much of the round trip is queueing, microseconds.
    pub queueing_us: u64,
    /// The last 60 seconds, oldest first: at most 60 entries, the second under way not included.
    pub series: Vec<SessionSecond>,
}
