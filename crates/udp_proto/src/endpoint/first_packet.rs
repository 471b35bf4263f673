//! The first packet of an attempt: what it proves, and whether a session comes of it.

use core::net::SocketAddr;

use crypto::{Provider, Role};
use wire::{Arrival, Instant};

use super::admission::Admitted;
use super::{Endpoint, Slot};
use crate::channel::ChannelTable;
use crate::error::CloseCode;
use crate::event::Proof;
use crate::frame::{Frame, Frames};
use crate::handshake::half_open::HalfOpen;
use crate::handshake::params::Params;
use crate::handshake::peer::{CONFIRM_LEN, IdentityClaim};
use crate::packet::{Header, KeyPhase, PacketNumber};
use crate::session::{Path, Session, SessionStart};
use crate::slots::SessionId;
use crate::timeouts::Timeouts;

impl<P: Provider> Endpoint<P> {
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
        if header.key_phase != KeyPhase::Even {
            // Keys are changed when a packet was acknowledged, and none was yet.
            self.stats.dropped_forged = self.stats.dropped_forged.saturating_add(1);
            return;
        }
        let key = half_open
            .secrets
            .client
            .opening_key(&self.provider, half_open.suite);
        let number = PacketNumber::ZERO.widen(header.number);
        let len = u64::try_from(datagram.len()).unwrap_or(0);
        let Some(plaintext) = crate::session::open(&key, number, header, datagram) else {
            self.stats.dropped_forged = self.stats.dropped_forged.saturating_add(1);
            return;
        };
        let confirm = match FirstFrames::find(plaintext, &self.config.channels) {
            FirstFrames::Confirm(confirm) => confirm,
            FirstFrames::Close => {
                // Who holds the keys has given up, and nobody was told of a session.
                self.stats.packets = self.stats.packets.saturating_add(1);
                self.remove(now, id);
                return;
            }
            FirstFrames::Other => {
                self.stats.dropped_unconfirmed = self.stats.dropped_unconfirmed.saturating_add(1);
                return;
            }
        };
        let Some(proof) = self.prove(now, id, &confirm) else {
            self.stats.dropped_unconfirmed = self.stats.dropped_unconfirmed.saturating_add(1);
            return;
        };
        let verdict = self.judge(now, &confirm, proof.as_ref());
        let proof = proof.unwrap_or(Proof::Anonymous);
        let Some(Slot::HalfOpen(half_open)) = self.slots.take(id) else {
            return;
        };
        self.release_half_open(&half_open);
        self.stats.packets = self.stats.packets.saturating_add(1);
        let first = First {
            proof,
            verdict,
            number,
            len,
            plaintext,
        };
        self.open_session(now, arrival, (id, *half_open), first);
    }

    /// Turns a half-open attempt into a session, or into one that only says why it is refused.
    fn open_session(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        (id, half_open): (SessionId, HalfOpen<Admitted>),
        first: First<'_>,
    ) {
        let First {
            proof,
            verdict,
            number,
            len,
            plaintext,
        } = first;
        let (source, began) = (half_open.source, half_open.accepted_at);
        let (mut received, mut sent) = (len, 0_u64);
        if arrival.peer == half_open.first {
            received = received.saturating_add(HELLO_LEN);
            sent = sent.saturating_add(u64::try_from(half_open.accept.len()).unwrap_or(0));
        }
        let path = Path::on_trial(arrival, (received, sent), half_open.reached);
        let start = SessionStart {
            role: Role::Accepter,
            path,
            peer_cid: half_open.client_cid,
            suite: half_open.suite,
            secrets: half_open.secrets,
            peer_params: verdict.params,
            // The ACCEPT left once, and this packet is the one that answers it.
            round_trip: (!half_open.was_repeated && number == PacketNumber::ZERO)
                .then(|| now.saturating_since(half_open.accepted_at)),
            confirm: None,
            proof: proof.clone(),
            source: Some(source.ip()),
            timeouts: Timeouts::of(&self.config),
        };
        let mut session = Session::new(
            now,
            &self.config,
            &self.provider,
            &mut self.generator,
            start,
        );
        if let Some(code) = verdict.refusal {
            if code == CloseCode::PeerIdentity {
                self.stats.refused_identity = self.stats.refused_identity.saturating_add(1);
            }
            if let Proof::Token(grant) = &proof {
                self.tokens.end(grant.token_id);
            }
            session.refuse(now, code);
            self.slots.put(id, Slot::Session(Box::new(session)));
            self.settle(now, id);
            return;
        }
        session.take_first(now, number, plaintext);
        self.slots.put(id, Slot::Session(Box::new(session)));
        self.note_resettable(id);
        if let Proof::Token(grant) = &proof {
            self.seat(now, id, grant);
        }
        let address = arrival.real_source.unwrap_or(arrival.peer);
        self.connected(now, (id, began), address, proof);
    }

    /// Returns what a first packet proves: nothing where peer mode's IDENTITY does not verify, and
    /// `None` where the packet is to come again, with an IDENTITY or when there is a budget for it.
    fn prove(
        &mut self,
        now: Instant,
        id: SessionId,
        confirm: &Confirm,
    ) -> Option<Result<Proof, FalseIdentity>> {
        let Some(Slot::HalfOpen(half_open)) = self.slots.get_mut(id) else {
            return None;
        };
        match &half_open.grant {
            Admitted::Token(grant) => Some(Ok(Proof::Token((**grant).clone()))),
            Admitted::Open => Some(Ok(Proof::Anonymous)),
            Admitted::Peer => {
                let (key, signature) = confirm.identity?;
                let listener = self.listener.as_mut()?;
                // One verify for each slot, charged like the rest of the attempt.
                listener.ec_validated.take_exempt(now).ok()?;
                let claim = IdentityClaim {
                    th1: &half_open.th1,
                    dialler: key.node_id(),
                    accepter: listener.node,
                    confirm: &confirm.body,
                };
                let is_good = claim.verify(&self.provider, &key, &signature);
                Some(
                    is_good
                        .then(|| Proof::Node(key.node_id()))
                        .ok_or(FalseIdentity),
                )
            }
        }
    }

    /// Decides whether what was proved lets its owner in.
    fn judge(
        &self,
        now: Instant,
        confirm: &Confirm,
        proof: Result<&Proof, &FalseIdentity>,
    ) -> Verdict {
        let (params, digest) = confirm.body.split_at(crate::handshake::params::LEN);
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
        let Ok(proof) = proof else {
            return Verdict {
                params,
                refusal: Some(CloseCode::PeerIdentity),
            };
        };
        let refusal = if digest != self.channel_digest {
            Some(CloseCode::ChannelConfig)
        } else if let Proof::Node(node) = proof
            && let Some(allowed) = &self.allowed_nodes
            && !allowed.contains(node)
        {
            Some(CloseCode::PeerIdentity)
        } else if let Proof::Token(grant) = proof
            && self.is_outdone(grant)
        {
            // Another attempt of the player has opened since the HELLO.
            Some(CloseCode::Replaced)
        } else if let Proof::Token(grant) = proof
            && self.barred.contains(now, grant.client_id)
        {
            // A session of the player's has broken the protocol since.
            Some(CloseCode::Kicked)
        } else {
            None
        };
        Verdict { params, refusal }
    }
}

