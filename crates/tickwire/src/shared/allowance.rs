//! Limit on messages between the game and the endpoint's queues.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use udp_proto::SessionId;

use super::{Side, lock};

const ALLOWANCE: usize = 4 << 20;
/// Fixed cost of a request in bytes. 4,096 requests use up the allowance, which is the capacity of
/// the driver's queue.
const COST: usize = 1_024;
/// Bytes that a message longer than its session's share must leave free.
const RESERVE: usize = 128 << 10;

/// Byte allowance that the sessions of a socket share. `S` identifies a session.
///
/// On a server, no session may hold more than a quarter of what it leaves to the others. So the
/// first session whose peer does not read leaves four fifths, and each further one four fifths of
/// the rest. A session with nothing queued gets one message of any length if `RESERVE` remains
/// free. The lock is held only for a map lookup.
#[derive(Debug)]
pub(crate) struct Allowance<S = SessionId> {
    state: Mutex<State<S>>,
    /// Whether there are several sessions.
    is_shared: bool,
    /// Wakes waiting senders when room is returned.
    #[cfg(feature = "tokio")]
    returned: tokio::sync::Notify,
}

#[derive(Debug)]
struct State<S> {
    left: usize,
    held: BTreeMap<S, usize>,
    is_open: bool,
}

impl<S: Copy + Ord> Allowance<S> {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            state: Mutex::new(State {
                left: ALLOWANCE,
                held: BTreeMap::new(),
                is_open: false,
            }),
            is_shared: side == Side::Server,
            #[cfg(feature = "tokio")]
            returned: tokio::sync::Notify::new(),
        }
    }

    /// Reserves room for a message of `len` bytes to `session`; returns `false` if there is not
    /// enough.
    pub(crate) fn take(&self, session: S, len: usize) -> bool {
        let cost = cost(len);
        let mut state = self.state();
        if state.is_open {
            return true;
        }
        let Some(left) = state.left.checked_sub(cost) else {
            return false;
        };
        let held = state.held.get(&session).copied().unwrap_or(0);
        let is_share = is_share(held + cost, left);
        let is_first = held == 0 && (left >= RESERVE || state.held.is_empty());
        if self.is_shared && !is_share && !is_first {
            return false;
        }
        state.left = left;
        state.held.insert(session, held + cost);
        true
    }

    pub(crate) fn give_back(&self, session: S, len: usize) {
        let cost = cost(len);
        let mut state = self.state();
        if let Some(held) = state.held.get_mut(&session) {
            *held = held.saturating_sub(cost);
            if *held == 0 {
                state.held.remove(&session);
            }
        }
        state.left = state.left.saturating_add(cost);
        drop(state);
        #[cfg(feature = "tokio")]
        self.returned.notify_waiters();
    }

    /// Reserves room for a request without a message, whatever its session holds.
    pub(crate) fn take_for_request(&self) -> bool {
        let mut state = self.state();
        let left = state.left.checked_sub(COST);
        state.left = left.unwrap_or(state.left);
        left.is_some() || state.is_open
    }

    pub(crate) fn give_back_for_request(&self) {
        let mut state = self.state();
        state.left = state.left.saturating_add(COST);
        drop(state);
        #[cfg(feature = "tokio")]
        self.returned.notify_waiters();
    }

    pub(crate) fn open(&self) {
        let mut state = self.state();
        state.is_open = true;
        drop(state);
        #[cfg(feature = "tokio")]
        self.returned.notify_waiters();
    }

    #[cfg(feature = "tokio")]
    pub(crate) async fn take_when_free(&self, session: S, len: usize) {
        loop {
            let returned = self.returned.notified();
            let mut returned = core::pin::pin!(returned);
            // Registers before the check, so that no notification is missed.
            returned.as_mut().enable();
            if self.take(session, len) {
                return;
            }
            returned.await;
        }
    }

    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        let state = self.state();
        state.left == ALLOWANCE && state.held.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        lock(&self.state)
    }
}

/// Returns whether one of several sessions may hold `held` if it leaves `left` to the others.
pub(super) const fn is_share(held: usize, left: usize) -> bool {
    held <= left / 4
}

/// Cost of a message in bytes. A message of 4 MiB or more takes the whole allowance.
const fn cost(len: usize) -> usize {
    let cost = len.saturating_add(COST);
    if cost < ALLOWANCE { cost } else { ALLOWANCE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u17_the_driver_queue_has_room_for_the_whole_allowance() {
        let allowance = Allowance::new(Side::Client);
        let orders = core::iter::repeat_with(|| allowance.take(1, 0)).take_while(|taken| *taken);
        let requests_max = servicer::Config::default().requests_max.get();
        assert_eq!(orders.count(), requests_max);
        assert!(!allowance.take(1, 0) && !allowance.take_for_request());
        for _ in 0..requests_max {
            allowance.give_back(1, 0);
        }
        assert!(allowance.is_whole());
        let orders = core::iter::repeat_with(|| allowance.take_for_request());
        assert_eq!(orders.take_while(|taken| *taken).count(), requests_max);
        for _ in 0..requests_max {
            allowance.give_back_for_request();
        }
        // The longest message that a channel may allow fits if the allowance is free.
        for allowance in [allowance, Allowance::new(Side::Server)] {
            assert!(allowance.take(1, 8 << 20));
            assert!(!allowance.take(1, 0));
            allowance.give_back(1, 8 << 20);
            assert!(allowance.is_whole());
        }
    }

    #[test]
    fn u17_stalled_sessions_leave_room_for_another() {
        for (len, sessions) in [(0, 24), (1_000, 24), (60_000, 12)] {
            let allowance = Allowance::new(Side::Server);
            let mut taken = 0;
            for session in 0..sessions {
                let mut count = 0;
                while allowance.take(session, len) {
                    count += 1;
                }
                assert!(count > 0, "{session} finds none for {len}");
                taken += count;
                // Requests to end a session still find room.
                assert!(allowance.take_for_request());
                allowance.give_back_for_request();
            }
            for session in 0..sessions {
                while allowance.state().held.contains_key(&session) {
                    allowance.give_back(session, len);
                    taken -= 1;
                }
            }
            assert_eq!(taken, 0);
            assert!(allowance.is_whole());
        }
    }

    #[test]
    fn u17_long_messages_leave_room_for_short_ones() {
        let allowance = Allowance::new(Side::Server);
        let long = (0..9).filter(|session| allowance.take(*session, 1_500_000));
        assert_eq!(long.count(), 2);
        assert!(allowance.take(9, 60_000));
        // A second message of that session is refused.
        let allowance = Allowance::new(Side::Server);
        assert!(allowance.take(1, 1_500_000) && !allowance.take(1, 0));
    }
}
