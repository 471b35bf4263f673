//! The session of one player.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::{ClientId, CommandId, Generator, Instant, TokenBucket};

use super::config::{EndCause, SessionConfig, SessionEvent, SessionPhase, StorageFailed, TimerId};

/// Phase, unsaved changes, timers and request limit of a session.
#[derive(Debug)]
pub(super) struct PlayerSession {
    player: ClientId,
    state: State,
    /// Changes since the last save began.
    changes: u32,
    /// Changes that the save in flight contains.
    saving: u32,
    /// When the first of `changes` is to be saved.
    save_at: Option<Instant>,
    /// The load or save in flight, and when it counts as failed.
    command: Option<(CommandId, Instant)>,
    /// Saves that failed in a row.
    attempts: u32,
    retry_at: Option<Instant>,
    timers: BTreeMap<TimerId, Instant>,
    /// Timer events that are not polled.
    timers_due: usize,
    /// Whether an event about a failed save waits to be polled.
    has_failure_event: bool,
    requests: Option<TokenBucket>,
    /// The deadline in the set of all sessions.
    armed: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    LoggingIn,
    Active,
    LoggingOut { cause: EndCause, deadline: Instant },
}

/// Cost of a request: a bucket that gains n units per second gains n requests per minute.
const REQUEST_UNITS: u32 = 60;

/// Least time for a load or save, so that retries cannot loop.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

impl PlayerSession {
    pub(super) fn new(player: ClientId, config: &SessionConfig, now: Instant) -> Self {
        let requests = config.requests_per_minute.map(|limit| {
            let burst = limit.get().saturating_mul(REQUEST_UNITS);
            TokenBucket::new(limit.get(), burst, now)
        });
        Self {
            player,
            state: State::LoggingIn,
            changes: 0,
            saving: 0,
            save_at: None,
            command: None,
            attempts: 0,
            retry_at: None,
            timers: BTreeMap::new(),
            timers_due: 0,
            has_failure_event: false,
            requests,
            armed: None,
        }
    }

    pub(super) const fn player(&self) -> ClientId {
        self.player
    }

    pub(super) const fn phase(&self) -> SessionPhase {
        match self.state {
            State::LoggingIn => SessionPhase::LoggingIn,
            State::Active => SessionPhase::Active,
            State::LoggingOut { .. } => SessionPhase::LoggingOut,
        }
    }

    pub(super) const fn unsaved(&self) -> u32 {
        self.changes.saturating_add(self.saving)
    }

    pub(super) const fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(super) fn command(&self) -> Option<CommandId> {
        self.command.map(|(id, _)| id)
    }

    pub(super) const fn armed(&self) -> Option<Instant> {
        self.armed
    }

    pub(super) const fn take_armed(&mut self) -> Option<Instant> {
        self.armed.take()
    }

    /// Takes a request from the limit; returns false if it is exceeded.
    pub(super) fn take_request(&mut self, now: Instant) -> bool {
        let bucket = self.requests.as_mut();
        bucket.is_none_or(|bucket| bucket.take(now, REQUEST_UNITS))
    }

    pub(super) fn begin_load(&mut self, id: CommandId, now: Instant, config: &SessionConfig) {
        self.command = Some((id, now + config.storage_timeout.max(TIMEOUT_MIN)));
    }

    pub(super) const fn activate(&mut self) {
        self.command = None;
        self.state = State::Active;
    }

    /// Whether the load has taken too long.
    pub(super) fn is_login_over(&self, now: Instant) -> bool {
        let is_late = self.command.is_some_and(|(_, until)| until <= now);
        is_late && matches!(self.state, State::LoggingIn)
    }

    pub(super) fn log_out(&mut self, cause: EndCause, deadline: Instant) {
        self.timers.clear();
        self.state = State::LoggingOut { cause, deadline };
        // A retry may be far off, and the session is about to end.
        self.retry_at = None;
    }

    /// Moves the deadline of a logout to `limit` if that is earlier.
    pub(super) fn limit_logout(&mut self, limit: Instant) {
        if let State::LoggingOut { deadline, .. } = &mut self.state
            && limit < *deadline
        {
            *deadline = limit;
            self.retry_at = None;
        }
    }

    /// Returns why the session ends, if it ends now.
    pub(super) fn end_cause(&self, now: Instant) -> Option<EndCause> {
        let State::LoggingOut { cause, deadline } = self.state else {
            return None;
        };
        (self.unsaved() == 0 || deadline <= now).then_some(cause)
    }

