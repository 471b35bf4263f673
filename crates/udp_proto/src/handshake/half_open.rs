//! The server's handshake: attempts that wait for their first packet, and used tokens.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use crypto::{Initial, NoEntropy, Provider, Role, SessionSecrets, Suite, SuiteSet, TokenId};
use wire::{Generator, Instant, Lookup, NetworkKey, UnixTime};

use super::accept::{self, AcceptBody, AcceptClear, IdentityForm, TAG_LEN};
use super::hello::{Hello, Hello0};
use super::{params, transcript_0, transcript_1};
use crate::packet::Cid;
use crate::slots::SessionId;

/// One attempt, from its ACCEPT to its first packet.
pub(crate) struct HalfOpen<G> {
    /// Identifies the attempt: SHA-256 of its HELLO0.
    pub(crate) attempt: [u8; 32],
    pub(crate) hello_id: u64,
    /// Source of the first HELLO.
    pub(crate) first: SocketAddr,
    /// An address known to have received the ACCEPT: the last one that showed a cookie. Only a
    /// receiver of the ACCEPT has the keys.
    pub(crate) reached: SocketAddr,
    /// The player's address for per-source limits.
    pub(crate) source: SocketAddr,
    pub(crate) accept: Box<[u8]>,
    pub(crate) secrets: SessionSecrets,
    pub(crate) suite: Suite,
    pub(crate) th1: [u8; 32],
    pub(crate) client_cid: Cid,
    pub(crate) grant: G,
    /// The ACCEPT was repeated, so the first packet gives no RTT sample.
    pub(crate) was_repeated: bool,
    /// When the ACCEPT was created, for the first RTT sample.
    pub(crate) accepted_at: Instant,
    pub(crate) expires_at: Instant,
}

/// Index of half-open attempts by fields of the HELLO.
#[derive(Debug)]
pub(crate) struct AttemptIndex {
    /// Hello ids in the table with their number of attempts. An unknown id costs no hash.
    hello_ids: Lookup<u64, u16>,
    by_hash: Lookup<[u8; 32], SessionId>,
    /// Attempts by network and time of acceptance.
    by_age: BTreeSet<(NetworkKey, Instant, SessionId)>,
}

impl AttemptIndex {
    pub(crate) fn new(generator: &mut Generator) -> Self {
        Self {
            hello_ids: Lookup::new(generator),
            by_hash: Lookup::new(generator),
            by_age: BTreeSet::new(),
        }
    }

    /// Returns whether an attempt has `hello_id`.
    pub(crate) fn may_know(&self, hello_id: u64) -> bool {
        self.hello_ids.contains(&hello_id)
    }

    pub(crate) fn get(&self, attempt: &[u8; 32]) -> Option<SessionId> {
        self.by_hash.get(attempt).copied()
    }

    /// Adds an attempt of the network `from`, accepted at `now`.
    pub(crate) fn insert(
        &mut self,
        (now, from): (Instant, NetworkKey),
        hello_id: u64,
        attempt: [u8; 32],
        slot: SessionId,
    ) {
        self.by_age.insert((from, now, slot));
        if let Some(count) = self.hello_ids.get_mut(&hello_id) {
            *count = count.saturating_add(1);
        } else {
            self.hello_ids.insert(hello_id, 1);
        }
        self.by_hash.insert(attempt, slot);
    }

    pub(crate) fn remove<G>(&mut self, half_open: &HalfOpen<G>) {
        let Some(slot) = self.by_hash.remove(&half_open.attempt) else {
            return;
        };
        let from = NetworkKey::of(half_open.source.ip());
        self.by_age.remove(&(from, half_open.accepted_at, slot));
        let hello_id = half_open.hello_id;
        let is_last = self.hello_ids.get_mut(&hello_id).is_none_or(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
        if is_last {
            self.hello_ids.remove(&hello_id);
        }
    }

    pub(crate) fn oldest_of(&self, from: NetworkKey) -> Option<(Instant, SessionId)> {
        let first = (from, Instant::ZERO, SessionId::MIN);
        let (prefix, accepted_at, slot) = self.by_age.range(first..).next()?;
        (*prefix == from).then_some((*accepted_at, *slot))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }
}

pub(crate) struct AcceptForm<'a, K> {
    pub(crate) server_cid: Cid,
    /// Chosen if the client offers it.
    pub(crate) suite: Suite,
    pub(crate) identity: IdentityForm,
    pub(crate) params: [u8; params::LEN],
    pub(crate) signing_key: &'a K,
}

