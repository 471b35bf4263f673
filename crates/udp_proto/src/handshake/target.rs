//! The target of a connection: addresses, credentials, and the expected signer of an ACCEPT.

use core::net::SocketAddr;

use crypto::certificate::{CertificateError, Expected};
use crypto::{ClientGrant, Provider, PublicKey, Secret32};
use wire::address::{canonical, check_destination};
use wire::{InstanceId, NodeId, UnixTime};

use super::accept::{self, AcceptBody, IdentityForm};
use super::hello;
use super::hello::Hello0;
use crate::error::ConnectError;

/// The target of a connection.
#[derive(Debug)]
pub struct Target {
    /// The server's addresses, tried in turn; 1 to 8. Unusable ones are skipped
    /// ([`wire::address::check_destination`]).
    pub addresses: Vec<SocketAddr>,
    /// The expected signer.
    pub server: ServerIdentity,
    /// How to authenticate.
    pub credentials: Credentials,
}

/// The signer that a client expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// The holder of one of these keys: 1 to 4, without duplicates. One signature is checked
    /// against each in turn.
    Keys(Vec<PublicKey>),
    /// The holder of the key with this hash.
    Node(NodeId),
    /// A server with a [`Certificate`](crypto::Certificate) of one of these root keys: 1 or 2,
    /// without duplicates. Requires [`Endpoint::set_unix_time`](crate::Endpoint::set_unix_time).
    Roots {
        /// Today's root key, and the next or previous one.
        keys: Vec<PublicKey>,
        /// The instance that the certificate must name, if known; `None` accepts any server of the
        /// application.
        server: Option<InstanceId>,
    },
}

/// How a client authenticates.
pub enum Credentials {
    /// A sealed connect token and its PSK.
    Token {
        /// As sealed by the matchmaker; at most 1,000 bytes.
        token: Vec<u8>,
        /// As received from the matchmaker over a secure channel.
        psk: Secret32,
    },
    /// No credentials, for servers in open mode.
    Open,
    /// The network secret and our identity, for nodes of one mesh. The endpoint must listen.
    Peer,
}

impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Token { .. } => "Token(..)",
            Self::Open => "Open",
            Self::Peer => "Peer",
        })
    }
}

impl From<&ClientGrant> for Target {
    fn from(grant: &ClientGrant) -> Self {
        Self {
            addresses: grant.addresses.as_slice().to_vec(),
            server: ServerIdentity::Keys(grant.server_keys.as_slice().to_vec()),
            credentials: Credentials::Token {
                token: grant.token.as_bytes().to_vec(),
                psk: grant.psk.clone(),
            },
        }
    }
}

/// Most server keys, as many as a grant can list.
const SERVER_KEYS_MAX: usize = 4;
/// Most root keys: rotation needs two.
const ROOT_KEYS_MAX: usize = 2;

impl Target {
    /// Most addresses of a target, as many as a token can list.
    pub const ADDRESSES_MAX: usize = 8;

