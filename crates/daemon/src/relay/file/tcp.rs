//! TCP games of a node's file.

use std::path::Path;

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
        let mut setup = TcpSetup::default();
        let limits = &self.limits;
        setup.connections_max = limits.tcp_connections.unwrap_or(setup.connections_max);
        setup.proxies = self.trusted_proxies(directory, FileProtocol::Tcp)?;
        Ok(setup)
    }
}
