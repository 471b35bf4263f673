//! What an application asks of an endpoint.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeSet;

use crypto::token::TokenKey;
use crypto::{Certificate, Exporter, Provider, PublicKey, Role, SuiteSet};
use wire::{Instant, NodeId};

use super::listener::{Listen, Listener, Network, TOKEN_KEYS_MAX};
use super::{Endpoint, Slot};
use crate::channel::{ChannelId, MessageId, SendError};
use crate::error::{CloseCode, ConnectError, ConnectFailure, ListenError, NoSession};
use crate::event::{Event, Proof};
use crate::handshake::dial::{Dial, DialStart, HelloForm};
use crate::handshake::target::{Credentials, Target};
use crate::outcome::Message;
use crate::session::Session;
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
            Some(listener) if listener.may_show(certificate.as_ref()) => {
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
        self.forget_told_end();
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
            self.pass_on_news(now, session);
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
        self.settle(now, session);
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
        if open.has_credit_to_tell() {
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
                self.settle(now, session);
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
