//! Which connect tokens were used: a token opens at most one session in its lifetime.

use std::collections::{BTreeMap, BTreeSet};

use core::net::SocketAddr;

use crypto::TokenId;
use wire::UnixTime;

/// Remembers tokens from their first valid HELLO until they expire.
///
/// Full, it refuses new tokens; it never forgets a live one.
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    entries: BTreeMap<TokenId, Entry>,
    /// The same tokens by the time after which they open nowhere.
    by_expiry: BTreeSet<(UnixTime, TokenId)>,
    /// The last end of a token that is forgotten: up to it none opens anything although the wall
    /// clock goes back. Not the clock itself: one that was ahead for a while would keep all out.
    forgotten: Option<UnixTime>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: TokenState,
}

/// What is known of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenState {
    /// Valid HELLOs came, no packet opened yet.
    Pending {
        /// Where the first HELLO came from; others must show a cookie.
        first: SocketAddr,
        /// Attempts that wait for their first packet.
        attempts: u8,
    },
    /// A session was opened with it.
    Consumed,
}

/// Most attempts of one token that wait at a time; TWP/1, section 3.7.
pub(crate) const ATTEMPTS_MAX: u8 = 4;

/// Why a token may not begin a further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenBusy {
    /// It opened a session already.
    Consumed,
    /// Four attempts wait.
    Attempts,
    /// The cache is full.
    CacheFull,
}

impl TokenCache {
    /// Returns what is known of `token`.
    pub(crate) fn state(&self, token: TokenId) -> Option<TokenState> {
        self.entries.get(&token).map(|entry| entry.state)
    }

    /// Checks whether a further attempt of `token` may begin, where `capacity` tokens may be
    /// remembered.
    ///
    /// # Errors
    ///
    /// [`TokenBusy`] where none may.
    pub(crate) fn check(
        &self,
        token: TokenId,
        forget_at: UnixTime,
        capacity: usize,
    ) -> Result<(), TokenBusy> {
        match self.state(token) {
            Some(TokenState::Consumed) => return Err(TokenBusy::Consumed),
            Some(TokenState::Pending { attempts, .. }) if attempts >= ATTEMPTS_MAX => {
                return Err(TokenBusy::Attempts);
            }
            Some(TokenState::Pending { .. }) => return Ok(()),
            None => {}
        }
        if self.forgotten.is_some_and(|until| forget_at <= until) {
            return Err(TokenBusy::Consumed);
        }
        if self.entries.len() >= capacity {
            return Err(TokenBusy::CacheFull);
        }
        Ok(())
    }

    /// Counts a further attempt of `token` from `sender`, one that [`check`](Self::check) allows.
    pub(crate) fn begin(&mut self, token: TokenId, sender: SocketAddr, forget_at: UnixTime) {
        if let Some(entry) = self.entries.get_mut(&token) {
            if let TokenState::Pending { attempts, .. } = &mut entry.state {
                *attempts = attempts.saturating_add(1);
            }
            return;
        }
        let state = TokenState::Pending {
            first: sender,
            attempts: 1,
        };
        self.entries.insert(token, Entry { state });
        self.by_expiry.insert((forget_at, token));
    }

    /// Gives back an attempt that ended without a session.
    pub(crate) fn end(&mut self, token: TokenId) {
        if let Some(Entry {
            state: TokenState::Pending { attempts, .. },
            ..
        }) = self.entries.get_mut(&token)
        {
            *attempts = attempts.saturating_sub(1);
        }
    }

    /// Marks `token` as used; returns whether it was not before.
    pub(crate) fn consume(&mut self, token: TokenId) -> bool {
        let Some(entry) = self.entries.get_mut(&token) else {
            return false;
        };
        let was_pending = entry.state != TokenState::Consumed;
        entry.state = TokenState::Consumed;
        was_pending
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, unix: UnixTime) {
        while let Some(&(forget_at, token)) = self.by_expiry.first() {
            if forget_at > unix {
                break;
            }
            self.by_expiry.remove(&(forget_at, token));
            self.entries.remove(&token);
            self.forgotten = self.forgotten.max(Some(forget_at));
        }
    }

    /// Returns about how many bytes what is remembered takes.
    pub(crate) fn memory(&self) -> usize {
        const EACH: usize = size_of::<(TokenId, Entry)>() + size_of::<(UnixTime, TokenId)>();
        self.entries.len().saturating_mul(EACH)
    }

    /// Returns how many tokens are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: UnixTime = UnixTime::from_secs(100);

    /// Begins an attempt where one may, as an endpoint does.
    fn begin(cache: &mut TokenCache, token: u8, capacity: usize) -> Result<(), TokenBusy> {
        let token = TokenId([token; 16]);
        cache.check(token, END, capacity)?;
        cache.begin(token, "192.0.2.1:7".parse().unwrap(), END);
        Ok(())
    }

    #[test]
    fn a_token_is_consumed_once() {
        let mut cache = TokenCache::default();
        assert_eq!(begin(&mut cache, 1, 8), Ok(()));
        assert!(cache.consume(TokenId([1; 16])));
        assert!(!cache.consume(TokenId([1; 16])));
        assert_eq!(begin(&mut cache, 1, 8), Err(TokenBusy::Consumed));
    }

    #[test]
    fn a_fifth_attempt_waits_for_one_to_end() {
        let mut cache = TokenCache::default();
        for _ in 0..ATTEMPTS_MAX {
            assert_eq!(begin(&mut cache, 1, 8), Ok(()));
        }
        assert_eq!(begin(&mut cache, 1, 8), Err(TokenBusy::Attempts));
        cache.end(TokenId([1; 16]));
        assert_eq!(begin(&mut cache, 1, 8), Ok(()));
    }

    /// The clock was ahead, and is set back: what was forgotten stays used, and no other token does.
    #[test]
    fn what_ended_with_the_last_that_was_forgotten_opens_nothing() {
        let mut cache = TokenCache::default();
        assert_eq!(begin(&mut cache, 1, 8), Ok(()));
        cache.expire(END);
        let check = |end| cache.check(TokenId([2; 16]), end, 8);
        assert_eq!(check(UnixTime::from_secs(99)), Err(TokenBusy::Consumed));
        assert_eq!(check(END), Err(TokenBusy::Consumed));
        assert_eq!(check(UnixTime::from_secs(101)), Ok(()));
    }

    #[test]
    fn a_full_cache_refuses_and_forgets_only_the_expired() {
        let mut cache = TokenCache::default();
        assert_eq!(begin(&mut cache, 1, 1), Ok(()));
        assert_eq!(begin(&mut cache, 2, 1), Err(TokenBusy::CacheFull));
        cache.expire(UnixTime::from_secs(99));
        assert_eq!(cache.len(), 1);
        cache.expire(END);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn memory_is_that_of_each_token_twice() {
        let mut cache = TokenCache::default();
        assert_eq!(cache.memory(), 0);
        assert_eq!(begin(&mut cache, 1, 8), Ok(()));
        // Id and address by the one order, time and id by the other.
        let least = 2 * size_of::<TokenId>() + size_of::<(SocketAddr, UnixTime)>();
        let one = cache.memory();
        assert!((least..least + 32).contains(&one), "{one}, {least}");
        assert_eq!(begin(&mut cache, 2, 8), Ok(()));
        assert_eq!(cache.memory(), 2 * one);
    }
}
