//! Admission of a HELLO and of an attempt's first packet, cheapest checks first; TWP/1, section
//! 3.8.
//!
//! A HELLO with a wrong cookie (if one is required), token or PSK mac causes no elliptic-curve
//! operation, takes no slot, and costs at most three hashes.

use core::net::SocketAddr;

use crypto::token::{TokenError, TokenHeader};
use crypto::{Audience, ConnectToken, Initial, Provider, Role, Secret32};
use wire::codec::concat;
use wire::{Arrival, Instant, SourceKey};

use super::listener::{EC_BURST, Listener, is_exempt};
use super::{Endpoint, Reply, ReplyBody, Slot};
use crate::channel::ChannelTable;
use crate::config::RetryPolicy;
use crate::config::Timeouts;
use crate::error::CloseCode;
use crate::event::{Grant, Proof};
use crate::frame::{Frame, Frames};
use crate::handshake::Mode;
use crate::handshake::half_open::HalfOpen;
use crate::handshake::half_open::TokenState;
use crate::handshake::hello::{Hello, Hello0, Preamble};
use crate::handshake::params::Params;
use crate::handshake::reply::{Refuse, Retry};
use crate::handshake::{CONFIRM_LEN, IdentityClaim};
use crate::packet::{Header, KeyPhase, PacketNumber};
use crate::session::{Path, Session, SessionStart};
use crate::slots::SessionId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloOutcome {
    Accepted,
    AcceptRepeated,
    Retried,
    Refused,
    VersionOffered,
    Malformed,
    OtherApp,
    ModeNotServed,
    BadToken,
    TokenExpired,
    TokenClock,
    TokenUsed,
    BadPsk,
    OverAnswerBudget,
    NoHalfOpenSlot,
    OverAcceptBudget,
    BadPoint,
    Overload,
}

impl HelloOutcome {
    /// Returns the code to send for rejected credentials. A wrong PSK is no honest mistake: no
    /// answer.
    const fn reason(self) -> Option<CloseCode> {
        match self {
            Self::BadToken => Some(CloseCode::TokenInvalid),
            Self::TokenExpired => Some(CloseCode::TokenExpired),
            Self::TokenClock => Some(CloseCode::TokenClock),
            Self::TokenUsed => Some(CloseCode::TokenUsed),
            Self::OtherApp => Some(CloseCode::Application),
            Self::ModeNotServed => Some(CloseCode::Mode),
            Self::Accepted
            | Self::AcceptRepeated
            | Self::Retried
            | Self::Refused
            | Self::VersionOffered
            | Self::Malformed
            | Self::BadPsk
            | Self::OverAnswerBudget
            | Self::NoHalfOpenSlot
            | Self::OverAcceptBudget
            | Self::BadPoint
            | Self::Overload => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Admitted {
    Token(Box<Grant>),
    Open,
    /// The network secret; its identity follows in the first packet.
    Peer,
}

#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) now: Instant,
    pub(super) arrival: &'a Arrival<SocketAddr>,
    pub(super) hello: Hello<'a>,
    pub(super) hello0: Hello0<'a>,
    pub(super) mode: Mode,
    pub(super) sender: SocketAddr,
    /// The player's address if an exit reported it; per-source limits apply to it.
    pub(super) source: SocketAddr,
    /// It carried a valid cookie for this sender and HELLO.
    pub(super) has_cookie: bool,
}

impl<P: Provider> Endpoint<P> {
    /// Processes a HELLO. Steps 1 and 2, block list and length, were done before.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &[u8],
    ) -> HelloOutcome {
        let Some(mut listener) = self.listener.take_if(|listener| !listener.is_shut) else {
            return HelloOutcome::ModeNotServed;
        };
        let outcome = self.admit(now, &mut listener, arrival, datagram);
        self.listener = Some(listener);
        outcome
    }

    fn admit(
        &mut self,
        now: Instant,
        listener: &mut Listener<P>,
        arrival: &Arrival<SocketAddr>,
        datagram: &[u8],
    ) -> HelloOutcome {
        let (mut candidate, cookie) = match self.read_hello(now, listener, arrival, datagram) {
            Ok(read) => read,
            Err(outcome) => return outcome,
        };
        // 5: a wrong or expired cookie is treated as absent.
        candidate.has_cookie = cookie.is_some_and(|cookie| {
            let bearer = (arrival.peer, &candidate.hello0);
            listener
                .cookies
                .is_valid(now, &mut self.provider, &cookie, bearer)
        });
        // 6: a repeat of a half-open attempt.
        let attempt = listener
            .attempts
            .may_know(candidate.hello.hello_id)
            .then(|| self.provider.sha256(&candidate.hello0.parts()));
        if let Some(known) = attempt.and_then(|attempt| listener.attempts.get(&attempt)) {
            return self.repeat(listener, &candidate, known);
        }
        // 7: a cookie if required.
        if !candidate.has_cookie && self.wants_cookie(listener, &candidate) {
            return self.retry(listener, &candidate);
        }
        // 8: token, 8b: PSK mac.
        let (admitted, initial) = match self.open_credentials(listener, &candidate) {
            Ok(opened) => opened,
            Err(outcome) => {
                let hello = (candidate.hello.version, candidate.hello.hello_id);
                return self.refuse_unproved(now, listener, (arrival, hello), outcome);
            }
        };
        // 9: the player, and room for a session.
        if let Some(code) = self.refusal(&admitted, &candidate) {
            return self.refuse(listener, &candidate, (&initial, code));
        }
        // 10 to 12.
        self.accept(listener, &candidate, (admitted, initial))
    }

    /// Steps 2 to 4.
    fn read_hello<'a>(
        &mut self,
        now: Instant,
        listener: &mut Listener<P>,
        arrival: &'a Arrival<SocketAddr>,
        datagram: &'a [u8],
    ) -> Result<(Candidate<'a>, Option<[u8; 32]>), HelloOutcome> {
        let source = arrival.real_source.unwrap_or(arrival.peer);
        let preamble = Preamble::decode(datagram).map_err(|_| HelloOutcome::Malformed)?;
        let is_spoken = self.config.versions.contains(preamble.version);
        let attempt = (arrival, (preamble.version, preamble.hello_id));
        if preamble.app_id != self.app_id.0 {
            if !is_spoken {
                return Err(HelloOutcome::OtherApp);
            }
            return Err(self.refuse_unproved(now, listener, attempt, HelloOutcome::OtherApp));
        }
        if !is_spoken {
            if !listener.may_answer(now, source) {
                return Err(HelloOutcome::OverAnswerBudget);
            }
            self.reply(arrival, ReplyBody::Version(preamble.hello_id));
            return Err(HelloOutcome::VersionOffered);
        }
        let hello = Hello::decode(datagram).map_err(|_| HelloOutcome::Malformed)?;
        let hello0 = Hello0::new(datagram).ok_or(HelloOutcome::Malformed)?;
        let mode = hello.mode();
        if !listener.serves(mode) {
            return Err(self.refuse_unproved(now, listener, attempt, HelloOutcome::ModeNotServed));
        }
        if mode == Mode::Peer && hello.client_cid.len() < 4 {
            return Err(HelloOutcome::Malformed);
        }
        let candidate = Candidate {
            now,
            arrival,
            hello,
            hello0,
            mode,
            sender: arrival.peer,
            source,
            has_cookie: false,
        };
        Ok((candidate, hello.cookie))
    }

