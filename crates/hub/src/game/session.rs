//! Sessions of players on a game server: login, timers, write-back, limits, kick and logout.

mod config;
mod player;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::{ClientId, CommandId, Generator, Instant, Seed};

pub use config::{
    DuplicateLogin, EndCause, KickReason, LoginError, RequestError, SessionCommand, SessionConfig,
    SessionEvent, SessionId, SessionPhase, SessionStats, StorageFailed, TimerError, TimerId,
    UnknownSession,
};
use player::PlayerSession;

/// The sessions of all players on a game server.
///
/// A session goes from logging in to active to logging out, and ends. The application keeps the
/// player's state; this machine decides when the driver loads and saves it:
///
/// - [`login`](Self::login) asks for a load. [`SessionEvent::LoggedIn`] follows.
/// - [`mark_changed`](Self::mark_changed) counts a change. A save is due after
///   [`SessionConfig::save_after_changes`], or [`SessionConfig::save_interval`] after the first one.
/// - [`logout`](Self::logout), [`kick`](Self::kick) and [`shutdown`](Self::shutdown) save what has
///   changed. [`SessionEvent::Ended`] says how many changes are not saved.
///
/// A failed save is reported and retried with backoff. One save of a session is in flight at a time;
/// one that takes longer than [`SessionConfig::storage_timeout`] counts as failed. If it still takes
/// effect later, the storage must not let it replace a newer one: ids of commands rise, so drop a
/// save with a lower id than the last one of its player.
///
/// Each player has at most one session, and a session that replaces another waits until that one has
/// saved. A crash loses at most the changes since the last save.
///
/// The driver calls [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) is due, executes each command of
/// [`poll_command`](Self::poll_command), passes its result to
/// [`handle_completed`](Self::handle_completed), and drains [`poll_event`](Self::poll_event).
///
/// ```
/// use hub::game::session::{PlayerSessions, SessionCommand, SessionConfig, SessionEvent};
/// use wire::{ClientId, Instant, Seed};
///
/// let now = Instant::ZERO;
/// let mut sessions = PlayerSessions::new(SessionConfig::default(), Seed([1; 32]));
/// let session = sessions.login(now, ClientId(42))?;
/// let Some((id, SessionCommand::Load { .. })) = sessions.poll_command() else {
///     return Err("the player's state is loaded first".into());
/// };
/// sessions.handle_completed(now, id, Ok(()));
/// assert!(matches!(sessions.poll_event(), Some(SessionEvent::LoggedIn { .. })));
///
/// sessions.request(now, session)?; // Within the limit; now handle the player's request.
/// sessions.mark_changed(now, session)?;
/// sessions.logout(now, session)?;
/// let Some((id, SessionCommand::Save { .. })) = sessions.poll_command() else {
///     return Err("the change is saved".into());
/// };
/// sessions.handle_completed(now, id, Ok(()));
/// assert!(matches!(sessions.poll_event(), Some(SessionEvent::Ended { unsaved: 0, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PlayerSessions {
    config: SessionConfig,
    now: Instant,
    generator: Generator,
    last_session: u64,
    last_command: u64,
    sessions: BTreeMap<SessionId, PlayerSession>,
    players: BTreeMap<ClientId, Place>,
    /// When each session is next due.
    deadlines: BTreeSet<(Instant, SessionId)>,
    commands: VecDeque<(CommandId, SessionCommand)>,
    in_flight: BTreeMap<CommandId, SessionId>,
    events: VecDeque<SessionEvent>,
    is_shutting_down: bool,
    stats: SessionStats,
}

/// A player's session, and the one that replaces it once it has ended.
#[derive(Clone, Copy, Debug)]
struct Place {
    current: SessionId,
    next: Option<SessionId>,
}

/// Commands of ended sessions that may wait to be polled, besides as many as are in flight.
const COMMANDS_STALE_MAX: usize = 64;

