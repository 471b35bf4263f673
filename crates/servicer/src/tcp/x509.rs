//! X.509 certificates of hosts, and the authorities that dials trust for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crypto::tls::{provider, server_config};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig, version};

use super::tls::PROTOCOL;
use crate::Clock;

/// An X.509 certificate chain and the private key of its first certificate. Clones share it.
///
/// It can be [replaced](Self::replace) while listeners use it.
#[derive(Clone)]
pub struct HostCertificate {
    shown: Arc<Shown>,
}

impl HostCertificate {
    /// Maximum total size of a chain's certificates, bytes of DER. A tenth of it is usual. Each
    /// handshake sends the whole chain.
    pub const CHAIN_BYTES_MAX: usize = 32 << 10;

    /// Reads a chain and its private key, both in PEM. The host's certificate is first, then the
    /// intermediate ones; the authority's may be left out. The key is PKCS#8, SEC1 or PKCS#1, of
    /// kind P-256, P-384, Ed25519, or RSA with at least 2,048 bits. Other sections are skipped, so
    /// one file may hold both.
    ///
    /// Validity period, name and authority are not checked here. Each dialling peer checks them.
    ///
    /// # Errors
    ///
    /// [`HostCertificateError`]; its text is one sentence for an operator.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, HostCertificateError> {
        let key = Arc::new(load(chain, key, &provider())?);
        let shown = Shown(Mutex::new(key));
        Ok(Self {
            shown: Arc::new(shown),
        })
    }

    /// Replaces chain and key for all clones. New connections use them; open connections are not
    /// affected. May be called from any thread.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem). Then the old chain and key stay in use.
    pub fn replace(&self, chain: &str, key: &str) -> Result<(), HostCertificateError> {
        let key = Arc::new(load(chain, key, &provider())?);
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }

    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        self.server_config(PROTOCOL)
    }

    /// Returns the configuration of a server of another protocol that presents this chain. It
    /// admits all clients, without a certificate. `protocol` is the only ALPN name (RFC 7301).
    ///
    /// # Errors
    ///
    /// The TLS library's error; none is known.
    pub fn server_config(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>, Error> {
        let shown = Arc::clone(&self.shown);
        server_config(shown, WebPkiClientVerifier::no_client_auth(), protocol).map(Arc::new)
    }
}

wire::debug_fields!(HostCertificate);

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

/// Why a chain and a key were rejected. The text is one sentence for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostCertificateError {
    /// The chain's text holds no certificate.
    NoCertificate,
    /// A section of the chain is not valid base64 or not a certificate.
    BadCertificate,
    /// The certificates have more than [`CHAIN_BYTES_MAX`](HostCertificate::CHAIN_BYTES_MAX) bytes.
    TooLong,
    /// The key's text holds no private key.
    NoKey,
    /// The key is malformed or of an unsupported kind.
    BadKey,
    /// The key does not match the first certificate.
    OtherKey,
}

wire::error_text! { HostCertificateError {
    Self::NoCertificate => "there is no certificate in what should be a chain in PEM",
    Self::BadCertificate => "one of the chain's certificates cannot be read",
    Self::TooLong => "the chain of certificates is longer than 32 KiB",
    Self::NoKey => "there is no private key in what should be one in PEM",
    Self::BadKey => "the private key cannot be read, or is of a kind that is not taken",
    Self::OtherKey => "the private key is not that of the chain's first certificate",
}}

struct Shown(Mutex<Arc<CertifiedKey>>);

wire::debug_fields!(Shown);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&key))
    }
}

/// Certificate authorities that are trusted for host names. Clones share them.
///
/// Several can be trusted at once, for example during the change from one to the next.
///
/// A chain is checked in each handshake: its signatures up to a trusted authority (RFC 5280,
/// section 6), its validity period by the wall clock, that it is for a server, and the name (RFC
/// 6125; the common name is ignored). Revocation is not checked. At most 100 signatures are checked
/// for a chain of any length.
#[derive(Clone)]
pub struct Authorities {
    config: Arc<ClientConfig>,
}