    /// Step 6b: the same attempt gets the same ACCEPT, from its first address or with a cookie.
    fn repeat(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        known: SessionId,
    ) -> HelloOutcome {
        let Some(Slot::HalfOpen(half_open)) = self.slots.get_mut(known) else {
            return HelloOutcome::Overload;
        };
        if candidate.has_cookie {
            // Before the ACCEPT is sent to another address.
            half_open.reached = candidate.sender;
        }
        if half_open.first != candidate.sender && !candidate.has_cookie {
            return self.retry(listener, candidate);
        }
        if !listener.may_answer(candidate.now, candidate.source) {
            return HelloOutcome::OverAnswerBudget;
        }
        half_open.was_repeated = true;
        self.reply(candidate.arrival, ReplyBody::Accept(known));
        HelloOutcome::AcceptRepeated
    }

    /// Step 7.
    fn wants_cookie(&self, listener: &Listener<P>, candidate: &Candidate<'_>) -> bool {
        let is_pending_elsewhere = || {
            let header = TokenHeader::decode(candidate.hello.token).ok();
            let state = header.and_then(|header| self.tokens.state(header.token_id));
            matches!(state, Some(TokenState::Pending { first, .. }) if first != candidate.sender)
        };
        candidate.mode != Mode::Token
            || self.config.retry == RetryPolicy::Always
            || listener.attempts.len() > usize::from(self.config.half_open_max / 4)
            || listener.budgets.ec_unvalidated.available(candidate.now) < EC_BURST / 2
            || is_pending_elsewhere()
    }

    fn retry(&mut self, listener: &mut Listener<P>, candidate: &Candidate<'_>) -> HelloOutcome {
        if !listener.may_answer(candidate.now, candidate.source) {
            return HelloOutcome::OverAnswerBudget;
        }
        let cookie = listener.cookies.issue(
            candidate.now,
            &mut self.provider,
            candidate.sender,
            &candidate.hello0,
        );
        let retry = Retry {
            version: candidate.hello.version,
            hello_id: candidate.hello.hello_id,
            cookie,
        };
        self.reply(candidate.arrival, ReplyBody::Retry(retry));
        HelloOutcome::Retried
    }

