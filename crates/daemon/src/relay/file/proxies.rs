//! Proxies before the ports of a node's games.

use std::collections::BTreeMap;
use std::path::Path;

use relay_mesh::proxy_header::{Need, TrustError, TrustedProxies};
use serde::{Deserialize, Serialize};

use super::{ConfigError, FileConfig, FileProtocol};

/// Proxies before the port of a game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProxies {
    /// Their addresses, as prefixes: `10.0.0.0/8`, `2001:db8::/32`. What comes from elsewhere is a
    /// player's own, and may not begin with a header.
    pub from: Vec<String>,
    /// Whether all connections begin with a header; true. Datagrams all do.
    #[serde(default = "is_required")]
    pub required: bool,
    /// Over what the game is played; over TCP where it does not say.
    #[serde(default = "is_tcp")]
    pub protocol: FileProtocol,
}

impl FileProxies {
    fn trusted(&self) -> Result<TrustedProxies, TrustError> {
        let need = if self.required {
            Need::Required
        } else {
            Need::Optional
        };
        TrustedProxies::parse(self.from.iter().map(String::as_str), need)
    }
}

impl FileConfig {
    pub(super) fn trusted_proxies(
        &self,
        directory: &Path,
        protocol: FileProtocol,
    ) -> Result<BTreeMap<String, TrustedProxies>, ConfigError> {
        let fault = |error: TrustError| ConfigError::new(directory, &error);
        let proxies = self.proxies.iter();
        proxies
            .filter(|(_, proxies)| proxies.protocol == protocol)
            .map(|(game, proxies)| Ok((game.clone(), proxies.trusted().map_err(fault)?)))
            .collect()
    }

    /// Says what is wrong with the proxies.
    pub(super) fn proxies_fault(&self) -> Option<String> {
        let mut proxies = self.proxies.iter();
        proxies.find_map(|(name, proxies)| {
            let mut games = self.games.iter();
            let is_known = self.signed.is_some()
                || games.any(|game| {
                    game.name == *name
                        && game.protocol == proxies.protocol
                        && !game.listen.is_empty()
                });
            let is_udp = proxies.protocol == FileProtocol::Udp;
            let fault = match (is_known, is_udp) {
                (true, true) if !proxies.required => {
                    "of datagrams have to write a header before each"
                }
                (true, _) => return None,
                (false, true) => "are before no game over UDP with \"listen\" here",
                (false, false) => "are before no game over TCP with \"listen\" here",
            };
            Some(format!("\"proxies\" of {name:?} {fault}"))
        })
    }
}

const fn is_required() -> bool {
    true
}

const fn is_tcp() -> FileProtocol {
    FileProtocol::Tcp
}
