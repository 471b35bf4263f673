//! `"signed"` of a node's file: whose documents it goes by, and where it keeps them.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crypto::Ring;
use relay_mesh::Signed;
use relay_mesh::signed_config::{AdminKeys, Holder, STORED_LEN_MAX};
use serde::{Deserialize, Serialize};

use super::{ConfigError, read_small};

/// Signed configuration: its games and members take the place of the file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSigned {
    /// The network's name, as documents state it.
    pub network: String,
    /// Who signs the first document; each later one is judged by the one before.
    pub admins: AdminKeys,
    /// Where the document in force is kept; the node makes this file.
    pub store: PathBuf,
    /// Addresses of this host that a document's ports are opened on, at an entry.
    #[serde(default)]
    pub listen: Vec<IpAddr>,
}

impl FileSigned {
    /// Reads what was stored, and checks it again.
    pub(super) fn open(&self, directory: &Path) -> Result<Signed, ConfigError> {
        let path = directory.join(&self.store);
        let (network, admins) = (self.network.clone(), self.admins.clone());
        let is_new =
            matches!(fs::metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound);
        let holder = if is_new {
            Holder::new(network, admins)
        } else {
            let limit = u64::try_from(STORED_LEN_MAX).unwrap_or(u64::MAX);
            let stored = read_small(&path, limit)?;
            Holder::restore(network, admins, &Ring::new(), &stored)
                .map_err(|error| ConfigError::new(&path, &error))?
        };
        Ok(Signed {
            holder,
            listen: self.listen.clone(),
        })
    }
}
