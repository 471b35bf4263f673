//! The server's handshake: attempts that wait for their first packet.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use crypto::{Initial, NoEntropy, Provider, Role, SessionSecrets, Suite, SuiteSet};
use wire::{Generator, Instant, Lookup, NetworkKey};

use super::accept::{self, AcceptBody, AcceptClear, IdentityForm, TAG_LEN};
use super::hello::{Hello, Hello0};
use super::params;
use super::{transcript_0, transcript_1};
use crate::packet::Cid;
use crate::slots::SessionId;

/// One attempt, from its ACCEPT to its first packet.
pub(crate) struct HalfOpen<G> {
    /// Identifies the attempt: SHA-256 of its HELLO0.
    pub(crate) attempt: [u8; 32],
    pub(crate) hello_id: u64,
    /// Source of the first HELLO.
    pub(crate) first: SocketAddr,
    /// An address known to have received the ACCEPT: the last one that showed a cookie for the
    /// attempt. Until one does, the ACCEPT is sent only to `first`, and only a receiver of the
    /// ACCEPT has the keys.
    pub(crate) reached: SocketAddr,
    /// The player's address for per-source limits.
    pub(crate) source: SocketAddr,
    /// The encoded ACCEPT, sent in answer to every repeat of the HELLO.
    pub(crate) accept: Box<[u8]>,
    pub(crate) secrets: SessionSecrets,
    pub(crate) suite: Suite,
    pub(crate) th1: [u8; 32],
    pub(crate) client_cid: Cid,
    /// What the client proved.
    pub(crate) grant: G,
    /// The ACCEPT was repeated, so the first packet gives no RTT sample.
    pub(crate) was_repeated: bool,
    /// When the ACCEPT was created, for the first RTT sample.
    pub(crate) accepted_at: Instant,
    /// When the attempt expires.
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

    /// Returns the slot of an attempt.
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

    /// Returns the oldest attempt of the network `from`, and its time.
    pub(crate) fn oldest_of(&self, from: NetworkKey) -> Option<(Instant, SessionId)> {
        let first = (from, Instant::ZERO, SessionId::MIN);
        let (prefix, accepted_at, slot) = self.by_age.range(first..).next()?;
        (*prefix == from).then_some((*accepted_at, *slot))
    }

    /// Returns the number of attempts.
    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }
}

/// Inputs of an ACCEPT.
pub(crate) struct AcceptForm<'a, K> {
    pub(crate) server_cid: Cid,
    /// Chosen if the client offers it.
    pub(crate) suite: Suite,
    pub(crate) identity: IdentityForm,
    pub(crate) params: [u8; params::LEN],
    pub(crate) signing_key: &'a K,
}

/// The result of an accepted HELLO.
pub(crate) struct Answer {
    pub(crate) accept: Box<[u8]>,
    pub(crate) secrets: SessionSecrets,
    pub(crate) suite: Suite,
    pub(crate) th1: [u8; 32],
}

/// Why a HELLO that passed all checks got no ACCEPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerError {
    /// Its ephemeral key is not a point of the curve.
    BadPoint,
    /// The provider has no randomness.
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
