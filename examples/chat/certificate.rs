//! A certificate authority for one run, and the lobby's certificate that it issues.
//!
//! It replaces a public authority: clients have its certificate as their only root, and check the
//! chain, the name and the validity period as usual.

use std::error::Error;
use std::sync::Arc;

use clap::ValueEnum;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

/// A fault in the lobby's certificate, for the test that clients refuse it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The certificate has expired.
    Expired,
    /// The certificate names another host.
    OtherName,
}

/// Creates an authority and issues a certificate for this host. Returns the authority's certificate
/// in PEM and the lobby's TLS configuration. The authority's key is discarded.
pub(crate) fn issue(fault: Fault) -> Result<(String, Arc<ServerConfig>), Box<dyn Error>> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    // Each run's authority has its own name.
    let name = format!("authority of process {}", std::process::id());
    authority.distinguished_name.push(DnType::CommonName, name);
    let authority_key = KeyPair::generate()?;
    let pem = pem_of(authority.self_signed(&authority_key)?.der());
    let names = if fault == Fault::OtherName {
        vec!["lobby.example".to_owned()]
    } else {
        ["localhost", "127.0.0.1", "::1"]
            .map(str::to_owned)
            .to_vec()
    };
    let mut params = CertificateParams::new(names)?;
    if fault == Fault::Expired {
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate()?;
    let issuer = Issuer::new(authority, authority_key);
    let certificate = params.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((pem, Arc::new(config)))
}

/// Returns a client configuration which trusts only the authority in `pem`.
pub(crate) fn trust(pem: &str) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("the file of the authority holds no certificate".into());
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn pem_of(der: &[u8]) -> String {
    use base64ct::{Base64, Encoding};
    let body = Base64::encode_string(der);
    let mut lines = String::new();
    for (index, digit) in body.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            lines.push('\n');
        }
        lines.push(digit);
    }
    format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
}
