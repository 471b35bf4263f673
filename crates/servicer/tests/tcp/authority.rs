//! Certificate authorities of the tests, and hosts with their certificates.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use servicer::{Authorities, Dial, DialError, HostCertificate};
use wire::{CommandId, ConnectionId, PeerIdentity};

use crate::harness::{HarnessRequest, Node, Setup, TalkerEvent};
use crate::raw_client::{PROTOCOL, RawClient, plain, read_to_end};

/// The name of the hosts here.
pub(crate) const NAME: &str = "game.example";

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, signed by itself or by its parent.
    pub(crate) pem: String,
}

/// A host's certificate chain and its key.
pub(crate) struct Issued {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    /// A self-signed root.
    pub(crate) fn new(name: &str) -> Self {
        let (params, key) = authority(name);
        let pem = pem(params.self_signed(&key).unwrap().der());
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// An intermediate signed by this authority.
    pub(crate) fn below(&self, name: &str) -> Self {
        let (params, key) = authority(name);
        let pem = pem(params.signed_by(&key, &self.issuer).unwrap().der());
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Issues a certificate for [`NAME`] and 127.0.0.1, with `change` applied.
    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names = [NAME, "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            chain: pem(certificate.der()),
            key: key_pem(&key),
        }
    }

    /// A host's valid certificate.
    pub(crate) fn certificate(&self) -> HostCertificate {
        self.issue(|_| ()).certificate()
    }

    pub(crate) fn trusted(&self) -> Authorities {
        Authorities::from_pem(&self.pem).unwrap()
    }
}

impl Issued {
    pub(crate) fn certificate(&self) -> HostCertificate {
        HostCertificate::from_pem(&self.chain, &self.key).unwrap()
    }
}

/// A node with `certificate`.
pub(crate) fn serve(certificate: &HostCertificate) -> Node {
    Setup {
        certificate: Some(certificate.clone()),
        ..Setup::default()
    }
    .start()
}

/// Dials the host [`NAME`] and returns the outcome.
pub(crate) fn dial(
    from: &Node,
    address: SocketAddr,
    authorities: &Authorities,
) -> Result<ConnectionId, DialError> {
    dial_name(from, address, (authorities, NAME))
}

pub(crate) fn dial_name(
    from: &Node,
    address: SocketAddr,
    (authorities, name): (&Authorities, &str),
) -> Result<ConnectionId, DialError> {
    let peer = authorities.host(name).unwrap().into();
    from.ask(HarnessRequest::Dial(8, Dial { address, peer }));
    let mut event = from.next();
    if let TalkerEvent::Opened(_, peer) = event {
        assert_eq!(peer, PeerIdentity::Host);
        event = from.next();
    }
    let TalkerEvent::Dialled(CommandId(8), result) = event else {
        panic!("{event:?}")
    };
    result
}

/// Waits for an anonymous client to connect.
pub(crate) fn accepted_by(host: &Node) -> ConnectionId {
    let TalkerEvent::Opened(there, PeerIdentity::Anonymous) = host.next() else {
        panic!("nobody came in")
    };
    there
}

/// A standard TLS client without raw keys, controlled by the test.
pub(crate) fn dial_raw(address: SocketAddr, authority: &Authority) -> RawClient {
    StreamOwned::new(hello(authority), plain(address))
}

/// The same before the connection.
pub(crate) fn hello(authority: &Authority) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes());
    roots.add(root.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let name = ServerName::try_from(NAME).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// Accepts one connection, presents `chain` and signs with `key`, which does not match.
pub(crate) fn serve_with_foreign_key(chain: &str, key: &str) -> SocketAddr {
    let provider = rustls::crypto::ring::default_provider();
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let raw_identity = CertifiedKey::new(chain.map(Result::unwrap).collect(), key);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(raw_identity)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = ServerConnection::new(Arc::new(config)).unwrap();
    listen(move |io| drop(read_to_end(StreamOwned::new(tls, io))))
}

/// Accepts one connection and calls `then` with it.
pub(crate) fn listen(then: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || then(listener.accept().unwrap().0));
    address
}

fn authority(name: &str) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    (params, KeyPair::generate().unwrap())
}

pub(crate) fn pem(der: &[u8]) -> String {
    labelled("CERTIFICATE", der)
}

fn key_pem(key: &KeyPair) -> String {
    labelled("PRIVATE KEY", key.serialized_der())
}

fn labelled(label: &str, der: &[u8]) -> String {
    use base64ct::{Base64, Encoding};
    let body = Base64::encode_string(der).into_bytes();
    let lines: Vec<_> = body
        .chunks(64)
        .map(|line| core::str::from_utf8(line).unwrap())
        .collect();
    let body = lines.join("\n");
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}
