//! What an endpoint that accepts sessions holds besides its sessions.

use core::net::SocketAddr;

use crypto::token::TokenKey;
use crypto::{Certificate, Identity, Provider, PublicKey, Secret32};
use wire::{Generator, InstanceId, Instant, NodeId};

use super::admission::Admitted;
use crate::budget::{AnswerBudget, PrefixShares, Rationed, prefix_of};
use crate::config::Config;
use crate::error::ListenError;
use crate::handshake::Mode;
use crate::handshake::accept::IdentityForm;
use crate::handshake::cookie::CookieJar;
use crate::handshake::half_open::{AttemptIndex, HalfOpen};
use crate::handshake::reset::Resets;
use crate::slots::CidLen;

/// Who an endpoint is to those that connect to it, and in which modes it serves them.
///
/// Without a token key, open mode or a network secret it accepts nobody.
#[derive(Debug)]
pub struct Listen {
    /// Signs every ACCEPT.
    pub identity: Identity,
    /// This run of this server: the only value that is right in a token.
    pub instance: InstanceId,
    /// Whether clients may come without a token.
    pub open: bool,
    /// The secret of the mesh that this node belongs to, and the one before it for an overlap.
    pub network: Option<Network>,
    /// What a root key says of identity and instance, for clients that know no more than that root
    /// key; see [`with_certificate`](Self::with_certificate).
    pub certificate: Option<Certificate>,
    /// What reset tokens are made from; see [`with_resets`](Self::with_resets).
    pub reset_secret: Option<Secret32>,
}

impl Listen {
    /// A server that lets in whoever has a token; keys are added by
    /// [`Endpoint::add_token_key`](crate::Endpoint::add_token_key).
    pub const fn new(identity: Identity, instance: InstanceId) -> Self {
        Self {
            identity,
            instance,
            open: false,
            network: None,
            certificate: None,
            reset_secret: None,
        }
    }

    /// Lets clients in without a token, for play on a local network and for development.
    #[must_use]
    pub const fn with_open_mode(mut self) -> Self {
        self.open = true;
        self
    }

    /// Tells clients of sessions that are lost: with the same secret and identity after a restart, a
    /// client hears of it with its next packet of 110 bytes or its first probe, not by silence. So does another
    /// node, also where this one dialled.
    ///
    /// Only where [`Config::cid_len`](crate::Config::cid_len) is 8 bytes; else nothing is sent. Servers
    /// that packets of one another's clients may reach, by addresses of their own or behind a
    /// balancer, must have secrets of their own: one that does not know a session would hand out the
    /// token that ends it on another (RFC 9000, section 21.11).
    #[must_use]
    pub fn with_resets(mut self, secret: Secret32) -> Self {
        self.reset_secret = Some(secret);
        self
    }

    /// Shows clients a certificate, which must be for this identity and instance. Those that pin the
    /// identity key itself are served as before; [`Endpoint::set_certificate`](crate::Endpoint::set_certificate) changes it.
    #[must_use]
    pub const fn with_certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Lets nodes in that hold `network` and prove an identity key.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }
}

/// The secret that the nodes of one mesh share.
#[derive(Debug)]
pub struct Network {
    /// Shown when dialling, and accepted.
    pub secret: Secret32,
    /// Accepted while nodes change over.
    pub previous: Option<Secret32>,
}

/// The accepting side of an endpoint.
pub(crate) struct Listener<P: Provider> {
    pub(crate) key: PublicKey,
    pub(crate) node: NodeId,
    pub(crate) signing_key: P::SigningKey,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) instance: InstanceId,
    pub(crate) is_open: bool,
    /// The endpoint shuts down: nobody is let in.
    pub(crate) is_shut: bool,
    pub(crate) network: Option<Network>,
    pub(crate) token_keys: Vec<TokenKey>,
    /// Where connection ids are long enough for it.
    pub(crate) resets: Option<Resets>,
    pub(crate) cookies: CookieJar,
    pub(crate) attempts: AttemptIndex,
    pub(crate) half_open_shares: PrefixShares,
    pub(crate) answers: AnswerBudget,
    pub(crate) ec_validated: Rationed,
    pub(crate) ec_unvalidated: Rationed,
}

