//! The join file and the identity keys of one run, in a folder that only its user can read.
//!
//! Whoever starts the run makes them, as an operator would for a network of hosts; each process
//! reads the join file, and the one key that is its own.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crypto::{Identity, Provider, Ring, identity_file};
use hub::JoinFile;
use hub::join_file::{Grant, NetworkSecret};
use hub::role::Role;

use crate::demo::plan::{Plan, RELAYS};
use crate::demo::role::Failure;

/// A folder with keys, removed when this is dropped.
#[derive(Debug)]
pub struct Keyring {
    directory: PathBuf,
}

impl Keyring {
    /// Makes a folder for the processes of `plan`, and in it a key for each and the join file.
    ///
    /// # Errors
    ///
    /// The system's, and [`crypto::NoEntropy`].
    pub fn make(plan: &Plan) -> Result<Self, Failure> {
        let name = format!("tickwire-{}-{}", plan.block(), std::process::id());
        let directory = std::env::temp_dir().join(name);
        private_directory(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        let keyring = Self { directory };
        let mut provider = Ring::new();
        let mut secret = [0; 32];
        provider.random(&mut secret)?;
        let mut file = JoinFile::new(NetworkSecret::new(secret));
        for (role, name, address) in members(plan) {
            let identity = Identity::generate(&mut provider)?;
            identity_file::write_new(&key_path(&keyring.directory, &name), &identity)?;
            let mut grant = Grant::new(role, identity.node_id()).with_name(name.parse()?);
            if role == Role::Matchmaker {
                grant = grant.with_service("matchmaker".parse()?);
            }
            if let Some(address) = address {
                grant = grant.with_address(&address);
            }
            file.grants.push(grant);
        }
        private_file(&join_path(&keyring.directory), file.to_text().as_bytes())?;
        Ok(keyring)
    }

    /// Returns the folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        // What cannot be removed now lies where the system clears up by itself.
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// Reads the join file of a run.
///
/// # Errors
///
/// The system's, and what is wrong with the file.
pub fn join_file(directory: &Path) -> Result<JoinFile, Failure> {
    Ok(JoinFile::parse(&fs::read_to_string(join_path(directory))?)?)
}

/// Reads the key of one process.
///
/// # Errors
///
/// What [`identity_file::read`] says.
pub fn identity(directory: &Path, name: &str) -> Result<Identity, Failure> {
    Ok(identity_file::read(&key_path(directory, name))?)
}

/// Returns the name of a relay.
#[must_use]
pub fn relay_name(number: u8) -> String {
    format!("relay-{number}")
}

/// Who belongs to the network: role, name, and where others find it.
fn members(plan: &Plan) -> Vec<(Role, String, Option<String>)> {
    let mut members = vec![
        (Role::Hub, "hub".to_owned(), Some(plan.hub().to_string())),
        (Role::Matchmaker, "matchmaker".to_owned(), None),
        (Role::GameNode, "game".to_owned(), None),
        // What the game server writes mail and counts by: the link of its lease has its own node.
        (Role::GameNode, "mail".to_owned(), None),
        (Role::GameNode, "players".to_owned(), None),
    ];
    members.extend((0..RELAYS).map(|number| {
        let address = plan.relay(number).to_string();
        (Role::MeshNode, relay_name(number), Some(address))
    }));
    members
}

/// Returns the path of the join file.
pub(crate) fn join_path(directory: &Path) -> PathBuf {
    directory.join(JOIN)
}

/// Returns the folder of the hub's mail and counts.
pub(crate) fn store_path(directory: &Path) -> PathBuf {
    directory.join(STORE)
}

/// Returns the path of one process's key.
pub(crate) fn key_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pem"))
}

fn private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn private_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

/// Name of the join file.
const JOIN: &str = "join";
/// Name of the hub's folder.
const STORE: &str = "hub-store";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::{Block, PlanOptions};

    #[test]
    fn every_process_finds_its_key_in_the_join_file_and_nothing_is_left() {
        let options = PlanOptions {
            seed: 1,
            seconds: 30,
            players: 2,
            sabotage: false,
        };
        let plan = Plan::new(options, "127.70.9".parse::<Block>().unwrap());
        let keyring = Keyring::make(&plan).unwrap();
        let directory = keyring.directory().to_owned();
        let file = join_file(&directory).unwrap();
        for name in ["hub", "matchmaker", "game", "mail", "relay-4"] {
            let node = identity(&directory, name).unwrap().node_id();
            let grant = file.grants_of(node).next().unwrap();
            assert_eq!(grant.name.unwrap().to_string(), name);
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&directory), 0o700);
            assert_eq!(mode(&directory.join(JOIN)), 0o600);
        }
        drop(keyring);
        assert!(!directory.exists());
    }
}
