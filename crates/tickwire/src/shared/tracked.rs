//! Tracked messages, from sending until the game has taken their outcome.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use udp_proto::{ChannelId, MessageId, MessageOutcome, SendError, SessionId};

use super::allowance::is_share;
use super::lock;
use crate::Event;

/// Limit per session, as in the endpoint.
const SESSION_MAX: u16 = 4_096;
/// Limit over all sessions: about 4 MB with their events.
const ALL_MAX: usize = 65_536;
/// The first number. No channel's own ids reach it, so none collides with a message that was sent
/// before the thread was started.
const FIRST: u64 = 1 << 63;

/// Tracked messages without an outcome that the game has taken.
///
/// No session may hold more than a quarter of what it leaves to the others, but each may have one
/// message. The game's side keeps them, to report each message even if the thread ends before it has
/// processed its queue.
#[derive(Debug)]
pub(crate) struct TrackedMessages(Mutex<State>);

#[derive(Debug)]
struct State {
    next: u64,
    open: BTreeMap<u64, Entry>,
    counts: BTreeMap<SessionId, u16>,
}

/// The outcome that is reported if the thread reports none.
#[derive(Clone, Copy, Debug)]
struct Entry {
    session: SessionId,
    channel: ChannelId,
    outcome: MessageOutcome,
}

impl TrackedMessages {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            next: FIRST,
            open: BTreeMap::new(),
            counts: BTreeMap::new(),
        }))
    }

    /// Returns a number for a message that is about to be sent.
    ///
    /// # Errors
    ///
    /// [`SendError::TooManyTracked`] if the session has 4,096 tracked messages, or more than a
    /// quarter of what it leaves to others of 65,536.
    pub(crate) fn begin(
        &self,
        session: SessionId,
        channel: ChannelId,
    ) -> Result<MessageId, SendError> {
        let mut state = self.state();
        let count = state
            .counts
            .get(&session)
            .map_or(1, |held| held.saturating_add(1));
        let left = ALL_MAX.checked_sub(state.open.len().saturating_add(1));
        let left = left.ok_or(SendError::TooManyTracked)?;
        if count > SESSION_MAX || count > 1 && !is_share(usize::from(count), left) {
            return Err(SendError::TooManyTracked);
        }
        let number = state.next;
        state.next = number.wrapping_add(1).max(FIRST);
        let entry = Entry {
            session,
            channel,
            outcome: MessageOutcome::Dropped,
        };
        state.open.insert(number, entry);
        state.counts.insert(session, count);
        Ok(MessageId(number))
    }

    /// Removes a message: the game has its outcome, or it was not sent.
    pub(crate) fn end(&self, MessageId(number): MessageId) {
        self.state().end(number);
    }

    /// Stores the outcome of a message that the thread could not report before its end.
    pub(crate) fn keep(&self, MessageId(number): MessageId, outcome: MessageOutcome) {
        if let Some(entry) = self.state().open.get_mut(&number) {
            entry.outcome = outcome;
        }
    }

    /// Returns a pending outcome, once the thread has ended and all its events were taken.
    pub(crate) fn pop_unreported(&self) -> Option<Event> {
        let mut state = self.state();
        let (&number, &entry) = state.open.first_key_value()?;
        state.end(number);
        Some(Event::Settled {
            session: entry.session,
            channel: entry.channel,
            message: MessageId(number),
            outcome: entry.outcome,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    fn end(&mut self, number: u64) {
        let Some(entry) = self.open.remove(&number) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&entry.session) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&entry.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppId, Server};
    use udp_proto::{Credentials, ServerIdentity, Target};

    /// Ids of sessions; the server is never polled, so it sends nothing.
    fn sessions(count: u16) -> Vec<SessionId> {
        let mut server = Server::bind("127.0.0.1:0".parse().unwrap(), AppId(1)).unwrap();
        let key = server.key();
        let dial = |port| {
            let target = Target {
                addresses: vec![([127, 0, 0, 1], port).into()],
                server: ServerIdentity::Keys(vec![key.0]),
                credentials: Credentials::Open,
            };
            let dial = server.socket.act(|now, it| it.connect(now, target));
            dial.unwrap()
        };
        (1..=count).map(dial).collect()
    }

    #[test]
    fn u17_tracked_messages_are_bounded_per_session_and_reported_once() {
        let tracked = TrackedMessages::new();
        let session = sessions(1)[0];
        let channel = ChannelId(1);
        let begin = || tracked.begin(session, channel);
        let numbers: Vec<MessageId> = (0..SESSION_MAX).map(|_| begin().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(begin(), Err(SendError::TooManyTracked));
        tracked.end(numbers[7]);
        tracked.end(numbers[7]);
        let last = begin().unwrap();
        assert_eq!(begin(), Err(SendError::TooManyTracked));
        let reported = core::iter::from_fn(|| tracked.pop_unreported());
        let reported: Vec<MessageId> = reported
            .map(|event| {
                let Event::Settled {
                    message, outcome, ..
                } = event
                else {
                    panic!("{event:?}");
                };
                assert_eq!(outcome, MessageOutcome::Dropped);
                message
            })
            .collect();
        let mut expected = numbers;
        expected.remove(7);
        expected.push(last);
        assert_eq!(reported, expected);
        assert!(tracked.state().counts.is_empty());
    }

    #[test]
    fn u17_sessions_at_their_tracking_limit_leave_room_for_another() {
        let tracked = TrackedMessages::new();
        let channel = ChannelId(1);
        let mut open = Vec::new();
        for (place, session) in sessions(40).into_iter().enumerate() {
            let numbers = core::iter::from_fn(|| tracked.begin(session, channel).ok());
            let numbers: Vec<MessageId> = numbers.collect();
            assert!(!numbers.is_empty(), "the {place}th finds no room");
            // A quarter of what is left to the others, if that is below the limit per session.
            let left = ALL_MAX - tracked.state().open.len();
            let share = usize::from(SESSION_MAX).min(left / 4).max(1);
            assert!(
                (share - 1..=share).contains(&numbers.len()),
                "{place}: {share}"
            );
            open.extend(numbers);
        }
        for number in open {
            tracked.end(number);
        }
        let state = tracked.state();
        assert!(state.open.is_empty() && state.counts.is_empty());
    }
}
