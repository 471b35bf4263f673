//! A certificate authority for one run, and the lobby's certificate from it.
//!
//! It stands in for a public authority: clients trust it because they were given its certificate,
//! and check the chain, the name and the time as they would any other.

use std::error::Error;
use std::sync::Arc;

use clap::ValueEnum;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

/// What shall be wrong with the lobby's certificate, to see that clients refuse it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Its time is over.
    Expired,
    /// It is for another host.
    OtherName,
}

/// Makes an authority and, by it, a certificate for this host; returns the authority's certificate
/// in PEM, and what a lobby needs. Nobody keeps the authority's key.
pub(crate) fn issue(fault: Fault) -> Result<(String, Arc<ServerConfig>), Box<dyn Error>> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    // By another name than any other run's, as authorities have.
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

/// What a client needs that trusts the authority in `pem`, and no other.
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
