//! What an application asks of an endpoint.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::token::TokenKey;
use crypto::{Certificate, Exporter, Provider, PublicKey, Role, SuiteSet};
use wire::{ClientId, Instant, NodeId};

use super::admission::Admitted;
use super::listener::{Listen, Listener, Network, TOKEN_KEYS_MAX, is_exempt, is_trusted_exit};
use super::{Endpoint, Slot};
use crate::block_list::{BlockError, BlockList, Prefix};
use crate::channel::{ChannelId, MessageId, SendError};
use crate::error::{CloseCode, CloseReason, ConnectError, ConnectFailure, ListenError, NoSession};
use crate::event::{Event, Proof};
use crate::handshake::dial::{Dial, DialStart, HelloForm};
use crate::handshake::half_open::HalfOpen;
use crate::handshake::target::{Credentials, Target};
use crate::outcome::Message;
use crate::session::{Outcome, Session};
use crate::slots::{CidLen, SessionId};
use crate::stats::SessionStats;
use crate::timeouts::Timeouts;

impl<P: Provider> Endpoint<P> {
    /// Begins to accept sessions, for the first time or again after [`shutdown`](Self::shutdown).
    ///
    /// Tokens that were used stay used, and token keys are added anew. What changes while it
    /// listens has methods of its own: [`add_token_key`](Self::add_token_key),
    /// [`set_network`](Self::set_network), [`set_allowed_nodes`](Self::set_allowed_nodes).
    ///
    /// # Errors
    ///
    /// [`ListenError`]; the endpoint is as before then.
    pub fn listen(&mut self, now: Instant, listen: Listen) -> Result<(), ListenError> {
        let now = self.advance(now);
        if self.config.cid_len == CidLen::Zero {
            return Err(ListenError::NoConnectionIds);
        }
        if self
            .listener
            .as_ref()
            .is_some_and(|listener| !listener.is_shut)
        {
            return Err(ListenError::AlreadyListening);
        }
        let listener = Listener::new(
            now,
            listen,
            &self.config,
            &mut self.provider,
            &mut self.generator,
        )?;
        self.listener = Some(Box::new(listener));
        Ok(())
    }

    /// Opens no token any more that is sealed with the key of this id. Sessions that exist stay.
    ///
    /// Returns whether there was such a key.
    pub fn remove_token_key(&mut self, id: u32) -> bool {
        let Some(listener) = &mut self.listener else {
            return false;
        };
        let before = listener.token_keys.len();
        listener.token_keys.retain(|held| held.id() != id);
        listener.token_keys.len() < before
    }

    /// Opens tokens sealed with `key` from now on, until it is removed; the oldest of four leaves.
    ///
    /// Returns whether the endpoint listens; where not, the key is dropped.
    pub fn add_token_key(&mut self, key: TokenKey) -> bool {
        let Some(listener) = &mut self.listener else {
            return false;
        };
        listener.token_keys.retain(|held| held.id() != key.id());
        if listener.token_keys.len() >= TOKEN_KEYS_MAX {
            listener.token_keys.remove(0);
        }
        listener.token_keys.push(key);
        true
    }

