//! TLS 1.3: what all connections share, and raw public keys between holders of P-256 identities.
//!
//! RFC 8446 for the handshake; RFC 7250 for keys in place of certificates. A key counts as proved
//! once its holder has signed the handshake with it, which rustls and ring check; who it is, is
//! the hash of the key, and nothing else is asked. Sessions are never resumed, so that every
//! connection proves both keys anew.

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

/// What both ends must name (RFC 7301): records of four-byte lengths, an empty one first from the
/// end that accepts.
pub(super) const PROTOCOL: &[u8] = b"tickwire-records/1";

/// A P-256 identity, made ready to be proved over TLS. Clones share it.
#[derive(Clone)]
pub struct TlsIdentity {
    key: Arc<CertifiedKey>,
    node: NodeId,
}

impl TlsIdentity {
    /// Makes `identity` ready.
    ///
    /// # Errors
    ///
    /// [`KeyRefused`] where the cryptography does not take the key; none is known to be refused.
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

    /// Returns the id that others know its holder by.
    pub const fn node_id(&self) -> NodeId {
        self.node
    }

    /// What a listener needs: this identity, and whom it lets in.
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

/// The cryptography does not take a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRefused;

impl fmt::Display for KeyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the identity key was refused by the TLS library")
    }
}

impl std::error::Error for KeyRefused {}

/// Begins a connection to whom `dial` asks for, proving `own` where that is a node.
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

/// What a dial of a node needs: our identity, if it is to be proved, and who shall be there.
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

/// What a listener's settings begin with.
pub(super) fn server_builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])
}

/// Makes a listener speak our protocol only, and resume no session.
pub(super) fn settle(config: &mut ServerConfig) {
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// Returns who is at the other end, after the handshake; `None` where another protocol was agreed.
///
/// Where a host was dialled, its certificate has been checked for its name.
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

/// Returns whom a verifier of this module found instead of whom it would have let pass.
pub(super) fn stranger(error: &Error) -> Option<NodeId> {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else {
        return None;
    };
    cause
        .downcast_ref::<Stranger>()
        .map(|stranger| stranger.found)
}

/// X25519 and P-256 for agreement; AES-GCM and `ChaCha20` for the records; P-256 for signatures.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
    Arc::new(provider)
}

/// What stands before the 65 bytes of a P-256 key in its DER form; RFC 5480, section 2.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

fn to_spki(key: &PublicKey) -> Vec<u8> {
    [&SPKI_PREFIX[..], &key.0[..]].concat()
}

/// Returns whose key this is. There is one way to write a key; others are refused.
fn node_of(spki: &[u8]) -> Result<NodeId, Error> {
    spki.strip_prefix(&SPKI_PREFIX)
        .and_then(|key| PublicKey::parse(key).ok())
        .map(|key| key.node_id())
        .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// As [`node_of`], for a key that came without others.
fn sole_node(key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<NodeId, Error> {
    if others.is_empty() {
        node_of(key)
    } else {
        Err(Error::InvalidCertificate(CertificateError::BadEncoding))
    }
}

/// Checks the signature over the handshake, by which the other end proves that it holds `key`.
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

/// How the handshake is signed.
const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];

/// Somebody proved to be, or claims to be, whom nobody waits for.
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

/// Lets one node pass: the one that was dialled.
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

/// Lets those pass whom a listener admits.
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

/// The key that a dial proves; none for a dial that proves nothing.
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
