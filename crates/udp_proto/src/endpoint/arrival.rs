//! Dispatch of datagrams by first byte, attempt and session; resets, acceptance and session start.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{Initial, Provider, Role};
use wire::{Arrival, Instant, NetworkKey, NodeId, SourceKey};

use super::admission::confirm_body;
use super::admission::{Admitted, Candidate, HelloOutcome};
use super::listener::{Listener, is_exempt};
use super::{Endpoint, Present, ReplyBody, Slot};
use crate::config::DuplicatePolicy;
use crate::config::Timeouts;
use crate::error::CloseCode;
use crate::event::{Event, Grant, Peer, Proof};
use crate::handshake::IdentityClaim;
use crate::handshake::dial::{Accepted, Clock};
use crate::handshake::half_open::TokenBusy;
use crate::handshake::half_open::{self, AcceptForm, Answer, AnswerError, HalfOpen};
use crate::handshake::params::{DATAGRAM_MAX, Params};
use crate::handshake::reply::{Refuse, Retry, Versions};
use crate::handshake::reset::{self, ResetToken};
use crate::packet::{Cid, Header, Kind};
use crate::session::{Keying, Opened, Path, Session, SessionStart};
use crate::slots::SessionId;

impl<P: Provider> Endpoint<P> {
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        self.stats.bytes_received = self
            .stats
            .bytes_received
            .saturating_add(u64::try_from(datagram.len()).unwrap_or(0));
        if self.is_blocked(now, (arrival.peer, arrival.real_source)) {
            self.stats.dropped_blocked = self.stats.dropped_blocked.saturating_add(1);
            return;
        }
        if self.events.len() >= self.config.events_max {
            self.stats.dropped_overload = self.stats.dropped_overload.saturating_add(1);
            return;
        }
        let is_short = datagram.len() <= usize::from(DATAGRAM_MAX);
        let Some(&first) = datagram.first().filter(|_| is_short) else {
            self.stats.dropped_length = self.stats.dropped_length.saturating_add(1);
            return;
        };
        match Kind::of(first) {
            Kind::Hello => {
                let outcome = self.on_hello(now, arrival, datagram);
                self.count(outcome);
            }
            Kind::Retry | Kind::Accept | Kind::Refuse | Kind::Version => {
                if self.on_reply(now, arrival, datagram) {
                    self.stats.replies = self.stats.replies.saturating_add(1);
                } else {
                    self.stats.dropped_reply = self.stats.dropped_reply.saturating_add(1);
                }
            }
            Kind::Protected => self.on_packet(now, arrival, datagram),
            Kind::Envelope | Kind::NotOurs => {
                self.stats.dropped_first_byte = self.stats.dropped_first_byte.saturating_add(1);
            }
        }
    }

    const fn count(&mut self, outcome: HelloOutcome) {
        let stats = &mut self.stats;
        let counter = match outcome {
            HelloOutcome::Accepted => &mut stats.accepted,
            HelloOutcome::AcceptRepeated => &mut stats.accept_repeated,
            HelloOutcome::Retried => &mut stats.retried,
            HelloOutcome::Refused => &mut stats.refused,
            HelloOutcome::VersionOffered => &mut stats.version_offered,
            HelloOutcome::Malformed => &mut stats.dropped_malformed,
            HelloOutcome::OtherApp => &mut stats.dropped_app,
            HelloOutcome::ModeNotServed => &mut stats.dropped_mode,
            HelloOutcome::BadToken => &mut stats.dropped_token,
            HelloOutcome::TokenExpired => &mut stats.dropped_token_expired,
            HelloOutcome::TokenClock => &mut stats.dropped_token_clock,
            HelloOutcome::TokenUsed => &mut stats.dropped_token_used,
            HelloOutcome::BadPsk => &mut stats.dropped_psk,
            HelloOutcome::OverAnswerBudget => &mut stats.dropped_answer_budget,
            HelloOutcome::NoHalfOpenSlot => &mut stats.dropped_half_open,
            HelloOutcome::OverAcceptBudget => &mut stats.dropped_accept_budget,
            HelloOutcome::BadPoint => &mut stats.dropped_bad_point,
            HelloOutcome::Overload => &mut stats.dropped_overload,
        };
        *counter = counter.saturating_add(1);
    }

    /// Processes a reply to one of our HELLOs. Returns whether it was one.
    fn on_reply(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) -> bool {
        let Some(id) = hello_id(datagram).and_then(|hello_id| self.dials.get(&hello_id).copied())
        else {
            return false;
        };
        let unix = self.unix_time();
        let Some(Slot::Dial(dial)) = self.slots.get_mut(id) else {
            return false;
        };
        let kind = datagram
            .first()
            .map_or(Kind::NotOurs, |first| Kind::of(*first));
        match kind {
            Kind::Retry => {
                let is_taken = Retry::decode(datagram)
                    .is_ok_and(|retry| dial.on_retry(now, arrival.peer, &retry));
                self.arm(id);
                is_taken
            }
            Kind::Version => {
                let Ok(versions) = Versions::decode(datagram) else {
                    return false;
                };
                let old = dial.attempt.hello_id;
                let answer = (arrival.peer, &versions);
                let draws = &mut self.generator;
                let is_taken = dial.on_versions(now, &mut self.provider, draws, answer);
                let new = dial.attempt.hello_id;
                self.dials.remove(&old);
                self.dials.insert(new, id);
                self.arm(id);
                is_taken
            }
            Kind::Refuse => {
                let Ok(refuse) = Refuse::decode(datagram) else {
                    return false;
                };
                if let Some(failure) = dial.on_refuse(now, &self.provider, (arrival.peer, &refuse))
                {
                    self.fail_dial(now, id, failure);
                } else {
                    self.arm(id);
                }
                true
            }
            Kind::Accept => {
                let clock = Clock { now, unix };
                let accepted = dial.on_accept(clock, &mut self.provider, arrival.peer, datagram);
                let (is_peer, timeouts) = (dial.is_peer_mode(), dial.timeouts);
                self.arm(id);
                accepted.is_some_and(|accepted| {
                    self.on_accepted(now, arrival, id, (accepted, is_peer, timeouts))
                })
            }
            Kind::Hello | Kind::Protected | Kind::Envelope | Kind::NotOurs => false,
        }
    }

    fn on_accepted(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        id: SessionId,
        (accepted, is_peer, timeouts): (Accepted, bool, Timeouts),
    ) -> bool {
        let boot_id = self.listener.as_ref().map(|listener| listener.boot_id());
        let mut params = Params {
            idle_timeout: timeouts.idle.get(),
            keepalive: timeouts.keepalive.get(),
            ..Params::of(&self.config, boot_id.unwrap_or_default())
        };
        if is_peer {
            params.reset_token = self.token_of_dial(id);
        }
        let confirm = confirm_body(&params.encode(), &self.channel_digest);
        let server = accepted.server_key.node_id();
        let identity = match (&self.listener, is_peer) {
            (Some(listener), true) => {
                let claim = IdentityClaim {
                    th1: &accepted.th1,
                    dialler: listener.node,
                    accepter: server,
                    confirm: &confirm,
                };
                match claim.sign(&mut self.provider, &listener.signing_key, &listener.key) {
                    Ok(body) => Some(body),
                    // The dial continues; the next ACCEPT may find entropy.
                    Err(crypto::NoEntropy) => return false,
                }
            }
            _ => None,
        };
        let proof = if is_peer {
            Proof::Node(server)
        } else {
            Proof::Server(accepted.server_key)
        };
        let round_trip = accepted.round_trip.unwrap_or_default();
        let began = now.saturating_sub(round_trip);
        let start = SessionStart {
            role: Role::Dialler,
            path: Path::fixed(accepted.server, arrival.local),
            peer_cid: accepted.server_cid,
            suite: accepted.suite,
            secrets: accepted.secrets,
            peer_params: accepted.params,
            round_trip: accepted.round_trip,
            confirm: Some((confirm, identity)),
            proof: proof.clone(),
            source: None,
            timeouts,
        };
        let session = Session::new(
            now,
            &self.config,
            &self.provider,
            &mut self.generator,
            start,
        );
        let Some(Slot::Dial(dial)) = self.slots.replace(id, Slot::Session(Box::new(session)))
        else {
            return false;
        };
        self.dials.remove(&dial.attempt.hello_id);
        if self.config.cid_len.bytes() == 0 {
            self.by_address.insert(accepted.server, id);
        }
        self.note_resettable(id);
        self.connected(now, (id, began), accepted.server, proof);
        true
    }

    fn on_packet(&mut self, now: Instant, arrival: &Arrival<SocketAddr>, datagram: &mut [u8]) {
        let cid_len = self.config.cid_len.bytes();
        let Ok(header) = Header::decode(datagram, cid_len) else {
            self.stats.dropped_header = self.stats.dropped_header.saturating_add(1);
            self.on_unopened(now, arrival, datagram);
            return;
        };
        let id = if cid_len == 0 {
            self.by_address.get(&arrival.peer).copied()
        } else {
            self.slots.by_cid(header.destination)
        };
        let Some(id) = id else {
            self.stats.dropped_unknown_session =
                self.stats.dropped_unknown_session.saturating_add(1);
            self.on_unopened(now, arrival, datagram);
            self.offer_reset(now, arrival, (header.destination, datagram.len()));
            self.resend_hellos_to(now, arrival.peer);
            return;
        };
        match self.slots.get_mut(id) {
            Some(Slot::Session(session)) => {
                let keying = Keying {
                    provider: &self.provider,
                    limits: &self.config.key_limits,
                };
                let opened = session.handle_packet(now, arrival, (&header, datagram), &keying);
                let stats = &mut self.stats;
                let counter = match opened {
                    Opened::Taken => &mut stats.packets,
                    Opened::Replayed => &mut stats.dropped_replayed,
                    Opened::Forged => &mut stats.dropped_forged,
                    Opened::Over => &mut stats.dropped_over_limit,
                    Opened::Late => &mut stats.dropped_late,
                    Opened::OffPathLimited => &mut stats.dropped_off_path,
                };
                *counter = counter.saturating_add(1);
                let is_opened = opened == Opened::Taken;
                self.after_session(now, id);
                if !is_opened {
                    self.on_unopened(now, arrival, datagram);
                }
            }
            Some(Slot::HalfOpen(_)) => self.on_first_packet(now, arrival, id, (&header, datagram)),
            Some(Slot::Dial(_)) | None => {
                self.stats.dropped_unknown_session =
                    self.stats.dropped_unknown_session.saturating_add(1);
            }
        }
    }

    /// Answers a packet of `len` bytes for an unknown session with a reset, if there is a secret.
    pub(super) fn offer_reset(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        (cid, len): (Cid, usize),
    ) {
        let resets = self
            .listener
            .as_mut()
            .and_then(|listener| listener.resets.as_mut());
        let source = NetworkKey::of(arrival.peer.ip());
        if resets.is_some_and(|resets| resets.take(now, source, len)) {
            self.stats.resets_sent = self.stats.resets_sent.saturating_add(1);
            self.reply(arrival, ReplyBody::Reset(cid));
        }
    }

    /// Appends the reset for `cid`. Returns whether it did.
    pub(super) fn write_reset(&mut self, cid: Cid, buf: &mut Vec<u8>) -> bool {
        let resets = self
            .listener
            .as_ref()
            .and_then(|listener| listener.resets.as_ref());
        let Some(token) = resets.and_then(|resets| resets.token(&self.provider, cid)) else {
            return false;
        };
        reset::encode(&token, &mut self.generator, buf);
        true
    }

    /// Returns the reset token to give the peer of a dial, if we listen with a secret.
    pub(super) fn token_of_dial(&self, id: SessionId) -> Option<ResetToken> {
        let Some(Slot::Dial(dial)) = self.slots.get(id) else {
            return None;
        };
        let resets = self.listener.as_ref()?.resets.as_ref()?;
        resets.token(&self.provider, dial.form.client_cid)
    }

    pub(super) fn note_resettable(&mut self, id: SessionId) {
        if let Some(session) = self.session(id).filter(|session| session.is_resettable()) {
            let entry = (session.peer_address(), id);
            self.resettable.insert(entry);
        }
    }

    /// Updates the registration after the peer's address changed.
    pub(super) fn move_resettable(&mut self, id: SessionId) {
        if self.session(id).is_some_and(Session::is_resettable) {
            self.resettable.retain(|(_, other)| *other != id);
            self.note_resettable(id);
        }
    }

    /// Repeats the HELLOs to `from`, which sent a packet of an unknown session: its peer still has
    /// a session that ended here, and the path works again.
    pub(super) fn resend_hellos_to(&mut self, now: Instant, from: SocketAddr) {
        let mut resent = Vec::new();
        for id in self.dials.values().take(RESENT_MAX) {
            if let Some(Slot::Dial(dial)) = self.slots.get_mut(*id)
                && dial.on_packet_from(now, from)
            {
                resent.push(*id);
            }
        }
        for id in resent {
            self.arm(id);
        }
    }

    /// Checks whether a datagram that failed to decrypt is a reset.
    pub(super) fn on_unopened(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &[u8],
    ) {
        if self.resettable.is_empty() || datagram.len() < reset::LEN {
            return;
        }
        let from_server = (arrival.peer, SessionId::MIN)..=(arrival.peer, SessionId::MAX);
        let ended = self
            .resettable
            .range(from_server)
            .take(COMPARED_MAX)
            .map(|(_, id)| *id)
            .find(|id| match self.slots.get_mut(*id) {
                Some(Slot::Session(session)) => session.on_reset(datagram),
                _ => false,
            });
        if let Some(id) = ended {
            self.stats.resets_taken = self.stats.resets_taken.saturating_add(1);
            self.after_session(now, id);
        }
    }

    /// Step 10: one prefix gets at most an eighth of the half-open slots.
    pub(super) fn accept(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        (admitted, initial): (Admitted, Initial),
    ) -> HelloOutcome {
        let prefix = NetworkKey::of(candidate.source.ip());
        self.evict_half_open(candidate.now, listener);
        let slot = if is_exempt(&self.config, candidate.source) {
            listener.budgets.half_open_shares.take_exempt(prefix)
        } else {
            listener.budgets.half_open_shares.take(prefix)
        };
        if slot.is_err() {
            return HelloOutcome::NoHalfOpenSlot;
        }
        let outcome = self.accept_in_slot(listener, candidate, admitted, &initial);
        if outcome != HelloOutcome::Accepted {
            listener.budgets.half_open_shares.release(prefix);
        }
        outcome
    }

    /// If more than half of the half-open slots are taken, evicts the oldest attempt of the network
    /// that holds most, if older than a round trip.
    fn evict_half_open(&mut self, now: Instant, listener: &mut Listener<P>) {
        if !listener.budgets.half_open_shares.is_above_half() {
            return;
        }
        // All attempts of the fullest network may be less than a second old; then try the next one.
        let oldest = listener
            .budgets
            .half_open_shares
            .fullest()
            .take(EVICTION_SCAN)
            .filter_map(|prefix| listener.attempts.oldest_of(prefix))
            .find(|(accepted_at, _)| now.saturating_since(*accepted_at) >= HALF_OPEN_LIFE_MIN);
        let Some((_, id)) = oldest else {
            return;
        };
        let Some(Slot::HalfOpen(half_open)) = self.slots.get(id) else {
            return;
        };
        listener.release(half_open);
        self.remove(now, id);
        self.stats.half_open_evicted = self.stats.half_open_evicted.saturating_add(1);
    }

    /// Step 11: the token's attempts, then the budget.
    fn accept_in_slot(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        admitted: Admitted,
        initial: &Initial,
    ) -> HelloOutcome {
        let token = match &admitted {
            Admitted::Token(grant) => Some((grant.token_id, grant.expires_at + CLOCK_SKEW)),
            Admitted::Open | Admitted::Peer => None,
        };
        let capacity = self.config.token_cache_max;
        if let Some((token, forget_at)) = token {
            // Before the budget, so that an attempt that may not begin spends none of it.
            match self.tokens.check(token, forget_at, capacity) {
                Ok(()) => {}
                Err(TokenBusy::Consumed | TokenBusy::Attempts) => return HelloOutcome::TokenUsed,
                Err(TokenBusy::CacheFull) => return HelloOutcome::Overload,
            }
        }
        let budget = if candidate.has_cookie {
            &mut listener.budgets.ec_validated
        } else {
            &mut listener.budgets.ec_unvalidated
        };
        let allowance = if is_exempt(&self.config, candidate.source) {
            budget.take_exempt(candidate.now)
        } else {
            budget.take(candidate.now, NetworkKey::of(candidate.source.ip()))
        };
        if allowance.is_err() {
            return HelloOutcome::OverAcceptBudget;
        }
        if let Some((token, forget_at)) = token {
            self.tokens.begin(token, candidate.sender, forget_at);
        }
        let outcome = match self.make_half_open(listener, candidate, admitted, initial) {
            Ok(slot) => {
                let source = SourceKey::of(candidate.source.ip());
                self.sources.take(candidate.now, source).ok();
                self.arm(slot);
                self.reply(candidate.arrival, ReplyBody::Accept(slot));
                return HelloOutcome::Accepted;
            }
            Err(AnswerError::BadPoint) => HelloOutcome::BadPoint,
            Err(AnswerError::NoEntropy) => HelloOutcome::Overload,
        };
        if let Some((token, _)) = token {
            self.tokens.end(token);
        }
        outcome
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
        let since = (candidate.now, NetworkKey::of(candidate.source.ip()));
        listener.attempts.insert(since, hello_id, attempt, slot);
        Ok(slot)
    }

    /// Connects a player: consumes the token, and replaces the player's older session.
    pub(super) fn on_player_connected(&mut self, now: Instant, id: SessionId, grant: &Grant) {
        self.tokens.consume(grant.token_id);
        let duplicates: Vec<SessionId> = self
            .slots
            .ids()
            .filter(|other| match self.slots.get(*other) {
                Some(Slot::HalfOpen(half_open)) => matches!(
                    &half_open.grant,
                    Admitted::Token(duplicate) if duplicate.token_id == grant.token_id
                ),
                _ => false,
            })
            .collect();
        for duplicate in duplicates {
            self.remove(now, duplicate);
        }
        if !self.session(id).is_some_and(Session::is_open) {
            // Its first packet violated the protocol, so it replaces nothing.
            return;
        }
        let present = Present {
            session: id,
            issued_at: grant.issued_at,
            token_id: grant.token_id,
        };
        if let Some(old) = self.players.insert(grant.client_id, present) {
            self.end_replaced(now, old.session);
        }
    }

    /// Returns whether the player of `grant` is connected and stays so.
    pub(super) fn is_superseded(&self, grant: &Grant) -> bool {
        self.players.get(&grant.client_id).is_some_and(|present| {
            let is_newer =
                (grant.issued_at, grant.token_id) > (present.issued_at, present.token_id);
            !is_newer || self.config.duplicate == DuplicatePolicy::Reject
        })
    }

    /// Ends a session that another replaced.
    pub(super) fn end_replaced(&mut self, now: Instant, old: SessionId) {
        if let Some(session) = self.session_mut(old) {
            session.abort(now, CloseCode::Replaced);
            self.after_session(now, old);
        }
    }

    /// Reports a new session; its HELLO was sent or received at `began`.
    pub(super) fn connected(
        &mut self,
        now: Instant,
        (id, began): (SessionId, Instant),
        address: SocketAddr,
        proof: Proof,
    ) {
        self.stats.sessions_opened = self.stats.sessions_opened.saturating_add(1);
        let node = match &proof {
            Proof::Node(node) => Some(*node),
            Proof::Token(_) | Proof::Anonymous | Proof::Server(_) => None,
        };
        self.events.push_back(Event::Connected {
            session: id,
            peer: Box::new(Peer { address, proof }),
        });
        self.after_session(now, id);
        if let Some(node) = node
            && self.session(id).is_some_and(Session::is_open)
        {
            self.keep_one(now, (id, began), node);
        }
    }

    /// Ends all but one session with a node. A node that dials knows of no session, so normally the
    /// newest stays. If both ends dialled within a round trip, both keep the session that the
    /// smaller node id dialled.
    fn keep_one(&mut self, now: Instant, (new, began): (SessionId, Instant), node: NodeId) {
        let ours = self.listener.as_ref().map(|listener| listener.node);
        let old = self.nodes.get(&node).copied();
        let (Some(old), Some(ours)) = (old, ours) else {
            self.nodes.insert(node, new);
            return;
        };
        let attributes = |id| {
            let session = self.session(id)?;
            Some((session.boot_id, session.role, session.may_cross(began)))
        };
        let keeps_new = match (attributes(old), attributes(new)) {
            (Some((old_boot, old_role, may_cross)), Some((new_boot, new_role, _))) => {
                old_boot != new_boot
                    || old_role == new_role
                    || !may_cross
                    || (new_role == Role::Dialler) == (ours < node)
            }
            _ => true,
        };
        let (kept, ended) = if keeps_new { (new, old) } else { (old, new) };
        self.nodes.insert(node, kept);
        self.end_replaced(now, ended);
    }
}

/// Returns the hello id that a reply echoes, wherever its kind stores it.
fn hello_id(datagram: &[u8]) -> Option<u64> {
    let is_version = Kind::of(*datagram.first()?) == Kind::Version;
    let at = if is_version { 1 } else { 5 };
    let bytes = datagram.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*bytes))
}

/// Most sessions of one address that a datagram is compared with.
const COMPARED_MAX: usize = 32;
/// Most dials for which a packet of an unknown session may repeat the HELLO.
const RESENT_MAX: usize = 64;

/// How long an attempt waits for its first packet.
const HALF_OPEN_LIFE: Duration = Duration::from_secs(5);
/// Least wait when slots are scarce: the longest RTT of a player's path.
const HALF_OPEN_LIFE_MIN: Duration = Duration::from_secs(1);

/// Most networks examined for an attempt older than that: about 10 µs.
const EVICTION_SCAN: usize = 128;