    /// Steps 8 and 8b.
    fn open_credentials(
        &self,
        listener: &Listener<P>,
        candidate: &Candidate<'_>,
    ) -> Result<(Admitted, Initial), HelloOutcome> {
        match candidate.mode {
            Mode::Open => Ok((Admitted::Open, Initial::new(&self.provider, None))),
            Mode::Peer => {
                let network = listener
                    .network
                    .as_ref()
                    .ok_or(HelloOutcome::ModeNotServed)?;
                [Some(&network.secret), network.previous.as_ref()]
                    .into_iter()
                    .flatten()
                    .find_map(|secret| self.proves_psk(candidate, secret))
                    .map(|initial| (Admitted::Peer, initial))
                    .ok_or(HelloOutcome::BadPsk)
            }
            Mode::Token => {
                let token = self.open_token(listener, candidate.hello.token)?;
                if self.tokens.state(token.header.token_id) == Some(TokenState::Consumed) {
                    return Err(HelloOutcome::TokenUsed);
                }
                let initial = self
                    .proves_psk(candidate, &token.grant.psk)
                    .ok_or(HelloOutcome::BadPsk)?;
                Ok((Admitted::Token(Box::new(Grant::from(token))), initial))
            }
        }
    }

    fn open_token(
        &self,
        listener: &Listener<P>,
        sealed: &[u8],
    ) -> Result<ConnectToken, HelloOutcome> {
        let unix = self.unix_time().ok_or(HelloOutcome::BadToken)?;
        let header = TokenHeader::decode(sealed).map_err(|_| HelloOutcome::BadToken)?;
        let audience = Audience {
            app_id: self.app_id.0,
            server_id: listener.instance,
        };
        listener
            .token_keys
            .iter()
            .find(|key| key.id() == header.key_id)
            .ok_or(HelloOutcome::BadToken)?
            .open(&self.provider, audience, unix, sealed)
            .map_err(|error| match error {
                TokenError::Expired => HelloOutcome::TokenExpired,
                TokenError::Lifetime | TokenError::NotYetIssued => HelloOutcome::TokenClock,
                TokenError::Length(_)
                | TokenError::Version(_)
                | TokenError::UnknownKey(_)
                | TokenError::Forged
                | TokenError::Malformed
                | TokenError::OtherServer(_)
                | _ => HelloOutcome::BadToken,
            })
    }

    /// Returns the start of the key schedule if the HELLO's mac proves possession of `psk`.
    fn proves_psk(&self, candidate: &Candidate<'_>, psk: &Secret32) -> Option<Initial> {
        let initial = Initial::new(&self.provider, Some(psk));
        let mac = initial.hello_mac(&self.provider, &candidate.hello0.mac_parts());
        crypto::equal(&mac, &candidate.hello.psk_mac).then_some(initial)
    }

    /// Step 9: returns why the player, or anyone, is refused.
    fn refusal(&self, admitted: &Admitted, candidate: &Candidate<'_>) -> Option<CloseCode> {
        let (source, hello) = (candidate.source, &candidate.hello);
        // A downgrade: an attacker made the client believe that we support less.
        if hello.version < hello.version_max.min(self.config.versions.best()) {
            return Some(CloseCode::Downgrade);
        }
        if let Admitted::Token(grant) = admitted
            && self.is_superseded(grant)
        {
            return Some(CloseCode::Replaced);
        }
        if let Admitted::Token(grant) = admitted
            && self.bans.contains(self.now, grant.client_id)
        {
            return Some(CloseCode::Kicked);
        }
        let replaced = self.replaced_session(admitted);
        let replaces_from_here = replaced
            .and_then(|session| session.counted_source)
            .is_some_and(|replaced| SourceKey::of(replaced) == SourceKey::of(source.ip()));
        let of_source = self.sources.held(SourceKey::of(source.ip()));
        let is_source_full = !is_exempt(&self.config, source)
            && of_source.saturating_sub(replaces_from_here.into())
                >= self.config.sessions_per_source_max.into();
        // A player who replaces a session needs a slot until the old one is freed.
        let is_full = match replaced {
            Some(_) => self.slots.is_full(),
            None => self.is_full(),
        };
        if is_full {
            return Some(CloseCode::Full);
        }
        is_source_full.then_some(CloseCode::SourceFull)
    }

    fn replaced_session(&self, admitted: &Admitted) -> Option<&Session<P::Aead>> {
        let Admitted::Token(grant) = admitted else {
            return None;
        };
        self.session(self.players.get(&grant.client_id)?.session)
    }

