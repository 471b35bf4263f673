//! Who proves what: the node's own key at both ends, in TLS 1.3 within QUIC.
//!
//! RFC 9001 for TLS in QUIC, RFC 7250 for keys in place of certificates: a key counts as proved once its
//! holder has signed the handshake with it, and who it is, is the hash of the key. There is no authority, no
//! name and no end of validity, so that no clock is asked; no session is resumed.

use core::fmt;
use std::sync::Arc;

use crypto::{Identity, PublicKey};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme, version,
};
use wire::NodeId;

/// A node's identity, made ready to be proved at the ends of tunnels. Clones share it.
#[derive(Clone)]
pub struct TunnelIdentity {
    key: Arc<CertifiedKey>,
    node: NodeId,
}

impl TunnelIdentity {
    /// Makes `identity` ready.
    ///
    /// # Errors
    ///
    /// [`KeyRefused`] where the cryptography does not take the key; none is known to be refused.
    pub fn new(identity: &Identity) -> Result<Self, KeyRefused> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(identity.to_pem().as_bytes())
            .map_err(|_| KeyRefused)?;
        let key = ring::sign::any_ecdsa_type(&PrivateKeyDer::Pkcs8(key)).map_err(|_| KeyRefused)?;
        let public = [&SPKI_PREFIX[..], &identity.public_key().0[..]].concat();
        Ok(Self {
            key: Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key)),
            node: identity.node_id(),
        })
    }

    /// Returns the id that others know its holder by.
    #[must_use]
    pub const fn node_id(&self) -> NodeId {
        self.node
    }

    /// What an entry needs to speak to the exit `far`, and to nobody else.
    pub(super) fn client(&self, far: NodeId) -> Result<Arc<QuicClientConfig>, KeyRefused> {
        let mut config = ClientConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|_| KeyRefused)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OneNode::new(far)))
            .with_client_cert_resolver(Arc::new(OwnKey(Arc::clone(&self.key))));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        let config = QuicClientConfig::try_from(config).map_err(|_| KeyRefused)?;
        Ok(Arc::new(config))
    }

    /// What an exit needs to speak to the entry `far`, and to nobody else.
    pub(super) fn server(&self, far: NodeId) -> Result<Arc<QuicServerConfig>, KeyRefused> {
        let own = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.key));
        let mut config = ServerConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|_| KeyRefused)?
            .with_client_cert_verifier(Arc::new(OneNode::new(far)))
            .with_cert_resolver(Arc::new(own));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = QuicServerConfig::try_from(config).map_err(|_| KeyRefused)?;
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for TunnelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelIdentity")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The cryptography does not take a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRefused;

impl fmt::Display for KeyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the identity key was refused by the TLS library")
    }
}

impl core::error::Error for KeyRefused {}

/// Lets one node pass: the one at the other end of the flow.
#[derive(Debug)]
struct OneNode {
    algorithms: WebPkiSupportedAlgorithms,
    expected: NodeId,
}

impl OneNode {
    fn new(expected: NodeId) -> Self {
        Self {
            algorithms: provider().signature_verification_algorithms,
            expected,
        }
    }

    fn check(&self, key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let found = key
            .strip_prefix(&SPKI_PREFIX)
            .filter(|_| others.is_empty())
            .and_then(|key| PublicKey::parse(key).ok())
            .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if found.node_id() == self.expected {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !SCHEMES.contains(&signature.scheme) {
            return Err(CertificateError::BadSignature.into());
        }
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &key,
            signature,
            &self.algorithms,
        )
    }
}

impl ServerCertVerifier for OneNode {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key, others)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OneNode {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key, others)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The key that an entry proves.
#[derive(Debug)]
struct OwnKey(Arc<CertifiedKey>);

impl ResolvesClientCert for OwnKey {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let can_sign = schemes.iter().any(|scheme| SCHEMES.contains(scheme));
        can_sign.then(|| Arc::clone(&self.0))
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The time that TLS is told: always the same. Keys that stand for themselves do not expire, and
/// there are no tickets that could.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::ZERO))
    }
}

/// X25519 and P-256 for agreement; P-256 for signatures; AES-128-GCM, which QUIC begins with, and the others
/// of TLS 1.3 for packets.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
    Arc::new(provider)
}

/// What both ends must name (RFC 7301): streams that begin with an open record of version 1.
const PROTOCOL: &[u8] = b"tickwire-tunnel/1";
/// How the handshake is signed.
const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];
/// What stands before the 65 bytes of a P-256 key in its DER form; RFC 5480, section 2.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
