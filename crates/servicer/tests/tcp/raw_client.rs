//! Peers that violate the protocol: raw TLS with keys, bytes and names that the test chooses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crypto::{Identity, PublicKey, Ring};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned,
};

use crate::harness::TIMEOUT;

pub(crate) const PROTOCOL: &[u8] = b"tickwire-records/1";

/// A TLS stream to a node, controlled by the test.
pub(crate) type RawClient = StreamOwned<ClientConnection, TcpStream>;

/// What a stranger presents.
pub(crate) struct RawIdentity {
    pub(crate) public: PublicKey,
    pub(crate) signer: Arc<dyn SigningKey>,
    pub(crate) protocol: Option<&'static [u8]>,
}

impl RawIdentity {
    /// A new identity, presented correctly.
    pub(crate) fn honest() -> Self {
        let identity = Identity::generate(&mut Ring::new()).unwrap();
        Self {
            public: *identity.public_key(),
            signer: signer(&identity),
            protocol: Some(PROTOCOL),
        }
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        let key = CertificateDer::from(spki(&self.public));
        Arc::new(CertifiedKey::new(vec![key], Arc::clone(&self.signer)))
    }

    pub(crate) fn client(&self, address: SocketAddr) -> ClientConnection {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny))
            .with_client_cert_resolver(Arc::new(Always(self.certified())));
        config.alpn_protocols = self.protocol.iter().map(|it| it.to_vec()).collect();
        config.enable_sni = false;
        let name = ServerName::from(address.ip());
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    /// A server that accepts any client.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(AcceptAny))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                self.certified(),
            )));
        config.alpn_protocols = self.protocol.iter().map(|it| it.to_vec()).collect();
        Arc::new(config)
    }

    /// Accepts one connection and sends `first` on it.
    pub(crate) fn serve(&self, first: &'static [u8]) -> SocketAddr {
        let config = self.server();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let tls = ServerConnection::new(config).unwrap();
            let mut stream = StreamOwned::new(tls, stream);
            drop(stream.write_all(first));
            read_to_end(stream);
        });
        address
    }

    /// Connects; the handshake runs with the first write or read.
    pub(crate) fn dial(&self, address: SocketAddr) -> RawClient {
        StreamOwned::new(self.client(address), plain(address))
    }
}

/// Reads the empty record with which the accepting end confirms.
pub(crate) fn read_confirmation(raw_client: &mut RawClient) {
    let mut header = [9; 4];
    raw_client.read_exact(&mut header).unwrap();
    assert_eq!(header, [0; 4]);
}

/// Reads until the other end closes, orderly or not.
pub(crate) fn read_to_end(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4_096];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..len]);
    }
    bytes
}

pub(crate) fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// The first flight of a client.
pub(crate) fn client_hello(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    RawIdentity::honest()
        .client(address)
        .write_tls(&mut bytes)
        .unwrap();
    bytes
}

/// Writes a header that announces `len` bytes, and some of them.
pub(crate) fn write_partial_record(raw_client: &mut RawClient, len: u32, bytes: &[u8]) {
    raw_client.write_all(&len.to_be_bytes()).unwrap();
    raw_client.write_all(bytes).unwrap();
    raw_client.flush().unwrap();
}

pub(crate) fn signer(identity: &Identity) -> Arc<dyn SigningKey> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(identity.to_pem().as_bytes()).unwrap();
    rustls::crypto::ring::sign::any_ecdsa_type(&PrivateKeyDer::Pkcs8(key)).unwrap()
}

fn spki(key: &PublicKey) -> Vec<u8> {
    let pem = key.to_pem().unwrap();
    rustls::pki_types::SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .to_vec()
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesClientCert for Always {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
    fn only_raw_public_keys(&self) -> bool {
        true
    }
    fn has_certs(&self) -> bool {
        true
    }
}

/// Accepts any certificate.
#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only TLS 1.3 is spoken")
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AcceptAny {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only TLS 1.3 is spoken")
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
