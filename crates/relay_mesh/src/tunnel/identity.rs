//! Mutual authentication of a tunnel's ends by their node keys, in QUIC's TLS 1.3.
//!
//! Follows RFC 9001 (TLS in QUIC) and RFC 7250 (raw public keys instead of certificates). A key is
//! proved by the handshake signature, and its hash is the node id. There is no certificate
//! authority, no name and no expiry, so no clock is read. Sessions are not resumed.

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

/// A node's identity, prepared for TLS. Clones share it.
#[derive(Clone)]
pub struct TunnelIdentity {
    key: Arc<CertifiedKey>,
    node: NodeId,
}

impl TunnelIdentity {
    /// Prepares `identity`.
    ///
    /// # Errors
    ///
    /// [`KeyRefused`] if the crypto provider rejects the key; no such key is known.
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

    /// Returns the node id of this identity.
    #[must_use]
    pub const fn node_id(&self) -> NodeId {
        self.node
    }

    /// Returns the client configuration of an entry, which accepts only the exit `far`.
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

    /// Returns the server configuration of an exit, which accepts only the entry `far`.
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

/// The crypto provider rejects a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRefused;

impl fmt::Display for KeyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the identity key was refused by the TLS library")
    }
}

impl core::error::Error for KeyRefused {}

/// Verifier that accepts one node id: the other end of the flow.
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

/// Resolver that returns this node's key.
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

/// A constant clock for rustls: raw keys do not expire, and there are no tickets.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::ZERO))
    }
}

/// X25519 and P-256 for key agreement, P-256 for signatures, AES-128-GCM (required by QUIC's
/// initial packets) and the other TLS 1.3 suites.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
    Arc::new(provider)
}

/// ALPN protocol (RFC 7301): streams that start with an open record of version 1.
const PROTOCOL: &[u8] = b"tickwire-tunnel/1";
/// Signature schemes of the handshake.
const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];
/// DER prefix of a 65-byte P-256 key; RFC 5480, section 2.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
