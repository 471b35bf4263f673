//! Certificate authorities that dials trust.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, RootCertStore, version};

use super::tls;
use crate::Clock;

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
        let mut config = ClientConfig::builder_with_details(tls::provider(), Arc::new(WallClock))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|_| AuthoritiesError::BadCertificate)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![tls::PROTOCOL.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
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

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").finish_non_exhaustive()
    }
}

/// A host to dial: its name and the authorities trusted for it. From [`Authorities::host`].
#[derive(Clone)]
pub struct Host {
    pub(super) name: ServerName<'static>,
    pub(super) config: Arc<ClientConfig>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("name", &self.name.to_str())
            .finish_non_exhaustive()
    }
}

/// Why authorities cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// The text holds no certificate.
    NoCertificate,
    /// A certificate is malformed.
    BadCertificate,
}

impl fmt::Display for AuthoritiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate => "there is no certificate in what should be authorities in PEM",
            Self::BadCertificate => "the certificate of an authority cannot be read",
        })
    }
}

impl std::error::Error for AuthoritiesError {}

/// A host name is neither a DNS name nor an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHostName;

impl fmt::Display for BadHostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a host's name is a DNS name or an IP address, without a port")
    }
}

impl std::error::Error for BadHostName {}

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
    Unfit,
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
            Self::Unfit
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its certificate has expired",
            Self::NotYetValid => "its certificate is not valid yet",
            Self::OtherName => "its certificate is for another name",
            Self::UnknownAuthority => "its certificate is by an authority that is not trusted",
            Self::Unfit => "its certificate is not one of a server, or broken",
        })
    }
}

/// The wall clock of this process, for rustls.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since_epoch = core::time::Duration::from_secs(Clock::new().unix_time().as_secs());
        Some(UnixTime::since_unix_epoch(since_epoch))
    }
}
