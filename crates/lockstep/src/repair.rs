//! Selects the ticks of a client's next datagram: the newest few, or the oldest that it lacks.

use core::ops::Range;

use wire::Instant;

use crate::chain::Chain;
use crate::tick::Tick;

/// Round trip assumed before the first sample; RFC 9002, section 6.2.2.
const INITIAL_RTT_NANOS: u64 = 333_000_000;

/// Runs of bundles up to this length, in bytes, also repeat older ones that the receiver may lack:
/// the transport's overhead of 55 bytes weighs more, and losses occur in longer bursts than the
/// usual copies.
pub(crate) const RUN_LEN_SMALL: usize = 24;

/// Ticks of silence after which a client that reports each tick counts as lagging.
const SILENT_TICKS: u64 = 5;

#[derive(Debug)]
pub(crate) struct Repair {
    /// First tick that it lacks, as it last reported.
    pub(crate) next: Tick,
    is_gap: bool,
    unsent: Tick,
    /// While it lags: the next tick to send again, and when sending began at `next`.
    catching_up: Option<(Tick, Instant)>,
    last_received: Option<Instant>,
    /// Smoothed round trip in nanoseconds, including the client's wait for its tick.
    rtt_nanos: Option<u64>,
    /// Bytes that it may get in addition to its share.
    budget: u32,
    /// Whether another datagram is due at once: the last one held old bundles, and the newest are too
    /// long to share the next tick's datagram.
    pub(crate) is_newest_due: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairLimits {
    pub(crate) ticks: u32,
    pub(crate) period_nanos: u64,
    /// Ticks between two reports of a client.
    pub(crate) report_ticks: u64,
    pub(crate) len_max: usize,
    pub(crate) reserved_len: usize,
    /// Length up to which a run is extended by older bundles, in bytes.
    pub(crate) len_small: usize,
    pub(crate) burst: u32,
    pub(crate) gain: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) next: Tick,
    pub(crate) is_gap: bool,
    /// When the tick before `next` closed, if known.
    pub(crate) sent_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) end: Tick,
    /// When the first tick that the client lacks closed, if known.
    pub(crate) next_at: Option<Instant>,
}

/// The newest bundles wanted by a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// First tick to send in any case.
    pub(crate) from: Tick,
    /// First tick to send if the run stays short.
    pub(crate) spare: Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) ticks: Range<u32>,
    /// Whether they are old ones, charged to the budget.
    pub(crate) is_catch_up: bool,
}

impl Repair {
    pub(crate) const fn new(limits: &RepairLimits) -> Self {
        Self {
            next: Tick(0),
            is_gap: false,
            unsent: Tick(0),
            catching_up: None,
            last_received: None,
            rtt_nanos: None,
            budget: limits.burst,
            is_newest_due: false,
        }
    }

    /// Begins with `next`: the client has all ticks before it.
    pub(crate) const fn begin_at(&mut self, next: Tick) {
        self.next = next;
        self.unsent = next;
    }

    /// `next_at` is when the first tick that the client lacks closed, if known.
    pub(crate) fn is_level(
        &self,
        now: Instant,
        next_at: Option<Instant>,
        limits: &RepairLimits,
    ) -> bool {
        age(now, next_at) <= self.age_max(limits)
    }

    pub(crate) fn on_ack(&mut self, now: Instant, ack: &Ack) {
        let Ack {
            next,
            is_gap,
            sent_at,
        } = *ack;
        self.last_received = Some(now);
        if next < self.next {
            return;
        }
        // Retransmissions give no round trip sample; Karn and Partridge, 1987.
        if next > self.next
            && self.catching_up.is_none()
            && let Some(sent_at) = sent_at
        {
            let sample = now.as_nanos().saturating_sub(sent_at.as_nanos());
            self.rtt_nanos = Some(match self.rtt_nanos {
                None => sample,
                Some(smoothed) => (smoothed.saturating_mul(7).saturating_add(sample)) / 8,
            });
        }
        self.next = next;
        self.is_gap = is_gap;
    }

    pub(crate) fn on_tick(&mut self, limits: &RepairLimits) {
        self.on_ticks(1, limits);
    }

    pub(crate) fn on_ticks(&mut self, count: u32, limits: &RepairLimits) {
        let gain = limits.gain.saturating_mul(count);
        self.budget = self.budget.saturating_add(gain).min(limits.burst);
    }

    #[cfg(test)]
    pub(crate) fn slice(
        &mut self,
        now: Instant,
        closed: &Closed<'_>,
        limits: &RepairLimits,
    ) -> Slice {
        self.slice_by(now, closed, limits, |wanted| newest(closed, wanted, limits))
    }

    pub(crate) fn slice_by(
        &mut self,
        now: Instant,
        closed: &Closed<'_>,
        limits: &RepairLimits,
        newest: impl FnOnce(Wanted) -> Range<u32>,
    ) -> Slice {
        let old = if core::mem::take(&mut self.is_newest_due) {
            None
        } else {
            self.catch_up(now, closed, limits)
        };
        let is_old = old.is_some();
        let slice = old.unwrap_or_else(|| {
            // The last few ticks, and those never sent.
            let last = closed.end.minus(limits.ticks);
            let ticks = newest(Wanted {
                from: last.min(self.unsent).max(self.next),
                spare: self.next,
            });
            let is_catch_up = false;
            Slice { ticks, is_catch_up }
        });
        self.unsent = self.unsent.max(Tick(slice.ticks.end));
        self.is_newest_due = is_old && !self.can_wait(closed, limits);
        slice
    }

