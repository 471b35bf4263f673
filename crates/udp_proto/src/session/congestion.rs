//! Congestion control of bulk messages: a window that yields before queues grow long.
//!
//! The window follows RFC 9002, section 7: slow start, recovery, congestion avoidance, no growth
//! while application-limited. It also yields to delay, as in RFC 6817, since bulk data must not
//! queue before the game's own packets.

use core::time::Duration;

use wire::Instant;

use crate::nanos::Nanos;
use crate::rtt::RttEstimator;
use crate::sent::{InFlight, SentPackets, Summary};

#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    /// Bytes that may be in flight.
    pub(super) window: u64,
    threshold: u64,
    /// Bytes acknowledged towards the next step of linear growth.
    credit: u64,
    /// Packets sent up to this time do not affect the window.
    pub(super) recovery: Instant,
    /// When it last yielded to delay.
    yielded_at: Instant,
    /// Since when slow start has seen a queue, without a sample that showed none.
    queue_since: Option<Instant>,
    base: BaseDelay,
    limit: Limit,
    /// The window before a silence reduced it, until the next loss.
    before: Option<u64>,
}

/// What limits a sender of bulk; RFC 9002, section 7.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// It has nothing more to send.
    Application,
    /// The window, or its pace.
    Window,
}

/// The unit of the window; RFC 9002, section 7.2.
const DATAGRAM: u64 = 1_200;
/// RFC 9002, section 7.2.
const INITIAL: u64 = 10 * DATAGRAM;
/// RFC 9002, section 7.2.
const MIN: u64 = 2 * DATAGRAM;
const MAX: u64 = SentPackets::<()>::IN_FLIGHT_MAX as u64 * 1_452;
/// Queueing delay at which the window shrinks: a concurrent game must not wait 50 ms, and the
/// smoothed RTT shows a queue a few packets late.
const DELAY_MAX: Duration = Duration::from_millis(40);
/// Queueing delay at which the window stops growing: the effect of a packet shows one RTT later.
const DELAY_HIGH: Duration = Duration::from_millis(25);
/// Bounds of the delay that ends slow start, which is a part of the RTT; RFC 9406, section 4.2.
const SLOW_START_DELAY: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