/// Attempts of one class for which elliptic-curve work is done at once; TWP/1, section 3.8.
pub(crate) const EC_BURST: u32 = 100;
/// Most token keys held at a time: today's, yesterday's for the overlap, and as many again.
pub(crate) const TOKEN_KEYS_MAX: usize = 4;

impl<P: Provider> Listener<P> {
    pub(crate) fn new(
        now: Instant,
        listen: Listen,
        config: &Config,
        provider: &mut P,
        generator: &mut Generator,
    ) -> Result<Self, ListenError> {
        let certificate = listen.certificate;
        let mut listener = Self {
            key: *listen.identity.public_key(),
            node: listen.identity.node_id(),
            signing_key: provider.signing_key(&listen.identity)?,
            certificate: None,
            instance: listen.instance,
            is_open: listen.open,
            is_shut: false,
            network: listen.network,
            token_keys: Vec::new(),
            resets: listen
                .reset_secret
                .filter(|_| config.cid_len == CidLen::Eight)
                .map(|secret| {
                    let names = (secret, listen.identity.node_id());
                    Resets::new(now, names, generator)
                }),
            cookies: CookieJar::new(now, provider)?,
            attempts: AttemptIndex::new(generator),
            half_open_shares: PrefixShares::new(config.half_open_max.into(), generator),
            answers: AnswerBudget::new(generator),
            ec_validated: Rationed::new(config.accept_rate, EC_BURST, now, generator),
            ec_unvalidated: Rationed::new(config.accept_rate_unvalidated, EC_BURST, now, generator),
        };
        if !listener.is_valid_certificate(certificate.as_ref()) {
            return Err(ListenError::Certificate);
        }
        listener.certificate = certificate;
        Ok(listener)
    }

    /// Lets go of an attempt whose slot is free, or becomes a session's.
    pub(crate) fn release(&mut self, half_open: &HalfOpen<Admitted>) {
        self.attempts.remove(half_open);
        self.half_open_shares
            .release(prefix_of(half_open.source.ip()));
    }

    /// Returns whether `certificate` is for this key and instance; none always is.
    pub(crate) fn is_valid_certificate(&self, certificate: Option<&Certificate>) -> bool {
        certificate
            .map(Certificate::subject)
            .is_none_or(|subject| (subject.key, subject.server_id) == (self.key, self.instance))
    }

    /// Returns how the key is named in an ACCEPT: whole where the client may know only its hash.
    pub(crate) const fn identity_form(&self, mode: Mode) -> IdentityForm {
        match (mode, self.certificate) {
            (Mode::Peer, _) => IdentityForm::RawKey(self.key),
            (Mode::Token | Mode::Open, None) => IdentityForm::Pinned,
            (Mode::Token | Mode::Open, Some(certificate)) => IdentityForm::Certified(certificate),
        }
    }

    /// Returns whether HELLOs of `mode` are served.
    pub(crate) const fn serves(&self, mode: Mode) -> bool {
        match mode {
            Mode::Token => !self.token_keys.is_empty(),
            Mode::Open => self.is_open,
            Mode::Peer => self.network.is_some(),
        }
    }

    /// Returns the low 7 bytes of the instance id.
    pub(crate) const fn boot_id(&self) -> [u8; 7] {
        let [_, low @ ..] = self.instance.0.to_be_bytes();
        low
    }
}

/// Returns whether limits by source do not hold for `source`: loopback, and exits that did not
/// tell whom they speak for.
pub(crate) fn is_exempt(config: &Config, source: SocketAddr) -> bool {
    source.ip().to_canonical().is_loopback() || is_trusted_exit(config, source)
}

/// Returns whether `source` is an exit that may tell whom it speaks for.
pub(crate) fn is_trusted_exit(config: &Config, source: SocketAddr) -> bool {
    config.trusted_exits.contains(&source.ip().to_canonical())
}