    pub(super) fn mark_changed(&mut self, now: Instant, config: &SessionConfig) {
        self.changes = self.changes.saturating_add(1);
        self.save_at.get_or_insert(now + config.save_interval);
    }

    pub(super) fn is_save_due(&self, now: Instant, config: &SessionConfig) -> bool {
        if self.changes == 0 || self.command.is_some() {
            return false;
        }
        if let Some(retry_at) = self.retry_at {
            return retry_at <= now;
        }
        match self.state {
            State::LoggingIn => false,
            State::LoggingOut { .. } => true,
            State::Active => {
                self.changes >= config.save_after_changes
                    || self.save_at.is_some_and(|save_at| save_at <= now)
            }
        }
    }

    pub(super) fn begin_save(&mut self, id: CommandId, now: Instant, config: &SessionConfig) {
        self.command = Some((id, now + config.storage_timeout.max(TIMEOUT_MIN)));
        self.saving = core::mem::take(&mut self.changes);
        self.save_at = None;
        self.retry_at = None;
    }

    pub(super) fn on_saved(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        result: Result<(), StorageFailed>,
        generator: &mut Generator,
    ) {
        self.command = None;
        let saving = core::mem::take(&mut self.saving);
        if result.is_ok() {
            self.attempts = 0;
            return;
        }
        self.changes = self.changes.saturating_add(saving);
        let doubled = config
            .retry_min
            .saturating_mul(1 << self.attempts.min(16))
            .min(config.retry_max);
        let half = u64::try_from(doubled.as_nanos() / 2).unwrap_or(u64::MAX);
        let spread = Duration::from_nanos(generator.between(0, half));
        self.retry_at = Some(now + doubled + spread);
        self.attempts = self.attempts.saturating_add(1);
    }

    /// Gives up a save that has taken too long; returns its command.
    pub(super) fn take_late_save(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        generator: &mut Generator,
    ) -> Option<CommandId> {
        let (id, _) = self.command.filter(|(_, until)| *until <= now)?;
        self.on_saved(now, config, Err(StorageFailed), generator);
        Some(id)
    }

    /// Returns whether to queue an event about a failed save.
    pub(super) const fn note_failure(&mut self) -> bool {
        !core::mem::replace(&mut self.has_failure_event, true)
    }

    pub(super) const fn on_event_polled(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Timer { .. } => self.timers_due = self.timers_due.saturating_sub(1),
            SessionEvent::SaveFailed { .. } => self.has_failure_event = false,
            SessionEvent::LoggedIn { .. }
            | SessionEvent::Kicked { .. }
            | SessionEvent::Ended { .. } => {}
        }
    }

    /// Sets a timer; returns false if there are too many.
    pub(super) fn set_timer(&mut self, timer: TimerId, at: Instant, timers_max: usize) -> bool {
        let held = self.timers.len().saturating_add(self.timers_due);
        let has_room = held < timers_max || self.timers.contains_key(&timer);
        if has_room && !matches!(self.state, State::LoggingOut { .. }) {
            self.timers.insert(timer, at);
        }
        has_room
    }

    pub(super) fn cancel_timer(&mut self, timer: TimerId) -> bool {
        self.timers.remove(&timer).is_some()
    }

    /// Removes the timers that are due, in order of time.
    pub(super) fn take_due_timers(&mut self, now: Instant) -> Vec<TimerId> {
        if !matches!(self.state, State::Active) {
            return Vec::new();
        }
        let all = self.timers.iter();
        let mut due: Vec<_> = all
            .filter(|(_, at)| **at <= now)
            .map(|(timer, at)| (*at, *timer))
            .collect();
        due.sort_unstable();
        self.timers.retain(|_, at| *at > now);
        self.timers_due = self.timers_due.saturating_add(due.len());
        due.into_iter().map(|(_, timer)| timer).collect()
    }

    /// Returns when something is next due, and remembers it.
    pub(super) fn arm(&mut self) -> Option<Instant> {
        let command = self.command.map(|(_, until)| until);
        let is_idle = command.is_none() && self.changes > 0;
        let save = if self.retry_at.is_some() {
            self.retry_at
        } else {
            self.save_at
        };
        let save = save.filter(|_| is_idle);
        let (timer, end) = match self.state {
            State::LoggingIn => (None, None),
            State::Active => (self.timers.values().min().copied(), None),
            State::LoggingOut { deadline, .. } => (None, Some(deadline)),
        };
        self.armed = [command, save, timer, end].into_iter().flatten().min();
        self.armed
    }
}
