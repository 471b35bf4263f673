//! The certificate under which a port is listened on, for those who know its host by name.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig};

use super::tls;

/// A chain of X.509 certificates with the key of the first, to be shown at a port. Clones share it.
///
/// It can be [replaced](Self::replace) while the port is listened on.
#[derive(Clone)]
pub struct HostCertificate {
    shown: Arc<Shown>,
}

impl HostCertificate {
    /// Bytes that the certificates of a chain may have together, in DER: a tenth of it is usual, and
    /// whoever says hello is sent all of it.
    pub const CHAIN_BYTES_MAX: usize = 32 << 10;

    /// Takes a chain in PEM, the host's certificate first and then those that lead to an authority
    /// (which need not be among them), and the host's private key in PEM: PKCS#8, SEC1 or PKCS#1;
    /// P-256, P-384, Ed25519, or RSA of 2,048 bits and more. Other sections are skipped, so that
    /// one file may hold both.
    ///
    /// Whether others will believe it is not asked here: an end that has passed, another name and
    /// an unknown authority are found by whoever dials.
    ///
    /// # Errors
    ///
    /// [`HostCertificateError`], whose text is one sentence for an operator.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, HostCertificateError> {
        let key = Arc::new(load(chain, key, &tls::provider())?);
        let shown = Shown(Mutex::new(key));
        Ok(Self {
            shown: Arc::new(shown),
        })
    }

    /// Takes another chain and key, for all clones: whoever is accepted from now on is shown them.
    /// What is open stays open. May be called from any thread.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem); then the old ones stay.
    pub fn replace(&self, chain: &str, key: &str) -> Result<(), HostCertificateError> {
        let key = Arc::new(load(chain, key, &tls::provider())?);
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }

    /// What a listener needs.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        let shown = Arc::clone(&self.shown);
        let mut config = tls::server_builder()?
            .with_no_client_auth()
            .with_cert_resolver(shown);
        tls::settle(&mut config);
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for HostCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCertificate").finish_non_exhaustive()
    }
}

fn load(
    chain: &str,
    key: &str,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, HostCertificateError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| HostCertificateError::BadCertificate)?;
    if chain.is_empty() {
        return Err(HostCertificateError::NoCertificate);
    }
    let len: usize = chain.iter().map(|certificate| certificate.len()).sum();
    if len > HostCertificate::CHAIN_BYTES_MAX {
        return Err(HostCertificateError::TooLong);
    }
    if chain
        .iter()
        .any(|certificate| ParsedCertificate::try_from(certificate).is_err())
    {
        return Err(HostCertificateError::BadCertificate);
    }
    let key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| HostCertificateError::NoKey)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        if let Error::InconsistentKeys(_) = error {
            HostCertificateError::OtherKey
        } else {
            HostCertificateError::BadKey
        }
    })
}

/// Why a chain and a key cannot be shown at a port; the text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostCertificateError {
    /// There is no certificate in the chain's text.
    NoCertificate,
    /// One of the chain is not a certificate, or its base64 is not.
    BadCertificate,
    /// They have more than [`CHAIN_BYTES_MAX`](HostCertificate::CHAIN_BYTES_MAX) bytes.
    TooLong,
    /// There is no private key in the key's text.
    NoKey,
    /// The key is of a kind that is not taken, or damaged.
    BadKey,
    /// The key is not that of the first certificate.
    OtherKey,
}

impl fmt::Display for HostCertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate => "there is no certificate in what should be a chain in PEM",
            Self::BadCertificate => "one of the chain's certificates cannot be read",
            Self::TooLong => "the chain of certificates is longer than 32 KiB",
            Self::NoKey => "there is no private key in what should be one in PEM",
            Self::BadKey => "the private key cannot be read, or is of a kind that is not taken",
            Self::OtherKey => "the private key is not that of the chain's first certificate",
        })
    }
}

impl std::error::Error for HostCertificateError {}

/// What is shown to whoever comes next.
struct Shown(Mutex<Arc<CertifiedKey>>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&key))
    }
}
