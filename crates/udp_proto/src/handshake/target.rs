//! The target of a connection: addresses, expected identity, credentials.

use core::net::SocketAddr;

use crypto::{ClientGrant, PublicKey, Secret32};
use wire::address::{canonical, check_destination};
use wire::{InstanceId, NodeId};

use super::hello;
use crate::error::ConnectError;

/// The target of a connection.
#[derive(Debug)]
pub struct Target {
    /// The server's addresses, tried in turn; 1 to 8. Unusable ones are skipped
    /// ([`wire::address::check_destination`]).
    pub addresses: Vec<SocketAddr>,
    /// The expected signer.
    pub server: ServerIdentity,
    /// How to authenticate.
    pub credentials: Credentials,
}

/// The signer that a client expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// The holder of one of these keys: 1 to 4, without duplicates. One signature is checked
    /// against each in turn.
    Keys(Vec<PublicKey>),
    /// The holder of the key with this hash.
    Node(NodeId),
    /// A server with a [`Certificate`](crypto::Certificate) of one of these root keys: 1 or 2,
    /// without duplicates. Requires [`Endpoint::set_unix_time`](crate::Endpoint::set_unix_time).
    Roots {
        /// Today's root key, and the next or previous one.
        keys: Vec<PublicKey>,
        /// The instance that the certificate must name, if known; `None` accepts any server of the
        /// application.
        server: Option<InstanceId>,
    },
}

/// How a client authenticates.
pub enum Credentials {
    /// A sealed connect token and its PSK.
    Token {
        /// As sealed by the matchmaker; at most 1,000 bytes.
        token: Vec<u8>,
        /// As received from the matchmaker over a secure channel.
        psk: Secret32,
    },
    /// No credentials, for servers in open mode.
    Open,
    /// The network secret and our identity, for nodes of one mesh. The endpoint must listen.
    Peer,
}

impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Token { .. } => "Token(..)",
            Self::Open => "Open",
            Self::Peer => "Peer",
        })
    }
}

impl From<&ClientGrant> for Target {
    /// A target that connects with the grant's token to the grant's server.
    fn from(grant: &ClientGrant) -> Self {
        Self {
            addresses: grant.addresses.as_slice().to_vec(),
            server: ServerIdentity::Keys(grant.server_keys.as_slice().to_vec()),
            credentials: Credentials::Token {
                token: grant.token.as_bytes().to_vec(),
                psk: grant.psk.clone(),
            },
        }
    }
}

/// Most server keys, as many as a grant can list.
const SERVER_KEYS_MAX: usize = 4;
/// Most root keys: rotation needs two.
const ROOT_KEYS_MAX: usize = 2;

impl Target {
    /// Most addresses of a target, as many as a token can list.
    pub const ADDRESSES_MAX: usize = 8;

    /// Canonicalizes the addresses ([`wire::address::canonical`]) and removes unusable ones.
    /// [`Endpoint::connect`](crate::Endpoint::connect) does the same.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Destination`] if none is left; the addresses are unchanged.
    pub fn settle_addresses(&mut self) -> Result<(), ConnectError> {
        let is_usable = |address: &SocketAddr| check_destination(*address).is_ok();
        if !self.addresses.iter().any(is_usable)
            && let Some(first) = self.addresses.first()
        {
            check_destination(*first)?;
        }
        self.addresses.retain(is_usable);
        for address in &mut self.addresses {
            *address = canonical(*address);
        }
        Ok(())
    }

    /// Returns why the target is invalid.
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        let count = self.addresses.len();
        if count == 0 || count > Self::ADDRESSES_MAX {
            return Err(ConnectError::Addresses(count));
        }
        let mut rest = match &self.server {
            ServerIdentity::Keys(keys) if !(1..=SERVER_KEYS_MAX).contains(&keys.len()) => {
                return Err(ConnectError::ServerKeys(keys.len()));
            }
            ServerIdentity::Roots { keys, .. } if !(1..=ROOT_KEYS_MAX).contains(&keys.len()) => {
                return Err(ConnectError::RootKeys(keys.len()));
            }
            ServerIdentity::Keys(keys) | ServerIdentity::Roots { keys, .. } => keys.as_slice(),
            ServerIdentity::Node(_) => &[],
        };
        while let [key, others @ ..] = rest {
            if others.contains(key) {
                return Err(ConnectError::ServerKeyRepeated);
            }
            rest = others;
        }
        self.credentials.check()
    }
}

impl Credentials {
    const fn check(&self) -> Result<(), ConnectError> {
        match self {
            Self::Token { token, .. } if token.len() > hello::TOKEN_LEN_MAX => {
                Err(ConnectError::TokenLength(token.len()))
            }
            Self::Token { .. } | Self::Open | Self::Peer => Ok(()),
        }
    }
}
