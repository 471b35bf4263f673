//! What a server does with a HELLO, cheapest checks first; TWP/1, section 3.8.
//!
//! A HELLO whose required cookie, token or PSK mac is wrong never reaches an elliptic-curve call
//! and never takes a slot: at most three hashes are spent on it.

use core::net::SocketAddr;

use crypto::token::{TokenError, TokenHeader};
use crypto::{Audience, ConnectToken, Initial, Provider, Secret32};
use wire::{Arrival, Instant};

use super::listener::{EC_BURST, Listener, is_exempt};
use super::sources::Sources;
use super::{Endpoint, Reply, ReplyBody, Slot};
use crate::budget::prefix_of;
use crate::config::RetryPolicy;
use crate::error::CloseCode;
use crate::event::Grant;
use crate::handshake::Mode;
use crate::handshake::hello::{Hello, Hello0, HelloError, Preamble};
use crate::handshake::reply::{Refuse, Retry};
use crate::handshake::token_cache::TokenState;
use crate::session::Session;
use crate::slots::SessionId;

/// What became of a HELLO; each is a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
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

impl Fate {
    /// Returns what the sender is told of credentials that were not taken. A wrong PSK is no player's
    /// mistake, and hears nothing.
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

/// What a client of a half-open session has shown.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// A token and its PSK.
    Token(Box<Grant>),
    /// Nothing.
    Open,
    /// The network secret; its identity comes with the first packet.
    Peer,
}

/// A HELLO with what the checks have found out about it.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) now: Instant,
    pub(super) arrival: &'a Arrival<SocketAddr>,
    pub(super) hello: Hello<'a>,
    pub(super) hello0: Hello0<'a>,
    pub(super) mode: Mode,
    pub(super) sender: SocketAddr,
    /// The player's address where an exit told it; limits go by it.
    pub(super) source: SocketAddr,
    /// It brought a cookie that we made for this sender and HELLO.
    pub(super) has_cookie: bool,
}

