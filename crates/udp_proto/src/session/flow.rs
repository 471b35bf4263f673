//! Send scheduling: the rates and windows of one session's packets.

use core::time::Duration;

use wire::{Instant, TokenBucket};

use super::breaker::Breaker;
use super::congestion::{Congestion, Limit};
use crate::config::{Config, Mtu};
use crate::nanos::Deadline;
use crate::rtt::RttEstimator;
use crate::sent::{InFlight, SentKind, Summary};

/// Two classes of messages. Realtime messages are rate limited and ignore the congestion window;
/// bulk messages use the window that these leave free. A packet with both counts as bulk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Bit n is set if channel n is bulk.
    pub(super) bulk_channels: u32,
    pub(super) realtime: TokenBucket,
    /// Burst of realtime messages in bytes.
    burst: u32,
    pub(super) breaker: Breaker,
    pub(super) congestion: Congestion,
    pacer: Pacer,
    cap: Option<TokenBucket>,
    silent_at: Deadline,
    reported_rate: u32,
    pub(super) wake_at: Deadline,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SendContext<'a> {
    pub(super) now: Instant,
    pub(super) rtt: &'a RttEstimator,
    pub(super) in_flight: InFlight,
    /// Largest length of the packet to send, in bytes.
    pub(super) len: u16,
}

