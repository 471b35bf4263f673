//! `"admin"` and `"signed"` of a node's file: the admin interface, and signed documents.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crypto::{Provider, Ring, Secret32};
use relay_mesh::Signed;
use relay_mesh::signed_config::{AdminKeys, Holder, Minimum, STORED_LEN_MAX};
use serde::{Deserialize, Serialize};
use wire::NodeId;

use super::{in_field, read_secret, read_small};
use crate::exit::Failure;
use crate::relay::store::write_atomic;
use crate::trust;

/// The admin interface: HTTP on a loopback address, with a bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileAdmin {
    /// Its address; loopback only, since it has no TLS.
    pub listen: SocketAddr,
    /// The token: 64 hexadecimal digits in a file of mode 0600. The node creates it if it does not
    /// exist.
    pub token_file: PathBuf,
}

impl FileAdmin {
    pub(super) fn token(&self, directory: &Path) -> Result<Secret32, Failure> {
        let path = directory.join(&self.token_file);
        if matches!(fs::metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound) {
            let mut token = [0; 32];
            Ring::new()
                .random(&mut token)
                .map_err(|_| trust::no_entropy())?;
            // A token is written like a node id.
            let digits = NodeId(token).to_string();
            write_atomic(&path, digits.as_bytes())
                .map_err(|error| {
                    Failure::file(&path, format_args!("the token cannot be written: {error}"))
                })
                .map_err(in_field(FIELD))?;
        }
        read_secret(&path).map_err(in_field(FIELD))
    }
}

const FIELD: &str = "admin.token_file";

/// Signed configuration; its games and members replace the file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSigned {
    /// The network's name in documents.
    pub network: String,
    /// Signers of the first document; each later document is checked against the previous one.
    pub admins: AdminKeys,
    /// File for the document in force; the node creates it.
    pub store: PathBuf,
    /// A document that later ones must descend from; without it, any that the admins' keys lead to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<FileMinimum>,
    /// At an entry: addresses of this host on which a document's ports are opened.
    #[serde(default)]
    pub listen: Vec<IpAddr>,
}

/// The document that last changed the admin keys. Keys retired before it are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMinimum {
    /// Its version.
    pub version: u64,
    /// SHA-256 of its text, 64 hexadecimal digits.
    #[serde(with = "sha256_hex")]
    pub sha256: [u8; 32],
}

mod sha256_hex {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use wire::NodeId;

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&NodeId(*hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let hash = text.parse::<NodeId>();
        hash.map(|hash| hash.0).map_err(|_| {
            let found = de::Unexpected::Str(&text);
            de::Error::invalid_value(found, &"a SHA-256 of 64 hexadecimal digits")
        })
    }
}

impl FileSigned {
    /// Reads the stored document and verifies it again.
    pub(super) fn open(&self, directory: &Path) -> Result<Signed, Failure> {
        let path = directory.join(&self.store);
        let (network, admins) = (self.network.clone(), self.admins.clone());
        let is_new =
            matches!(fs::metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound);
        let mut holder = Holder::new(network, admins);
        if let Some(FileMinimum { version, sha256 }) = self.minimum {
            holder = holder.with_minimum(Minimum { version, sha256 });
        }
        let holder = if is_new {
            holder
        } else {
            let limit = u64::try_from(STORED_LEN_MAX).unwrap_or(u64::MAX);
            let stored = read_small(&path, limit)?;
            holder
                .load(&Ring::new(), &stored)
                .map_err(|error| Failure::file(&path, error))?
        };
        Ok(Signed {
            holder,
            listen: self.listen.clone(),
        })
    }
}