    /// Shows another certificate from the next ACCEPT on, or none: before the present one ends, or when
    /// the root key changes. Sessions that exist stay.
    ///
    /// Returns whether the endpoint listens with the key and instance that it is for; where not,
    /// nothing changes.
    pub fn set_certificate(&mut self, certificate: Option<Certificate>) -> bool {
        match &mut self.listener {
            Some(listener) if listener.is_valid_certificate(certificate.as_ref()) => {
                listener.certificate = certificate;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Changes the network secrets: of sessions that exist, none is touched. With `None` no node is
    /// let in or dialled any more.
    ///
    /// Returns whether the endpoint listens; where not, the secrets are dropped.
    pub fn set_network(&mut self, network: Option<Network>) -> bool {
        let Some(listener) = &mut self.listener else {
            return false;
        };
        listener.network = network;
        true
    }

    /// Says which nodes peer mode lets in; `None`, as at the start, lets in all that hold the
    /// network secret. Sessions that exist stay.
    pub fn set_allowed_nodes(&mut self, nodes: Option<BTreeSet<NodeId>>) {
        self.allowed_nodes = nodes;
    }

    /// Begins to connect; the outcome comes as an event with the id returned.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] where it cannot begin; nothing is kept then.
    pub fn connect(&mut self, now: Instant, target: Target) -> Result<SessionId, ConnectError> {
        self.connect_with(now, target, Timeouts::of(&self.config))
    }

    /// As [`connect`](Self::connect), with times of this session's own; the peer hears of them.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] where it cannot begin; nothing is kept then.
    pub fn connect_with(
        &mut self,
        now: Instant,
        mut target: Target,
        timeouts: Timeouts,
    ) -> Result<SessionId, ConnectError> {
        let now = self.advance(now);
        self.remove_reported_end();
        target.check()?;
        target.settle_addresses()?;
        let is_peer = matches!(target.credentials, Credentials::Peer);
        let network = match &self.listener {
            Some(listener) if is_peer => listener.network.as_ref(),
            _ => None,
        };
        if is_peer && network.is_none() {
            return Err(ConnectError::NoIdentity);
        }
        if self.config.cid_len == CidLen::Zero
            && target
                .addresses
                .iter()
                .any(|address| self.is_address_taken(*address))
        {
            return Err(ConnectError::AddressTaken);
        }
        if self.is_full() {
            return Err(ConnectError::Full);
        }
        let (config, provider) = (&self.config, &mut self.provider);
        let (app_id, mut hello_id) = (self.app_id.0, 0);
        let mut draws = self.generator.seed().generator(0);
        let id = self.slots.try_insert(now, &mut self.generator, |id, tag| {
            let start = DialStart {
                target,
                form: HelloForm {
                    app_id,
                    versions: config.versions,
                    suites: SuiteSet::ALL,
                    client_cid: tag.cid(id.index, config.cid_len),
                },
                network: network.map(|network| &network.secret),
                timeouts,
            };
            let dial = Dial::new(now, provider, &mut draws, start).ok()?;
            hello_id = dial.hello_id();
            Some(Slot::Dial(Box::new(dial)))
        });
        let id = id.ok_or(ConnectError::NoEntropy)?;
        self.dials.insert(hello_id, id);
        self.arm(id);
        Ok(id)
    }

    /// Queues a message. Messages of one turn share packets; they leave with the next drain.
    ///
    /// # Errors
    ///
    /// [`SendError`] where the session is not open, the channel does not exist, the message is
    /// longer than its channel allows, or a reliable channel's queue is full.
    pub fn send(
        &mut self,
        now: Instant,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        let now = self.advance(now);
        let Some(Slot::Session(open)) = self.slots.get_mut(session) else {
            return Err(SendError::Closed);
        };
        open.send(now, channel, message)?;
        if open.has_settled() {
            self.drain_session_events(now, session);
        }
        self.arm(session);
        Ok(())
    }

    /// As [`send`](Self::send), and what becomes of the message comes once, as
    /// [`Event::Settled`] with the number returned.
    ///
    /// That costs the session some 24 bytes for each such message until the event. A number is that of the
    /// message among all on its channel.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooManyTracked`] where the fate of 4,096 messages of
    /// the session is open.
    pub fn send_tracked(
        &mut self,
        now: Instant,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        let now = self.advance(now);
        let Some(Slot::Session(open)) = self.slots.get_mut(session) else {
            return Err(SendError::Closed);
        };
        let number = open.send_tracked(now, message)?;
        self.after_session(now, session);
        Ok(number)
    }

    /// Moves the next message of `session` to `out`, whose content it replaces, and says which
    /// channel it came by; `None` when there is none.
    pub fn receive(
        &mut self,
        now: Instant,
        session: SessionId,
        out: &mut Vec<u8>,
    ) -> Option<ChannelId> {
        self.advance(now);
        let Some(Slot::Session(open)) = self.slots.get_mut(session) else {
            return None;
        };
        let channel = open.receive(out);
        if open.has_credit_to_send() {
            self.arm(session);
        }
        channel
    }

    /// Changes the keys of a session, ours with the next packet and the peer's as soon as it has
    /// come; without a call they are changed after 2^20 packets or 15 minutes, see
    /// [`Config::key_limits`](crate::Config::key_limits).
    ///
    /// It waits where no packet under the present key was acknowledged yet, and until three probe
    /// timeouts have passed since the last change; then it comes with the next packet, a keepalive
    /// at the latest. Calls while one waits ask for no more. [`SessionStats`] counts the changes.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it is not open.
    pub fn update_keys(&mut self, now: Instant, session: SessionId) -> Result<(), NoSession> {
        let now = self.advance(now);
        match self.slots.get_mut(session) {
            Some(Slot::Session(open)) if open.is_open() => {
                open.ask_for_keys(now);
                self.arm(session);
                Ok(())
            }
            Some(Slot::Session(_) | Slot::Dial(_) | Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }

    /// Ends a session: what is queued on reliable channels is sent first, and what became of tracked
    /// messages waited for, for up to
    /// [`Config::linger`](crate::Config::linger). The end comes as an event. `reason` is cut at
    /// 128 bytes.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it has ended already.
    pub fn close(
        &mut self,
        now: Instant,
        session: SessionId,
        code: CloseCode,
        reason: &[u8],
    ) -> Result<(), NoSession> {
        let now = self.advance(now);
        match self.slots.get_mut(session) {
            Some(Slot::Session(open)) => {
                open.close(now, code, reason, self.config.linger);
                self.after_session(now, session);
                Ok(())
            }
            Some(Slot::Dial(_)) => {
                self.remove(now, session);
                self.events.push_back(Event::ConnectFailed {
                    session,
                    failure: ConnectFailure::Cancelled,
                });
                Ok(())
            }
            Some(Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }

    /// Ends every session with [`CloseCode::Shutdown`], every dial and every attempt that waits for
    /// its first packet, and lets nobody in until it is told to [`listen`](Self::listen) again.
    pub fn shutdown(&mut self, now: Instant) {
        let ids: Vec<SessionId> = self.slots.ids().collect();
        if let Some(listener) = &mut self.listener {
            listener.is_shut = true;
        }
        for id in ids {
            if matches!(self.slots.get(id), Some(Slot::HalfOpen(_))) {
                self.remove(now, id);
            } else {
                // Where it has ended already, there is nothing to do.
                self.close(now, id, CloseCode::Shutdown, &[]).ok();
            }
        }
    }

    /// Returns counters and the state of the path; `None` where the session has ended.
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        self.session(session).map(Session::stats)
    }

    /// Returns how many bytes of realtime messages `session` may send at once; where more are queued,
    /// they wait. `None` where the session has ended.
    pub fn realtime_room(&self, now: Instant, session: SessionId) -> Option<u32> {
        self.session(session).map(|open| open.realtime_room(now))
    }

    /// Returns where packets of `session` go.
    pub fn peer_address(&self, session: SessionId) -> Option<SocketAddr> {
        self.session(session).map(Session::peer_address)
    }

    /// Returns the address of ours that packets of `session` leave from, where the driver tells
    /// which one they come to.
    pub fn local(&self, session: SessionId) -> Option<IpAddr> {
        self.session(session).and_then(Session::local)
    }

    /// Returns what the other end of `session` has proved.
    pub fn proof(&self, session: SessionId) -> Option<&Proof> {
        self.session(session).map(Session::proof)
    }

    /// Returns what keys of layers above are made from; both ends get the same.
    pub fn exporter(&self, session: SessionId) -> Option<&Exporter> {
        self.session(session).map(Session::exporter)
    }

    /// Returns which side of the handshake we were; keys from the exporter are told apart by it.
    pub fn role(&self, session: SessionId) -> Option<Role> {
        self.session(session).map(Session::role)
    }

    /// Returns the sessions that are open, in slot order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.slots
            .ids()
            .filter(|id| self.session(*id).is_some_and(Session::is_open))
    }

    /// Returns the public key that ACCEPTs are signed with.
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.listener.as_ref().map(|listener| &listener.key)
    }

    /// Returns whether a session has `address`, or a dial may come to have it.
    fn is_address_taken(&self, address: SocketAddr) -> bool {
        self.by_address.contains_key(&address)
            || self.dials.values().any(|id| {
                matches!(self.slots.get(*id), Some(Slot::Dial(dial)) if dial.may_reach(address))
            })
    }

    pub(super) fn session(&self, id: SessionId) -> Option<&Session<P::Aead>> {
        match self.slots.get(id) {
            Some(Slot::Session(session)) => Some(session),
            _ => None,
        }
    }
}

impl<P: Provider> Endpoint<P> {
    /// Changes the idle timeout and the keepalive of a session, from now on; `connect` says nothing
    /// here. Returns the idle timeout and the keepalive that hold then.
    ///
    /// The peer does not hear of it. So the idle timeout is never longer than what both ends
    /// announced when the session began, nor shorter than three keepalives of the peer's take; and the
    /// keepalive never more than a third of what was announced.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it is not open.
    pub fn set_timeouts(
        &mut self,
        now: Instant,
        session: SessionId,
        timeouts: &Timeouts,
    ) -> Result<(Duration, Duration), NoSession> {
        let now = self.advance(now);
        match self.slots.get_mut(session) {
            Some(Slot::Session(open)) if open.is_open() => {
                let held = open.set_timeouts(now, timeouts);
                self.arm(session);
                Ok(held)
            }
            Some(Slot::Session(_) | Slot::Dial(_) | Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }

    /// Changes how long unreliable messages of `channel` may wait in this session, from the next one
    /// on: those that do not say so [themselves](crate::Message::with_ttl). Returns whether there is
    /// such a channel. The session then holds a channel table of its own, some 40 bytes a channel.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it is not open.
    pub fn set_ttl(
        &mut self,
        session: SessionId,
        channel: ChannelId,
        ttl: Duration,
    ) -> Result<bool, NoSession> {
        match self.slots.get_mut(session) {
            Some(Slot::Session(open)) if open.is_open() => Ok(open.set_ttl(channel, ttl)),
            Some(Slot::Session(_) | Slot::Dial(_) | Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }
}

impl<P: Provider> Endpoint<P> {
    /// Ends a session at once with [`CloseCode::Kicked`]: what is queued is not sent, and what became
    /// of it not waited for. The end comes as an event. The peer is told `reason`, cut at 128 bytes: no
    /// address and no secret belongs in it.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where its slot is free again. While one that has ended says so to its peer, nothing
    /// happens.
    pub fn kick(
        &mut self,
        now: Instant,
        session: SessionId,
        reason: &[u8],
    ) -> Result<(), NoSession> {
        let at = self.advance(now);
        let Some(Slot::Session(open)) = self.slots.get_mut(session) else {
            return self.close(now, session, CloseCode::Kicked, reason);
        };
        open.kick(at, reason);
        self.after_session(at, session);
        Ok(())
    }

    /// Hears nothing from `prefix` any more, from the next datagram on, for `span` or until
    /// [`unblock`](Self::unblock); of two calls for one prefix the later counts. Sessions from there
    /// end by their silence; [`kick`](Self::kick) ends them at once.
    ///
    /// What a trusted exit sends for a player is judged by the player's address, and where it does not
    /// say whom it speaks for it is always heard.
    ///
    /// # Errors
    ///
    /// [`BlockError::Full`] where 65,536 prefixes are blocked.
    pub fn block(
        &mut self,
        now: Instant,
        prefix: Prefix,
        span: Option<Duration>,
    ) -> Result<(), BlockError> {
        let now = self.advance(now);
        self.blocked
            .insert(now, prefix, span.map(|span| now + span))
    }

    /// Hears `prefix` again; returns whether it was blocked. Longer and shorter prefixes that are
    /// blocked stay so.
    pub fn unblock(&mut self, prefix: &Prefix) -> bool {
        self.blocked.remove(prefix)
    }

    /// Returns the blocked prefixes.
    pub const fn blocked(&self) -> &BlockList {
        &self.blocked
    }

    /// Returns whether nothing of a datagram is looked at.
    pub(super) fn is_blocked(
        &mut self,
        now: Instant,
        (peer, real_source): (SocketAddr, Option<SocketAddr>),
    ) -> bool {
        if real_source.is_none() && is_trusted_exit(&self.config, peer) {
            return false;
        }
        self.blocked.contains(now, real_source.unwrap_or(peer).ip())
    }

    /// Lets a player in again whom [`Config::block_breaches`](crate::Config::block_breaches) keeps
    /// out; returns whether he was kept out.
    pub fn pardon(&mut self, player: ClientId) -> bool {
        self.bans.until.remove(&player).is_some()
    }

    /// Keeps out whose session ended with a breach of the protocol, where that is asked for: a player
    /// by his id, else the address, and that only where he has answered from there. Nobody else
    /// can have sent what was sealed.
    pub(super) fn apply_block_policy(&mut self, now: Instant, id: SessionId, reason: CloseReason) {
        let Some(span) = self.config.block_breaches else {
            return;
        };
        let CloseReason::Local(code) = reason else {
            return;
        };
        let Some(session) = self
            .session(id)
            .filter(|session| is_breach(code) && session.role() == Role::Accepter)
        else {
            return;
        };
        let is_added = match session.proof() {
            Proof::Token(grant) => {
                let player = grant.client_id;
                self.bans.insert(now, player, now + span)
            }
            Proof::Anonymous if session.is_at_proved_address() => {
                let peer = session.peer_address();
                let told = session.counted_source();
                let source = told.filter(|_| is_trusted_exit(&self.config, peer));
                let source = SocketAddr::new(source.unwrap_or_else(|| peer.ip()), 0);
                let prefix = Prefix::of_host(source.ip());
                !is_exempt(&self.config, source)
                    && self.blocked.insert(now, prefix, Some(now + span)).is_ok()
            }
            Proof::Anonymous | Proof::Node(_) | Proof::Server(_) => false,
        };
        self.stats.blocked_for_breaches = self
            .stats
            .blocked_for_breaches
            .saturating_add(u64::from(is_added));
    }
}

/// Returns whether only a peer that keeps to no protocol makes us close with `code`.
const fn is_breach(code: CloseCode) -> bool {
    matches!(
        code,
        CloseCode::Frame
            | CloseCode::AckUnsent
            | CloseCode::Fragment
            | CloseCode::Flow
            | CloseCode::KeyUpdate
            | CloseCode::Flood
    )
}

/// Players who are not let in.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    until: BTreeMap<ClientId, Instant>,
}

/// Most players who are kept out at a time.
const BANS_MAX: usize = 65_536;

impl Bans {
    pub(super) fn contains(&self, now: Instant, player: ClientId) -> bool {
        self.until.get(&player).is_some_and(|until| *until > now)
    }

    /// Returns whether there was room.
    fn insert(&mut self, now: Instant, player: ClientId, until: Instant) -> bool {
        if self.until.len() >= BANS_MAX && !self.until.contains_key(&player) {
            // Rare: each entry has cost its player a token and a session.
            self.until.retain(|_, until| *until > now);
            if self.until.len() >= BANS_MAX {
                return false;
            }
        }
        self.until.insert(player, until);
        true
    }
}

impl<P: Provider> Endpoint<P> {
    /// After a session was touched: passes its news on, and lets it send or frees its slot.
    pub(crate) fn after_session(&mut self, now: Instant, id: SessionId) {
        self.drain_session_events(now, id);
        if self.slots.get(id).is_some() {
            self.arm(id);
        }
    }

    /// Passes a session's news on, and frees the slot where it is over and its end was told.
    pub(crate) fn drain_session_events(&mut self, now: Instant, id: SessionId) {
        let Some(Slot::Session(session)) = self.slots.get_mut(id) else {
            return;
        };
        if !session.has_events() {
            if session.take_readable() {
                self.events.push_back(Event::Readable { session: id });
            }
            return;
        }
        while let Some(settled) = session.poll_settled() {
            self.events.push_back(Event::Settled {
                session: id,
                channel: settled.channel,
                message: settled.message,
                outcome: settled.outcome,
            });
        }
        let session_events = session.take_events();
        let address = session.peer_address();
        if session_events.moved.is_some() {
            self.move_resettable(id);
            self.events.push_back(Event::AddressChanged {
                session: id,
                address,
            });
        }
        if let Some(Outcome(mtu)) = session_events.mtu_checked {
            self.events
                .push_back(Event::MtuChecked { session: id, mtu });
        }
        if let Some(realtime_rate) = session_events.realtime_rate {
            self.events.push_back(Event::RateChanged {
                session: id,
                realtime_rate,
            });
        }
        if session_events.is_readable {
            self.events.push_back(Event::Readable { session: id });
        }
        if let Some((reason, text)) = session_events.closed.map(|told| *told) {
            self.apply_block_policy(now, id, reason);
            self.forget_peer(id);
            self.ended.insert(id, false);
            self.events.push_back(Event::Closed {
                session: id,
                reason,
                text,
            });
        }
        if session_events.is_gone {
            match self.ended.get_mut(&id) {
                Some(is_gone) => *is_gone = true,
                None => self.remove(now, id),
            }
        }
    }

    /// Lets go of the session whose end was told last: whoever heard of it has read what he wanted.
    pub(crate) fn remove_reported_end(&mut self) {
        if let Some(id) = self.reported_end.take()
            && self.ended.remove(&id) == Some(true)
        {
            self.remove(self.now, id);
        }
    }

    /// Frees a slot and all that points to it.
    pub(crate) fn remove(&mut self, now: Instant, id: SessionId) {
        self.forget_peer(id);
        let Some(slot) = self.slots.remove(now, id) else {
            return;
        };
        self.timers.set(id.index, None);
        match slot {
            Slot::Dial(dial) => {
                self.dials.remove(&dial.hello_id());
            }
            Slot::HalfOpen(half_open) => {
                self.release_half_open(&half_open);
                self.sources.remove(half_open.source.ip());
                if let Admitted::Token(grant) = &half_open.grant {
                    self.tokens.end(grant.token_id);
                }
            }
            Slot::Session(session) => {
                if self.by_address.get(&session.peer_address()) == Some(&id) {
                    self.by_address.remove(&session.peer_address());
                }
                let is_found = self.resettable.remove(&(session.peer_address(), id));
                if session.is_resettable() && !is_found {
                    self.resettable.retain(|(_, other)| *other != id);
                }
                if let Some(source) = session.counted_source() {
                    self.sources.remove(source);
                }
            }
        }
    }

    /// Takes an attempt off the tables that find half-open ones.
    pub(crate) fn release_half_open(&mut self, half_open: &HalfOpen<Admitted>) {
        if let Some(listener) = &mut self.listener {
            listener.release(half_open);
        }
    }

    /// Lets the player or node of a session that has ended come again.
    fn forget_peer(&mut self, id: SessionId) {
        let Some(Slot::Session(session)) = self.slots.get(id) else {
            return;
        };
        match session.proof() {
            Proof::Token(grant) => {
                if self
                    .players
                    .get(&grant.client_id)
                    .is_some_and(|present| present.session == id)
                {
                    self.players.remove(&grant.client_id);
                }
            }
            Proof::Node(node) => {
                if self.nodes.get(node) == Some(&id) {
                    self.nodes.remove(node);
                }
            }
            Proof::Anonymous | Proof::Server(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u13_at_most_65_536_players_are_kept_out_and_those_whose_time_is_over_make_place() {
        let mut bans = Bans::default();
        let at = Instant::from_millis;
        for player in 0..65_536 {
            assert!(bans.insert(at(0), ClientId(player), at(10)));
        }
        assert!(!bans.insert(at(9), ClientId(70_000), at(20)));
        assert!(bans.insert(at(9), ClientId(1), at(20)), "again");
        assert!(bans.insert(at(10), ClientId(70_000), at(20)));
        assert_eq!(bans.until.len(), 2);
        assert!(bans.contains(at(19), ClientId(1)) && !bans.contains(at(20), ClientId(1)));
    }
}