impl Authorities {
    /// Trusts the certificates in `pem` and no others. Sections that are no certificates are
    /// skipped.
    ///
    /// # Errors
    ///
    /// [`AuthoritiesError`] if there is no certificate, or one is malformed.
    pub fn from_pem(pem: &str) -> Result<Self, AuthoritiesError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            certificate
                .ok()
                .and_then(|certificate| roots.add(certificate).ok())
                .ok_or(AuthoritiesError::BadCertificate)?;
        }
        if roots.is_empty() {
            return Err(AuthoritiesError::NoCertificate);
        }
        let mut config = ClientConfig::builder_with_details(provider(), Arc::new(WallClock))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|_| AuthoritiesError::BadCertificate)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Returns the host of this DNS name or IP address, to be verified against these authorities.
    ///
    /// # Errors
    ///
    /// [`BadHostName`] if `name` is neither.
    pub fn host(&self, name: &str) -> Result<Host, BadHostName> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| BadHostName)?;
        Ok(Host {
            name,
            config: Arc::clone(&self.config),
        })
    }
}

impl Authorities {
    /// Returns the configuration of a client of another protocol that trusts these authorities.
    /// `protocol` is the only ALPN name (RFC 7301).
    #[must_use]
    pub fn client_config(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }
}

wire::debug_fields!(Authorities);

/// A host to dial: its name and the authorities trusted for it. From [`Authorities::host`].
#[derive(Clone)]
pub struct Host {
    pub(super) name: ServerName<'static>,
    pub(super) config: Arc<ClientConfig>,
}

wire::debug_fields!(
    Host,
    this {
        name: this.name.to_str()
    }
);

/// Why authorities cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// The text holds no certificate.
    NoCertificate,
    /// A certificate is malformed.
    BadCertificate,
}

wire::error_text! { AuthoritiesError {
    Self::NoCertificate => "there is no certificate in what should be authorities in PEM",
    Self::BadCertificate => "the certificate of an authority cannot be read",
}}

/// A host name is neither a DNS name nor an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHostName;

wire::error_text! { BadHostName {
    Self => "a host's name is a DNS name or an IP address, without a port",
}}

/// Why a host's certificate was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// It, or one above it in the chain, has expired by the local clock.
    Expired,
    /// It, or one above it in the chain, is not valid yet by the local clock.
    NotYetValid,
    /// It is for another name.
    OtherName,
    /// The chain does not end in a trusted authority.
    UnknownAuthority,
    /// It is not for a server, it is malformed, or a signature of the chain or of the handshake is
    /// invalid.
    Unusable,
}

impl CertificateFault {
    /// Maps an error of rustls to one that does not change with the library.
    pub(super) const fn of(error: &CertificateError) -> Self {
        use CertificateError as E;
        if matches!(error, E::Expired | E::ExpiredContext { .. }) {
            Self::Expired
        } else if matches!(error, E::NotValidYet | E::NotValidYetContext { .. }) {
            Self::NotYetValid
        } else if matches!(error, E::NotValidForName | E::NotValidForNameContext { .. }) {
            Self::OtherName
        } else if matches!(error, E::UnknownIssuer) {
            Self::UnknownAuthority
        } else {
            Self::Unusable
        }
    }
}

wire::display_text! { CertificateFault {
    Self::Expired => "its certificate has expired",
    Self::NotYetValid => "its certificate is not valid yet",
    Self::OtherName => "its certificate is for another name",
    Self::UnknownAuthority => "its certificate is by an authority that is not trusted",
    Self::Unusable => "its certificate is not one of a server, or broken",
}}

/// The wall clock of this process, for rustls.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since_epoch = Duration::from_secs(Clock::new().unix_time().as_secs());
        Some(UnixTime::since_unix_epoch(since_epoch))
    }
}