/// Bytes of the HELLO that came before a first packet.
const HELLO_LEN: u64 = 1_200;

/// What a first packet must hold.
struct Confirm {
    body: [u8; CONFIRM_LEN],
    identity: Option<(crypto::PublicKey, [u8; 64])>,
}

/// What the first packet of an attempt is for.
enum FirstFrames {
    /// It opens a session.
    Confirm(Confirm),
    /// It ends the attempt, whatever else it holds.
    Close,
    /// Neither, or it cannot be read.
    Other,
}

impl FirstFrames {
    fn find(plaintext: &[u8], channels: &ChannelTable) -> Self {
        let mut body = None;
        let mut identity = None;
        let mut is_close = false;
        for frame in Frames::new(plaintext, channels) {
            match frame {
                Ok(Frame::Confirm {
                    params,
                    channel_digest,
                }) => body = Some(confirm_body(params, channel_digest)),
                Ok(Frame::Identity {
                    public_key,
                    signature,
                }) => {
                    identity = Some((crypto::PublicKey(*public_key), *signature));
                }
                Ok(Frame::Close { .. }) => is_close = true,
                Ok(
                    Frame::Ping
                    | Frame::Ack(_)
                    | Frame::PathChallenge(_)
                    | Frame::PathResponse(_)
                    | Frame::Window(_)
                    | Frame::Time(_)
                    | Frame::Message(_),
                ) => {}
                Err(_) => return Self::Other,
            }
        }
        match body {
            _ if is_close => Self::Close,
            Some(body) => Self::Confirm(Confirm { body, identity }),
            None => Self::Other,
        }
    }
}

/// An IDENTITY that does not verify.
struct FalseIdentity;

/// The first packet of an attempt, opened and judged.
struct First<'a> {
    proof: Proof,
    verdict: Verdict,
    number: PacketNumber,
    /// Bytes of its datagram.
    len: u64,
    plaintext: &'a [u8],
}

struct Verdict {
    params: Params,
    refusal: Option<CloseCode>,
}

/// CONFIRM without its type, as IDENTITY signs it.
pub(super) fn confirm_body(
    params: &[u8; crate::handshake::params::LEN],
    digest: &[u8; 16],
) -> [u8; CONFIRM_LEN] {
    let mut body = [0; CONFIRM_LEN];
    for (to, from) in body.iter_mut().zip(params.iter().chain(digest)) {
        *to = *from;
    }
    body
}
