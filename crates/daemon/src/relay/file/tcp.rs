//! TCP games of a node's file.

use std::collections::BTreeMap;
use std::path::Path;

use relay_mesh::proxy_header::{Need, TrustError, TrustedProxies};
use relay_mesh::{Game, TcpConfig};
use serde::{Deserialize, Serialize};

use super::{ConfigError, FileConfig, FileGame};
use crate::relay::tcp::TcpSetup;

/// Over what a game is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileProtocol {
    /// Datagrams.
    #[default]
    Udp,
    /// Connections.
    Tcp,
}

/// Proxies before the port of a game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProxies {
    /// Their addresses, as prefixes: `10.0.0.0/8`, `2001:db8::/32`. What comes from elsewhere is a
    /// player's own, and may not begin with a header.
    pub from: Vec<String>,
    /// Whether all that they send begins with a header; true.
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
    pub(super) fn games_over(&self, protocol: FileProtocol) -> Vec<Game> {
        let games = self.games.iter();
        games
            .filter(|game| game.protocol == protocol)
            .map(FileGame::game)
            .collect()
    }

    /// TCP games; `None` where there is none, and no document may bring some.
    pub(super) fn tcp(&self) -> Option<TcpConfig> {
        let games = self.games_over(FileProtocol::Tcp);
        if games.is_empty() && self.signed.is_none() {
            return None;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a place in the standard library's time, which nothing is measured by"
        )]
        let epoch = std::time::Instant::now();
        let mut tcp = TcpConfig::new(epoch);
        tcp.games = games;
        tcp.connections_max = self.limits.tcp_connections.unwrap_or(tcp.connections_max);
        let tunnel = &mut tcp.tunnel;
        tunnel.players_max = self.limits.tcp_connections.unwrap_or(tunnel.players_max);
        tunnel.per_address_max = self
            .limits
            .tcp_per_address
            .unwrap_or(tunnel.per_address_max);
        Some(tcp)
    }

    pub(super) fn tcp_setup(&self, directory: &Path) -> Result<TcpSetup, ConfigError> {
        let fault = |error: TrustError| ConfigError::new(directory, &error);
        let mut setup = TcpSetup::default();
        let limits = &self.limits;
        setup.connections_max = limits.tcp_connections.unwrap_or(setup.connections_max);
        setup.greetings_max = limits.tcp_per_address.unwrap_or(setup.greetings_max);
        let proxies = self.proxies.iter();
        setup.proxies = proxies
            .map(|(game, proxies)| Ok((game.clone(), proxies.trusted().map_err(fault)?)))
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        Ok(setup)
    }

    /// Says what is wrong with the proxies.
    pub(super) fn proxies_fault(&self) -> Option<String> {
        let is_known = |name: &String| {
            let mut games = self.games.iter();
            self.signed.is_some()
                || games.any(|game| {
                    game.name == *name
                        && game.protocol == FileProtocol::Tcp
                        && !game.listen.is_empty()
                })
        };
        let unknown = self.proxies.keys().find(|name| !is_known(name))?;
        Some(format!(
            "\"proxies\" are before {unknown:?}, which is no TCP game with \"listen\" here"
        ))
    }
}

const fn is_required() -> bool {
    true
}
