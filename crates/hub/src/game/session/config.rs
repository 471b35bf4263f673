//! Configuration, commands, events and errors of player sessions.

use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

use wire::{ClientId, Effect};

/// Limits and times of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionConfig {
    /// Sessions, with those that log in or out. Default 16,384.
    pub sessions_max: usize,
    /// Events that wait to be polled, beyond which logins are refused. Default 65,536.
    pub events_max: usize,
    /// Timers of one session. Default 64.
    pub timers_max: usize,
    /// Changes after which the state is saved. Default 256.
    pub save_after_changes: u32,
    /// Time after which a change is saved. Default 600 s.
    pub save_interval: Duration,
    /// Time within which a load or a save must be completed. Default 10 s. A later save counts as
    /// failed, a later load ends the session.
    pub storage_timeout: Duration,
    /// Delay before the first retry of a save. Default 1 s. It doubles with each further one.
    pub retry_min: Duration,
    /// Longest delay before a retry, without the random half that is added. Default 60 s.
    pub retry_max: Duration,
    /// How long a session that logs out tries to save. Default 300 s.
    pub logout_timeout: Duration,
    /// Requests per minute, which may come at once. `None`, the default, is no limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// What happens when a player logs in twice.
    pub duplicate_login: DuplicateLogin,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            sessions_max: 16_384,
            events_max: 65_536,
            timers_max: 64,
            save_after_changes: 256,
            save_interval: Duration::from_secs(600),
            storage_timeout: Duration::from_secs(10),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
            logout_timeout: Duration::from_secs(300),
            requests_per_minute: None,
            duplicate_login: DuplicateLogin::NewestWins,
        }
    }
}

/// What happens when a player with a session logs in again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateLogin {
    /// The old session is kicked with [`KickReason::Replaced`]. The new one is loaded once the old
    /// one has ended.
    NewestWins,
    /// The new login is refused.
    Refuse,
}

/// Identifies a session; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Identifies a timer of a session; chosen by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(pub u32);

/// The phase of a session that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// The state is loaded, or the player's earlier session has not ended.
    LoggingIn,
    /// The player plays.
    Active,
    /// The state is saved.
    LoggingOut,
}

/// Work for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionCommand {
    /// Load the state of a player.
    Load {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
    },
    /// Save the current state of a player.
    Save {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
    },
}

impl Effect for SessionCommand {
    type Outcome = Result<(), StorageFailed>;
}

/// The storage could not load or save a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFailed;

impl fmt::Display for StorageFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the storage could not load or save the player's state")
    }
}

impl core::error::Error for StorageFailed {}

/// What happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The state is loaded, and the player may play.
    LoggedIn {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
    },
    /// The session is ended against the player's wish: tell it why, and close its connection.
    Kicked {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
        /// Why.
        reason: KickReason,
    },
    /// A timer is due.
    Timer {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
        /// The timer.
        timer: TimerId,
    },
    /// A save failed, and is retried. While one such event waits to be polled, no other is queued.
    SaveFailed {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
        /// Saves that failed in a row.
        attempts: u32,
        /// Changes that are not saved.
        unsaved: u32,
    },
    /// The session has ended.
    Ended {
        /// The session.
        session: SessionId,
        /// The player.
        player: ClientId,
        /// Why.
        cause: EndCause,
        /// Changes that are not known to be saved, and are lost unless the application keeps them.
        unsaved: u32,
    },
}

impl SessionEvent {
    /// Returns the session that the event is about.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        match self {
            Self::LoggedIn { session, .. }
            | Self::Kicked { session, .. }
            | Self::Timer { session, .. }
            | Self::SaveFailed { session, .. }
            | Self::Ended { session, .. } => *session,
        }
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndCause {
    /// [`logout`](super::PlayerSessions::logout) was called.
    Logout,
    /// It was kicked.
    Kicked(KickReason),
    /// The state could not be loaded.
    LoadFailed,
    /// The state was not loaded in time.
    LoginTimeout,
}

/// Why a session is ended against the player's wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KickReason {
    /// The player has logged in again.
    Replaced,
    /// More than [`SessionConfig::requests_per_minute`].
    TooManyRequests,
    /// The client claims a wrong time; see [`elapsed_time`](crate::game::elapsed_time).
    WrongTime,
    /// The server ends.
    Shutdown,
    /// The application's own reason.
    Application(u32),
}

/// Why a login is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoginError {
    /// The player has a session, which may be logging out, and the policy is
    /// [`DuplicateLogin::Refuse`].
    AlreadyOnline,
    /// There are too many sessions or events.
    Full,
    /// The server ends.
    ShuttingDown,
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyOnline => "the player is already online",
            Self::Full => "there is no room for another session",
            Self::ShuttingDown => "the server is shutting down",
        })
    }
}

impl core::error::Error for LoginError {}

/// Why a request must not be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The session has ended.
    Unknown,
    /// The session logs in or out.
    NotActive,
    /// The limit is exceeded, and the session kicked.
    TooMany,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the session has ended",
            Self::NotActive => "the session is not active",
            Self::TooMany => "the player sends too many requests",
        })
    }
}

impl core::error::Error for RequestError {}

/// Why a timer is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerError {
    /// The session has ended.
    Unknown,
    /// The session has [`SessionConfig::timers_max`] timers, with those that are due and not polled.
    Full,
}

impl fmt::Display for TimerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the session has ended",
            Self::Full => "the session has too many timers",
        })
    }
}

impl core::error::Error for TimerError {}

/// There is no such session: it has ended, or its state is not loaded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSession;

impl fmt::Display for UnknownSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session has ended, or is not loaded yet")
    }
}

impl core::error::Error for UnknownSession {}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Saves that failed or took too long.
    pub saves_failed: u64,
    /// Sessions that ended with unsaved changes.
    pub ended_unsaved: u64,
    /// Results of commands that are unknown, late or repeated.
    pub completions_unknown: u64,
}
