//! How a session opens: by an ACCEPT for the dialler, by a first packet for the accepter.

use core::net::SocketAddr;

use crypto::{Provider, Role};
use wire::{Arrival, Instant, NodeId};

use super::admission::Admitted;
use super::{Endpoint, Present, Slot};
use crate::channel::ChannelTable;
use crate::error::CloseCode;
use crate::event::{Event, Grant, Peer, Proof};
use crate::frame::{Frame, Frames};
use crate::handshake::dial::Accepted;
use crate::handshake::half_open::HalfOpen;
use crate::handshake::params::{self, Params};
use crate::handshake::peer::{CONFIRM_LEN, IdentityClaim};
use crate::packet::{Header, PacketNumber};
use crate::session::{self, Session, SessionStart};
use crate::slots::SessionId;

impl<P: Provider> Endpoint<P> {
    /// The dial `id` has become a session.
    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        id: SessionId,
        (accepted, is_peer): (Accepted, bool),
    ) -> bool {
        let boot_id = self.listener.as_ref().map(|listener| listener.boot_id());
        let params = Params::of(&self.config, boot_id.unwrap_or_default()).encode();
        let confirm = confirm_body(&params, &self.channel_digest);
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
                    // The dial goes on; the next ACCEPT may find entropy.
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
        let start = SessionStart {
            role: Role::Dialler,
            remote: accepted.remote,
            local: arrival.local,
            remote_cid: accepted.server_cid,
            suite: accepted.suite,
            secrets: accepted.secrets,
            remote_params: accepted.params,
            round_trip: accepted.round_trip,
            confirm: Some((confirm, identity)),
            proof: proof.clone(),
            source: None,
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
        self.dials.remove(&dial.hello_id());
        if self.config.cid_len.bytes() == 0 {
            self.by_address.insert(accepted.remote, id);
        }
        self.connected(now, id, accepted.remote, proof);
        true
    }

    /// Takes a packet for an attempt that waits for its first one.
    pub(super) fn on_first_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        id: SessionId,
        (header, datagram): (&Header, &mut [u8]),
    ) {
        let Some(Slot::HalfOpen(half_open)) = self.slots.get(id) else {
            return;
        };
        let key = half_open
            .secrets
            .client
            .opening_key(&self.provider, half_open.suite);
        let number = PacketNumber::ZERO.widen(header.number);
        let Some(plaintext) = session::open(&key, number, header, datagram) else {
            self.stats.dropped_forged += 1;
            return;
        };
        let Some(confirm) = Confirm::find(plaintext, &self.config.channels) else {
            self.stats.dropped_unconfirmed += 1;
            return;
        };
        let Some(proof) = self.prove(now, id, &confirm) else {
            self.stats.dropped_unconfirmed += 1;
            return;
        };
        let verdict = self.judge(&confirm, &proof);
        let Some(Slot::HalfOpen(half_open)) = self.slots.take(id) else {
            return;
        };
        self.release_half_open(&half_open);
        self.stats.packets += 1;
        let opening = Opening {
            half_open: *half_open,
            proof,
            verdict,
            number,
            plaintext,
        };
        self.open_session(now, arrival, id, opening);
    }

    /// Turns a half-open attempt into a session, or into one that only says why it is refused.
    fn open_session(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        id: SessionId,
        opening: Opening<'_>,
    ) {
        let Opening {
            half_open,
            proof,
            verdict,
            number,
            plaintext,
        } = opening;
        let source = half_open.source;
        let start = SessionStart {
            role: Role::Accepter,
            remote: arrival.peer,
            local: arrival.local,
            remote_cid: half_open.client_cid,
            suite: half_open.suite,
            secrets: half_open.secrets,
            remote_params: verdict.params,
            round_trip: now.saturating_since(half_open.accepted_at),
            confirm: None,
            proof: proof.clone(),
            source: Some(source.ip()),
        };
        let mut session = Session::new(
            now,
            &self.config,
            &self.provider,
            &mut self.generator,
            start,
        );
        if let Some(code) = verdict.refusal {
            if let Proof::Token(grant) = &proof
                && let Some(listener) = &mut self.listener
            {
                listener.tokens.end(grant.token_id);
            }
            session.refuse(now, code);
            self.slots.put(id, Slot::Session(Box::new(session)));
            self.settle(now, id);
            return;
        }
        session.take_first(now, number, plaintext);
        self.slots.put(id, Slot::Session(Box::new(session)));
        if let Proof::Token(grant) = &proof {
            self.seat(now, id, grant);
        }
        let address = arrival.real_source.unwrap_or(arrival.peer);
        self.connected(now, id, address, proof);
    }

    /// A player has come in: the token is used up, and an older session of the player gives way.
    fn seat(&mut self, now: Instant, id: SessionId, grant: &Grant) {
        if let Some(listener) = &mut self.listener {
            listener.tokens.consume(grant.token_id);
        }
        let rivals: Vec<SessionId> = self
            .slots
            .ids()
            .filter(|other| match self.slots.get(*other) {
                Some(Slot::HalfOpen(half_open)) => matches!(
                    &half_open.grant,
                    Admitted::Token(rival) if rival.token_id == grant.token_id
                ),
                _ => false,
            })
            .collect();
        for rival in rivals {
            self.remove(now, rival);
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

    /// Ends a session that another has replaced.
    pub(super) fn end_replaced(&mut self, now: Instant, old: SessionId) {
        if let Some(Slot::Session(session)) = self.slots.get_mut(old) {
            session.abort(now, CloseCode::Replaced);
            self.settle(now, old);
        }
    }

    /// Returns what a first packet proves; `None` where peer mode's IDENTITY does not.
    fn prove(&mut self, now: Instant, id: SessionId, confirm: &Confirm) -> Option<Proof> {
        let Some(Slot::HalfOpen(half_open)) = self.slots.get_mut(id) else {
            return None;
        };
        match &half_open.grant {
            Admitted::Token(grant) => Some(Proof::Token((**grant).clone())),
            Admitted::Open => Some(Proof::Anonymous),
            Admitted::Peer => {
                let (key, signature) = confirm.identity?;
                let listener = self.listener.as_mut()?;
                // One verify for each slot, charged like the rest of the attempt.
                if half_open.has_failed_identity || listener.ec_validated.take_exempt(now).is_err()
                {
                    return None;
                }
                let claim = IdentityClaim {
                    th1: &half_open.th1,
                    dialler: key.node_id(),
                    accepter: listener.node,
                    confirm: &confirm.body,
                };
                if claim.verify(&self.provider, &key, &signature) {
                    Some(Proof::Node(key.node_id()))
                } else {
                    half_open.has_failed_identity = true;
                    None
                }
            }
        }
    }

    /// Decides whether what was proved lets its owner in.
    fn judge(&self, confirm: &Confirm, proof: &Proof) -> Verdict {
        let (params, digest) = confirm.body.split_at(params::LEN);
        let params = params
            .try_into()
            .ok()
            .and_then(|bytes| Params::decode(bytes).ok());
        let Some(params) = params else {
            return Verdict {
                params: Params::of(&self.config, [0; 7]),
                refusal: Some(CloseCode::Params),
            };
        };
        let refusal = match proof {
            _ if digest != self.channel_digest => Some(CloseCode::ChannelConfig),
            Proof::Node(node)
                if self
                    .allowed_nodes
                    .as_ref()
                    .is_some_and(|allowed| !allowed.contains(node)) =>
            {
                Some(CloseCode::PeerIdentity)
            }
            Proof::Token(_) | Proof::Anonymous | Proof::Node(_) | Proof::Server(_) => None,
        };
        Verdict { params, refusal }
    }

    /// Tells the application of a new session.
    fn connected(&mut self, now: Instant, id: SessionId, address: SocketAddr, proof: Proof) {
        self.stats.sessions_opened += 1;
        let node = match &proof {
            Proof::Node(node) => Some(*node),
            Proof::Token(_) | Proof::Anonymous | Proof::Server(_) => None,
        };
        self.events.push_back(Event::Connected {
            session: id,
            peer: Box::new(Peer { address, proof }),
        });
        self.settle(now, id);
        if let Some(node) = node {
            self.keep_one(now, id, node);
        }
    }

    /// Ends all but one session with a node, and both ends choose the same one: a restarted peer's
    /// newest, else of two that the same side dialled the newer, else the one that the smaller
    /// node id dialled.
    fn keep_one(&mut self, now: Instant, new: SessionId, node: NodeId) {
        let ours = self.listener.as_ref().map(|listener| listener.node);
        let old = self.nodes.get(&node).copied();
        let (Some(old), Some(ours)) = (old, ours) else {
            self.nodes.insert(node, new);
            return;
        };
        let traits = |id| match self.slots.get(id) {
            Some(Slot::Session(session)) => Some((session.boot_id(), session.role())),
            _ => None,
        };
        let new_stays = match (traits(old), traits(new)) {
            (Some((old_boot, old_role)), Some((new_boot, new_role))) => {
                old_boot != new_boot
                    || old_role == new_role
                    || (new_role == Role::Dialler) == (ours < node)
            }
            _ => true,
        };
        let (stays, goes) = if new_stays { (new, old) } else { (old, new) };
        self.nodes.insert(node, stays);
        self.end_replaced(now, goes);
    }
}

/// A first packet that opened, and what follows from it.
struct Opening<'a> {
    half_open: HalfOpen<Admitted>,
    proof: Proof,
    verdict: Verdict,
    number: PacketNumber,
    plaintext: &'a [u8],
}

