//! Where a datagram goes: by its first byte, then by the attempt or session that it names.

use core::net::SocketAddr;

use crypto::{Provider, Role};
use wire::{Arrival, Instant};

use super::admission::{Admitted, Fate};
use super::{Endpoint, Slot};
use crate::channel::ChannelTable;
use crate::error::CloseCode;
use crate::event::{Event, Proof};
use crate::frame::{Frame, Frames};
use crate::handshake::dial::Accepted;
use crate::handshake::half_open::HalfOpen;
use crate::handshake::params::{DATAGRAM_MAX, Params};
use crate::handshake::peer::{CONFIRM_LEN, IdentityClaim};
use crate::handshake::reply::{Refuse, Retry, Versions};
use crate::packet::{Header, Kind, PacketNumber};
use crate::session::{Opened, Path, Session, SessionStart};
use crate::slots::SessionId;

impl<P: Provider> Endpoint<P> {
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &mut [u8],
    ) {
        self.stats.bytes_received += u64::try_from(datagram.len()).unwrap_or(0);
        let source = arrival.real_source.unwrap_or(arrival.peer);
        if self.blocked.contains(source.ip()) {
            self.stats.dropped_blocked += 1;
            return;
        }
        if self.events.len() >= self.config.events_max {
            self.stats.dropped_overload += 1;
            return;
        }
        let Some(&first) = datagram.first() else {
            self.stats.dropped_length += 1;
            return;
        };
        if datagram.len() > usize::from(DATAGRAM_MAX) {
            self.stats.dropped_length += 1;
            return;
        }
        match Kind::of(first) {
            Kind::Hello => {
                let fate = self.on_hello(now, arrival, datagram);
                self.count(fate);
            }
            Kind::Retry | Kind::Accept | Kind::Refuse | Kind::Version => {
                if self.on_reply(now, arrival, datagram) {
                    self.stats.replies += 1;
                } else {
                    self.stats.dropped_reply += 1;
                }
            }
            Kind::Protected => self.on_packet(now, arrival, datagram),
            Kind::Envelope | Kind::NotOurs => self.stats.dropped_first_byte += 1,
        }
    }

    const fn count(&mut self, fate: Fate) {
        let stats = &mut self.stats;
        let counter = match fate {
            Fate::Accepted => &mut stats.accepted,
            Fate::AcceptRepeated => &mut stats.accept_repeated,
            Fate::Retried => &mut stats.retried,
            Fate::Refused => &mut stats.refused,
            Fate::VersionOffered => &mut stats.version_offered,
            Fate::Malformed => &mut stats.dropped_malformed,
            Fate::OtherApp => &mut stats.dropped_app,
            Fate::ModeNotServed => &mut stats.dropped_mode,
            Fate::BadToken => &mut stats.dropped_token,
            Fate::TokenUsed => &mut stats.dropped_token_used,
            Fate::BadPsk => &mut stats.dropped_psk,
            Fate::OverAnswerBudget => &mut stats.dropped_answer_budget,
            Fate::NoHalfOpenSlot => &mut stats.dropped_half_open,
            Fate::OverAcceptBudget => &mut stats.dropped_accept_budget,
            Fate::BadPoint => &mut stats.dropped_bad_point,
            Fate::Overload => &mut stats.dropped_overload,
        };
        *counter += 1;
    }

    /// Takes a reply to a HELLO of ours; returns whether it was one.
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
                self.arm(now, id);
                is_taken
            }
            Kind::Version => {
                let versions = Versions::decode(datagram);
                versions.is_ok_and(|versions| {
                    dial.on_versions(&versions);
                    true
                })
            }
            Kind::Refuse => {
                let Ok(refuse) = Refuse::decode(datagram) else {
                    return false;
                };
                if let Some(failure) = dial.on_refuse(&self.provider, &refuse) {
                    self.remove(now, id);
                    self.events.push_back(Event::ConnectFailed {
                        session: id,
                        failure,
                    });
                }
                true
            }
            Kind::Accept => {
                let accepted = dial.on_accept(now, &mut self.provider, arrival.peer, datagram);
                let is_peer = dial.is_peer_mode();
                self.arm(now, id);
                accepted
                    .is_some_and(|accepted| self.on_accepted(now, arrival, id, (accepted, is_peer)))
            }
            Kind::Hello | Kind::Protected | Kind::Envelope | Kind::NotOurs => false,
        }
    }

    /// The dial `id` has become a session.
    fn on_accepted(
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
            path: Path::proved(accepted.remote, arrival.local),
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

    /// Takes a protected packet.
    fn on_packet(&mut self, now: Instant, arrival: &Arrival<SocketAddr>, datagram: &mut [u8]) {
        let cid_len = self.config.cid_len.bytes();
        let Ok(header) = Header::decode(datagram, cid_len) else {
            self.stats.dropped_header += 1;
            return;
        };
        let id = if cid_len == 0 {
            self.by_address.get(&arrival.peer).copied()
        } else {
            self.slots.by_cid(header.destination)
        };
        let Some(id) = id else {
            self.stats.dropped_unknown_session += 1;
            return;
        };
        match self.slots.get_mut(id) {
            Some(Slot::Session(session)) => {
                match session.handle_packet(now, arrival, (&header, datagram)) {
                    Opened::Taken => self.stats.packets += 1,
                    Opened::Replayed => self.stats.dropped_replayed += 1,
                    Opened::Forged => self.stats.dropped_forged += 1,
                    Opened::Late => self.stats.dropped_late += 1,
                }
                self.settle(now, id);
            }
            Some(Slot::HalfOpen(_)) => self.on_first_packet(now, arrival, id, (&header, datagram)),
            Some(Slot::Dial(_)) | None => self.stats.dropped_unknown_session += 1,
        }
    }

    /// Takes a packet for an attempt that waits for its first one.
    fn on_first_packet(
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
        let len = u64::try_from(datagram.len()).unwrap_or(0);
        let Some(plaintext) = crate::session::open(&key, number, header, datagram) else {
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
        let source = half_open.source;
        let (mut received, mut sent) = (len, 0);
        if arrival.peer == half_open.first {
            received += HELLO_LEN;
            sent += u64::try_from(half_open.accept.len()).unwrap_or(0);
        }
        let path = Path::on_trial(arrival, (received, sent), half_open.shown_cookie);
        let start = SessionStart {
            role: Role::Accepter,
            path,
            remote_cid: half_open.client_cid,
            suite: half_open.suite,
            secrets: half_open.secrets,
            remote_params: verdict.params,
            // The ACCEPT left once, and this packet is the one that answers it.
            round_trip: (!half_open.was_repeated && number == PacketNumber::ZERO)
                .then(|| now.saturating_since(half_open.accepted_at)),
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
        if let Proof::Token(grant) = &proof {
            self.seat(now, id, grant);
        }
        let address = arrival.real_source.unwrap_or(arrival.peer);
        self.connected(now, id, address, proof);
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

fn confirm_body(
    params: &[u8; crate::handshake::params::LEN],
    digest: &[u8; 16],
) -> [u8; CONFIRM_LEN] {
    let mut body = [0; CONFIRM_LEN];
    for (to, from) in body.iter_mut().zip(params.iter().chain(digest)) {
        *to = *from;
    }
    body
}

/// Returns the hello id that a reply echoes, wherever its kind keeps it.
fn hello_id(datagram: &[u8]) -> Option<u64> {
    let at = match Kind::of(*datagram.first()?) {
        Kind::Version => 1,
        Kind::Hello
        | Kind::Retry
        | Kind::Accept
        | Kind::Refuse
        | Kind::Protected
        | Kind::Envelope
        | Kind::NotOurs => 5,
    };
    let bytes = datagram.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*bytes))
}
