//! Locks on names after failed attempts.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::UnixTime;

use super::AccountName;

/// When a name is locked, and for how long.
///
/// A lock also affects the owner, so the first one is short, and each further one doubles. Limits
/// per source address are up to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockoutConfig {
    /// Consecutive failures without a lock; the next one locks.
    pub free_failures: u32,
    /// Length of the first lock.
    pub first_lock: Duration,
    /// Longest lock; each failure after a lock doubles the next one up to this.
    pub longest_lock: Duration,
    /// Most names without an account whose failures are remembered, so that they lock like others.
    /// Beyond that, the name that failed longest ago is evicted. About 160 bytes each.
    pub strangers_max: usize,
}

impl Default for LockoutConfig {
    fn default() -> Self {
        Self {
            free_failures: 4,
            first_lock: Duration::from_secs(30),
            longest_lock: Duration::from_secs(60 * 60),
            strangers_max: 4_096,
        }
    }
}

/// Failures of a name since its last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Consecutive failures.
    pub count: u32,
    /// Until when attempts are not checked.
    pub locked_until: Option<UnixTime>,
}

impl Failures {
    pub(super) fn add(&mut self, now: UnixTime, config: &LockoutConfig) {
        self.count = self.count.saturating_add(1);
        let Some(doublings) = self
            .count
            .checked_sub(config.free_failures.saturating_add(1))
        else {
            return;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let span = config.first_lock.saturating_mul(factor);
        self.locked_until = Some(now + span.min(config.longest_lock));
    }

    /// Returns until when the name is locked at `now`.
    ///
    /// A lock that ends later than the longest possible one was set before the clock was moved
    /// back. It counts as expired, and the failures are kept.
    pub(super) fn lock(&self, now: UnixTime, config: &LockoutConfig) -> Option<UnixTime> {
        self.locked_until
            .filter(|until| *until > now && until.saturating_since(now) <= config.longest_lock)
    }
}

/// Failures of names without an account, and failures that could not be stored.
#[derive(Debug, Default)]
pub(super) struct UnknownNames {
    /// Failures by name, each with the number of its last failure.
    failures: BTreeMap<AccountName, (Failures, u64)>,
    clock: u64,
}

impl UnknownNames {
    pub(super) fn get(&self, name: &AccountName) -> Failures {
        self.failures
            .get(name)
            .map_or_else(Failures::default, |(failures, _)| *failures)
    }

    pub(super) fn add(&mut self, now: UnixTime, name: &AccountName, config: &LockoutConfig) {
        self.clock = self.clock.saturating_add(1);
        let is_new = !self.failures.contains_key(name);
        if is_new && self.failures.len() >= config.strangers_max {
            // A scan over all entries costs little compared with the attempt's hash.
            let oldest = self.failures.iter().min_by_key(|(_, (_, last))| *last);
            let Some(oldest) = oldest.map(|(name, _)| *name) else {
                return;
            };
            self.failures.remove(&oldest);
        }
        let (failures, last) = self.failures.entry(*name).or_default();
        failures.add(now, config);
        *last = self.clock;
    }

    pub(super) fn forget(&mut self, name: &AccountName) {
        self.failures.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixTime = UnixTime::from_secs(1_000_000);

    #[test]
    fn b10_locks_double_up_to_the_longest() {
        let config = LockoutConfig {
            free_failures: 2,
            first_lock: Duration::from_secs(10),
            longest_lock: Duration::from_secs(60),
            strangers_max: 1,
        };
        let mut failures = Failures::default();
        let mut locks = Vec::new();
        for _ in 0..7 {
            failures.add(START, &config);
            locks.push(
                failures
                    .locked_until
                    .map(|until| until.as_secs() - START.as_secs()),
            );
        }
        let secs = [None, None, Some(10), Some(20), Some(40), Some(60), Some(60)];
        assert_eq!(locks, secs);
        failures.count = u32::MAX - 1;
        failures.add(START, &config);
        failures.add(START, &config);
        assert_eq!(failures.locked_until, Some(START + config.longest_lock));
        assert_eq!(failures.lock(START, &config), failures.locked_until);
        assert_eq!(failures.lock(START + config.longest_lock, &config), None);
        // The clock was moved back by a day.
        assert_eq!(failures.lock(UnixTime::from_secs(900_000), &config), None);
    }

    #[test]
    fn the_default_limits_are_reasonable() {
        let config = LockoutConfig::default();
        let mut failures = Failures::default();
        // Guesses possible in a day without pauses.
        let (mut now, mut guesses) = (START, 0);
        while now < START + Duration::from_hours(24) {
            failures.add(now, &config);
            now = failures.locked_until.unwrap_or(now);
            guesses += 1;
        }
        assert!(guesses < 40, "{guesses}");
    }

    #[test]
    fn b10_names_without_an_account_are_remembered_up_to_a_limit() {
        let config = LockoutConfig {
            strangers_max: 3,
            ..LockoutConfig::default()
        };
        let mut names = UnknownNames::default();
        let name = |number: u32| format!("n{number}").parse::<AccountName>().unwrap();
        for number in 0..1_000 {
            names.add(START, &name(number), &config);
            // A name that keeps failing is not evicted.
            names.add(START, &name(0), &config);
            assert!(names.failures.len() <= config.strangers_max);
        }
        assert_eq!(names.get(&name(0)).count, 1_001);
        assert_eq!(names.get(&name(999)).count, 1);
        assert_eq!(names.get(&name(500)).count, 0);
        let none = LockoutConfig {
            strangers_max: 0,
            ..config
        };
        let mut names = UnknownNames::default();
        names.add(START, &name(0), &none);
        assert!(names.failures.is_empty());
    }
}
