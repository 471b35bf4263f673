//! The wall clock, protected against wrong readings.
//!
//! Expired mail is deleted, so one wrong reading must not expire any. Between readings, time
//! advances with the monotonic clock; a reading may correct it by up to [`CORRECTION_MAX`]. If a
//! reading differs by more, or is earlier than the newest time in the log, it is accepted only
//! after it has persisted for a configured wait.
//!
//! At a start there is no earlier reading to compare with. So nothing expires until the clock is
//! within [`AGREES_MAX`] of the newest time in the log, or the hub has run for [`RUN_MIN`] since that
//! time, over all its starts, without a reading that contradicts.

use core::time::Duration;

use wire::{Instant, UnixTime};

#[derive(Debug, Default)]
pub(super) struct WallClock {
    believed: Option<Reading>,
    /// The newest time in the log; `None` until the store has reported it.
    floor: Option<UnixTime>,
    /// The last rejected reading, and when the first consistent with it arrived.
    doubted: Option<(Reading, Instant)>,
    expiry: Expiry,
}

/// Whether mail may expire by the accepted time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expiry {
    /// The accepted time was not compared with the log yet.
    #[default]
    Unknown,
    /// The accepted time is far from the log's newest; the hub had run this long without agreement
    /// before this start, which was then.
    Waiting(Duration, Instant),
    Trusted,
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

/// Largest distance of an accepted time from the log's newest by which mail expires at once.
const AGREES_MAX: Duration = Duration::from_secs(24 * 3_600);

/// How long a hub runs, over all its starts, until mail expires by a time that is farther away.
const RUN_MIN: Duration = Duration::from_secs(3_600);

/// Earlier readings are from a clock that was never set. A day in 2020.
const EARLIEST: UnixTime = UnixTime::from_secs(1_600_000_000);

