//! The application's interface of an endpoint.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crypto::token::TokenKey;
use crypto::{Certificate, Exporter, Provider, PublicKey, Role, SuiteSet};
use wire::{ClientId, Instant, NodeId, SourceKey};

use super::admission::Admitted;
use super::listener::{Listen, Listener, Network, TOKEN_KEYS_MAX, is_exempt, is_trusted_exit};
use super::{Endpoint, Slot};
use crate::block_list::{BlockError, BlockList, Prefix};
use crate::channel::Message;
use crate::channel::{ChannelId, MessageId, SendError};
use crate::config::Timeouts;
use crate::error::{CloseCode, CloseReason, ConnectError, ConnectFailure, ListenError, NoSession};
use crate::event::{Event, Proof};
use crate::handshake::dial::{Dial, DialStart, HelloForm};
use crate::handshake::half_open::HalfOpen;
use crate::handshake::target::{Credentials, Target};
use crate::session::{Outcome, Session};
use crate::slots::{CidLen, SessionId};
use crate::stats::SessionStats;

impl<P: Provider> Endpoint<P> {
    /// Starts to accept sessions, also again after [`shutdown`](Self::shutdown). Used tokens stay
    /// used; token keys must be added again.
    ///
    /// # Errors
    ///
    /// [`ListenError`]; the endpoint is unchanged.
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

    /// Removes the token key with this id; tokens sealed with it are refused. Existing sessions
    /// stay. Returns whether the key existed.
    pub fn remove_token_key(&mut self, id: u32) -> bool {
        let Some(listener) = &mut self.listener else {
            return false;
        };
        let before = listener.token_keys.len();
        listener.token_keys.retain(|held| held.id() != id);
        listener.token_keys.len() < before
    }

    /// Adds a token key, of at most four: the oldest is removed. Returns whether the endpoint
    /// listens.
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

    /// Sets the certificate for later ACCEPTs, or none. Existing sessions stay.
    ///
    /// Returns whether the endpoint listens with the certificate's key and instance; otherwise
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

    /// Sets the network secrets. Existing sessions stay. With `None`, nodes are neither accepted
    /// nor dialled. Returns whether the endpoint listens.
    pub fn set_network(&mut self, network: Option<Network>) -> bool {
        let Some(listener) = &mut self.listener else {
            return false;
        };
        listener.network = network;
        true
    }

    /// Sets the nodes that peer mode accepts; `None`, the default, accepts all that hold the
    /// network secret. Existing sessions stay.
    pub fn set_allowed_nodes(&mut self, nodes: Option<BTreeSet<NodeId>>) {
        self.allowed_nodes = nodes;
    }

    /// Starts to connect. The outcome is an event with the returned id.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if it cannot start; nothing is kept.
    pub fn connect(&mut self, now: Instant, target: Target) -> Result<SessionId, ConnectError> {
        self.connect_with(now, target, Timeouts::of(&self.config))
    }

