//! The parts of a server's report that are shown here.

use serde::Deserialize;

/// A report. Missing fields are zero and unknown ones are ignored, so that other versions of the
/// schema can be read too.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// Version of the schema.
    pub(crate) schema: u64,
    /// Milliseconds since the server started.
    pub(crate) uptime_ms: u64,
    /// Number of open sessions.
    pub(crate) sessions: u64,
    /// The last 60 seconds, oldest first.
    pub(crate) series: Vec<Second>,
    /// The open sessions which have a series.
    pub(crate) session: Vec<Session>,
}

/// A session and its last 60 seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Session {
    pub(crate) session: String,
    pub(crate) series: Vec<Second>,
}

/// Counters of one second, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Second {
    pub(crate) span_ms: u64,
    pub(crate) packets_received: u64,
    pub(crate) bytes_received: u64,
    pub(crate) packets_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) packets_acknowledged: u64,
    pub(crate) packets_lost: u64,
    /// At the end of the span.
    pub(crate) rtt_us: u64,
    /// At the end of the span.
    pub(crate) queueing_us: u64,
    pub(crate) ticks: u64,
    pub(crate) ticks_missed: u64,
    pub(crate) receive_us: u64,
    pub(crate) game_us: u64,
    pub(crate) send_us: u64,
}

impl Second {
    /// Merges the last `count` entries of `series`.
    pub(crate) fn of(series: &[Self], count: usize) -> Self {
        let from = series.len().saturating_sub(count);
        let last = series.get(from..).unwrap_or_default();
        last.iter().fold(Self::default(), |sum, second| Self {
            span_ms: sum.span_ms.saturating_add(second.span_ms),
            packets_received: sum.packets_received.saturating_add(second.packets_received),
            bytes_received: sum.bytes_received.saturating_add(second.bytes_received),
            packets_sent: sum.packets_sent.saturating_add(second.packets_sent),
            bytes_sent: sum.bytes_sent.saturating_add(second.bytes_sent),
            packets_acknowledged: sum
                .packets_acknowledged
                .saturating_add(second.packets_acknowledged),
            packets_lost: sum.packets_lost.saturating_add(second.packets_lost),
            rtt_us: second.rtt_us,
            queueing_us: second.queueing_us,
            ticks: sum.ticks.saturating_add(second.ticks),
            ticks_missed: sum.ticks_missed.saturating_add(second.ticks_missed),
            receive_us: sum.receive_us.saturating_add(second.receive_us),
            game_us: sum.game_us.saturating_add(second.game_us),
            send_us: sum.send_us.saturating_add(second.send_us),
        })
    }

    /// Returns `count` as a rate per second, rounded down.
    pub(crate) const fn rate(&self, count: u64) -> u64 {
        match count.saturating_mul(1_000).checked_div(self.span_ms) {
            Some(rate) => rate,
            None => 0,
        }
    }

    /// Returns the share of settled packets that were acknowledged, in thousandths, or `None` if
    /// none were settled.
    pub(crate) const fn acknowledged(&self) -> Option<u64> {
        let settled = self.packets_acknowledged.saturating_add(self.packets_lost);
        thousandths(self.packets_acknowledged, settled)
    }

    /// Returns `micros` as thousandths of the span.
    pub(crate) const fn share(&self, micros: u64) -> Option<u64> {
        thousandths(micros, self.span_ms.saturating_mul(1_000))
    }
}

const fn thousandths(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(1_000).checked_div(whole)
}