impl Flow {
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        let rate = config.realtime_rate.get();
        let longest = u32::from(Mtu::MAX.get());
        let burst = config.realtime_burst.max(longest);
        let cap = config.send_rate_max.map(|rate| cap(rate.get(), now));
        Self {
            bulk_channels: config.channels.bulk_bits(),
            realtime: TokenBucket::new(rate, burst, now),
            burst,
            breaker: Breaker::new(now, rate),
            congestion: Congestion::new(now),
            pacer: Pacer::new(now),
            cap,
            silent_at: Deadline::NEVER,
            reported_rate: rate,
            wake_at: Deadline::NEVER,
        }
    }

    pub(super) const fn restart(&mut self, now: Instant) {
        self.breaker = Breaker::new(now, self.breaker.full);
        self.congestion.restart(now);
        self.pacer = Pacer::new(now);
        self.silent_at = Deadline::NEVER;
    }

    /// Returns the largest split message, in bytes of datagrams, which is sent whole once started.
    pub(super) const fn whole_max(&self) -> usize {
        self.burst as usize
    }

    /// Returns how many bytes of datagrams a new split message may use, beside `left` bytes of
    /// started ones. Any size may if the bucket is full.
    pub(super) fn begin_max(&self, now: Instant, left: usize) -> usize {
        let available = self.realtime.available(now);
        if available >= self.burst && left == 0 {
            return usize::MAX;
        }
        (available as usize).saturating_sub(left)
    }

    /// Returns the channels that may send: bit n is channel n. Channels in `begun`, with a partly
    /// sent message, always may; the others leave them the `left` bytes.
    pub(super) fn open_channels(
        &mut self,
        context: &SendContext<'_>,
        (begun, left): (u32, usize),
    ) -> u32 {
        let SendContext { now, len, .. } = *context;
        self.breaker.advance(now);
        self.realtime.set_rate(now, self.breaker.rate);
        let has_room = |bucket: &TokenBucket| bucket.available(now) >= u32::from(len);
        if self.cap.as_ref().is_some_and(|cap| !has_room(cap)) {
            return 0;
        }
        let mut open = begun & !self.bulk_channels;
        let needed = left.saturating_add(len.into());
        if self.realtime.available(now) as usize >= needed {
            open |= !self.bulk_channels;
        }
        if self.bulk_channels != 0
            && self.congestion.has_room(context.in_flight, len.into())
            && self.pacer.may_send(now, self.pace(context))
        {
            open |= self.bulk_channels;
        }
        open
    }

    /// Records which channels wait, and how many bytes the bucket must hold for a split message to
    /// start.
    pub(super) fn on_waiting(
        &mut self,
        context: &SendContext<'_>,
        waiting: u32,
        to_begin: Option<usize>,
    ) {
        let [is_bulk, is_realtime] =
            [self.bulk_channels, !self.bulk_channels].map(|channels| waiting & channels != 0);
        self.congestion.set_limit(if is_bulk {
            Limit::Window
        } else {
            Limit::Application
        });
        let (now, len) = (context.now, u32::from(context.len));
        self.wake_at = Deadline::NEVER;
        let has_any = waiting != 0 || to_begin.is_some();
        if let Some(cap) = self.cap.as_mut().filter(|_| has_any)
            && cap.available(now) < len
        {
            // Refills the bucket, so that its answer lies in the future.
            cap.take(now, 0);
            self.wake_at = Deadline::new(cap.available_at(len));
            return;
        }
        let realtime = is_realtime.then(|| self.realtime.available_at(len));
        // Without room in the window, only an acknowledgement or a loss helps.
        let has_room = is_bulk && self.congestion.has_room(context.in_flight, len.into());
        let bulk = has_room.then(|| self.pacer.ready_at(now, self.pace(context)));
        let begins = to_begin.and_then(|bytes| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.realtime.available_at(bytes.min(self.burst))
        });
        let all = [realtime.flatten(), bulk, begins];
        self.wake_at = Deadline::new(all.into_iter().flatten().min());
    }

    pub(super) const fn on_idle(&mut self) {
        self.congestion.set_limit(Limit::Application);
        self.wake_at = Deadline::NEVER;
    }

    pub(super) fn on_sent(&mut self, context: &SendContext<'_>, kind: SentKind, frames: usize) {
        let (now, len) = (context.now, u32::from(context.len));
        if let Some(cap) = &mut self.cap {
            cap.take_forced(now, len);
        }
        let is_of_path = !matches!(
            kind,
            SentKind::MtuProbe | SentKind::OffPath | SentKind::Retransmit(_)
        );
        if self.silent_at == Deadline::NEVER && is_of_path && context.in_flight.total > 0 {
            self.silent_at = Deadline::at(now + pto(context.rtt));
        }
        match kind {
            SentKind::Bulk => self.pacer.on_sent(now, self.pace(context), len.into()),
            SentKind::Unreliable(_) | SentKind::Retransmit(_) | SentKind::Other if frames > 0 => {
                self.realtime.take_forced(now, len);
            }
            SentKind::Unreliable(_)
            | SentKind::Retransmit(_)
            | SentKind::Other
            | SentKind::MtuProbe
            | SentKind::OffPath => {}
        }
    }

    /// Processes the result of an acknowledgement or timer, and the bytes in flight after it.
    pub(super) fn on_summary(&mut self, context: &SendContext<'_>, summary: &Summary) {
        let SendContext { now, rtt, .. } = context;
        if context.in_flight.total == 0 {
            // Nothing is in flight.
            self.silent_at = Deadline::NEVER;
        } else if summary.acked_packets > 0 {
            self.silent_at = Deadline::at(*now + pto(rtt));
        }
        let was_silent = self.breaker.is_silent;
        self.breaker.on_summary(*now, rtt.smoothed(), summary);
        if self.bulk_channels != 0 {
            let is_answered = self.breaker.is_gap_excused && self.congestion.is_after_silence();
            let mut summary = *summary;
            if !is_answered {
                // The window was not reduced for the gap.
                summary.lost_sent_at = summary.lost_sent_at.max(summary.gap_lost_sent_at);
            } else if was_silent && !self.breaker.is_silent {
                self.congestion.on_path_back();
            }
            self.congestion
                .on_summary(*now, (&summary, context.in_flight), rtt);
        }
    }

    /// Reduces rate and window if the path is silent for too long. Returns whether it is.
    pub(super) fn detect_silence(&mut self, now: Instant, rtt: &RttEstimator) -> bool {
        let is_silent = self.silent_at.is_due(now);
        if is_silent {
            self.silent_at = Deadline::at(now + pto(rtt).max(SILENCE_SPAN));
            self.breaker.on_silence(now);
            self.congestion.on_silence(now);
        }
        is_silent
    }

    /// Returns the realtime rate if it was halved, or is back at its limit, since the last call.
    pub(super) fn take_rate_change(&mut self) -> Option<u32> {
        let (rate, full) = (self.breaker.rate, self.breaker.full);
        // Increases are not reported, but the next decrease is relative to the increased rate.
        let before = core::mem::replace(&mut self.reported_rate, rate);
        (rate < before || before < full && rate == full).then_some(rate)
    }

    const fn pace(&self, context: &SendContext<'_>) -> PacingRate {
        PacingRate {
            window: self.congestion.window,
            round_trip: context.rtt.smoothed(),
        }
    }
}

