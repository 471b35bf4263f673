//! How an exit's file has game servers measured.

use std::collections::BTreeMap;
use std::path::Path;

use relay_mesh::ServerProbe;
use serde::{Deserialize, Serialize};

use super::check::Fault;
use super::{ConfigError, FileConfig};
use crate::hex;

/// What is sent to the server of a game, to see how long the answer takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum FileProbe {
    /// Nothing.
    None,
    /// An ICMP echo request, where `net.ipv4.ping_group_range` permits it.
    Icmp,
    /// A TCP connection.
    Connect {
        /// To this port of the server's host.
        port: u16,
    },
    /// A datagram to the server; whatever it answers counts.
    Query {
        /// Its bytes, two hexadecimal digits each; at most 512 bytes.
        hex: String,
    },
}

impl FileProbe {
    fn probe(&self) -> Option<ServerProbe> {
        match self {
            Self::None => Some(ServerProbe::None),
            Self::Icmp => Some(ServerProbe::Icmp),
            Self::Connect { port: 0 } => None,
            Self::Connect { port } => Some(ServerProbe::Connect { port: *port }),
            Self::Query { hex } => {
                let request = hex::decode(hex)?;
                let fits = request.len() <= ServerProbe::QUERY_LEN_MAX;
                fits.then_some(ServerProbe::Query { request })
            }
        }
    }
}

impl FileConfig {
    pub(super) fn server_probes(
        &self,
        directory: &Path,
    ) -> Result<BTreeMap<String, ServerProbe>, ConfigError> {
        let probes = self.probes.iter().map(|(game, probe)| {
            let probe = probe.probe();
            let probe = probe.ok_or_else(|| ConfigError::new(directory, &bad_probe(game)))?;
            Ok((game.clone(), probe))
        });
        probes.collect()
    }

    /// Says what is wrong with the probes.
    pub(super) fn probes_fault(&self) -> Option<Fault> {
        let is_known = |name: &String| {
            let mut games = self.games.iter();
            self.signed.is_some() || games.any(|game| game.name == *name && game.server.is_some())
        };
        if let Some(unknown) = self.probes.keys().find(|name| !is_known(name)) {
            let text =
                format!("\"probes\" are of {unknown:?}, which is no game with \"server\" here");
            return Some(Fault::new(format!("probes.{unknown}"), text));
        }
        let mut probes = self.probes.iter();
        let (game, _) = probes.find(|(_, probe)| probe.probe().is_none())?;
        Some(bad_probe(game))
    }
}

fn bad_probe(game: &str) -> Fault {
    let text = format!(
        "the probe of game {game:?} has port 0, or a query that is no even number of hexadecimal \
         digits up to 1,024"
    );
    Fault::new(format!("probes.{game}"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<ServerProbe> {
        serde_json::from_str::<FileProbe>(text).ok()?.probe()
    }

    #[test]
    fn pg5_probes_are_read_as_documented_and_nothing_else_is() {
        assert_eq!(read(r#"{"by": "none"}"#), Some(ServerProbe::None));
        assert_eq!(read(r#"{"by": "icmp"}"#), Some(ServerProbe::Icmp));
        let connect = ServerProbe::Connect { port: 80 };
        assert_eq!(read(r#"{"by": "connect", "port": 80}"#), Some(connect));
        let request = vec![0, 255];
        let query = ServerProbe::Query { request };
        assert_eq!(read(r#"{"by": "query", "hex": "00ff"}"#), Some(query));
        let long = "00".repeat(513);
        for bad in [
            r#"{"by": "ping"}"#,
            r#"{"by": "connect"}"#,
            r#"{"by": "connect", "port": 0}"#,
            r#"{"by": "connect", "port": 80, "host": "other"}"#,
            r#"{"by": "query", "hex": "0"}"#,
            &format!(r#"{{"by": "query", "hex": "{long}"}}"#),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
