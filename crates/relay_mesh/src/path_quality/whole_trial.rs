//! Trials of whether a path that lost long datagrams carries them again.

use core::time::Duration;

use wire::Instant;

/// Decides when to send a few full-length packets over a path, if its long datagrams are split.
///
/// If all but one of them arrive, datagrams are sent whole again. Each failed trial, and each new
/// loss of long datagrams, doubles the time to the next trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeTrial {
    /// Whether a datagram was split since the last trial.
    pub(super) is_wanted: bool,
    /// When the next trial begins.
    next_at: Option<Instant>,
    /// Failed trials, plus the times that long datagrams were lost.
    failures: u32,
    /// When the current trial began, and how many long packets had arrived before it.
    began: Option<(Instant, u32)>,
    /// Long packets that have arrived so far; wraps.
    arrived: u32,
}

impl WholeTrial {
    pub(super) const NEW: Self = Self {
        is_wanted: false,
        next_at: None,
        failures: 0,
        began: None,
        arrived: 0,
    };

    /// Records that long datagrams are split from now on.
    pub(super) const fn on_pieces(&mut self) {
        (self.next_at, self.began) = (None, None);
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns whether to send the packets of a trial now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if let Some((at, _)) = self.began
            && now.saturating_since(at) >= PATIENCE
        {
            self.on_pieces();
        }
        if self.began.is_some() || !self.is_wanted {
            return false;
        }
        let next_at = *self.next_at.get_or_insert_with(|| {
            let doublings = self.failures.saturating_sub(1).min(DOUBLINGS_MAX);
            now + FIRST.saturating_mul(2_u32.saturating_pow(doublings))
        });
        if now < next_at {
            return false;
        }
        (self.is_wanted, self.began) = (false, Some((now, self.arrived)));
        true
    }

    /// Updates how many long packets have arrived. Returns whether this completes a trial
    /// successfully.
    pub(super) fn on_report(&mut self, arrived: u32) -> bool {
        self.arrived = arrived;
        let Some((_, before)) = self.began else {
            return false;
        };
        let came = arrived.wrapping_sub(before);
        let is_over = (TRIAL_PACKETS - 1..=TRIAL_PACKETS).contains(&came);
        if is_over {
            (self.next_at, self.began) = (None, None);
        }
        is_over
    }
}

/// Packets of a trial; one may be lost.
pub(crate) const TRIAL_PACKETS: u32 = 4;
/// Time to the first trial.
const FIRST: Duration = Duration::from_secs(30);
/// The time doubles this many times, to 16 min.
const DOUBLINGS_MAX: u32 = 5;
/// Time after which a trial has failed. Reports arrive at least every 250 ms, delayed by a round
/// trip.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_rarer_each_time_and_end_with_three_of_four_packets() {
        let mut trial = WholeTrial::NEW;
        trial.on_pieces();
        let mut now = Instant::ZERO;
        assert!(!trial.is_due(now));
        assert_eq!(trial.next_at, None, "nobody wants one");
        for secs in [30, 60, 120, 240, 480, 960, 960] {
            trial.is_wanted = true;
            assert!(!trial.is_due(now));
            now += Duration::from_secs(secs);
            assert!(trial.is_due(now), "{secs}");
            assert!(!trial.is_due(now), "once");
            assert!(!trial.on_report(trial.arrived.wrapping_add(2)));
            now += PATIENCE;
        }
        trial.is_wanted = true;
        assert!(!trial.is_due(now));
        now += Duration::from_secs(960);
        assert!(trial.is_due(now));
        let before = trial.arrived;
        assert!(!trial.on_report(before.wrapping_sub(9)), "counted anew");
        assert!(trial.on_report(before.wrapping_add(3)));
        assert!(!trial.on_report(before.wrapping_add(4)), "it is over");
    }
}