/// Creates the bucket for all packets: a burst of 20 ms, at least two packets of maximum size.
pub(crate) fn cap(rate: u32, now: Instant) -> TokenBucket {
    let least = 2 * u32::from(Mtu::MAX.get());
    TokenBucket::new(rate, (rate / 50).max(least), now)
}

/// Time without acknowledgements that counts as silence: three PTOs, without backoff.
fn pto(rtt: &RttEstimator) -> Duration {
    (rtt.pto().saturating_mul(3)).max(SILENCE_MIN)
}

/// In less time, a keepalive and its probes may all be lost by chance.
const SILENCE_MIN: Duration = Duration::from_millis(300);
/// Interval after which continued silence counts again.
const SILENCE_SPAN: Duration = Duration::from_secs(3);

/// Paces packets at 1.25 windows per RTT; RFC 9002, section 7.7. Sent packets are paid for up to
/// `paid_at`, which may be one burst in the future.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    paid_at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PacingRate {
    /// Congestion window in bytes; not 0.
    pub(super) window: u64,
    pub(super) round_trip: Duration,
}

/// Burst in bytes: four datagrams.
const BURST: u64 = 4 * 1_200;
/// Bounds of the burst as a time: drivers wake up late by the lower one, and the game queues behind
/// it on a slow path.
const BURST_SPAN: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];
/// Least wait, so that one wake-up of the driver sends several packets.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Pacer {
    pub(super) const fn new(now: Instant) -> Self {
        Self { paid_at: now }
    }

    pub(super) fn may_send(self, now: Instant, pace: PacingRate) -> bool {
        self.paid_at <= now + pace.burst()
    }

    pub(super) fn ready_at(self, now: Instant, pace: PacingRate) -> Instant {
        self.paid_at
            .saturating_sub(pace.burst())
            .max(now + WAIT_MIN)
    }

    pub(super) fn on_sent(&mut self, now: Instant, pace: PacingRate, len: u64) {
        self.paid_at = self.paid_at.max(now) + pace.span(len);
    }
}

impl PacingRate {
    fn span(self, len: u64) -> Duration {
        let round_trip = u64::try_from(self.round_trip.as_nanos()).unwrap_or(u64::MAX);
        let nanos = round_trip
            .saturating_mul(len.saturating_mul(4))
            .checked_div(self.window.saturating_mul(5));
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    fn burst(self) -> Duration {
        let [least, most] = BURST_SPAN;
        self.span(BURST).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: PacingRate = PacingRate {
        window: 120_000,
        round_trip: Duration::from_millis(100),
    };

    #[test]
    fn a_window_is_paced_over_four_fifths_of_a_round_trip() {
        let (mut now, mut sent) = (Instant::from_millis(5), 0);
        let mut pacer = Pacer::new(Instant::ZERO);
        while now < Instant::from_millis(85) {
            while pacer.may_send(now, PACE) {
                pacer.on_sent(now, PACE, 1_200);
                sent += 1;
                assert!(now > Instant::from_millis(5) || sent <= 5, "{sent}");
            }
            let next = pacer.ready_at(now, PACE);
            assert!(next >= now + WAIT_MIN);
            now = next;
        }
        // 100 of the window, and the burst.
        assert!((100..=105).contains(&sent), "{sent}");
    }

    #[test]
    fn idle_time_accumulates_at_most_a_burst() {
        let mut pacer = Pacer::new(Instant::ZERO);
        let now = Instant::from_millis(60_000);
        let mut sent = 0;
        while pacer.may_send(now, PACE) {
            pacer.on_sent(now, PACE, 1_200);
            sent += 1;
        }
        assert_eq!(sent, 5);
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        let pace = PacingRate {
            window: 1,
            round_trip: Duration::from_secs(10),
        };
        let mut pacer = Pacer::new(Instant::ZERO);
        for _ in 0..100 {
            pacer.on_sent(Instant::from_nanos(u64::MAX), pace, u64::MAX);
        }
        assert!(pacer.may_send(Instant::from_nanos(u64::MAX), pace));
    }
}