impl WallClock {
    /// Processes a reading; accepts a deviating one after it has persisted for `wait`.
    pub(super) fn read(&mut self, now: Instant, unix: UnixTime, wait: Duration) -> ClockVerdict {
        let reading = Reading { at: now, unix };
        let agrees = match self.believed {
            // A time that the log confirms replaces one that nothing confirms.
            Some(_) if self.is_waiting() && self.is_near_log(unix) => true,
            Some(believed) => believed.agrees_with(reading),
            None => self.floor.is_none_or(|floor| unix >= floor),
        };
        if unix >= EARLIEST && agrees {
            self.accept(reading);
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
        self.accept(reading);
        self.expiry = Expiry::Trusted;
        ClockVerdict::Accepted
    }

    fn accept(&mut self, reading: Reading) {
        self.believed = Some(reading);
        self.doubted = None;
        if self.expiry != Expiry::Trusted && self.is_near_log(reading.unix) {
            self.expiry = Expiry::Trusted;
        }
    }

    const fn is_waiting(&self) -> bool {
        matches!(self.expiry, Expiry::Waiting(..))
    }

    /// Returns whether `unix` is at or after the newest time in the log, and not long after. A log
    /// without a time has no mail that a wrong clock could expire.
    fn is_near_log(&self, unix: UnixTime) -> bool {
        self.floor.is_some_and(|floor| {
            let later = unix.as_millis().checked_sub(floor.as_millis());
            floor == UnixTime::default()
                || later.is_some_and(|later| Duration::from_millis(later) <= AGREES_MAX)
        })
    }

    /// Sets the newest time in the log, and how long the hub has run since without agreement; only the
    /// first call counts. Returns the accepted reading, if it is earlier and so rejected now.
    pub(super) fn set_floor(
        &mut self,
        now: Instant,
        floor: UnixTime,
        ran: Duration,
    ) -> Option<UnixTime> {
        if self.floor.is_some() {
            return None;
        }
        self.floor = Some(floor);
        self.expiry = Expiry::Waiting(ran, now);
        if let Some(believed) = self.believed
            && self.is_near_log(believed.unix)
        {
            self.expiry = Expiry::Trusted;
        }
        if self.believed.is_none_or(|believed| believed.unix >= floor) {
            return None;
        }
        let reading = self.believed.take()?;
        self.doubted = Some((reading, reading.at));
        Some(reading.unix)
    }

    /// Returns whether the readings contradict the log or the last accepted one, or mail does not
    /// expire yet.
    pub(super) const fn is_doubted(&self) -> bool {
        self.doubted.is_some() || self.is_waiting()
    }

    /// Returns the accepted reading that is far after the log's newest time, if mail waits for it.
    pub(super) fn ahead(&self, now: Instant) -> Option<(UnixTime, UnixTime)> {
        let read = self.believed.filter(|_| self.is_waiting())?;
        Some((read.later(now), self.floor?))
    }

    /// Returns how long the hub has run since the log's newest time, if mail waits for that.
    pub(super) const fn ran(&self, now: Instant) -> Option<Duration> {
        match self.expiry {
            Expiry::Waiting(before, since) => {
                Some(before.saturating_add(now.saturating_since(since)))
            }
            Expiry::Unknown | Expiry::Trusted => None,
        }
    }

    /// Returns the time by which mail expires now, if any.
    pub(super) fn expiry_now(&mut self, now: Instant) -> Option<UnixTime> {
        if self.doubted.is_none() && self.ran(now).is_some_and(|ran| ran >= RUN_MIN) {
            self.expiry = Expiry::Trusted;
        }
        self.now(now).filter(|_| self.expiry == Expiry::Trusted)
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
        clock.set_floor(at(0), UnixTime::from_secs(START), Duration::ZERO);
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
        let taken_back = clock.set_floor(at(0), UnixTime::from_secs(START), Duration::ZERO);
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
        let newest = UnixTime::from_secs(START + 40 * 365 * DAY);
        clock.set_floor(at(0), newest, Duration::ZERO);
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

    /// A clock that reads `ahead` seconds after the log's newest time at its start.
    fn started(ahead: u64, ran: u64) -> WallClock {
        let mut clock = WallClock::default();
        read(&mut clock, 0, START + ahead);
        let taken_back =
            clock.set_floor(at(0), UnixTime::from_secs(START), Duration::from_secs(ran));
        assert_eq!(taken_back, None);
        clock
    }

    #[test]
    fn nothing_expires_by_a_clock_that_starts_far_ahead_of_the_log() {
        assert!(started(DAY, 0).expiry_now(at(1)).is_some(), "a day later");
        let mut clock = started(DAY + 1, 0);
        let now = UnixTime::from_secs(START + DAY + 1);
        assert_eq!(clock.now(at(0)), Some(now), "mail is accepted by it");
        assert!(clock.ahead(at(0)).is_some());
        for secs in (0..3_600).step_by(30) {
            assert_eq!(clock.expiry_now(at(secs)), None, "{secs}");
            read(&mut clock, secs, START + DAY + 1 + secs);
        }
        assert!(clock.expiry_now(at(3_600)).is_some(), "after an hour");
        assert_eq!(clock.ahead(at(3_600)), None);
    }

    #[test]
    fn the_hour_counts_over_all_starts() {
        let mut clock = started(365 * DAY, 3_000);
        assert_eq!(clock.expiry_now(at(599)), None);
        assert_eq!(clock.ran(at(599)), Some(Duration::from_secs(3_599)));
        assert!(clock.expiry_now(at(600)).is_some());
    }

    #[test]
    fn a_corrected_clock_is_believed_at_once_if_the_log_confirms_it() {
        let mut clock = started(365 * DAY, 0);
        assert_eq!(read(&mut clock, 60, START + 90), ClockVerdict::Accepted);
        let now = UnixTime::from_secs(START + 90);
        assert_eq!(clock.expiry_now(at(60)), Some(now));
        // One that the log does not confirm delays expiry until it is decided.
        let mut clock = started(365 * DAY, 0);
        assert_eq!(
            read(&mut clock, 60, START + 3 * DAY),
            ClockVerdict::Rejected
        );
        assert_eq!(clock.expiry_now(at(3_600)), None);
    }
}
