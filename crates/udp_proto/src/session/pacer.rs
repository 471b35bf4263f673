//! When the next bulk packet may leave: a window spread over its round trip.

use core::time::Duration;

use wire::Instant;

/// Spreads packets at 1.25 windows in a round trip; RFC 9002, section 7.7.
///
/// It keeps the instant up to which what was sent is paid for. A packet may leave while that lies no
/// more than a burst ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// What was sent is paid for at this time.
    paid_at: Instant,
}

/// The pace: a window and the time in which 4/5 of it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Congestion window, bytes; not 0.
    pub(super) window: u64,
    /// Smoothed round trip.
    pub(super) round_trip: Duration,
}

/// Bytes that may leave at once: four datagrams.
const BURST: u64 = 4 * 1_200;
/// Times whose packets may leave at once: no less, since drivers wake that late; and no more, since
/// the game waits behind them on a slow path.
const BURST_SPAN: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];
/// Where packets wait, they do so at least so long: one turn of the driver for several.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Pacer {
    pub(super) const fn new(now: Instant) -> Self {
        Self { paid_at: now }
    }

    /// Returns whether a packet may leave.
    pub(super) fn may_send(self, now: Instant, pace: Pace) -> bool {
        self.paid_at <= now + pace.burst()
    }

    /// Returns when one may leave that may not now.
    pub(super) fn ready_at(self, now: Instant, pace: Pace) -> Instant {
        self.paid_at
            .saturating_sub(pace.burst())
            .max(now + WAIT_MIN)
    }

    /// Takes note of a packet of `len` bytes.
    pub(super) fn on_sent(&mut self, now: Instant, pace: Pace, len: u64) {
        self.paid_at = self.paid_at.max(now) + pace.span(len);
    }
}

impl Pace {
    /// Time that `len` bytes take.
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

    const PACE: Pace = Pace {
        window: 120_000,
        round_trip: Duration::from_millis(100),
    };

    #[test]
    fn a_window_leaves_in_four_fifths_of_a_round_trip_after_a_burst_of_five() {
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
    fn idle_time_saves_up_no_more_than_a_burst() {
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
        let pace = Pace {
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