/// What a first packet must hold.
struct Confirm {
    body: [u8; CONFIRM_LEN],
    identity: Option<(crypto::PublicKey, [u8; 64])>,
}

impl Confirm {
    fn find(plaintext: &[u8], channels: &ChannelTable) -> Option<Self> {
        let mut body = None;
        let mut identity = None;
        for frame in Frames::new(plaintext, channels) {
            match frame.ok()? {
                Frame::Confirm {
                    params,
                    channel_digest,
                } => body = Some(confirm_body(params, channel_digest)),
                Frame::Identity {
                    public_key,
                    signature,
                } => {
                    identity = Some((crypto::PublicKey(*public_key), *signature));
                }
                Frame::Ping
                | Frame::Ack(_)
                | Frame::Close { .. }
                | Frame::PathChallenge(_)
                | Frame::PathResponse(_)
                | Frame::Window(_)
                | Frame::Time(_)
                | Frame::Message(_) => {}
            }
        }
        body.map(|body| Self { body, identity })
    }
}

struct Verdict {
    params: Params,
    refusal: Option<CloseCode>,
}

fn confirm_body(params: &[u8; params::LEN], digest: &[u8; 16]) -> [u8; CONFIRM_LEN] {
    let mut body = [0; CONFIRM_LEN];
    for (to, from) in body.iter_mut().zip(params.iter().chain(digest)) {
        *to = *from;
    }
    body
}