impl PlayerSessions {
    /// Creates a machine without sessions. `seed` spreads retries.
    #[must_use]
    pub fn new(config: SessionConfig, seed: Seed) -> Self {
        Self {
            config,
            now: Instant::ZERO,
            generator: seed.generator(0),
            last_session: 0,
            last_command: 0,
            sessions: BTreeMap::new(),
            players: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            commands: VecDeque::new(),
            in_flight: BTreeMap::new(),
            events: VecDeque::new(),
            is_shutting_down: false,
            stats: SessionStats::default(),
        }
    }

    /// Starts a session of `player`, after it has proved its identity.
    ///
    /// If the player has one, [`SessionConfig::duplicate_login`] decides. A session that already
    /// waits for the end of another is replaced at once.
    ///
    /// # Errors
    ///
    /// [`LoginError`].
    pub fn login(&mut self, now: Instant, player: ClientId) -> Result<SessionId, LoginError> {
        self.advance(now);
        if self.is_shutting_down {
            return Err(LoginError::ShuttingDown);
        }
        let place = self.players.get(&player).copied();
        if place.is_some() && self.config.duplicate_login == DuplicateLogin::Refuse {
            return Err(LoginError::AlreadyOnline);
        }
        let is_full = self.sessions.len() >= self.config.sessions_max
            || self.events.len() >= self.config.events_max;
        if is_full {
            return Err(LoginError::Full);
        }
        self.last_session = self.last_session.saturating_add(1);
        let id = SessionId(self.last_session);
        let session = PlayerSession::new(player, &self.config, self.now);
        self.sessions.insert(id, session);
        match place {
            None => {
                let place = Place {
                    current: id,
                    next: None,
                };
                self.players.insert(player, place);
                self.begin_load(id);
            }
            Some(Place { current, next }) => {
                if let Some(entry) = self.players.get_mut(&player) {
                    entry.next = Some(id);
                }
                if let Some(waiting) = next {
                    self.end(waiting, EndCause::Kicked(KickReason::Replaced));
                }
                self.leave(current, EndCause::Kicked(KickReason::Replaced), None);
            }
        }
        Ok(id)
    }

    /// Counts a request of the player. Beyond [`SessionConfig::requests_per_minute`] the session is
    /// kicked.
    ///
    /// # Errors
    ///
    /// [`RequestError`]; do not handle the request.
    pub fn request(&mut self, now: Instant, id: SessionId) -> Result<(), RequestError> {
        self.advance(now);
        let now = self.now;
        let session = self.sessions.get_mut(&id).ok_or(RequestError::Unknown)?;
        if session.phase() != SessionPhase::Active {
            return Err(RequestError::NotActive);
        }
        if session.take_request(now) {
            return Ok(());
        }
        self.leave(id, EndCause::Kicked(KickReason::TooManyRequests), None);
        Err(RequestError::TooMany)
    }

    /// Counts a change of the player's state that is to be saved.
    ///
    /// # Errors
    ///
    /// [`UnknownSession`] if the session has ended, or its state is not loaded yet.
    pub fn mark_changed(&mut self, now: Instant, id: SessionId) -> Result<(), UnknownSession> {
        self.advance(now);
        let now = self.now;
        let session = self.sessions.get_mut(&id).ok_or(UnknownSession)?;
        if session.phase() == SessionPhase::LoggingIn {
            return Err(UnknownSession);
        }
        session.mark_changed(now, &self.config);
        self.run(id);
        Ok(())
    }

    /// Sets a timer, or moves the one with this id. [`SessionEvent::Timer`] follows once at `at`, if
    /// the session is active then.
    ///
    /// # Errors
    ///
    /// [`TimerError`].
    pub fn set_timer(
        &mut self,
        now: Instant,
        id: SessionId,
        timer: TimerId,
        at: Instant,
    ) -> Result<(), TimerError> {
        self.advance(now);
        let session = self.sessions.get_mut(&id).ok_or(TimerError::Unknown)?;
        if !session.set_timer(timer, at, self.config.timers_max) {
            return Err(TimerError::Full);
        }
        self.run(id);
        Ok(())
    }

    /// Removes a timer; returns whether it was set.
    pub fn cancel_timer(&mut self, id: SessionId, timer: TimerId) -> bool {
        let session = self.sessions.get_mut(&id);
        let was_set = session.is_some_and(|session| session.cancel_timer(timer));
        if was_set {
            self.run(id);
        }
        was_set
    }

