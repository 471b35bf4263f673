//! Proxies before the ports of a node's games.

use std::collections::BTreeMap;
use std::path::Path;

use relay_mesh::proxy_header::{Need, TrustError, TrustedProxies};
use serde::{Deserialize, Serialize};

use super::{ConfigError, FileConfig};

/// Proxies before the port of a game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProxies {
    /// Their addresses, as prefixes: `10.0.0.0/8`, `2001:db8::/32`. What comes from elsewhere is a
    /// player's own, and may not begin with a header.
    pub from: Vec<String>,
    /// Whether all that they send begins with a header: each connection, each datagram; true. Without, a
    /// header before the first datagram of a flow names its player, and all others have to be his.
    #[serde(default = "is_required")]
    pub required: bool,
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
    ) -> Result<BTreeMap<String, TrustedProxies>, ConfigError> {
        let fault = |error: TrustError| ConfigError::new(directory, &error);
        let proxies = self.proxies.iter();
        proxies
            .map(|(game, proxies)| Ok((game.clone(), proxies.trusted().map_err(fault)?)))
            .collect()
    }

    /// Says what is wrong with the proxies.
    pub(super) fn proxies_fault(&self) -> Option<String> {
        let is_known = |name: &String| {
            let mut games = self.games.iter();
            self.signed.is_some() || games.any(|game| game.name == *name && !game.listen.is_empty())
        };
        let unknown = self.proxies.keys().find(|name| !is_known(name))?;
        Some(format!(
            "\"proxies\" are before {unknown:?}, which is no game with \"listen\" here"
        ))
    }
}

const fn is_required() -> bool {
    true
}
