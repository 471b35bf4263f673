//! TLS 1.3: the shared setup, and raw public keys for P-256 identities.
//!
//! The handshake follows RFC 8446, with raw public keys in place of certificates (RFC 7250). rustls
//! and ring verify that the peer signed the handshake with its key. The peer's id is the hash of
//! the key; nothing else is checked. Sessions are never resumed, so every connection proves both
//! keys anew.

use std::fmt;
use std::sync::Arc;

use crypto::{Identity, PublicKey};
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
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, DistinguishedName, Error,
    OtherError, PeerIncompatible, ServerConfig, SignatureScheme, WantsVerifier, version,
};
use wire::{NodeId, PeerIdentity};

use super::admission::Admission;
use super::application::{Dial, DialPeer};
use super::connection::{Expected, Side};

/// ALPN name (RFC 7301) of this protocol: records with 4-byte lengths, and an empty first record
/// from the accepter.
pub(super) const PROTOCOL: &[u8] = b"tickwire-records/1";

/// A P-256 identity, prepared for TLS. Clones share it.
#[derive(Clone)]
pub struct TlsIdentity {
    key: Arc<CertifiedKey>,
    node: NodeId,
}

impl TlsIdentity {
    /// Prepares `identity` for TLS.
    ///
    /// # Errors
    ///
    /// [`KeyRefused`] if the crypto library rejects the key. No such key is known.
    pub fn new(identity: &Identity) -> Result<Self, KeyRefused> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(identity.to_pem().as_bytes())
            .map_err(|_| KeyRefused)?;
        let key = ring::sign::any_ecdsa_type(&PrivateKeyDer::Pkcs8(key)).map_err(|_| KeyRefused)?;
        let public = CertificateDer::from(to_spki(identity.public_key()));
        Ok(Self {
            key: Arc::new(CertifiedKey::new(vec![public], key)),
            node: identity.node_id(),
        })
    }

    /// Returns the node id of this identity.
    pub const fn node_id(&self) -> NodeId {
        self.node
    }

    /// Returns the TLS configuration for a listener that admits `admission`.
    pub(super) fn server(&self, admission: Admission) -> Result<Arc<ServerConfig>, KeyRefused> {
        let verifier = Arc::new(DiallerVerifier {
            algorithms: provider().signature_verification_algorithms,
            admission,
        });
        let mut config = server_builder()
            .map_err(|_| KeyRefused)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                Arc::clone(&self.key),
            )));
        settle(&mut config);
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The crypto library rejected a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRefused;

impl fmt::Display for KeyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the identity key was refused by the TLS library")
    }
}

impl std::error::Error for KeyRefused {}

/// Starts the TLS session of a dial. It proves `own` if the peer is a node.
pub(super) fn connect(
    own: Option<&TlsIdentity>,
    dial: &Dial,
) -> Result<rustls::ClientConnection, KeyRefused> {
    let (config, name) = match &dial.peer {
        DialPeer::Node(node) => (client(own, *node)?, ServerName::from(dial.address.ip())),
        DialPeer::Host(host) => (Arc::clone(&host.config), host.name.clone()),
    };
    rustls::ClientConnection::new(config, name).map_err(|_| KeyRefused)
}

/// Returns the TLS configuration for a dial of a node, which proves `own` if given.
fn client(own: Option<&TlsIdentity>, expected: NodeId) -> Result<Arc<ClientConfig>, KeyRefused> {
    let provider = provider();
    let verifier = Arc::new(AccepterVerifier {
        algorithms: provider.signature_verification_algorithms,
        expected,
    });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|_| KeyRefused)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(OwnKey(own.map(|own| Arc::clone(&own.key)))));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Starts the TLS configuration of a listener.
pub(super) fn server_builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])
}

/// Sets the ALPN protocol and disables session resumption.
pub(super) fn settle(config: &mut ServerConfig) {
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// Returns the peer's identity after the handshake; `None` if another protocol was negotiated.
///
/// If a host was dialled, its certificate has been verified for its name.
pub(super) fn peer(tls: &rustls::Connection, side: Side) -> Option<PeerIdentity> {
    if tls.alpn_protocol() != Some(PROTOCOL) {
        return None;
    }
    if let Side::Dialled(_, Expected::Host) = side {
        return Some(PeerIdentity::Host);
    }
    match tls.peer_certificates() {
        None | Some([]) => Some(PeerIdentity::Anonymous),
        Some([key, ..]) => node_of(key).ok().map(PeerIdentity::Node),
    }
}

/// Returns the node that a verifier of this module rejected.
pub(super) fn stranger(error: &Error) -> Option<NodeId> {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else {
        return None;
    };
    cause
        .downcast_ref::<Stranger>()
        .map(|stranger| stranger.found)
}

/// Key agreement: X25519 and P-256. Records: AES-GCM and `ChaCha20`. Signatures: P-256.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
    Arc::new(provider)
}

/// DER bytes before the 65 bytes of a P-256 key; RFC 5480, section 2.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

fn to_spki(key: &PublicKey) -> Vec<u8> {
    [&SPKI_PREFIX[..], &key.0[..]].concat()
}

/// Returns the node of a key. Only the one canonical encoding is accepted.
fn node_of(spki: &[u8]) -> Result<NodeId, Error> {
    spki.strip_prefix(&SPKI_PREFIX)
        .and_then(|key| PublicKey::parse(key).ok())
        .map(|key| key.node_id())
        .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// Like [`node_of`], for a key without intermediate certificates.
fn sole_node(key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<NodeId, Error> {
    if others.is_empty() {
        node_of(key)
    } else {
        Err(Error::InvalidCertificate(CertificateError::BadEncoding))
    }
}

/// Verifies the handshake signature, which proves that the peer holds `key`.
fn verify(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    if !SCHEMES.contains(&signature.scheme) {
        return Err(Error::InvalidCertificate(CertificateError::BadSignature));
    }
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
}

/// Signature schemes of the handshake.
const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];

/// A peer proved or claimed to be a node that is not admitted.
#[derive(Debug)]
struct Stranger {
    found: NodeId,
}

impl Stranger {
    fn error(found: NodeId) -> Error {
        let stranger = Self { found };
        CertificateError::Other(OtherError(Arc::new(stranger))).into()
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} is not the one to be let in", self.found)
    }
}

impl std::error::Error for Stranger {}

/// Accepts only the node that was dialled.
#[derive(Debug)]
struct AccepterVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    expected: NodeId,
}

impl ServerCertVerifier for AccepterVerifier {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = sole_node(key, others)?;
        if found == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Stranger::error(found))
        }
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
        verify(message, key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts the nodes that a listener admits.
#[derive(Debug)]
struct DiallerVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    admission: Admission,
}

impl ClientCertVerifier for DiallerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.admission.admits(&PeerIdentity::Anonymous)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let found = sole_node(key, others)?;
        if self.admission.admits(&PeerIdentity::Node(found)) {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(Stranger::error(found))
        }
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
        verify(message, key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The key that a dial proves; `None` for an anonymous dial.
#[derive(Debug)]
struct OwnKey(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for OwnKey {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let can_sign = schemes.iter().any(|scheme| SCHEMES.contains(scheme));
        self.0.clone().filter(|_| can_sign)
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}