    /// Ends a session at the player's wish, or because its connection closed.
    ///
    /// # Errors
    ///
    /// [`UnknownSession`] if the session has ended.
    pub fn logout(&mut self, now: Instant, id: SessionId) -> Result<(), UnknownSession> {
        self.begin_leave(now, id, EndCause::Logout)
    }

    /// Ends a session against the player's wish. [`SessionEvent::Kicked`] follows if it was active.
    ///
    /// # Errors
    ///
    /// [`UnknownSession`] if the session has ended.
    pub fn kick(
        &mut self,
        now: Instant,
        id: SessionId,
        reason: KickReason,
    ) -> Result<(), UnknownSession> {
        self.begin_leave(now, id, EndCause::Kicked(reason))
    }

    /// Ends all sessions, and refuses logins. What cannot be saved by `deadline` is reported as unsaved.
    ///
    /// The process may exit once [`is_empty`](Self::is_empty).
    pub fn shutdown(&mut self, now: Instant, deadline: Instant) {
        self.advance(now);
        self.is_shutting_down = true;
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            let cause = EndCause::Kicked(KickReason::Shutdown);
            self.leave(id, cause, Some(deadline));
        }
    }

    /// Runs what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= self.now
        {
            self.deadlines.remove(&(deadline, id));
            self.run(id);
        }
    }

    /// Handles the result of a command. An unknown or late one is counted and ignored.
    pub fn handle_completed(
        &mut self,
        now: Instant,
        command: CommandId,
        outcome: Result<(), StorageFailed>,
    ) {
        self.advance(now);
        let Some(id) = self.in_flight.remove(&command) else {
            self.stats.completions_unknown = self.stats.completions_unknown.saturating_add(1);
            return;
        };
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        match (session.phase(), outcome) {
            (SessionPhase::LoggingIn, Ok(())) => {
                session.activate();
                let player = session.player();
                self.events.push_back(SessionEvent::LoggedIn {
                    session: id,
                    player,
                });
            }
            (SessionPhase::LoggingIn, Err(StorageFailed)) => {
                self.end(id, EndCause::LoadFailed);
                return;
            }
            (SessionPhase::Active | SessionPhase::LoggingOut, result) => {
                session.on_saved(now, &self.config, result, &mut self.generator);
                if result.is_err() {
                    self.report_failure(id);
                }
            }
        }
        self.run(id);
    }

    /// Returns the next command.
    pub fn poll_command(&mut self) -> Option<(CommandId, SessionCommand)> {
        // Commands of sessions that ended meanwhile are dropped.
        while let Some((id, command)) = self.commands.pop_front() {
            if self.in_flight.contains_key(&id) {
                return Some((id, command));
            }
        }
        None
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        let event = self.events.pop_front()?;
        if let Some(session) = self.sessions.get_mut(&event.session()) {
            session.on_event_polled(&event);
        }
        Some(event)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the session of `player`; one that waits for the end of another is not returned.
    #[must_use]
    pub fn session_of(&self, player: ClientId) -> Option<SessionId> {
        self.players.get(&player).map(|place| place.current)
    }

    /// Returns the phase of a session, or `None` if it has ended.
    #[must_use]
    pub fn phase(&self, id: SessionId) -> Option<SessionPhase> {
        self.sessions.get(&id).map(PlayerSession::phase)
    }

    /// Returns the number of changes that are not known to be saved.
    #[must_use]
    pub fn unsaved(&self, id: SessionId) -> Option<u32> {
        self.sessions.get(&id).map(PlayerSession::unsaved)
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether there are no sessions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> SessionStats {
        self.stats
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn begin_leave(
        &mut self,
        now: Instant,
        id: SessionId,
        cause: EndCause,
    ) -> Result<(), UnknownSession> {
        self.advance(now);
        if !self.sessions.contains_key(&id) {
            return Err(UnknownSession);
        }
        self.leave(id, cause, None);
        Ok(())
    }

    /// Starts the logout of a session, or shortens one that is under way.
    fn leave(&mut self, id: SessionId, cause: EndCause, limit: Option<Instant>) {
        let deadline = self.now + self.config.logout_timeout;
        let deadline = limit.unwrap_or(deadline);
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let player = session.player();
        match session.phase() {
            SessionPhase::LoggingOut => session.limit_logout(deadline),
            SessionPhase::LoggingIn => {
                self.end(id, cause);
                return;
            }
            SessionPhase::Active => {
                session.log_out(cause, deadline);
                if let EndCause::Kicked(reason) = cause {
                    self.events.push_back(SessionEvent::Kicked {
                        session: id,
                        player,
                        reason,
                    });
                }
            }
        }
        self.run(id);
    }

    /// Runs what is due for one session, and arms its next deadline.
    fn run(&mut self, id: SessionId) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let armed = session.take_armed();
        if let Some(armed) = armed {
            self.deadlines.remove(&(armed, id));
        }
        if session.is_login_over(now) {
            self.end(id, EndCause::LoginTimeout);
            return;
        }
        let player = session.player();
        for timer in session.take_due_timers(now) {
            self.events.push_back(SessionEvent::Timer {
                session: id,
                player,
                timer,
            });
        }
        if let Some(late) = session.take_late_save(now, &self.config, &mut self.generator) {
            self.in_flight.remove(&late);
            self.report_failure(id);
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Some(cause) = session.end_cause(now) {
            self.end(id, cause);
            return;
        }
        if session.is_save_due(now, &self.config) {
            let command = CommandId(self.last_command.saturating_add(1));
            self.last_command = command.0;
            session.begin_save(command, now, &self.config);
            let save = SessionCommand::Save {
                session: id,
                player,
            };
            self.push_command(command, id, save);
        }
        let session = self.sessions.get_mut(&id);
        if let Some(deadline) = session.and_then(PlayerSession::arm) {
            self.deadlines.insert((deadline, id));
        }
    }

    fn begin_load(&mut self, id: SessionId) {
        let command = CommandId(self.last_command.saturating_add(1));
        self.last_command = command.0;
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.begin_load(command, now, &self.config);
        let load = SessionCommand::Load {
            session: id,
            player: session.player(),
        };
        self.push_command(command, id, load);
        self.run(id);
    }

    fn push_command(&mut self, id: CommandId, session: SessionId, command: SessionCommand) {
        self.in_flight.insert(id, session);
        self.commands.push_back((id, command));
        // Those that nobody waits for are few, even if the driver polls no commands.
        let waiting = self.in_flight.len().saturating_mul(2);
        if self.commands.len() > waiting.saturating_add(COMMANDS_STALE_MAX) {
            self.commands
                .retain(|(id, _)| self.in_flight.contains_key(id));
        }
    }

    fn report_failure(&mut self, id: SessionId) {
        self.stats.saves_failed = self.stats.saves_failed.saturating_add(1);
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.note_failure() {
            self.events.push_back(SessionEvent::SaveFailed {
                session: id,
                player: session.player(),
                attempts: session.attempts(),
                unsaved: session.unsaved(),
            });
        }
    }

    /// Removes a session, and starts the one that waits for its end.
    fn end(&mut self, id: SessionId, cause: EndCause) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        if let Some(command) = session.command() {
            self.in_flight.remove(&command);
        }
        if let Some(armed) = session.armed() {
            self.deadlines.remove(&(armed, id));
        }
        let player = session.player();
        let unsaved = session.unsaved();
        if unsaved > 0 {
            self.stats.ended_unsaved = self.stats.ended_unsaved.saturating_add(1);
        }
        self.events.push_back(SessionEvent::Ended {
            session: id,
            player,
            cause,
            unsaved,
        });
        let Some(place) = self.players.get_mut(&player) else {
            return;
        };
        if place.current != id {
            if place.next == Some(id) {
                place.next = None;
            }
            return;
        }
        if let Some(next) = place.next.take() {
            place.current = next;
            self.begin_load(next);
        } else {
            self.players.remove(&player);
        }
    }
}

impl fmt::Debug for PlayerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlayerSessions")
            .field("sessions", &self.sessions.len())
            .field("in_flight", &self.in_flight.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
