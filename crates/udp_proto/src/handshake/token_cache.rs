//! Used connect tokens: a token opens at most one session.

use std::collections::{BTreeMap, BTreeSet};

use core::net::SocketAddr;

use crypto::TokenId;
use wire::UnixTime;

/// Remembers tokens from their first valid HELLO until they expire.
///
/// A full cache refuses new tokens; it never forgets a valid one.
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    entries: BTreeMap<TokenId, Entry>,
    /// The same tokens by expiry.
    by_expiry: BTreeSet<(UnixTime, TokenId)>,
    /// The latest expiry of a forgotten token. Tokens that expire no later are refused even if the
    /// wall clock steps back. This is not the clock itself: a clock that was ahead for a while
    /// would lock everyone out.
    forgotten: Option<UnixTime>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: TokenState,
}

/// State of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenState {
    /// Valid HELLOs arrived, but no first packet.
    Pending {
        /// Source of the first HELLO; others must show a cookie.
        first: SocketAddr,
        /// Attempts that wait for their first packet.
        attempts: u8,
    },
    /// It opened a session.
    Consumed,
}

/// Most pending attempts of one token; TWP/1, section 3.7.
pub(crate) const ATTEMPTS_MAX: u8 = 4;

/// Why a token may not start another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenBusy {
    /// It already opened a session.
    Consumed,
    /// Four attempts are pending.
    Attempts,
    /// The cache is full.
    CacheFull,
}

impl TokenCache {
    /// Returns the state of `token`.
    pub(crate) fn state(&self, token: TokenId) -> Option<TokenState> {
        self.entries.get(&token).map(|entry| entry.state)
    }

    /// Checks whether `token` may start another attempt, in a cache of `capacity` tokens.
    ///
    /// # Errors
    ///
    /// [`TokenBusy`] if it may not.
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

    /// Counts another attempt of `token` from `sender`, after a successful [`check`](Self::check).
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

    /// Releases an attempt that ended without a session.
    pub(crate) fn end(&mut self, token: TokenId) {
        if let Some(Entry {
            state: TokenState::Pending { attempts, .. },
            ..
        }) = self.entries.get_mut(&token)
        {
            *attempts = attempts.saturating_sub(1);
        }
    }

    /// Marks `token` as used. Returns whether it was unused.
    pub(crate) fn consume(&mut self, token: TokenId) -> bool {
        let Some(entry) = self.entries.get_mut(&token) else {
            return false;
        };
        let was_pending = entry.state != TokenState::Consumed;
        entry.state = TokenState::Consumed;
        was_pending
    }

    /// Drops expired tokens.
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

    /// Returns the approximate memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        const EACH: usize = size_of::<(TokenId, Entry)>() + size_of::<(UnixTime, TokenId)>();
        self.entries.len().saturating_mul(EACH)
    }

    /// Returns the number of tokens.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: UnixTime = UnixTime::from_secs(100);

    /// Starts an attempt if allowed, like an endpoint.
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

    /// The clock was ahead and is set back: forgotten tokens stay used, and others are unaffected.
    #[test]
    fn tokens_that_expire_with_a_forgotten_one_open_nothing() {
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
        // Id and address in one order, time and id in the other.
        let least = 2 * size_of::<TokenId>() + size_of::<(SocketAddr, UnixTime)>();
        let one = cache.memory();
        assert!((least..least + 32).contains(&one), "{one}, {least}");
        assert_eq!(begin(&mut cache, 2, 8), Ok(()));
        assert_eq!(cache.memory(), 2 * one);
    }
}
