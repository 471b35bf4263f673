//! A state machine for many players, with states that end at a deadline.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::{ClientId, Instant, UnixTime};

/// The rules of a game: which state follows which.
pub trait Rules {
    /// A state of a player.
    type State: Clone;
    /// What can happen to a player.
    type Event;
    /// Why an event is refused.
    type Refusal;

    /// Returns the state after `event`, with its deadline, or a refusal.
    ///
    /// # Errors
    ///
    /// The rules' own. The player's state stays as it is.
    fn on_event(
        &self,
        now: Instant,
        current: &Timed<Self::State>,
        event: &Self::Event,
    ) -> Result<Timed<Self::State>, Self::Refusal>;

    /// Returns the state that follows when `ended` has reached its deadline.
    ///
    /// `at` is that deadline, even if the timeout is handled later.
    fn on_deadline(&self, at: Instant, ended: &Self::State) -> Timed<Self::State>;
}

/// A state that may end at a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<S> {
    /// The state.
    pub state: S,
    /// When it ends by itself; `None` if it does not.
    pub deadline: Option<Instant>,
}

impl<S> Timed<S> {
    /// A state without a deadline.
    pub const fn lasting(state: S) -> Self {
        Self {
            state,
            deadline: None,
        }
    }

    /// A state that ends at `deadline`.
    pub const fn until(state: S, deadline: Instant) -> Self {
        Self {
            state,
            deadline: Some(deadline),
        }
    }
}

/// A state as it is stored: its deadline by the wall clock, which survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState<S> {
    /// The state.
    pub state: S,
    /// When it ends by itself.
    pub deadline: Option<UnixTime>,
}

/// A change of a player's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<S> {
    /// The player.
    pub player: ClientId,
    /// The state before.
    pub from: S,
    /// The state now. It may equal `from`, with another deadline.
    pub to: S,
    /// What changed it.
    pub cause: ChangeCause,
}

/// What changed a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeCause {
    /// An event.
    Event,
    /// The state's deadline.
    Deadline,
}

/// Why an event had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError<R> {
    /// There is no such player.
    Unknown,
    /// Too many changes wait for [`TimedStates::poll_event`].
    Busy,
    /// The rules refuse it.
    Refused(R),
}

impl<R: fmt::Debug> fmt::Display for ApplyError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the player has no state"),
            Self::Busy => f.write_str("too many changes have not been polled"),
            Self::Refused(reason) => write!(f, "the rules refuse the event: {reason:?}"),
        }
    }
}

impl<R: fmt::Debug> core::error::Error for ApplyError<R> {}

/// There are as many players as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayersFull;

impl fmt::Display for PlayersFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no room for another player's state")
    }
}

impl core::error::Error for PlayersFull {}

/// Limits of [`TimedStates`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimedStatesConfig {
    /// Players. Default 1 million.
    pub players_max: usize,
    /// Changes that wait for [`TimedStates::poll_event`]. Default 1,024. Beyond it, events are
    /// refused, and deadlines take effect while the changes are polled.
    pub events_max: usize,
}

impl Default for TimedStatesConfig {
    fn default() -> Self {
        Self {
            players_max: 1_000_000,
            events_max: 1_024,
        }
    }
}

/// States of many players, by the [`Rules`] of a game.
///
/// Call [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) is due,
/// then drain [`poll_event`](Self::poll_event). A deadline takes effect before any event that is
/// applied after it, even if no timeout was handled in between. Each call costs a search among the
/// players; deadlines are an ordered set.
///
/// ```
/// use core::time::Duration;
/// use hub::game::timed_states::{ApplyError, Rules, Timed, TimedStates, TimedStatesConfig};
/// use wire::{ClientId, Instant};
///
/// #[derive(Clone, Debug, PartialEq)]
/// enum Village { Free, Raided }
/// struct Raid;
/// struct VillageRules;
///
/// impl Rules for VillageRules {
///     type State = Village;
///     type Event = Raid;
///     type Refusal = &'static str;
///
///     fn on_event(
///         &self,
///         now: Instant,
///         current: &Timed<Village>,
///         Raid: &Raid,
///     ) -> Result<Timed<Village>, &'static str> {
///         match current.state {
///             Village::Free => Ok(Timed::until(Village::Raided, now + Duration::from_secs(300))),
///             Village::Raided => Err("another raid is under way"),
///         }
///     }
///
///     fn on_deadline(&self, _at: Instant, _ended: &Village) -> Timed<Village> {
///         Timed::lasting(Village::Free)
///     }
/// }
///
/// let mut villages = TimedStates::new(TimedStatesConfig::default(), VillageRules);
/// let (now, village) = (Instant::ZERO, ClientId(7));
/// villages.insert(village, Timed::lasting(Village::Free))?;
/// villages.apply(now, village, &Raid)?;
/// let again = villages.apply(now, village, &Raid);
/// assert_eq!(again, Err(ApplyError::Refused("another raid is under way")));
///
/// villages.handle_timeout(now + Duration::from_secs(300));
/// let changes: Vec<_> = std::iter::from_fn(|| villages.poll_event()).collect();
/// assert_eq!(changes.last().map(|it| &it.to), Some(&Village::Free));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TimedStates<R: Rules> {
    config: TimedStatesConfig,
    rules: R,
    now: Instant,
    players: BTreeMap<ClientId, Timed<R::State>>,
    deadlines: BTreeSet<(Instant, ClientId)>,
    events: VecDeque<Change<R::State>>,
}

/// Least time between the current time and the next deadline of a player that had several in one
/// call: rules with states that end at once cannot loop.
const PAUSE: Duration = Duration::from_millis(1);

