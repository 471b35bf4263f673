//! Token keys of an instance: the one in use, and those whose tokens may still be good.

use core::time::Duration;
use std::collections::VecDeque;

use crypto::TokenKey;
use crypto::token::{CLOCK_SKEW, LIFETIME_MAX};
use wire::Instant;

/// The keys of one instance; holds key bytes, so it has no `Debug`.
pub(super) struct Keys {
    current: TokenKey,
    /// Ids of keys before it, oldest first, and when the last token under each has lapsed; `None`
    /// while the matchmaker may still seal under it.
    old: VecDeque<(u32, Option<Instant>)>,
    /// How long a key is in use.
    rotation: Duration,
    rotate_at: Instant,
}

/// What is due about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDue {
    /// Another key shall take the place of the current one.
    Rotate,
    /// No token under this key is good any more.
    Lapsed(u32),
}

impl Keys {
    pub(super) fn new(current: TokenKey, rotation: Duration, now: Instant) -> Self {
        Self {
            current,
            old: VecDeque::new(),
            rotation,
            rotate_at: now + rotation,
        }
    }

    pub(super) const fn current(&self) -> &TokenKey {
        &self.current
    }

    /// Another key takes the place of the current one. Returns a key that is given up early, as
    /// too many are in use.
    pub(super) fn replace(&mut self, key: TokenKey) -> Option<u32> {
        let before = core::mem::replace(&mut self.current, key).id();
        if before == self.current.id() {
            return None;
        }
        self.old.push_back((before, None));
        if self.old.len() < KEYS_MAX {
            return None;
        }
        self.old.pop_front().map(|(id, _)| id)
    }

    /// The matchmaker knows the current key, and seals under no other from now on.
    pub(super) fn on_registered(&mut self, now: Instant) {
        for (_, lapses_at) in &mut self.old {
            lapses_at.get_or_insert(now + OVERLAP);
        }
    }

    /// Returns what is due at `now`, one thing at a time. A key is not changed while an earlier one
    /// is in use, so that those in use are few however short their time is.
    pub(super) fn poll_due(&mut self, now: Instant) -> Option<KeyDue> {
        if let Some((id, Some(lapses_at))) = self.old.front().copied()
            && lapses_at <= now
        {
            self.old.pop_front();
            return Some(KeyDue::Lapsed(id));
        }
        if self.old.is_empty() && self.rotate_at <= now {
            self.rotate_at = now + self.rotation.max(ROTATION_MIN);
            return Some(KeyDue::Rotate);
        }
        None
    }

    /// Returns when something is next due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.old.front() {
            Some((_, lapses_at)) => *lapses_at,
            None => Some(self.rotate_at),
        }
    }
}

/// For how long tokens under a key may be good that is sealed under no more.
const OVERLAP: Duration = LIFETIME_MAX.saturating_add(CLOCK_SKEW);

/// Keys in use at a time; as many as an endpoint opens tokens with.
const KEYS_MAX: usize = 4;

/// However often keys shall change, it is no more than that.
const ROTATION_MIN: Duration = Duration::from_millis(100);