    /// Whether the unsent bundles, plus another one as long as the newest, fit one datagram.
    fn can_wait(&self, closed: &Closed<'_>, limits: &RepairLimits) -> bool {
        let newest = closed.end.minus(1);
        let unsent = (self.unsent.0..closed.end.0).map(Tick).chain([newest]);
        let mut len = 0_usize;
        for tick in unsent {
            let bundle = closed.chain.get(tick).unwrap_or_default();
            len = len
                .saturating_add(bundle.len())
                .saturating_add(limits.reserved_len);
            if len > limits.len_max {
                return self.unsent >= closed.end;
            }
        }
        true
    }

    /// Returns how long an answer takes; after that, requested or repeated bundles are lost.
    pub(crate) fn answer_nanos(&self, limits: &RepairLimits) -> u64 {
        self.rtt_nanos
            .unwrap_or(INITIAL_RTT_NANOS)
            .saturating_add(limits.period_nanos.saturating_mul(2))
    }

    /// Age of the oldest tick missing at a client that receives everything sent.
    fn age_max(&self, limits: &RepairLimits) -> u64 {
        let ticks = u64::from(limits.ticks).saturating_add(limits.report_ticks);
        let copies = limits.period_nanos.saturating_mul(ticks.saturating_sub(1));
        self.answer_nanos(limits).saturating_add(copies)
    }

    /// The oldest ticks that the client lacks, if it lags and has budget.
    fn catch_up(
        &mut self,
        now: Instant,
        closed: &Closed<'_>,
        limits: &RepairLimits,
    ) -> Option<Slice> {
        let end = closed.end;
        let is_behind = self.is_gap || age(now, closed.next_at) > self.age_max(limits);
        if self.next >= end || !is_behind {
            self.catching_up = None;
            return None;
        }
        // An unreachable client would use up its budget.
        let silence = self
            .last_received
            .map_or(u64::MAX, |at| now.as_nanos().saturating_sub(at.as_nanos()));
        let silent_ticks = limits.report_ticks.saturating_mul(SILENT_TICKS);
        let is_silent = silence > limits.period_nanos.saturating_mul(silent_ticks);
        if is_silent {
            self.catching_up = None;
            return None;
        }
        let wait = self.answer_nanos(limits);
        let (cursor, since) = match self.catching_up {
            Some((cursor, since)) if now.as_nanos().saturating_sub(since.as_nanos()) < wait => {
                (cursor.max(self.next), since)
            }
            Some(_) | None => (self.next, now),
        };
        self.catching_up = Some((cursor, since));
        // The last few are sent anyway; nothing older is missing past the cursor.
        if cursor >= end.minus(limits.ticks) {
            return None;
        }
        let mut len = 0_usize;
        let mut stop = cursor;
        while stop < end {
            let Some(bundle) = closed.chain.get(stop) else {
                break;
            };
            let more = bundle.len().saturating_add(limits.reserved_len);
            if len.saturating_add(more) > limits.len_max {
                break;
            }
            len = len.saturating_add(more);
            stop = stop.plus(1);
        }
        let price = u32::try_from(len).unwrap_or(u32::MAX);
        if stop == cursor || price > self.budget {
            return None;
        }
        self.budget = self.budget.saturating_sub(price);
        self.catching_up = Some((stop, since));
        Some(Slice {
            ticks: cursor.0..stop.0,
            is_catch_up: true,
        })
    }
}

pub(crate) fn newest(closed: &Closed<'_>, wanted: Wanted, limits: &RepairLimits) -> Range<u32> {
    let mut len = 0_usize;
    let mut start = closed.end;
    while start > wanted.spare.min(wanted.from) {
        let before = start.minus(1);
        let len_max = if before >= wanted.from {
            limits.len_max
        } else {
            limits.len_max.min(limits.len_small)
        };
        let Some(bundle) = closed.chain.get(before) else {
            break;
        };
        let more = bundle.len().saturating_add(limits.reserved_len);
        if len.saturating_add(more) > len_max {
            break;
        }
        len = len.saturating_add(more);
        start = before;
    }
    start.0..closed.end.0
}

fn age(now: Instant, at: Option<Instant>) -> u64 {
    at.map_or(0, |at| now.as_nanos().saturating_sub(at.as_nanos()))
}

/// Bundles of consecutive ticks, concatenated as in datagrams.
#[derive(Debug, Default)]
pub(crate) struct EncodedTicks {
    /// The last query, the end of the ticks it was for, and its result.
    found: (Option<Wanted>, Tick, Range<u32>),
    ticks: Range<u32>,
    bytes: Vec<u8>,
}

impl EncodedTicks {
    /// Creates one that never grows past `len_max` bytes.
    pub(crate) fn with_capacity(len_max: usize) -> Self {
        Self {
            found: (None, Tick(0), 0..0),
            ticks: 0..0,
            bytes: Vec::with_capacity(len_max),
        }
    }

    /// The newest wanted bundles, as many as fit one datagram; cached for equal queries.
    pub(crate) fn newest(
        &mut self,
        closed: &Closed<'_>,
        wanted: Wanted,
        limits: &RepairLimits,
    ) -> Range<u32> {
        let (asked, end, found) = &self.found;
        if *asked == Some(wanted) && *end == closed.end {
            return found.clone();
        }
        let found = newest(closed, wanted, limits);
        self.found = (Some(wanted), closed.end, found.clone());
        found
    }

    pub(crate) fn encode(&mut self, chain: &Chain, ticks: &Range<u32>) -> &[u8] {
        if self.ticks != *ticks {
            self.bytes.clear();
            for tick in ticks.clone() {
                self.bytes
                    .extend_from_slice(chain.get(Tick(tick)).unwrap_or_default());
            }
            self.ticks = ticks.clone();
        }
        &self.bytes
    }

    pub(crate) const fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests;