    /// Canonicalizes the addresses ([`wire::address::canonical`]) and removes unusable ones.
    /// [`Endpoint::connect`](crate::Endpoint::connect) does the same.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Destination`] if none is left; the addresses are unchanged.
    pub fn settle_addresses(&mut self) -> Result<(), ConnectError> {
        let is_usable = |address: &SocketAddr| check_destination(*address).is_ok();
        if !self.addresses.iter().any(is_usable)
            && let Some(first) = self.addresses.first()
        {
            check_destination(*first)?;
        }
        self.addresses.retain(is_usable);
        for address in &mut self.addresses {
            *address = canonical(*address);
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        let count = self.addresses.len();
        if count == 0 || count > Self::ADDRESSES_MAX {
            return Err(ConnectError::Addresses(count));
        }
        let mut rest = match &self.server {
            ServerIdentity::Keys(keys) if !(1..=SERVER_KEYS_MAX).contains(&keys.len()) => {
                return Err(ConnectError::ServerKeys(keys.len()));
            }
            ServerIdentity::Roots { keys, .. } if !(1..=ROOT_KEYS_MAX).contains(&keys.len()) => {
                return Err(ConnectError::RootKeys(keys.len()));
            }
            ServerIdentity::Keys(keys) | ServerIdentity::Roots { keys, .. } => keys.as_slice(),
            ServerIdentity::Node(_) => &[],
        };
        while let [key, others @ ..] = rest {
            if others.contains(key) {
                return Err(ConnectError::ServerKeyRepeated);
            }
            rest = others;
        }
        self.credentials.check()
    }
}

impl Credentials {
    const fn check(&self) -> Result<(), ConnectError> {
        match self {
            Self::Token { token, .. } if token.len() > hello::TOKEN_LEN_MAX => {
                Err(ConnectError::TokenLength(token.len()))
            }
            Self::Token { .. } | Self::Open | Self::Peer => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SignedAccept<'a> {
    pub(crate) hello0: Hello0<'a>,
    pub(crate) clear: &'a [u8],
    pub(crate) body: &'a AcceptBody,
}

/// Inputs of certificate verification besides the root keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerifyContext {
    pub(crate) app_id: u64,
    pub(crate) unix: Option<UnixTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerifyError {
    /// No accepted key made the signature.
    Signature,
    /// The certificate's key made the signature, but the certificate is not accepted.
    Certificate(CertificateError),
}

impl ServerIdentity {
    pub(crate) fn signer<P: Provider>(
        &self,
        provider: &P,
        accept: &SignedAccept<'_>,
        context: VerifyContext,
    ) -> Result<PublicKey, VerifyError> {
        let SignedAccept {
            hello0,
            clear,
            body,
        } = *accept;
        let form = [body.identity.code()];
        let parts =
            accept::signed_parts(hello0.parts(), clear, &form, &body.identity, &body.params);
        let message = accept::signed_message(&provider.sha256(&parts));
        let has_signed = |key: &&PublicKey| provider.verify(key, &message, &body.signature);
        let named = match &body.identity {
            IdentityForm::Pinned => None,
            IdentityForm::RawKey(key) => Some(*key),
            IdentityForm::Certified(certificate) => Some(certificate.subject().key),
        };
        let signer = match (self, named) {
            (Self::Keys(keys), None) => keys.iter().find(has_signed).copied(),
            (Self::Keys(keys), Some(key)) => keys.contains(&key).then_some(key),
            (Self::Node(node), Some(key)) => (key.node_id() == *node).then_some(key),
            (Self::Roots { .. }, Some(key)) => Some(key),
            (Self::Node(_) | Self::Roots { .. }, None) => None,
        };
        let signer = signer.ok_or(VerifyError::Signature)?;
        if named.is_some() && !has_signed(&&signer) {
            return Err(VerifyError::Signature);
        }
        match (self, &body.identity) {
            (Self::Roots { keys, server }, IdentityForm::Certified(certificate)) => {
                let expected = Expected {
                    roots: keys,
                    app_id: context.app_id,
                    server_id: *server,
                    now: context.unix,
                };
                certificate
                    .check(provider, &expected)
                    .map_err(VerifyError::Certificate)?;
            }
            // A key without a certificate proves nothing to a client that knows only root keys.
            (Self::Roots { .. }, _) => return Err(VerifyError::Signature),
            // Known by its key or hash, so no certificate is needed.
            (Self::Keys(_) | Self::Node(_), _) => {}
        }
        Ok(signer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::hello;
    use crypto::certificate::Subject;
    use crypto::{Certificate, Identity, Ring};
    use wire::InstanceId;

    /// The certificate is genuine and public; its presenter must hold its key.
    #[test]
    fn twp_k4_a_certificate_is_useless_without_its_key() {
        let mut provider = Ring::new();
        let identities = [(); 3].map(|()| Identity::generate(&mut provider).unwrap());
        let [root, server, other_key] = &identities;
        let subject = Subject {
            key: *server.public_key(),
            server_id: InstanceId(1),
            not_after: UnixTime::from_secs(9),
        };
        let certificate = Certificate::issue(&mut provider, root, 7, &subject).unwrap();
        let trust = ServerIdentity::Roots {
            keys: vec![*root.public_key()],
            server: None,
        };
        let context = VerifyContext {
            app_id: 7,
            unix: Some(UnixTime::from_secs(9)),
        };
        let (datagram, clear) = ([0; hello::LEN], [3; accept::CLEAR_LEN]);
        let hello0 = Hello0::new(&datagram).unwrap();
        let mut sign = |signer: &Identity, identity| {
            let mut body = AcceptBody {
                identity,
                params: [5; 40],
                signature: [0; 64],
            };
            let form = [identity.code()];
            let parts =
                accept::signed_parts(hello0.parts(), &clear, &form, &identity, &body.params);
            let message = accept::signed_message(&provider.sha256(&parts));
            let key = provider.signing_key(signer).unwrap();
            body.signature = provider.sign(&key, &message).unwrap();
            let accept = SignedAccept {
                hello0,
                clear: &clear,
                body: &body,
            };
            trust.signer(&provider, &accept, context)
        };
        let certified = IdentityForm::Certified(certificate);
        assert_eq!(sign(server, certified), Ok(*server.public_key()));
        for (signer, identity) in [
            (other_key, certified),
            (root, certified),
            (root, IdentityForm::RawKey(*root.public_key())),
            (other_key, IdentityForm::RawKey(*other_key.public_key())),
            (server, IdentityForm::Pinned),
        ] {
            assert_eq!(sign(signer, identity), Err(VerifyError::Signature));
        }
    }
}
