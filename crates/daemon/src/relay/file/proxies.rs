//! Proxies before the ports of a node's games.

use std::collections::BTreeMap;
use std::path::Path;

use relay_mesh::proxy_header::{Need, TrustError, TrustedProxies};
use serde::{Deserialize, Serialize};

use super::check::Fault;
use super::{ConfigError, FileConfig, FileGame, FileProtocol};

/// Proxies before the port of a game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProxies {
    /// Their addresses, as prefixes: `10.0.0.0/8`, `2001:db8::/32`. What comes from elsewhere is a
    /// player's own, and may not begin with a header.
    pub from: Vec<String>,
    /// Whether all connections begin with a header; true. Datagrams all do, whatever stands here.
    #[serde(default = "is_required")]
    pub required: bool,
    /// Over what the game is played; without it they stand before all games of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<FileProtocol>,
}

impl FileProxies {
    /// Whether they stand before games over `protocol`.
    fn are_before(&self, protocol: FileProtocol) -> bool {
        self.protocol.is_none_or(|only| only == protocol)
    }

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
            .filter(|(_, proxies)| proxies.are_before(protocol))
            .map(|(game, proxies)| Ok((game.clone(), proxies.trusted().map_err(fault)?)))
            .collect()
    }

    /// Says what is wrong with the proxies.
    pub(super) fn proxies_fault(&self) -> Option<Fault> {
        let mut proxies = self.proxies.iter();
        proxies.find_map(|(name, proxies)| {
            if let Err(error) = proxies.trusted() {
                return Some(Fault::new(
                    format!("proxies.{name}.from"),
                    error.to_string(),
                ));
            }
            let is_there = |protocol| {
                let mut games = self.games.iter();
                let is_it = |game: &FileGame| game.name == *name && game.protocol == protocol;
                // What games a document has is not known yet.
                proxies.are_before(protocol)
                    && (self.signed.is_some()
                        || games.any(|game| is_it(game) && !game.listen.is_empty()))
            };
            let fault = match (is_there(FileProtocol::Udp), is_there(FileProtocol::Tcp)) {
                (true, false) if !proxies.required => {
                    "have \"required\": false, but over UDP each datagram must begin with a header"
                }
                (true, _) | (_, true) => return None,
                (false, false) => match proxies.protocol {
                    Some(FileProtocol::Udp) => "are before no game over UDP with \"listen\" here",
                    Some(FileProtocol::Tcp) => "are before no game over TCP with \"listen\" here",
                    None => "are before no game with \"listen\" here",
                },
            };
            let text = format!("\"proxies\" of {name:?} {fault}");
            Some(Fault::new(format!("proxies.{name}"), text))
        })
    }
}

const fn is_required() -> bool {
    true
}
