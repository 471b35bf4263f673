//! Messages that wait on the thread for room in their channel's queue.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use udp_proto::{ChannelId, CloseCode, SendError};
use wire::Instant;

use super::Allowance;

/// Retry interval. A channel's queue drains with acknowledgements, which arrive at least a round
/// trip apart.
const RETRY: Duration = Duration::from_millis(2);

/// A FIFO queue for each channel of each session. `S` identifies a session. [`Allowance`] bounds
/// the total size.
#[derive(Debug)]
pub(crate) struct SendQueues<S, T = Box<[u8]>> {
    queues: BTreeMap<(S, ChannelId), VecDeque<T>>,
    retry_at: Option<Instant>,
    /// Sessions that end once their queues are empty: deadline and close code.
    closing: BTreeMap<S, (Instant, CloseCode)>,
    /// Messages dropped because their session ended, for the caller to take.
    dropped: VecDeque<(S, ChannelId, T)>,
}

impl<S, T> Default for SendQueues<S, T> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            retry_at: None,
            closing: BTreeMap::new(),
            dropped: VecDeque::new(),
        }
    }
}

impl<S: Copy + Ord, T: AsRef<[u8]>> SendQueues<S, T> {
    /// Sends a message with `send`, or queues it after the waiting messages of its channel. Drops
    /// it if [`close`](Self::close) was called before.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        (session, channel, message): (S, ChannelId, T),
        allowance: &Allowance<S>,
        mut send: impl FnMut(S, ChannelId, &T) -> Result<(), SendError>,
    ) {
        if self.closing.contains_key(&session) {
            allowance.give_back(session, message.as_ref().len());
            self.dropped.push_back((session, channel, message));
            return;
        }
        if !self.queues.contains_key(&(session, channel)) {
            if send(session, channel, &message) != Err(SendError::Full) {
                // Accepted; or the session has ended, and the game gets its end event.
                allowance.give_back(session, message.as_ref().len());
                return;
            }
            self.retry_at.get_or_insert(now + RETRY);
        }
        let queue = self.queues.entry((session, channel)).or_default();
        queue.push_back(message);
    }

    /// Returns when [`retry`](Self::retry) is next needed.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(crate) fn retry(
        &mut self,
        now: Instant,
        allowance: &Allowance<S>,
        mut send: impl FnMut(S, ChannelId, &T) -> Result<(), SendError>,
    ) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.queues.retain(|(session, channel), queue| {
            while let Some(message) = queue.front() {
                if send(*session, *channel, message) == Err(SendError::Full) {
                    return true;
                }
                allowance.give_back(*session, message.as_ref().len());
                queue.pop_front();
            }
            false
        });
        self.retry_at = (!self.queues.is_empty()).then_some(now + RETRY);
    }

    /// Ends `session` with `code` once its queues are empty, at `until` at the latest. Returns
    /// `false` if nothing waits. If called again, the first code and the earliest deadline apply.
    pub(crate) fn close(&mut self, session: S, until: Instant, code: CloseCode) -> bool {
        if !self.has(session) {
            return false;
        }
        let (end, _) = self.closing.entry(session).or_insert((until, code));
        *end = until.min(*end);
        true
    }

    /// Returns a session that must end now because its queues are empty or its deadline has passed,
    /// with its close code. Call it after [`retry`](Self::retry).
    pub(crate) fn poll_closed(
        &mut self,
        now: Instant,
        allowance: &Allowance<S>,
    ) -> Option<(S, CloseCode)> {
        let is_due = |session: &S, until: Instant| until <= now || !self.has(*session);
        let (session, code) = self
            .closing
            .iter()
            .find(|(session, (until, _))| is_due(session, *until))
            .map(|(session, (_, code))| (*session, *code))?;
        self.forget(session, allowance);
        Some((session, code))
    }

    pub(crate) fn forget(&mut self, session: S, allowance: &Allowance<S>) {
        self.closing.remove(&session);
        let channels = (session, ChannelId(0))..=(session, ChannelId(u8::MAX));
        let keys: Vec<_> = self.queues.range(channels).map(|(key, _)| *key).collect();
        for key in keys {
            for message in self.queues.remove(&key).unwrap_or_default() {
                allowance.give_back(session, message.as_ref().len());
                self.dropped.push_back((session, key.1, message));
            }
        }
    }

    pub(crate) fn pop_dropped(&mut self) -> Option<(S, ChannelId, T)> {
        self.dropped.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.closing.is_empty()
    }

    pub(crate) fn bytes(&self, session: S) -> usize {
        self.of(session)
            .flatten()
            .map(|message| message.as_ref().len())
            .sum()
    }

    fn has(&self, session: S) -> bool {
        self.of(session).next().is_some()
    }

    fn of(&self, session: S) -> impl Iterator<Item = &VecDeque<T>> {
        let channels = (session, ChannelId(0))..=(session, ChannelId(u8::MAX));
        self.queues.range(channels).map(|(_, queue)| queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Side;

    #[test]
    fn u17_queued_messages_keep_their_order_per_channel() {
        let (mut queues, allowance) = (SendQueues::default(), Allowance::new(Side::Client));
        let (first, other) = (ChannelId(1), ChannelId(2));
        let session = 7;
        let mut taken = Vec::new();
        let mut now = Instant::ZERO;
        let room = |channel, taken: &[(ChannelId, u8)]| channel != first || taken.len() >= 3;
        for (channel, byte) in [(first, 1), (first, 2), (other, 3), (other, 4), (other, 5)] {
            assert!(allowance.take(session, 1));
            let message = (session, channel, Box::from([byte]));
            queues.send(now, message, &allowance, |_, channel, message| {
                if !room(channel, &taken) {
                    return Err(SendError::Full);
                }
                taken.push((channel, message[0]));
                Ok(())
            });
        }
        assert_eq!(taken, [(other, 3), (other, 4), (other, 5)]);
        let at = queues.poll_timeout().unwrap();
        queues.retry(now, &allowance, |_, _, _| unreachable!("too early"));
        now = at;
        queues.retry(now, &allowance, |_, _, _| Err(SendError::Full));
        assert!(queues.poll_timeout().unwrap() > now);
        now = queues.poll_timeout().unwrap();
        queues.retry(now, &allowance, |_, channel, message| {
            taken.push((channel, message[0]));
            Ok(())
        });
        assert_eq!(taken[3..], [(first, 1), (first, 2)]);
        assert_eq!(queues.poll_timeout(), None);
        assert!(allowance.is_whole());
    }

    #[test]
    fn u17_messages_queued_for_an_ended_session_are_dropped_and_free_room() {
        let (mut queues, allowance) = (SendQueues::default(), Allowance::new(Side::Client));
        let mut count = 0;
        while allowance.take(7, 1_000) {
            count += 1;
            let message = (7, ChannelId(1), Box::from([0; 1_000]));
            queues.send(Instant::ZERO, message, &allowance, |_, _, _| {
                Err(SendError::Full)
            });
        }
        // 4 MiB, of which each message takes 2,024 bytes.
        assert_eq!(count, (4 << 20) / 2_024);
        let at = queues.poll_timeout().unwrap();
        queues.retry(at, &allowance, |_, _, _| Err(SendError::Closed));
        assert_eq!(queues.poll_timeout(), None);
        assert!(allowance.is_whole());
    }

    #[test]
    fn u17_a_session_that_ends_waits_for_earlier_messages_in_bounded_time() {
        let (mut queues, allowance) = (SendQueues::default(), Allowance::new(Side::Server));
        let send = |queues: &mut SendQueues<u8>, session, byte| {
            assert!(allowance.take(session, 1));
            let message = (session, ChannelId(byte % 2), Box::from([byte]));
            queues.send(Instant::ZERO, message, &allowance, |_, _, _| {
                Err(SendError::Full)
            });
        };
        for (session, byte) in [(7, 1), (7, 2), (7, 3), (8, 4), (9, 5)] {
            send(&mut queues, session, byte);
        }
        let until = Instant::ZERO + 2 * RETRY;
        assert_eq!(
            (queues.bytes(6), queues.bytes(7), queues.bytes(8)),
            (0, 3, 1)
        );
        assert!(queues.close(7, until, CloseCode::Kicked));
        assert!(queues.close(7, until + RETRY, CloseCode::Shutdown));
        assert!(queues.close(8, until, CloseCode::Shutdown));
        assert!(!queues.close(6, until, CloseCode::Kicked), "nothing waits");
        send(&mut queues, 7, 6);
        let mut sent = Vec::new();
        queues.retry(
            Instant::ZERO + RETRY,
            &allowance,
            |session, channel, message| {
                if (session, channel) == (7, ChannelId(0)) || session == 8 {
                    return Err(SendError::Full);
                }
                sent.push((session, message[0]));
                Ok(())
            },
        );
        assert_eq!(sent, [(7, 1), (7, 3), (9, 5)], "6 came after the end");
        assert_eq!(queues.poll_closed(Instant::ZERO + RETRY, &allowance), None);
        assert!(queues.poll_timeout().is_some_and(|at| at <= until));
        queues.retry(until, &allowance, |session, _, _| match session {
            7 => Ok(()),
            _ => Err(SendError::Full),
        });
        let ends =
            core::iter::from_fn(|| queues.poll_closed(until, &allowance)).collect::<Vec<_>>();
        assert_eq!(ends, [(7, CloseCode::Kicked), (8, CloseCode::Shutdown)]);
        assert!(queues.is_empty() && allowance.is_whole());
    }
}
