//! Verification of an ACCEPT's signer.

use crypto::certificate::{CertificateError, Expected};
use crypto::{Certificate, Provider, PublicKey};
use wire::UnixTime;

use super::accept::{self, AcceptBody, IdentityForm};
use super::hello::Hello0;
use super::target::ServerIdentity;

/// An ACCEPT's signature, and what it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignedAccept<'a> {
    pub(crate) hello0: Hello0<'a>,
    /// The clear part.
    pub(crate) clear: &'a [u8],
    pub(crate) body: &'a AcceptBody,
}

/// Inputs of certificate verification besides the root keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) app_id: u64,
    pub(crate) unix: Option<UnixTime>,
}

/// Why an ACCEPT's signer is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerifyError {
    /// No accepted key made the signature.
    Signature,
    /// The certificate's key made the signature, but the certificate is not accepted.
    Certificate(CertificateError),
}

impl ServerIdentity {
    /// Returns the key that signed `accept`, if accepted.
    pub(crate) fn signer<P: Provider>(
        &self,
        provider: &P,
        accept: &SignedAccept<'_>,
        moment: Moment,
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
                    app_id: moment.app_id,
                    server_id: *server,
                    now: moment.unix,
                };
                judge(provider, certificate, &expected)?;
            }
            // A key without a certificate proves nothing to a client that knows only root keys.
            (Self::Roots { .. }, _) => return Err(VerifyError::Signature),
            // Known by its key or hash, so no certificate is needed.
            (Self::Keys(_) | Self::Node(_), _) => {}
        }
        Ok(signer)
    }
}

fn judge<P: Provider>(
    provider: &P,
    certificate: &Certificate,
    expected: &Expected<'_>,
) -> Result<(), VerifyError> {
    certificate
        .check(provider, expected)
        .map(drop)
        .map_err(VerifyError::Certificate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::hello;
    use crypto::certificate::Subject;
    use crypto::{Identity, Ring};
    use wire::InstanceId;

    /// The certificate is genuine and public; its presenter must hold its key.
    #[test]
    fn twp_k4_a_certificate_is_useless_without_its_key() {
        let mut provider = Ring::new();
        let identities = [(); 3].map(|()| Identity::generate(&mut provider).unwrap());
        let [root, server, thief] = &identities;
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
        let moment = Moment {
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
            trust.signer(&provider, &accept, moment)
        };
        let certified = IdentityForm::Certified(certificate);
        assert_eq!(sign(server, certified), Ok(*server.public_key()));
        for (signer, identity) in [
            (thief, certified),
            (root, certified),
            (root, IdentityForm::RawKey(*root.public_key())),
            (thief, IdentityForm::RawKey(*thief.public_key())),
            (server, IdentityForm::Pinned),
        ] {
            assert_eq!(sign(signer, identity), Err(VerifyError::Signature));
        }
    }
}