pub(crate) struct Answer {
    pub(crate) accept: Box<[u8]>,
    pub(crate) secrets: SessionSecrets,
    pub(crate) suite: Suite,
    pub(crate) th1: [u8; 32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerError {
    BadPoint,
    NoEntropy,
}

impl From<NoEntropy> for AnswerError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

/// Builds the ACCEPT: one key generation, one agreement, one signature.
pub(crate) fn answer<P: Provider>(
    provider: &mut P,
    initial: &Initial,
    hello: &Hello<'_>,
    hello0: &Hello0<'_>,
    form: &AcceptForm<'_, P::SigningKey>,
) -> Result<Answer, AnswerError> {
    let (mut ephemeral, server_ephemeral) = provider.ephemeral(Role::Accepter)?;
    let shared = provider
        .agree(&mut ephemeral, &hello.client_ephemeral)
        .map_err(|_| AnswerError::BadPoint)?;
    let agreed = initial.agree(provider, &shared);
    let suite = choose(SuiteSet::from_bits(hello.suites), form.suite);

    let mut datagram =
        Vec::with_capacity(accept::CLEAR_LEN + usize::from(form.identity.sealed_len()));
    AcceptClear {
        version: hello.version,
        hello_id: hello.hello_id,
        suite,
        server_cid: form.server_cid,
        server_ephemeral,
        sealed_len: form.identity.sealed_len(),
    }
    .encode(&mut datagram);
    let code = [form.identity.code()];
    let parts = accept::signed_parts(
        hello0.parts(),
        &datagram,
        &code,
        &form.identity,
        &form.params,
    );
    let message = accept::signed_message(&provider.sha256(&parts));
    let signature = provider.sign(form.signing_key, &message)?;
    let th0 = transcript_0(provider, hello0, &datagram);
    AcceptBody {
        identity: form.identity,
        params: form.params,
        signature,
    }
    .encode(&mut datagram);

    let mut tag = [0; TAG_LEN];
    let (clear, body) = datagram.split_at_mut(accept::CLEAR_LEN);
    agreed
        .accept_key(provider, suite, &th0)
        .seal(clear, body, &mut tag);
    datagram.extend_from_slice(&tag);
    let th1 = transcript_1(provider, hello0, &datagram);
    Ok(Answer {
        secrets: agreed.traffic(provider, &th1),
        accept: datagram.into_boxed_slice(),
        suite,
        th1,
    })
}

/// The preferred suite if offered, else suite 1, which every HELLO offers.
const fn choose(offered: SuiteSet, preferred: Suite) -> Suite {
    if offered.contains(preferred) {
        preferred
    } else {
        Suite::Aes128Gcm
    }
}

/// Tokens from their first valid HELLO until they expire. A full cache never forgets a valid one.
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    entries: BTreeMap<TokenId, TokenState>,
    by_expiry: BTreeSet<(UnixTime, TokenId)>,
    /// The latest expiry of a forgotten token. Tokens that expire no later are refused even if the
    /// wall clock steps back. Not the clock itself: one that was ahead would lock everyone out.
    forgotten: Option<UnixTime>,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenBusy {
    Consumed,
    Attempts,
    CacheFull,
}

impl TokenCache {
    pub(crate) fn state(&self, token: TokenId) -> Option<TokenState> {
        self.entries.get(&token).copied()
    }

    /// Checks whether `token` may start another attempt, in a cache of `capacity` tokens.
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
        if let Some(state) = self.entries.get_mut(&token) {
            if let TokenState::Pending { attempts, .. } = state {
                *attempts = attempts.saturating_add(1);
            }
            return;
        }
        let state = TokenState::Pending {
            first: sender,
            attempts: 1,
        };
        self.entries.insert(token, state);
        self.by_expiry.insert((forget_at, token));
    }

    pub(crate) fn end(&mut self, token: TokenId) {
        if let Some(TokenState::Pending { attempts, .. }) = self.entries.get_mut(&token) {
            *attempts = attempts.saturating_sub(1);
        }
    }

    /// Marks `token` as used. Returns whether it was unused.
    pub(crate) fn consume(&mut self, token: TokenId) -> bool {
        let state = self.entries.get_mut(&token);
        state.is_some_and(|state| {
            core::mem::replace(state, TokenState::Consumed) != TokenState::Consumed
        })
    }

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

    pub(crate) fn memory(&self) -> usize {
        const EACH: usize = size_of::<(TokenId, TokenState)>() + size_of::<(UnixTime, TokenId)>();
        self.entries.len().saturating_mul(EACH)
    }

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
