//! What a file allows networks whose players have not proved to receive.

use std::collections::BTreeMap;

use relay_mesh::RationLimits;
use serde::{Deserialize, Serialize};

use super::check::Fault;
use super::{FileConfig, FileProtocol};

/// What players of one /24 or /48 may do in a game over UDP until each has proved that it receives; what is
/// left out is as [`RationLimits`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRation {
    /// New players a second; 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newcomers_per_second: Option<u32>,
    /// Players at a time that have not proved it; 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproved: Option<u32>,
    /// Bytes a second of answers to all of them; 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u32>,
}

impl FileRation {
    fn limits(&self) -> RationLimits {
        let mut limits = RationLimits::default();
        limits.newcomers = self.newcomers_per_second.unwrap_or(limits.newcomers);
        limits.unproved = self.unproved.unwrap_or(limits.unproved);
        limits.bytes = self.bytes_per_second.unwrap_or(limits.bytes);
        limits
    }
}

impl FileConfig {
    pub(super) fn ration_limits(&self) -> BTreeMap<String, RationLimits> {
        let rations = self.rations.iter();
        rations
            .map(|(game, ration)| (game.clone(), ration.limits()))
            .collect()
    }

    /// Limits of a game that no port of this node is for. Where documents bring games, any name is taken.
    pub(super) fn rations_fault(&self) -> Option<Fault> {
        let is_known = |name: &&String| {
            let mut games = self.games.iter();
            self.signed.is_some()
                || games.any(|game| {
                    let is_udp = game.protocol == FileProtocol::Udp;
                    game.name == **name && is_udp && !game.listen.is_empty()
                })
        };
        let unknown = self.rations.keys().find(|name| !is_known(name))?;
        let text =
            format!("found the game {unknown:?}; expected one over UDP with \"listen\" here");
        Some(Fault::new(format!("rations.{unknown}"), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_as_the_mesh_has_it() {
        let read = |json: &str| serde_json::from_str::<FileRation>(json).map(|file| file.limits());
        assert_eq!(read("{}").unwrap(), RationLimits::default());
        let mut some = RationLimits::default();
        (some.newcomers, some.unproved, some.bytes) = (16, 64, 65_536);
        let json = r#"{"newcomers_per_second": 16, "unproved": 64, "bytes_per_second": 65536}"#;
        assert_eq!(read(json).unwrap(), some);
        assert!(read(r#"{"players": 1}"#).is_err());
    }
}
