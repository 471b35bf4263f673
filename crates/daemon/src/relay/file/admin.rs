//! `"admin"` of a node's file: where its operator asks it.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crypto::{Provider, Ring, Secret32};
use serde::{Deserialize, Serialize};
use wire::NodeId;

use super::{ConfigError, read_secret};
use crate::relay::store::replace;

/// The admin interface: HTTP on a loopback address, for whoever holds the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileAdmin {
    /// Where it listens; a loopback address, since it speaks without TLS.
    pub listen: SocketAddr,
    /// The token: 64 hexadecimal digits in a file of mode 0600. The node makes it where there is none.
    pub token_file: PathBuf,
}

impl FileAdmin {
    /// Reads the token, or makes it.
    pub(super) fn token(&self, directory: &Path) -> Result<Secret32, ConfigError> {
        let path = directory.join(&self.token_file);
        if matches!(fs::metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound) {
            let mut token = [0; 32];
            Ring::new()
                .random(&mut token)
                .map_err(|error| ConfigError::new(&path, &error).in_field(FIELD))?;
            // A node id has the same form.
            let digits = NodeId(token).to_string();
            replace(&path, digits.as_bytes()).map_err(|error| {
                let text = format!("the token cannot be written: {error}");
                ConfigError::new(&path, &text).in_field(FIELD)
            })?;
        }
        read_secret(&path).map_err(|error| error.in_field(FIELD))
    }
}

const FIELD: &str = "admin.token_file";