/// Deadlines of one player that take effect in one call.
const CHAIN_MAX: usize = 16;

impl<R: Rules> TimedStates<R> {
    /// Creates a machine without players.
    pub const fn new(config: TimedStatesConfig, rules: R) -> Self {
        Self {
            config,
            rules,
            now: Instant::ZERO,
            players: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds a player, or sets its state without an event and without asking the rules.
    ///
    /// # Errors
    ///
    /// [`PlayersFull`] if the player is new and there is no room.
    pub fn insert(&mut self, player: ClientId, state: Timed<R::State>) -> Result<(), PlayersFull> {
        let is_full = self.players.len() >= self.config.players_max;
        if is_full && !self.players.contains_key(&player) {
            return Err(PlayersFull);
        }
        self.replace(player, state);
        Ok(())
    }

    /// Removes a player. Changes that wait for [`poll_event`](Self::poll_event) stay.
    pub fn remove(&mut self, player: ClientId) -> Option<Timed<R::State>> {
        let state = self.players.remove(&player)?;
        if let Some(deadline) = state.deadline {
            self.deadlines.remove(&(deadline, player));
        }
        Some(state)
    }

    /// Returns a player's state to be stored. `unix` is the wall clock at `now`.
    pub fn save(
        &self,
        now: Instant,
        unix: UnixTime,
        player: ClientId,
    ) -> Option<SavedState<R::State>> {
        let Timed { state, deadline } = self.players.get(&player)?.clone();
        let deadline = deadline.map(|it| unix + it.saturating_since(now));
        Some(SavedState { state, deadline })
    }

    /// Adds a player with a stored state. A deadline that has passed meanwhile takes effect at the
    /// next [`handle_timeout`](Self::handle_timeout).
    ///
    /// # Errors
    ///
    /// [`PlayersFull`] if the player is new and there is no room.
    pub fn restore(
        &mut self,
        now: Instant,
        unix: UnixTime,
        player: ClientId,
        saved: SavedState<R::State>,
    ) -> Result<(), PlayersFull> {
        let deadline = saved.deadline.map(|it| now + it.saturating_since(unix));
        let state = saved.state;
        self.insert(player, Timed { state, deadline })
    }

    /// Returns a player's state, as of the last call.
    pub fn get(&self, player: ClientId) -> Option<&Timed<R::State>> {
        self.players.get(&player)
    }

    /// Returns all players and their states, ordered by player.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &Timed<R::State>)> {
        self.players.iter().map(|(player, state)| (*player, state))
    }

    /// Applies an event to a player, and returns the new state. A [`Change`] follows.
    ///
    /// # Errors
    ///
    /// [`ApplyError`]; the player's state stays as it is, apart from deadlines that are due.
    pub fn apply(
        &mut self,
        now: Instant,
        player: ClientId,
        event: &R::Event,
    ) -> Result<&Timed<R::State>, ApplyError<R::Refusal>> {
        self.now = self.now.max(now);
        self.expire(player);
        if self.events.len() >= self.config.events_max {
            return Err(ApplyError::Busy);
        }
        let current = self.players.get(&player).ok_or(ApplyError::Unknown)?;
        let next = self.rules.on_event(self.now, current, event);
        let next = next.map_err(ApplyError::Refused)?;
        self.change(player, next, ChangeCause::Event);
        self.players.get(&player).ok_or(ApplyError::Unknown)
    }

    /// Ends the states with a due deadline. Drain [`poll_event`](Self::poll_event) afterwards:
    /// what exceeds the limit of changes ends while they are polled.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.expire_due();
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the next change.
    pub fn poll_event(&mut self) -> Option<Change<R::State>> {
        if self.events.is_empty() {
            self.expire_due();
        }
        self.events.pop_front()
    }

    /// Returns the number of players.
    pub fn len(&self) -> usize {
        self.players.len()
    }

    /// Returns whether there are no players.
    pub fn is_empty(&self) -> bool {
        self.players.is_empty()
    }

    fn expire_due(&mut self) {
        while let Some(&(deadline, player)) = self.deadlines.first()
            && deadline <= self.now
            && self.events.len() < self.config.events_max
        {
            self.expire(player);
        }
    }

    /// Ends the player's states with a due deadline, while there is room for changes.
    fn expire(&mut self, player: ClientId) {
        for step in 1..=CHAIN_MAX {
            let current = self.players.get(&player);
            let Some((at, state)) = current.and_then(|it| Some((it.deadline?, &it.state))) else {
                return;
            };
            if at > self.now || self.events.len() >= self.config.events_max {
                return;
            }
            let mut next = self.rules.on_deadline(at, state);
            if step == CHAIN_MAX {
                let earliest = self.now + PAUSE;
                next.deadline = next.deadline.map(|deadline| deadline.max(earliest));
            }
            self.change(player, next, ChangeCause::Deadline);
        }
    }

    fn change(&mut self, player: ClientId, next: Timed<R::State>, cause: ChangeCause) {
        let to = next.state.clone();
        if let Some(before) = self.replace(player, next) {
            let from = before.state;
            self.events.push_back(Change {
                player,
                from,
                to,
                cause,
            });
        }
    }

    fn replace(&mut self, player: ClientId, next: Timed<R::State>) -> Option<Timed<R::State>> {
        let deadline = next.deadline;
        let before = self.players.insert(player, next);
        if let Some(ended) = before.as_ref().and_then(|it| it.deadline) {
            self.deadlines.remove(&(ended, player));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, player));
        }
        before
    }
}

impl<R: Rules> fmt::Debug for TimedStates<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedStates")
            .field("players", &self.players.len())
            .field("deadlines", &self.deadlines.len())
            .field("events", &self.events.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