impl<P: Provider> Endpoint<P> {
    /// Takes a HELLO. Steps 1 and 2 of the order, block list and length, are done.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        arrival: &Arrival<SocketAddr>,
        datagram: &[u8],
    ) -> Fate {
        let Some(mut listener) = self.listener.take_if(|listener| !listener.is_shut) else {
            return Fate::ModeNotServed;
        };
        let fate = self.admit(now, &mut listener, arrival, datagram);
        self.listener = Some(listener);
        fate
    }

    fn admit(
        &mut self,
        now: Instant,
        listener: &mut Listener<P>,
        arrival: &Arrival<SocketAddr>,
        datagram: &[u8],
    ) -> Fate {
        let (candidate, cookie) = match self.read_hello(now, listener, arrival, datagram) {
            Ok(read) => read,
            Err(fate) => return fate,
        };
        let mut candidate = candidate;
        // 5: a wrong or old cookie counts as none.
        candidate.has_cookie = cookie.is_some_and(|cookie| {
            let bearer = (arrival.peer, &candidate.hello0);
            listener
                .cookies
                .is_valid(now, &mut self.provider, &cookie, bearer)
        });
        // 6: a repeat of an attempt that waits.
        let attempt = listener
            .attempts
            .may_know(candidate.hello.hello_id)
            .then(|| self.provider.sha256(&candidate.hello0.parts()));
        if let Some(known) = attempt.and_then(|attempt| listener.attempts.get(&attempt)) {
            return self.repeat(listener, &candidate, known);
        }
        // 7: a cookie where one is required.
        if !candidate.has_cookie && self.wants_cookie(listener, &candidate) {
            return self.retry(listener, &candidate);
        }
        // 8: token, 8b: PSK mac.
        let (admitted, initial) = match self.open_credentials(listener, &candidate) {
            Ok(opened) => opened,
            Err(fate) => {
                let hello = (candidate.hello.version, candidate.hello.hello_id);
                return self.deny(now, listener, (arrival, hello), fate);
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
    ) -> Result<(Candidate<'a>, Option<[u8; 32]>), Fate> {
        let source = arrival.real_source.unwrap_or(arrival.peer);
        let preamble = Preamble::decode(datagram).map_err(|_| Fate::Malformed)?;
        let is_spoken = self.config.versions.contains(preamble.version);
        let attempt = (arrival, (preamble.version, preamble.hello_id));
        if preamble.app_id != self.app_id.0 {
            if !is_spoken {
                return Err(Fate::OtherApp);
            }
            return Err(self.deny(now, listener, attempt, Fate::OtherApp));
        }
        if !is_spoken {
            if !listener.answers.take(now, prefix_of(source.ip())) {
                return Err(Fate::OverAnswerBudget);
            }
            self.reply(arrival, ReplyBody::Version(preamble.hello_id));
            return Err(Fate::VersionOffered);
        }
        let hello = Hello::decode(datagram).map_err(|error: HelloError| match error {
            HelloError::Length | HelloError::Version | HelloError::Range => Fate::Malformed,
        })?;
        let hello0 = Hello0::new(datagram).ok_or(Fate::Malformed)?;
        let mode = hello.mode();
        if !listener.serves(mode) {
            return Err(self.deny(now, listener, attempt, Fate::ModeNotServed));
        }
        if mode == Mode::Peer && hello.client_cid.len() < 4 {
            return Err(Fate::Malformed);
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
    ) -> Fate {
        let Some(Slot::HalfOpen(half_open)) = self.slots.get_mut(known) else {
            return Fate::Overload;
        };
        if candidate.has_cookie {
            // Before the ACCEPT goes anywhere but to its first address.
            half_open.reached = candidate.sender;
        }
        if half_open.first != candidate.sender && !candidate.has_cookie {
            return self.retry(listener, candidate);
        }
        if !listener
            .answers
            .take(candidate.now, prefix_of(candidate.source.ip()))
        {
            return Fate::OverAnswerBudget;
        }
        half_open.was_repeated = true;
        self.reply(candidate.arrival, ReplyBody::Accept(known));
        Fate::AcceptRepeated
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
            || listener.ec_unvalidated.available(candidate.now) < EC_BURST / 2
            || is_pending_elsewhere()
    }

    fn retry(&mut self, listener: &mut Listener<P>, candidate: &Candidate<'_>) -> Fate {
        if !listener
            .answers
            .take(candidate.now, prefix_of(candidate.source.ip()))
        {
            return Fate::OverAnswerBudget;
        }
        let cookie = listener.cookies.issue(
            candidate.now,
            &mut self.provider,
            candidate.sender,
            &candidate.hello0,
        );
        let hello_id = candidate.hello.hello_id;
        self.reply(
            candidate.arrival,
            ReplyBody::Retry(Retry {
                version: candidate.hello.version,
                hello_id,
                cookie,
            }),
        );
        Fate::Retried
    }

    /// Steps 8 and 8b.
    fn open_credentials(
        &self,
        listener: &Listener<P>,
        candidate: &Candidate<'_>,
    ) -> Result<(Admitted, Initial), Fate> {
        match candidate.mode {
            Mode::Open => Ok((Admitted::Open, Initial::new(&self.provider, None))),
            Mode::Peer => {
                let network = listener.network.as_ref().ok_or(Fate::ModeNotServed)?;
                [Some(&network.secret), network.previous.as_ref()]
                    .into_iter()
                    .flatten()
                    .find_map(|secret| self.proves_psk(candidate, secret))
                    .map(|initial| (Admitted::Peer, initial))
                    .ok_or(Fate::BadPsk)
            }
            Mode::Token => {
                let token = self.open_token(listener, candidate.hello.token)?;
                if self.tokens.state(token.header.token_id) == Some(TokenState::Consumed) {
                    return Err(Fate::TokenUsed);
                }
                let initial = self
                    .proves_psk(candidate, &token.grant.psk)
                    .ok_or(Fate::BadPsk)?;
                Ok((Admitted::Token(Box::new(Grant::from(token))), initial))
            }
        }
    }

    fn open_token(&self, listener: &Listener<P>, sealed: &[u8]) -> Result<ConnectToken, Fate> {
        let unix = self.unix_time().ok_or(Fate::BadToken)?;
        let header = TokenHeader::decode(sealed).map_err(|_| Fate::BadToken)?;
        let audience = Audience {
            app_id: self.app_id.0,
            server_id: listener.instance,
        };
        listener
            .token_keys
            .iter()
            .find(|key| key.id() == header.key_id)
            .ok_or(Fate::BadToken)?
            .open(&self.provider, audience, unix, sealed)
            .map_err(|error| match error {
                TokenError::Expired => Fate::TokenExpired,
                TokenError::Lifetime | TokenError::NotYetIssued => Fate::TokenClock,
                TokenError::Length(_)
                | TokenError::Version(_)
                | TokenError::UnknownKey(_)
                | TokenError::Forged
                | TokenError::Malformed
                | TokenError::OtherServer(_)
                | _ => Fate::BadToken,
            })
    }

    /// Returns the key schedule's start where the HELLO's mac shows that its sender has `psk`.
    fn proves_psk(&self, candidate: &Candidate<'_>, psk: &Secret32) -> Option<Initial> {
        let initial = Initial::new(&self.provider, Some(psk));
        let mac = initial.hello_mac(&self.provider, &candidate.hello0.mac_parts());
        crypto::equal(&mac, &candidate.hello.psk_mac).then_some(initial)
    }

    /// Step 9: why this player, or anyone, is not let in.
    fn refusal(&self, admitted: &Admitted, candidate: &Candidate<'_>) -> Option<CloseCode> {
        let (source, hello) = (candidate.source, &candidate.hello);
        // Somebody between us has a client believe that we speak less than we do.
        if hello.version < hello.version_max.min(self.config.versions.best()) {
            return Some(CloseCode::Downgrade);
        }
        if let Admitted::Token(grant) = admitted
            && self.is_outdone(grant)
        {
            return Some(CloseCode::Replaced);
        }
        if let Admitted::Token(grant) = admitted
            && self.barred.contains(self.now, grant.client_id)
        {
            return Some(CloseCode::Kicked);
        }
        let leaving = self.leaving(admitted);
        let is_leaving_from_here = leaving
            .and_then(Session::counted_source)
            .is_some_and(|left| Sources::are_counted_together(left, source.ip()));
        let of_source = self.sources.count(source.ip());
        let is_crowded = !is_exempt(&self.config, source)
            && of_source.saturating_sub(is_leaving_from_here.into())
                >= self.config.sessions_per_source_max;
        // Who takes his own place needs a slot until his old session has gone.
        let is_full = match leaving {
            Some(_) => self.slots.is_full(),
            None => self.is_full(),
        };
        if is_full {
            return Some(CloseCode::Full);
        }
        is_crowded.then_some(CloseCode::SourceFull)
    }

    /// Returns the session that gives way to the one of `admitted`, once that opens.
    fn leaving(&self, admitted: &Admitted) -> Option<&Session<P::Aead>> {
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
    ) -> Fate {
        if !listener
            .answers
            .take(candidate.now, prefix_of(candidate.source.ip()))
        {
            return Fate::OverAnswerBudget;
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
        Fate::Refused
    }

    /// Answers a HELLO whose sender cannot be shown a proof, as far as the budget for answers goes, with
    /// the reason of `fate`; returns that.
    fn deny(
        &mut self,
        now: Instant,
        listener: &mut Listener<P>,
        (arrival, (version, hello_id)): (&Arrival<SocketAddr>, (u32, u64)),
        fate: Fate,
    ) -> Fate {
        let source = arrival.real_source.unwrap_or(arrival.peer);
        if let Some(code) = fate.reason()
            && listener.answers.take(now, prefix_of(source.ip()))
        {
            let refuse = Refuse {
                version,
                hello_id,
                reason: code.to_wire(),
                mac: [0; 16],
            };
            self.reply(arrival, ReplyBody::Refuse(refuse));
        }
        fate
    }

    /// Queues a reply to the sender of a handshake datagram: one for each at most.
    pub(super) fn reply(&mut self, arrival: &Arrival<SocketAddr>, body: ReplyBody) {
        self.replies.push_back(Reply {
            destination: arrival.peer,
            source: arrival.local,
            body,
        });
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
