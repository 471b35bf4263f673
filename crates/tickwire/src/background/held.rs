//! Messages that wait on the thread until their channel's queue has room.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use udp_proto::{ChannelId, SendError};
use wire::Instant;

use super::line::Allowance;

/// How often it is tried again: a channel's queue empties with acknowledgements, which come at
/// least a round trip apart.
const RETRY: Duration = Duration::from_millis(2);

/// First in, first out for each channel of each session, which `S` names. [`Allowance`] bounds what
/// it holds.
#[derive(Debug)]
pub(crate) struct Held<S> {
    queues: BTreeMap<(S, ChannelId), VecDeque<Box<[u8]>>>,
    retry_at: Option<Instant>,
}

impl<S> Default for Held<S> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            retry_at: None,
        }
    }
}

impl<S: Copy + Ord> Held<S> {
    /// Sends a message by `send`, or keeps it behind those of its channel that wait.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        (session, channel, message): (S, ChannelId, Box<[u8]>),
        allowance: &Allowance,
        mut send: impl FnMut(S, ChannelId, &[u8]) -> Result<(), SendError>,
    ) {
        if !self.queues.contains_key(&(session, channel)) {
            if send(session, channel, &message) != Err(SendError::Full) {
                // Taken; or the session has ended, and the game is told of that.
                allowance.give_back(message.len());
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

    /// Tries again, where it is time.
    pub(crate) fn retry(
        &mut self,
        now: Instant,
        allowance: &Allowance,
        mut send: impl FnMut(S, ChannelId, &[u8]) -> Result<(), SendError>,
    ) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.queues.retain(|(session, channel), queue| {
            while let Some(message) = queue.front() {
                if send(*session, *channel, message) == Err(SendError::Full) {
                    return true;
                }
                allowance.give_back(message.len());
                queue.pop_front();
            }
            false
        });
        self.retry_at = (!self.queues.is_empty()).then_some(now + RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u17_what_waits_keeps_its_order_and_its_channel_alone() {
        let (mut held, allowance) = (Held::default(), Allowance::default());
        let (first, other) = (ChannelId(1), ChannelId(2));
        let session = 7;
        let mut taken = Vec::new();
        let mut now = Instant::ZERO;
        let room = |channel, taken: &[(ChannelId, u8)]| channel != first || taken.len() >= 3;
        for (channel, byte) in [(first, 1), (first, 2), (other, 3), (other, 4), (other, 5)] {
            assert!(allowance.take(1));
            let message = (session, channel, Box::from([byte]));
            held.send(now, message, &allowance, |_, channel, message| {
                if !room(channel, &taken) {
                    return Err(SendError::Full);
                }
                taken.push((channel, message[0]));
                Ok(())
            });
        }
        assert_eq!(taken, [(other, 3), (other, 4), (other, 5)]);
        let at = held.poll_timeout().unwrap();
        held.retry(now, &allowance, |_, _, _| unreachable!("too early"));
        now = at;
        held.retry(now, &allowance, |_, _, _| Err(SendError::Full));
        assert!(held.poll_timeout().unwrap() > now);
        now = held.poll_timeout().unwrap();
        held.retry(now, &allowance, |_, channel, message| {
            taken.push((channel, message[0]));
            Ok(())
        });
        assert_eq!(taken[3..], [(first, 1), (first, 2)]);
        assert_eq!(held.poll_timeout(), None);
        assert!(allowance.is_whole());
    }

    #[test]
    fn u17_what_waits_for_a_session_that_ends_is_dropped_and_its_room_is_free() {
        let (mut held, allowance) = (Held::default(), Allowance::default());
        let mut count = 0;
        while allowance.take(1_000) {
            count += 1;
            let message = (7, ChannelId(1), Box::from([0; 1_000]));
            held.send(Instant::ZERO, message, &allowance, |_, _, _| {
                Err(SendError::Full)
            });
        }
        // 4 MiB, of which each takes 2,024 bytes.
        assert_eq!(count, (4 << 20) / 2_024);
        let at = held.poll_timeout().unwrap();
        held.retry(at, &allowance, |_, _, _| Err(SendError::Closed));
        assert_eq!(held.poll_timeout(), None);
        assert!(allowance.is_whole());
    }
}
