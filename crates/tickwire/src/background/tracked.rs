//! Messages whose fate the game wants to be told, from when it sends them until it has heard.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use udp_proto::{ChannelId, MessageId, MessageOutcome, SendError, SessionId};

use crate::Event;

/// Of one session, as in the endpoint.
const SESSION_MAX: u16 = 4_096;
/// Of all sessions together: some 4 MB with their events.
const ALL_MAX: usize = 65_536;
/// The first number: no channel counts so far, so that none is that of a message which was sent before
/// there was a thread.
const FIRST: u64 = 1 << 63;

/// The messages that the game has not heard of.
///
/// It is the game's side that keeps them, so that each is told of even where the thread has ended with
/// what was on its way to it.
#[derive(Debug)]
pub(crate) struct Tracked {
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    next: u64,
    open: BTreeMap<u64, (SessionId, ChannelId)>,
    counts: BTreeMap<SessionId, u16>,
}

impl Tracked {
    pub(crate) const fn new() -> Self {
        Self {
            book: Mutex::new(Book {
                next: FIRST,
                open: BTreeMap::new(),
                counts: BTreeMap::new(),
            }),
        }
    }

    /// Returns a number for a message that is about to be sent.
    ///
    /// # Errors
    ///
    /// [`SendError::TooManyTracked`] where the game has not heard of 4,096 of the session, or of 65,536.
    pub(crate) fn begin(
        &self,
        session: SessionId,
        channel: ChannelId,
    ) -> Result<MessageId, SendError> {
        let mut book = self.book();
        let count = book.counts.get(&session).copied().unwrap_or(0);
        if count >= SESSION_MAX || book.open.len() >= ALL_MAX {
            return Err(SendError::TooManyTracked);
        }
        let number = book.next;
        book.next = number.wrapping_add(1).max(FIRST);
        book.open.insert(number, (session, channel));
        book.counts.insert(session, count.saturating_add(1));
        Ok(MessageId(number))
    }

    /// Forgets a message: the game has heard of it, or it was not sent.
    pub(crate) fn end(&self, MessageId(number): MessageId) {
        self.book().end(number);
    }

    /// Returns what is to be told once the thread has ended and all that it told was taken.
    pub(crate) fn pop_dropped(&self) -> Option<Event> {
        let mut book = self.book();
        let (&number, &(session, channel)) = book.open.first_key_value()?;
        book.end(number);
        Some(Event::Settled {
            session,
            channel,
            message: MessageId(number),
            outcome: MessageOutcome::Dropped,
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing in between panics; and each change leaves it whole.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn end(&mut self, number: u64) {
        let Some((session, _)) = self.open.remove(&number) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&session) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppId, Client, Server};

    /// Ids of sessions that dial nobody.
    fn sessions(count: usize) -> Vec<SessionId> {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), AppId(1)).unwrap();
        let dial = |_| Client::connect(server.address(), AppId(1), server.key()).unwrap();
        let clients: Vec<Client> = (0..count).map(dial).collect();
        clients.iter().map(Client::session).collect()
    }

    #[test]
    fn u17_what_is_tracked_is_bounded_for_a_session_and_each_is_told_of_once() {
        let tracked = Tracked::new();
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
        let told = core::iter::from_fn(|| tracked.pop_dropped());
        let told: Vec<MessageId> = told
            .map(|event| {
                let Event::Settled {
                    message, outcome, ..
                } = event
                else {
                    panic!("{event:?}")
                };
                assert_eq!(outcome, MessageOutcome::Dropped);
                message
            })
            .collect();
        let mut expected = numbers;
        expected.remove(7);
        expected.push(last);
        assert_eq!(told, expected);
        assert!(tracked.book().counts.is_empty());
    }
}