    /// As [`connect`](Self::connect), with this session's own timeouts, which the handshake
    /// announces.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if it cannot start; nothing is kept.
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
            hello_id = dial.attempt.hello_id;
            Some(Slot::Dial(Box::new(dial)))
        });
        let id = id.ok_or(ConnectError::NoEntropy)?;
        self.dials.insert(hello_id, id);
        self.arm(id);
        Ok(id)
    }

    /// Queues a message. It is sent by the next drain, which packs messages into shared packets.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message is not queued.
    pub fn send(
        &mut self,
        now: Instant,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        let now = self.advance(now);
        let open = self.session_mut(session).ok_or(SendError::Closed)?;
        open.send(now, channel, message)?;
        if open.has_settled() {
            self.drain_session_events(now, session);
        }
        self.arm(session);
        Ok(())
    }

    /// As [`send`](Self::send), and reports the outcome once as [`Event::Settled`] with the
    /// returned number, which counts all messages of the channel. Costs the session about 24 bytes
    /// until the event.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::TooManyTracked`] if 4,096 are open.
    pub fn send_tracked(
        &mut self,
        now: Instant,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        let now = self.advance(now);
        let open = self.session_mut(session).ok_or(SendError::Closed)?;
        let number = open.send_tracked(now, message)?;
        self.after_session(now, session);
        Ok(number)
    }

    /// Moves the next message of `session` to `out`, replacing its content, and returns its
    /// channel; `None` if there is none.
    pub fn receive(
        &mut self,
        now: Instant,
        session: SessionId,
        out: &mut Vec<u8>,
    ) -> Option<ChannelId> {
        self.advance(now);
        let open = self.session_mut(session)?;
        let channel = open.receive(out);
        if open.has_credit_to_send() {
            self.arm(session);
        }
        channel
    }

    /// Requests a key update of a session: our key with the next packet, the peer's in response.
    /// Without a call, [`Config::key_limits`](crate::Config::key_limits) decides.
    ///
    /// The update waits until a packet of the current phase is acknowledged and three probe
    /// timeouts have passed since the last one. Further calls meanwhile have no effect.
    ///
    /// # Errors
    ///
    /// [`NoSession`] if it is not open.
    pub fn update_keys(&mut self, now: Instant, session: SessionId) -> Result<(), NoSession> {
        let now = self.advance(now);
        self.open_mut(session)?.request_key_update(now);
        self.arm(session);
        Ok(())
    }

    /// Closes a session. First delivers reliable messages and awaits tracked ones, within
    /// [`Config::linger`](crate::Config::linger). The end is an event. `reason` is cut at 128
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`NoSession`] if it has already ended.
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
                self.fail_dial(now, session, ConnectFailure::Cancelled);
                Ok(())
            }
            Some(Slot::HalfOpen(_)) | None => Err(NoSession),
        }
    }

    /// Closes every session with [`CloseCode::Shutdown`], cancels dials and half-open attempts, and
    /// refuses new ones until [`listen`](Self::listen).
    pub fn shutdown(&mut self, now: Instant) {
        let ids: Vec<SessionId> = self.slots.ids().collect();
        if let Some(listener) = &mut self.listener {
            listener.is_shut = true;
        }
        for id in ids {
            if matches!(self.slots.get(id), Some(Slot::HalfOpen(_))) {
                self.remove(now, id);
            } else {
                // A session that has already ended needs nothing.
                self.close(now, id, CloseCode::Shutdown, &[]).ok();
            }
        }
    }

    /// Returns a session's counters and path state; `None` if it has ended.
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        self.session(session).map(Session::stats)
    }

    /// Returns how many bytes of realtime messages `session` may send at once; more would wait.
    /// `None` if it has ended.
    pub fn realtime_room(&self, now: Instant, session: SessionId) -> Option<u32> {
        self.session(session).map(|open| open.realtime_room(now))
    }

    /// Returns the peer's address.
    pub fn peer_address(&self, session: SessionId) -> Option<SocketAddr> {
        self.session(session).map(Session::peer_address)
    }

    /// Returns our local address of `session`, if the driver reports it.
    pub fn local(&self, session: SessionId) -> Option<IpAddr> {
        self.session(session).and_then(Session::local)
    }

    /// Returns what the peer of `session` has proved.
    pub fn proof(&self, session: SessionId) -> Option<&Proof> {
        self.session(session).map(|open| &open.proof)
    }

    /// Returns the exporter for keys of layers above; both ends get the same keys.
    pub fn exporter(&self, session: SessionId) -> Option<&Exporter> {
        self.session(session).map(|open| &open.exporter)
    }

    /// Returns our side of the handshake, which distinguishes the directions of exported keys.
    pub fn role(&self, session: SessionId) -> Option<Role> {
        self.session(session).map(|open| open.role)
    }

    /// Returns the open sessions in slot order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.slots
            .ids()
            .filter(|id| self.session(*id).is_some_and(Session::is_open))
    }

    /// Returns the public key that signs ACCEPTs.
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.listener.as_ref().map(|listener| &listener.key)
    }

    /// Returns whether a session has `address`, or a dial may get it.
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

    pub(super) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session<P::Aead>> {
        match self.slots.get_mut(id) {
            Some(Slot::Session(session)) => Some(session),
            _ => None,
        }
    }

    fn open_mut(&mut self, id: SessionId) -> Result<&mut Session<P::Aead>, NoSession> {
        let session = self.session_mut(id).filter(|session| session.is_open());
        session.ok_or(NoSession)
    }

    /// Ends a dial with an event.
    pub(super) fn fail_dial(&mut self, now: Instant, session: SessionId, failure: ConnectFailure) {
        self.remove(now, session);
        self.events
            .push_back(Event::ConnectFailed { session, failure });
    }

    /// Changes the idle timeout and keepalive of a session, and returns those in effect; `connect`
    /// is ignored.
    ///
    /// The peer is not notified. So the idle timeout is at most what both ends announced and at
    /// least three of the peer's keepalives, and the keepalive at most a third of the announced
    /// one.
    ///
    /// # Errors
    ///
    /// [`NoSession`] if it is not open.
    pub fn set_timeouts(
        &mut self,
        now: Instant,
        session: SessionId,
        timeouts: &Timeouts,
    ) -> Result<(Duration, Duration), NoSession> {
        let now = self.advance(now);
        let held = self.open_mut(session)?.set_timeouts(now, timeouts);
        self.arm(session);
        Ok(held)
    }

    /// Changes the TTL of later unreliable messages of `channel`, unless they have [their
    /// own](crate::Message::with_ttl). Returns whether the channel exists.
    ///
    /// # Errors
    ///
    /// [`NoSession`] if it is not open.
    pub fn set_ttl(
        &mut self,
        session: SessionId,
        channel: ChannelId,
        ttl: Duration,
    ) -> Result<bool, NoSession> {
        self.open_mut(session)
            .map(|open| open.set_ttl(channel, ttl))
    }

    /// Closes a session immediately with [`CloseCode::Kicked`]. The end is reported as an event.
    /// The peer receives `reason`, cut at 128 bytes; it should contain no address and no secret.
    ///
    /// # Errors
    ///
    /// [`NoSession`] if its slot is free. Has no effect while an ended session still sends its
    /// CLOSE.
    pub fn kick(
        &mut self,
        now: Instant,
        session: SessionId,
        reason: &[u8],
    ) -> Result<(), NoSession> {
        let at = self.advance(now);
        let Some(open) = self.session_mut(session) else {
            return self.close(now, session, CloseCode::Kicked, reason);
        };
        open.kick(at, reason);
        self.after_session(at, session);
        Ok(())
    }

    /// Drops datagrams from `prefix` for `span` or until [`unblock`](Self::unblock). Existing
    /// sessions from there time out; [`kick`](Self::kick) ends them at once.
    ///
    /// Datagrams that a trusted exit sends for a player are checked by the player's address; its
    /// others are never blocked.
    ///
    /// # Errors
    ///
    /// [`BlockError::Full`] if 65,536 prefixes are blocked.
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

    /// Unblocks `prefix`; returns whether it was blocked. Longer and shorter blocked prefixes stay.
    pub fn unblock(&mut self, prefix: &Prefix) -> bool {
        self.blocked.remove(prefix)
    }

    /// Returns the blocked prefixes.
    pub const fn blocked(&self) -> &BlockList {
        &self.blocked
    }

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

    /// Lifts the ban of a player by [`Config::block_breaches`](crate::Config::block_breaches).
    /// Returns whether the player was banned.
    pub fn unban(&mut self, player: ClientId) -> bool {
        self.bans.until.remove(&player).is_some()
    }

    /// Bans the player, or blocks the validated address, after a protocol violation. Only the peer
    /// can have sent authenticated packets.
    pub(super) fn apply_block_policy(&mut self, now: Instant, id: SessionId, reason: CloseReason) {
        let Some(span) = self.config.block_breaches else {
            return;
        };
        let CloseReason::Local(code) = reason else {
            return;
        };
        let Some(session) = self
            .session(id)
            .filter(|session| is_breach(code) && session.role == Role::Accepter)
        else {
            return;
        };
        let is_added = match &session.proof {
            Proof::Token(grant) => {
                let player = grant.client_id;
                self.bans.insert(now, player, now + span)
            }
            Proof::Anonymous if session.is_at_proved_address() => {
                let peer = session.peer_address();
                let outcome = session.counted_source;
                let source = outcome.filter(|_| is_trusted_exit(&self.config, peer));
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

    /// Follows up on a call of a session: drains its events, and schedules or frees its slot.
    pub(crate) fn after_session(&mut self, now: Instant, id: SessionId) {
        self.drain_session_events(now, id);
        if self.slots.get(id).is_some() {
            self.arm(id);
        }
    }

    /// Raises the events of a session, and frees the slot if it is gone and its end was polled.
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
        if let Some((reason, text)) = session_events.closed.map(|outcome| *outcome) {
            self.apply_block_policy(now, id, reason);
            self.forget_peer(id);
            self.ended.insert(id, false);
            self.events.push_back(Event::Closed {
                session: id,
                reason,
                text,
            });
        }
        if session_events.has_ended {
            match self.ended.get_mut(&id) {
                Some(has_ended) => *has_ended = true,
                None => self.remove(now, id),
            }
        }
    }

    /// Frees the session whose `Closed` was polled last: its messages can no longer be read.
    pub(crate) fn remove_reported_end(&mut self) {
        if let Some(id) = self.reported_end.take()
            && self.ended.remove(&id) == Some(true)
        {
            self.remove(self.now, id);
        }
    }

    pub(crate) fn remove(&mut self, now: Instant, id: SessionId) {
        self.forget_peer(id);
        let Some(slot) = self.slots.remove(now, id) else {
            return;
        };
        self.timers.set(id.index, None);
        match slot {
            Slot::Dial(dial) => {
                self.dials.remove(&dial.attempt.hello_id);
            }
            Slot::HalfOpen(half_open) => {
                self.release_half_open(&half_open);
                self.sources.release(SourceKey::of(half_open.source.ip()));
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
                if let Some(source) = session.counted_source {
                    self.sources.release(SourceKey::of(source));
                }
            }
        }
    }

    pub(crate) fn release_half_open(&mut self, half_open: &HalfOpen<Admitted>) {
        if let Some(listener) = &mut self.listener {
            listener.release(half_open);
        }
    }

    /// Lets the player or node of an ended session connect again.
    fn forget_peer(&mut self, id: SessionId) {
        let Some(Slot::Session(session)) = self.slots.get(id) else {
            return;
        };
        match &session.proof {
            Proof::Token(grant) => {
                let present = self.players.get(&grant.client_id);
                if present.is_some_and(|present| present.session == id) {
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

/// Returns whether we close with `code` only if the peer violates the protocol.
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

#[derive(Debug, Default)]
pub(crate) struct Bans {
    until: BTreeMap<ClientId, Instant>,
}

const BANS_MAX: usize = 65_536;

impl Bans {
    pub(super) fn contains(&self, now: Instant, player: ClientId) -> bool {
        self.until.get(&player).is_some_and(|until| *until > now)
    }

    /// Returns whether there was room.
    fn insert(&mut self, now: Instant, player: ClientId, until: Instant) -> bool {
        if self.until.len() >= BANS_MAX && !self.until.contains_key(&player) {
            // Rare, since each entry cost its player a token and a session.
            self.until.retain(|_, until| *until > now);
            if self.until.len() >= BANS_MAX {
                return false;
            }
        }
        self.until.insert(player, until);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u13_at_most_65_536_players_are_banned_and_expired_bans_are_replaced() {
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
