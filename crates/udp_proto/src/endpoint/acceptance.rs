//! The dear part of a HELLO's way: a half-open slot, the budget, and only then the elliptic curve;
//! steps 10 to 12 of TWP/1, section 3.8.

use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{Initial, Provider};
use wire::Instant;

use super::admission::{Admitted, Candidate, Fate};
use super::listener::{Listener, is_exempt};
use super::{Endpoint, ReplyBody, Slot};
use crate::budget::prefix_of;
use crate::handshake::half_open::{self, AcceptForm, Answer, AnswerError, HalfOpen};
use crate::handshake::params::Params;
use crate::handshake::token_cache::TokenBusy;
use crate::slots::SessionId;

/// How long an attempt waits for its first packet.
const HALF_OPEN_LIFE: Duration = Duration::from_secs(5);
/// How long it waits at least, once slots are scarce: the longest round trip of a player's path.
const HALF_OPEN_LIFE_MIN: Duration = Duration::from_secs(1);

/// Networks looked at for one that waits for longer than that: some 10 microseconds.
const EVICTION_SCAN: usize = 128;

impl<P: Provider> Endpoint<P> {
    /// Step 10: at most an eighth of the half-open slots goes to one prefix.
    pub(super) fn accept(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        (admitted, initial): (Admitted, Initial),
    ) -> Fate {
        let prefix = prefix_of(candidate.source.ip());
        self.evict_half_open(candidate.now, listener);
        let slot = if is_exempt(&self.config, candidate.source) {
            listener.half_open_shares.take_exempt(prefix)
        } else {
            listener.half_open_shares.take(prefix)
        };
        if slot.is_err() {
            return Fate::NoHalfOpenSlot;
        }
        let fate = self.accept_in_slot(listener, candidate, admitted, &initial);
        if fate != Fate::Accepted {
            listener.half_open_shares.release(prefix);
        }
        fate
    }

    /// Once more than half of the half-open slots are taken, frees that of the oldest attempt of the
    /// network that holds most, where it has waited for longer than a round trip takes.
    fn evict_half_open(&mut self, now: Instant, listener: &mut Listener<P>) {
        if !listener.half_open_shares.is_above_half() {
            return;
        }
        // The fullest one may have come within the last second; then it is the next one's turn.
        let oldest = listener
            .half_open_shares
            .fullest()
            .take(EVICTION_SCAN)
            .filter_map(|prefix| listener.attempts.oldest_of(prefix))
            .find(|(accepted_at, _)| now.saturating_since(*accepted_at) >= HALF_OPEN_LIFE_MIN);
        let Some((_, id)) = oldest else {
            return;
        };
        let Some(Slot::HalfOpen(half_open)) = self.slots.remove(now, id) else {
            return;
        };
        self.timers.set(id.index, None);
        listener.release(&half_open);
        self.sources.remove(half_open.source.ip());
        if let Admitted::Token(grant) = &half_open.grant {
            self.tokens.end(grant.token_id);
        }
        self.stats.half_open_evicted = self.stats.half_open_evicted.saturating_add(1);
    }

    /// Step 11: the token's attempts, and then the budget.
    fn accept_in_slot(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        admitted: Admitted,
        initial: &Initial,
    ) -> Fate {
        let token = match &admitted {
            Admitted::Token(grant) => Some((grant.token_id, grant.expires_at + CLOCK_SKEW)),
            Admitted::Open | Admitted::Peer => None,
        };
        let capacity = self.config.token_cache_max;
        if let Some((token, forget_at)) = token {
            // Before the budget: who may not begin must not spend what others need.
            match self.tokens.check(token, forget_at, capacity) {
                Ok(()) => {}
                Err(TokenBusy::Consumed | TokenBusy::Attempts) => return Fate::TokenUsed,
                Err(TokenBusy::CacheFull) => return Fate::Overload,
            }
        }
        let budget = if candidate.has_cookie {
            &mut listener.ec_validated
        } else {
            &mut listener.ec_unvalidated
        };
        let ration = if is_exempt(&self.config, candidate.source) {
            budget.take_exempt(candidate.now)
        } else {
            budget.take(candidate.now, prefix_of(candidate.source.ip()))
        };
        if ration.is_err() {
            return Fate::OverAcceptBudget;
        }
        if let Some((token, forget_at)) = token {
            self.tokens.begin(token, candidate.sender, forget_at);
        }
        let fate = match self.make_half_open(listener, candidate, admitted, initial) {
            Ok(slot) => {
                self.sources.add(candidate.source.ip());
                self.arm(slot);
                self.reply(candidate.arrival, ReplyBody::Accept(slot));
                return Fate::Accepted;
            }
            Err(AnswerError::BadPoint) => Fate::BadPoint,
            Err(AnswerError::NoEntropy) => Fate::Overload,
        };
        if let Some((token, _)) = token {
            self.tokens.end(token);
        }
        fate
    }

    /// Step 12: one key generation, one agreement, one signature.
    fn make_half_open(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        admitted: Admitted,
        initial: &Initial,
    ) -> Result<SessionId, AnswerError> {
        let attempt = self.provider.sha256(&candidate.hello0.parts());
        let hello_id = candidate.hello.hello_id;
        let (config, provider) = (&self.config, &mut self.provider);
        let mut failure = AnswerError::NoEntropy;
        let slot = self
            .slots
            .try_insert(candidate.now, &mut self.generator, |id, tag| {
                let server_cid = tag.cid(id.index, config.cid_len);
                let mut params = Params::of(config, listener.boot_id());
                let resets = listener.resets.as_ref();
                params.reset_token = resets.and_then(|resets| resets.token(provider, server_cid));
                let form = AcceptForm {
                    server_cid,
                    suite: config.suite,
                    identity: listener.identity_form(candidate.mode),
                    params: params.encode(),
                    signing_key: &listener.signing_key,
                };
                let answer = half_open::answer(
                    provider,
                    initial,
                    &candidate.hello,
                    &candidate.hello0,
                    &form,
                );
                let Answer {
                    accept,
                    secrets,
                    suite,
                    th1,
                } = answer.map_err(|error| failure = error).ok()?;
                Some(Slot::HalfOpen(Box::new(HalfOpen {
                    attempt,
                    hello_id,
                    first: candidate.sender,
                    reached: candidate.sender,
                    source: candidate.source,
                    accept,
                    secrets,
                    suite,
                    th1,
                    client_cid: candidate.hello.client_cid,
                    grant: admitted,
                    was_repeated: false,
                    accepted_at: candidate.now,
                    expires_at: candidate.now + HALF_OPEN_LIFE,
                })))
            });
        let slot = slot.ok_or(failure)?;
        let since = (candidate.now, prefix_of(candidate.source.ip()));
        listener.attempts.insert(since, hello_id, attempt, slot);
        Ok(slot)
    }
}