impl Congestion {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            window: INITIAL,
            threshold: u64::MAX,
            credit: 0,
            recovery: Instant::ZERO,
            yielded_at: now,
            queue_since: None,
            base: BaseDelay::new(now),
            limit: Limit::Application,
            before: None,
        }
    }

    /// Resets for a new path; packets sent on the old one do not count. RFC 9000, section 9.4.
    pub(super) const fn restart(&mut self, now: Instant) {
        let limit = self.limit;
        *self = Self::new(now);
        self.recovery = now;
        self.limit = limit;
    }

    /// Returns whether a bulk packet of `len` bytes may be sent. Two may always be in flight.
    pub(super) const fn has_room(&self, in_flight: InFlight, len: u64) -> bool {
        in_flight.total.saturating_add(len) <= self.window
            || in_flight.bulk.saturating_add(len) <= MIN
    }

    pub(super) const fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Processes a result. Without bulk in flight or waiting, the window does not yield to delay.
    pub(super) fn on_summary(
        &mut self,
        now: Instant,
        (summary, in_flight): (&Summary, InFlight),
        rtt: &RttEstimator,
    ) {
        let sample = summary.rtt_sample.and_then(|_| rtt.adjusted());
        if let Some(sample) = sample
            && self.base.on_sample(now, sample)
            && self.limit == Limit::Window
        {
            self.drain(now, rtt);
        }
        if summary.lost_sent_at.is_some_and(|at| at > self.recovery) {
            self.on_loss(now);
        } else if self.limit == Limit::Application && in_flight.bulk == 0 {
            self.queue_since = None;
        } else if sample.is_some() {
            self.on_delay(now, rtt);
        }
        if self.limit == Limit::Window && self.recovery < now {
            self.grow(summary.acked_bytes.into(), rtt);
        }
        if !self.is_slow_start() {
            self.before = None;
        }
    }

    /// Handles a silence of the path; RFC 9002, section 7.6.2.
    pub(super) fn on_silence(&mut self, now: Instant) {
        // A lasting silence is one event: RFC 5681, section 3.1, equation 4.
        if self.before.is_none() {
            self.threshold = (self.window / 2).max(MIN);
            self.before = Some(self.window);
        }
        self.cut(now, MIN);
    }

    /// Returns whether a silence reduced the window, with no loss since.
    pub(super) const fn is_after_silence(&self) -> bool {
        self.before.is_some()
    }

    /// Handles the end of an outage: slow start continues up to the former window.
    pub(super) const fn on_path_back(&mut self) {
        if let Some(before) = self.before {
            self.threshold = before;
        }
    }

    /// Shrinks the window by an eighth per RTT while the queue is too long.
    fn on_delay(&mut self, now: Instant, rtt: &RttEstimator) {
        let round_trip = rtt.smoothed();
        let is_queueing = rtt.adjusted().is_some_and(|it| self.is_queueing(it));
        if self.is_slow_start() && is_queueing {
            let since = *self.queue_since.get_or_insert(now);
            if now.saturating_since(since) >= round_trip {
                // Keep what fills the path, drop what fills the queue.
                self.threshold = self.without_queue(rtt);
                self.cut(now, self.threshold);
            }
            return;
        }
        self.queue_since = None;
        let is_due = now.saturating_since(self.yielded_at) >= round_trip;
        if is_due && self.delay(round_trip) > DELAY_MAX {
            self.yielded_at = now;
            self.window = self.window.saturating_sub(self.window / 8).max(MIN);
            self.threshold = self.window;
        }
    }

    /// Halves the window once per RTT; RFC 9002, section 7.3.2.
    fn on_loss(&mut self, now: Instant) {
        self.threshold = (self.window / 2).max(MIN);
        self.before = None;
        self.cut(now, self.threshold);
    }

    /// Drains the queue to measure the base RTT.
    fn drain(&mut self, now: Instant, rtt: &RttEstimator) {
        self.threshold = self.without_queue(rtt);
        self.cut(now, self.threshold / 2);
    }

    fn cut(&mut self, now: Instant, window: u64) {
        self.window = window.max(MIN);
        self.credit = 0;
        self.recovery = now;
        self.yielded_at = now;
        self.queue_since = None;
    }

    fn grow(&mut self, bytes: u64, rtt: &RttEstimator) {
        let queue = self.delay(rtt.adjusted().unwrap_or_default());
        if queue > DELAY_HIGH {
            return;
        }
        if self.is_slow_start() {
            // A final RTT of doubling is in progress.
            if self.queue_since.is_some() {
                return;
            }
            self.window = self.window.saturating_add(bytes).min(MAX);
            return;
        }
        self.credit = self.credit.saturating_add(bytes);
        if self.credit >= self.window {
            self.credit = self.credit.saturating_sub(self.window);
            self.window = self.window.saturating_add(DATAGRAM).min(MAX);
        }
    }

    const fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    fn delay(&self, round_trip: Duration) -> Duration {
        round_trip.saturating_sub(self.base.get().unwrap_or(round_trip))
    }

    fn is_queueing(&self, round_trip: Duration) -> bool {
        let [least, most] = SLOW_START_DELAY;
        let base = self.base.get().unwrap_or_default();
        let part = base.checked_div(8).unwrap_or_default();
        self.delay(round_trip) > part.clamp(least, most)
    }

    /// The part of the window that fills the path but not its queue.
    fn without_queue(&self, rtt: &RttEstimator) -> u64 {
        let round_trip = rtt.adjusted().unwrap_or_else(|| rtt.smoothed());
        let base = self.base.get().unwrap_or(round_trip).min(round_trip);
        let (base, round_trip) = (base.as_micros(), round_trip.as_micros());
        let part = u128::from(self.window)
            .saturating_mul(base)
            .checked_div(round_trip);
        let part = part.and_then(|part| u64::try_from(part).ok());
        part.unwrap_or(self.window).max(MIN)
    }
}

/// The base RTT: the minimum of the last 10 to 20 seconds. An all-time minimum would mistake a
/// longer path for a queue forever. A sender that fills the queue itself drains it when the span
/// changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseDelay {
    /// Minimum of the current span; [`Nanos::MAX`] before the first sample.
    current: Nanos,
    /// Minimum of the previous span, likewise.
    previous: Nanos,
    turn_at: Instant,
}

const SPAN: Duration = Duration::from_secs(10);

impl BaseDelay {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            current: Nanos::MAX,
            previous: Nanos::MAX,
            turn_at: now,
        }
    }

    /// Returns the base RTT; `None` without samples.
    pub(super) fn get(&self) -> Option<Duration> {
        let base = self.current.min(self.previous);
        (base < Nanos::MAX).then(|| base.get())
    }

    /// Adds an RTT sample. Returns whether a new span began.
    pub(super) fn on_sample(&mut self, now: Instant, sample: Duration) -> bool {
        let sample = Nanos::of(sample);
        let is_turn = now >= self.turn_at;
        if is_turn {
            if self.current < Nanos::MAX {
                self.previous = self.current;
            }
            self.current = Nanos::MAX;
            self.turn_at = now + SPAN;
        }
        self.current = self.current.min(sample);
        is_turn && self.previous < Nanos::MAX
    }
}

#[cfg(test)]
mod tests;
