//! Mutual authentication by identity keys in TLS 1.3.
//!
//! Follows RFC 8446, with raw public keys in place of certificates (RFC 7250). rustls and ring
//! verify that the peer signed the handshake with its key, whose hash is its node id. There is no
//! certificate authority, no name and no expiry, so no clock is read. Sessions are not resumed:
//! every connection proves both keys again.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCert,
};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme, version,
};
use wire::NodeId;

use crate::{Identity, PublicKey};

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
    /// [`KeyRefused`] if the TLS library rejects the key. No such key is known.
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

    /// Returns what a server presents to prove this identity.
    #[must_use]
    pub fn server_key(&self) -> Arc<dyn ResolvesServerCert> {
        let key = Arc::clone(&self.key);
        Arc::new(AlwaysResolvesServerRawPublicKeys::new(key))
    }
}

wire::debug_fields!(TlsIdentity, this { node: this.node });

/// The TLS library rejected a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRefused;

wire::error_text! { KeyRefused {
    Self => "the identity key was refused by the TLS library",
}}

/// Returns the configuration of a client that accepts only what `verifier` admits.
///
/// It proves `own`, or stays anonymous. `protocol` is the only ALPN name (RFC 7301).
///
/// # Errors
///
/// The TLS library's error; none is known.
pub fn client_config(
    own: Option<&TlsIdentity>,
    verifier: NodeVerifier,
    protocol: &[u8],
) -> Result<ClientConfig, Error> {
    let own = OwnKey(own.map(|own| Arc::clone(&own.key)));
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(NoClock))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(own));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// Returns the configuration of a server that presents `own` and admits what `verifier` does.
///
/// `protocol` is the only ALPN name (RFC 7301).
///
/// # Errors
///
/// The TLS library's error; none is known.
pub fn server_config(
    own: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
    protocol: &[u8],
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(NoClock))
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(own);
    config.alpn_protocols = vec![protocol.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Returns the algorithms of all connections.
///
/// Key agreement: X25519 and P-256. Signatures of identities: P-256. All suites of TLS 1.3; QUIC's
/// initial packets need AES-128-GCM.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
    Arc::new(provider)
}

/// Returns the node of a raw public key; `None` unless it has the one canonical encoding.
#[must_use]
pub fn node_of(spki: &[u8]) -> Option<NodeId> {
    let key = PublicKey::parse(spki.strip_prefix(&SPKI_PREFIX)?).ok()?;
    Some(key.node_id())
}

/// Verifies that the peer holds the key of an admitted node.
pub struct NodeVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    admit: Box<dyn Fn(NodeId) -> Result<(), Error> + Send + Sync>,
    is_mandatory: bool,
}

impl NodeVerifier {
    /// Returns a verifier of the nodes for which `admit` returns no error.
    pub fn new(admit: impl Fn(NodeId) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self {
            algorithms: provider().signature_verification_algorithms,
            admit: Box::new(admit),
            is_mandatory: true,
        }
    }

    /// Also admits clients without a key.
    #[must_use]
    pub const fn or_anonymous(mut self) -> Self {
        self.is_mandatory = false;
        self
    }

    fn check(&self, key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let node = node_of(key).filter(|_| others.is_empty());
        (self.admit)(node.ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?)
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

wire::debug_fields!(NodeVerifier);

/// The methods that both verifier traits have.
macro_rules! tls13_with_raw_keys {
    () => {
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
    };
}

impl ServerCertVerifier for NodeVerifier {
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

    tls13_with_raw_keys!();
}

impl ClientCertVerifier for NodeVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
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
        self.check(key, others)
            .map(|()| ClientCertVerified::assertion())
    }

    tls13_with_raw_keys!();
}

/// The key that a client proves; `None` if it is anonymous.
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

/// A constant clock for rustls: raw keys do not expire, and there are no tickets.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::ZERO))
    }
}

/// Signature schemes of the handshake.
const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];
/// DER prefix of a 65-byte P-256 key; RFC 5480, section 2.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
