//! Conversion of `PureGamer`'s games to a document's games.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use relay_mesh::signed_config::{Import, ImportError};
use wire::NodeId;

use super::super::print_line;
use crate::exit::Failure;

/// Options of `admin import-games`.
#[derive(Args, Clone, Debug)]
pub struct ImportedGames {
    /// The game configuration.
    file: PathBuf,
    /// Id here of a node named there, as PEER=NODE; repeat for each in a list.
    #[arg(long = "node", value_name = "PEER=NODE", value_parser = pair::<NodeId>)]
    nodes: Vec<(String, NodeId)>,
    /// Address of a host named there, as NAME=IP; repeat for each.
    #[arg(long = "host", value_name = "NAME=IP", value_parser = pair::<IpAddr>)]
    hosts: Vec<(String, IpAddr)>,
}

impl ImportedGames {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let fail = |what: &dyn std::fmt::Display| Failure::file(&self.file, what);
        let bytes = fs::read(&self.file).map_err(|error| fail(&error))?;
        let import = Import {
            nodes: self.nodes.iter().cloned().collect(),
            hosts: self.hosts.iter().cloned().collect(),
        };
        let games = import.games(&bytes).map_err(|error| {
            if let ImportError::Json(error) = &error {
                Failure::text(&self.file, error)
            } else {
                fail(&error)
            }
        })?;
        print_line(&games)
    }
}

/// Parses NAME=VALUE.
fn pair<T: std::str::FromStr>(text: &str) -> Result<(String, T), String>
where
    T::Err: std::fmt::Display,
{
    let (name, value) = text.split_once('=').ok_or("there is no = in it")?;
    let value = value.parse().map_err(|error: T::Err| error.to_string())?;
    Ok((name.to_owned(), value))
}
