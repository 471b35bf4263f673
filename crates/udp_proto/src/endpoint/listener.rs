//! State of an endpoint that accepts sessions.

use core::net::SocketAddr;

use crypto::token::TokenKey;
use crypto::{Certificate, Identity, Provider, PublicKey, Secret32};
use wire::{Generator, InstanceId, Instant, NetworkKey, NodeId};

use super::admission::Admitted;
use crate::budget::{AnswerBudget, PrefixShares, Rationed};
use crate::config::Config;
use crate::error::ListenError;
use crate::handshake::Mode;
use crate::handshake::accept::IdentityForm;
use crate::handshake::half_open::{AttemptIndex, HalfOpen};
use crate::handshake::reply::CookieJar;
use crate::handshake::reset::Resets;
use crate::slots::CidLen;

/// The identity of an accepting endpoint, and the modes that it serves.
///
/// Without a token key, open mode or a network secret it accepts no one.
#[derive(Debug)]
pub struct Listen {
    /// Signs every ACCEPT.
    pub identity: Identity,
    /// This run of the server; a token must name it.
    pub instance: InstanceId,
    /// Whether clients may connect without a token.
    pub open: bool,
    /// The secret of this node's mesh, and the previous one during a change.
    pub network: Option<Network>,
    /// A root key's statement about identity and instance, for clients that know only the root key;
    /// see [`with_certificate`](Self::with_certificate).
    pub certificate: Option<Certificate>,
    /// The secret of stateless reset tokens; see [`with_resets`](Self::with_resets).
    pub reset_secret: Option<Secret32>,
}

impl Listen {
    /// A server that accepts clients with a token. Add keys with
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

    /// Accepts clients without a token, for local networks and development.
    #[must_use]
    pub const fn with_open_mode(mut self) -> Self {
        self.open = true;
        self
    }

    /// Enables stateless resets, if [`Config::cid_len`](crate::Config::cid_len) is 8 bytes. With
    /// the same secret and identity after a restart, a client detects its lost session by the
    /// answer to its next packet of 110 bytes or its first probe, instead of the idle timeout; so
    /// does another node.
    ///
    /// Servers that may receive packets of one another's clients must use different secrets: one
    /// that does not know a session would reveal the token that ends it on another (RFC 9000,
    /// section 21.11).
    #[must_use]
    pub fn with_resets(mut self, secret: Secret32) -> Self {
        self.reset_secret = Some(secret);
        self
    }

    /// Presents a certificate for this identity and instance. Clients that pin the key are not
    /// affected.
    #[must_use]
    pub const fn with_certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Accepts nodes that hold `network` and prove an identity key.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }
}

/// The shared secret of a mesh's nodes.
#[derive(Debug)]
pub struct Network {
    /// Used to dial, and accepted.
    pub secret: Secret32,
    /// Accepted during a change of secrets.
    pub previous: Option<Secret32>,
}

pub(crate) struct Listener<P: Provider> {
    pub(crate) key: PublicKey,
    pub(crate) node: NodeId,
    pub(crate) signing_key: P::SigningKey,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) instance: InstanceId,
    pub(crate) is_open: bool,
    /// The endpoint is shut down and accepts no one.
    pub(crate) is_shut: bool,
    pub(crate) network: Option<Network>,
    pub(crate) token_keys: Vec<TokenKey>,
    /// Present if connection ids are long enough.
    pub(crate) resets: Option<Resets>,
    pub(crate) cookies: CookieJar,
    pub(crate) attempts: AttemptIndex,
    pub(crate) budgets: Budgets,
}

pub(crate) struct Budgets {
    pub(crate) half_open_shares: PrefixShares,
    pub(crate) answers: AnswerBudget,
    /// Elliptic-curve work of attempts with a cookie.
    pub(crate) ec_validated: Rationed,
    /// The same without.
    pub(crate) ec_unvalidated: Rationed,
}

/// Burst of attempts of one class that get elliptic-curve work; TWP/1, section 3.8.
pub(crate) const EC_BURST: u32 = 100;
/// Most token keys: today's, yesterday's for the overlap, and two spare.
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
            budgets: Budgets {
                half_open_shares: PrefixShares::new(config.half_open_max.into(), generator),
                answers: AnswerBudget::new(generator),
                ec_validated: Rationed::new(config.accept_rate, EC_BURST, now, generator),
                ec_unvalidated: Rationed::new(
                    config.accept_rate_unvalidated,
                    EC_BURST,
                    now,
                    generator,
                ),
            },
        };
        if !listener.is_valid_certificate(certificate.as_ref()) {
            return Err(ListenError::Certificate);
        }
        listener.certificate = certificate;
        Ok(listener)
    }

    pub(crate) fn release(&mut self, half_open: &HalfOpen<Admitted>) {
        self.attempts.remove(half_open);
        self.budgets
            .half_open_shares
            .release(NetworkKey::of(half_open.source.ip()));
    }

    /// Takes an answer to `source`, whose address is not proved, if the budget allows it.
    pub(crate) fn may_answer(&mut self, now: Instant, source: SocketAddr) -> bool {
        self.budgets.answers.take(now, NetworkKey::of(source.ip()))
    }

    /// Returns whether `certificate` is for this key and instance; `None` is valid.
    pub(crate) fn is_valid_certificate(&self, certificate: Option<&Certificate>) -> bool {
        certificate
            .map(Certificate::subject)
            .is_none_or(|subject| (subject.key, subject.server_id) == (self.key, self.instance))
    }

    /// Returns the form of the key in an ACCEPT: complete if the client may know only its hash.
    pub(crate) const fn identity_form(&self, mode: Mode) -> IdentityForm {
        match (mode, self.certificate) {
            (Mode::Peer, _) => IdentityForm::RawKey(self.key),
            (Mode::Token | Mode::Open, None) => IdentityForm::Pinned,
            (Mode::Token | Mode::Open, Some(certificate)) => IdentityForm::Certified(certificate),
        }
    }

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

/// Returns whether per-source limits do not apply: to loopback, and to exits' own datagrams.
pub(crate) fn is_exempt(config: &Config, source: SocketAddr) -> bool {
    source.ip().to_canonical().is_loopback() || is_trusted_exit(config, source)
}

pub(crate) fn is_trusted_exit(config: &Config, source: SocketAddr) -> bool {
    config.trusted_exits.contains(&source.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use wire::{SourceKey, SourceLimiter};

    use super::*;

    #[test]
    fn sources_are_ipv6_64_prefixes_and_single_ipv4_addresses() {
        let mut sources = SourceLimiter::new(u32::MAX, u32::MAX);
        let key = |text: &str| SourceKey::of(text.parse::<IpAddr>().unwrap());
        for source in ["2001:db8::1", "2001:db8::2", "192.0.2.1"] {
            sources.take(Instant::ZERO, key(source)).unwrap();
        }
        assert_eq!(sources.held(key("2001:db8::3")), 2);
        assert_eq!(sources.held(key("2001:db8:0:1::3")), 0);
        assert_eq!(sources.held(key("::ffff:192.0.2.1")), 1);
        assert_eq!(sources.held(key("192.0.2.2")), 0);
        sources.release(key("2001:db8::9"));
        sources.release(key("2001:db8::9"));
        assert_eq!(sources.sources(), 1);
    }
}
