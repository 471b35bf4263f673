//! Whose word is taken for a host's name.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, RootCertStore, version};

use super::tls;
use crate::Clock;

/// Certificate authorities whose word is taken for the name of a host. Clones share them.
///
/// Several may be trusted at once: so one follows another, by a time in which both are.
///
/// A chain is checked when it is shown: its signatures up to one of these (RFC 5280, section 6), its
/// span by the wall clock, that it is for a server, and the name (RFC 6125; the common name is not
/// looked at). Whether a certificate has been revoked is not asked. However long a chain, at most
/// 100 signatures are checked.
#[derive(Clone)]
pub struct Authorities {
    config: Arc<ClientConfig>,
}

impl Authorities {
    /// Trusts the certificates in `pem`, and no others; sections that are none are skipped.
    ///
    /// # Errors
    ///
    /// [`AuthoritiesError`] where there is none, or one that cannot be read.
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

    /// Returns the host of this name, a DNS name or an IP address, if one of these authorities says
    /// so.
    ///
    /// # Errors
    ///
    /// [`BadHostName`] where it is neither.
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

/// A host to dial, known by its name and by whose word is taken for that; from
/// [`Authorities::host`].
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

/// Why there are no authorities to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// There is no certificate in the text.
    NoCertificate,
    /// One cannot be read.
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

/// What should be the name of a host is neither a DNS name nor an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHostName;

impl fmt::Display for BadHostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a host's name is a DNS name or an IP address, without a port")
    }
}

impl std::error::Error for BadHostName {}

/// Why the certificate of a host that was dialled is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// Its time, or that of one above it, is over by the clock here.
    Expired,
    /// Its time, or that of one above it, has not come by the clock here.
    NotYetValid,
    /// It is for another name.
    OtherName,
    /// It does not lead to an authority that is trusted.
    UnknownAuthority,
    /// It is for something other than a server, a signature in the chain or of the handshake is not
    /// good, or it cannot be read.
    Unfit,
}

impl CertificateFault {
    /// What `error` says, in words that do not change with the library.
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

/// The wall clock of this process, as the library wants it.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since_epoch = core::time::Duration::from_secs(Clock::new().unix_time().as_secs());
        Some(UnixTime::since_unix_epoch(since_epoch))
    }
}