    fn refuse(
        &mut self,
        listener: &mut Listener<P>,
        candidate: &Candidate<'_>,
        (initial, code): (&Initial, CloseCode),
    ) -> HelloOutcome {
        if !listener.may_answer(candidate.now, candidate.source) {
            return HelloOutcome::OverAnswerBudget;
        }
        let mut refuse = Refuse {
            version: candidate.hello.version,
            hello_id: candidate.hello.hello_id,
            reason: code.to_wire(),
            mac: [0; 16],
        };
        if candidate.mode != Mode::Open {
            refuse.mac = initial.refuse_mac(&self.provider, &[&refuse.covered()]);
        }
        self.reply(candidate.arrival, ReplyBody::Refuse(refuse));
        HelloOutcome::Refused
    }

    /// Refuses a HELLO without proof, within the budget for such answers. Returns `outcome`.
    fn refuse_unproved(
        &mut self,
        now: Instant,
        listener: &mut Listener<P>,
        (arrival, (version, hello_id)): (&Arrival<SocketAddr>, (u32, u64)),
        outcome: HelloOutcome,
    ) -> HelloOutcome {
        let source = arrival.real_source.unwrap_or(arrival.peer);
        if let Some(code) = outcome.reason()
            && listener.may_answer(now, source)
        {
            let refuse = Refuse {
                version,
                hello_id,
                reason: code.to_wire(),
                mac: [0; 16],
            };
            self.reply(arrival, ReplyBody::Refuse(refuse));
        }
        outcome
    }

    /// Queues a reply to a handshake datagram; at most one per datagram.
    pub(super) fn reply(&mut self, arrival: &Arrival<SocketAddr>, body: ReplyBody) {
        self.replies.push_back(Reply {
            destination: arrival.peer,
            source: arrival.local,
            body,
        });
    }

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
            // Key updates require an acknowledged packet, and there is none yet.
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
                // The holder of the keys gave up before a session was reported.
                self.stats.packets = self.stats.packets.saturating_add(1);
                self.remove(now, id);
                return;
            }
            FirstFrames::Other => {
                self.stats.dropped_unconfirmed = self.stats.dropped_unconfirmed.saturating_add(1);
                return;
            }
        };
        let Some(proof) = self.verify_first(now, id, &confirm) else {
            self.stats.dropped_unconfirmed = self.stats.dropped_unconfirmed.saturating_add(1);
            return;
        };
        let verdict = self.admission(now, &confirm, proof.as_ref());
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

    /// Turns a half-open attempt into a session, or into one that only sends a CLOSE.
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
            // The ACCEPT was sent once, and this packet is the first answer to it.
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
            self.after_session(now, id);
            return;
        }
        session.take_first(now, number, plaintext);
        self.slots.put(id, Slot::Session(Box::new(session)));
        self.note_resettable(id);
        if let Proof::Token(grant) = &proof {
            self.on_player_connected(now, id, grant);
        }
        let address = arrival.real_source.unwrap_or(arrival.peer);
        self.connected(now, (id, began), address, proof);
    }

    /// Returns what a first packet proves; `None` if it must be repeated, with an IDENTITY or when
    /// the budget allows.
    fn verify_first(
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
                // One verification per slot, charged like the rest of the attempt.
                listener.budgets.ec_validated.take_exempt(now).ok()?;
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

    fn admission(
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
            && self.is_superseded(grant)
        {
            // Another attempt of the player has opened since the HELLO.
            Some(CloseCode::Replaced)
        } else if let Proof::Token(grant) = proof
            && self.bans.contains(now, grant.client_id)
        {
            // A session of the player has violated the protocol since.
            Some(CloseCode::Kicked)
        } else {
            None
        };
        Verdict { params, refusal }
    }
}

impl From<ConnectToken> for Grant {
    fn from(ConnectToken { header, grant }: ConnectToken) -> Self {
        Self {
            token_id: header.token_id,
            client_id: grant.client_id,
            match_id: grant.match_id,
            seat: grant.seat,
            team: grant.team,
            issued_at: grant.issued_at,
            expires_at: grant.expires_at,
            user: grant.user.as_bytes().to_vec(),
        }
    }
}

/// Bytes of the HELLO that preceded a first packet.
const HELLO_LEN: u64 = 1_200;

struct Confirm {
    body: [u8; CONFIRM_LEN],
    identity: Option<(crypto::PublicKey, [u8; 64])>,
}

enum FirstFrames {
    /// It opens a session.
    Confirm(Confirm),
    /// It ends the attempt, regardless of other frames.
    Close,
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

struct FalseIdentity;

struct First<'a> {
    proof: Proof,
    verdict: Verdict,
    number: PacketNumber,
    /// Datagram length in bytes.
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
    concat(&[params, digest])
}
