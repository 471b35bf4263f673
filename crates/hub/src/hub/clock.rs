//! The wall clock, protected against wrong readings.
//!
//! Expired mail is deleted, so one wrong reading must not expire any. Between readings, time
//! advances with the monotonic clock; a reading may correct it by up to [`CORRECTION_MAX`]. If a
//! reading differs by more, or is earlier than the newest time in the log, it is accepted only
//! after it has persisted for a configured wait.

use core::time::Duration;

use wire::{Instant, UnixTime};

#[derive(Debug, Default)]
pub(super) struct WallClock {
    believed: Option<Reading>,
    /// The newest time in the log; `None` until the store has reported it.
    floor: Option<UnixTime>,
    /// The last rejected reading, and when the first consistent with it arrived.
    doubted: Option<(Reading, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at: Instant,
    unix: UnixTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockVerdict {
    Accepted,
    /// The first reading that deviates so far.
    Rejected,
    /// Consistent with an earlier rejected reading.
    Pending,
}

/// Largest correction by one reading. Clocks synchronized by NTP deviate far less.
const CORRECTION_MAX: Duration = Duration::from_secs(60);

/// Earlier readings are from a clock that was never set. A day in 2020.
const EARLIEST: UnixTime = UnixTime::from_secs(1_600_000_000);

impl WallClock {
    /// Processes a reading; accepts a deviating one after it has persisted for `wait`.
    pub(super) fn read(&mut self, now: Instant, unix: UnixTime, wait: Duration) -> ClockVerdict {
        let reading = Reading { at: now, unix };
        let agrees = match self.believed {
            Some(believed) => believed.agrees_with(reading),
            None => self.floor.is_none_or(|floor| unix >= floor),
        };
        if unix >= EARLIEST && agrees {
            self.believed = Some(reading);
            self.doubted = None;
            return ClockVerdict::Accepted;
        }
        let since = match self.doubted {
            Some((before, since)) if before.agrees_with(reading) => since,
            _ => {
                self.doubted = Some((reading, now));
                return ClockVerdict::Rejected;
            }
        };
        self.doubted = Some((reading, since));
        if unix < EARLIEST || now.saturating_since(since) < wait {
            return ClockVerdict::Pending;
        }
        // Even if it is before the log's newest time, which a wrong clock may have written.
        self.floor = Some(EARLIEST);
        self.believed = Some(reading);
        self.doubted = None;
        ClockVerdict::Accepted
    }

    /// Sets the newest time in the log; only the first call counts. Returns the accepted reading,
    /// if it is earlier and so rejected now.
    pub(super) fn set_floor(&mut self, floor: UnixTime) -> Option<UnixTime> {
        if self.floor.is_some() {
            return None;
        }
        self.floor = Some(floor);
        if self.believed.is_none_or(|believed| believed.unix >= floor) {
            return None;
        }
        let reading = self.believed.take()?;
        self.doubted = Some((reading, reading.at));
        Some(reading.unix)
    }

    pub(super) fn now(&self, now: Instant) -> Option<UnixTime> {
        self.floor?;
        self.believed.map(|believed| believed.later(now))
    }
}

impl Reading {
    fn later(self, now: Instant) -> UnixTime {
        self.unix + now.saturating_since(self.at)
    }

    fn agrees_with(self, other: Self) -> bool {
        let expected = self.later(other.at).as_millis();
        let deviation = expected.abs_diff(other.unix.as_millis());
        Duration::from_millis(deviation) <= CORRECTION_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const START: u64 = 1_800_000_000;
    const WAIT: Duration = Duration::from_secs(3_600);

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn clock() -> WallClock {
        let mut clock = WallClock::default();
        clock.set_floor(UnixTime::from_secs(START));
        clock
    }

    fn read(clock: &mut WallClock, secs: u64, unix: u64) -> ClockVerdict {
        clock.read(at(secs), UnixTime::from_secs(unix), WAIT)
    }

    #[test]
    fn small_corrections_are_accepted_and_steps_are_not() {
        let mut clock = clock();
        assert_eq!(read(&mut clock, 0, START + 5), ClockVerdict::Accepted);
        assert_eq!(read(&mut clock, 10, START + 60), ClockVerdict::Accepted);
        for step in [START + 40 * 365 * DAY, START + DAY, START - DAY, 0] {
            assert_eq!(read(&mut clock, 20, step), ClockVerdict::Rejected);
            assert_eq!(clock.now(at(20)), Some(UnixTime::from_secs(START + 70)));
        }
        assert_eq!(read(&mut clock, 30, START + 80), ClockVerdict::Accepted);
    }

    #[test]
    fn a_confirmed_step_is_accepted() {
        for step in [START + 40 * 365 * DAY, START + DAY, START - DAY] {
            let mut clock = clock();
            read(&mut clock, 0, START);
            assert_eq!(read(&mut clock, 1, step + 1), ClockVerdict::Rejected);
            for secs in (2..3_601).step_by(30) {
                assert_eq!(
                    read(&mut clock, secs, step + secs),
                    ClockVerdict::Pending,
                    "{secs}"
                );
            }
            assert_eq!(
                read(&mut clock, 3_601, step + 3_601),
                ClockVerdict::Accepted
            );
            assert_eq!(
                clock.now(at(3_602)),
                Some(UnixTime::from_secs(step + 3_602))
            );
        }
    }

    #[test]
    fn an_undecided_step_is_restarted() {
        let mut clock = clock();
        read(&mut clock, 0, START);
        assert_eq!(read(&mut clock, 1, START + DAY), ClockVerdict::Rejected);
        assert_eq!(
            read(&mut clock, 3_000, START + 2 * DAY),
            ClockVerdict::Rejected
        );
        assert_eq!(
            read(&mut clock, 4_000, START + 2 * DAY + 1_000),
            ClockVerdict::Pending
        );
        assert_eq!(
            read(&mut clock, 4_001, START + 4_001),
            ClockVerdict::Accepted
        );
        assert_eq!(
            read(&mut clock, 8_000, START + 2 * DAY + 5_000),
            ClockVerdict::Rejected
        );
    }

    #[test]
    fn a_clock_that_is_behind_the_log_or_was_never_set_is_none() {
        let mut clock = WallClock::default();
        assert_eq!(read(&mut clock, 0, 5), ClockVerdict::Rejected);
        assert_eq!(
            read(&mut clock, 9_000, 9_005),
            ClockVerdict::Pending,
            "1970 for hours"
        );
        assert_eq!(read(&mut clock, 9_001, START - DAY), ClockVerdict::Accepted);
        assert_eq!(clock.now(at(9_001)), None, "the log has yet to be heard");
        let taken_back = clock.set_floor(UnixTime::from_secs(START));
        assert_eq!(taken_back, Some(UnixTime::from_secs(START - DAY)));
        assert_eq!(clock.now(at(9_001)), None);
        assert_eq!(
            read(&mut clock, 9_002, START - DAY + 1),
            ClockVerdict::Pending
        );
        assert_eq!(read(&mut clock, 9_003, START + 1), ClockVerdict::Accepted);
        assert_eq!(clock.now(at(9_003)), Some(UnixTime::from_secs(START + 1)));
    }

    #[test]
    fn a_log_time_in_the_future_expires_after_the_wait() {
        let mut clock = WallClock::default();
        clock.set_floor(UnixTime::from_secs(START + 40 * 365 * DAY));
        read(&mut clock, 0, START);
        assert_eq!(
            read(&mut clock, 3_599, START + 3_599),
            ClockVerdict::Pending
        );
        assert_eq!(
            read(&mut clock, 3_600, START + 3_600),
            ClockVerdict::Accepted
        );
        assert_eq!(
            clock.now(at(3_600)),
            Some(UnixTime::from_secs(START + 3_600))
        );
    }
}
