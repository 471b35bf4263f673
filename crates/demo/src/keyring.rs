//! The join file and the identity keys of one run, in a folder that only its user can read.
//!
//! Whoever starts the run makes them, as an operator would for a network of hosts; each process
//! reads the join file, and the one key that is its own.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crypto::{Identity, Provider, Ring, identity_file};
use hub::JoinFile;
use hub::join_file::{Grant, NetworkSecret};
use hub::role::Role;
use servicer::Clock;

use crate::plan::{Plan, RELAYS};
use crate::role::Failure;
use daemon::control::wait;
use daemon::{exit, hex, trust};

/// A folder for keys, removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Keyring {
    directory: PathBuf,
}

impl Keyring {
    /// Makes a folder, with nothing in it, whose name nobody can know before.
    ///
    /// What ends this process without its leave ends it before the folder is removed: so have
    /// [`sweep`] called by another one, from before [`fill`](Self::fill) on.
    ///
    /// # Errors
    ///
    /// The system's, and [`crypto::NoEntropy`].
    pub fn new() -> Result<Self, Failure> {
        let mut name = [0; 16];
        Ring::new().random(&mut name)?;
        let directory = std::env::temp_dir().join(format!("{PREFIX}{}", hex::encode(&name)));
        private_directory(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Makes a folder for the processes of `plan`, with a key for each and the join file.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`fill`](Self::fill).
    pub fn make(plan: &Plan) -> Result<Self, Failure> {
        let keyring = Self::new()?;
        keyring.fill(plan)?;
        Ok(keyring)
    }

    /// Makes a key for each process of `plan`, and the join file.
    ///
    /// # Errors
    ///
    /// The system's, and [`crypto::NoEntropy`].
    pub fn fill(&self, plan: &Plan) -> Result<(), Failure> {
        let mut provider = Ring::new();
        let mut secret = [0; 32];
        provider.random(&mut secret)?;
        let mut file = JoinFile::new(NetworkSecret::new(secret));
        for (role, name, address) in members(plan) {
            let identity = Identity::generate(&mut provider)?;
            identity_file::write_new(&key_path(&self.directory, &name), &identity)?;
            let mut grant = Grant::new(role, identity.node_id()).with_name(name.parse()?);
            if role == Role::Matchmaker {
                grant = grant.with_service("matchmaker".parse()?);
            }
            if let Some(address) = address {
                grant = grant.with_address(&address);
            }
            file.grants.push(grant);
        }
        trust::write_new_join_file(&join_path(&self.directory), &file)?;
        Ok(())
    }

    /// Returns the folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the folder; returns whether it is gone.
    pub fn clear(&self) -> bool {
        // What cannot be removed now lies where the system clears up by itself.
        fs::remove_dir_all(&self.directory).ok();
        !self.directory.exists()
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Removes the folder of a keyring whose process has ended without doing so, and for [`SWEEP_MAX`]
/// what others of the run, which end too, still write there.
///
/// # Errors
///
/// `InvalidInput` where the name is not that of a keyring's folder; the system's where something
/// is left.
pub fn sweep(directory: &Path) -> io::Result<()> {
    let name = directory.file_name().and_then(|name| name.to_str());
    if name.is_none_or(|name| !name.starts_with(PREFIX)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let clock = Clock::new();
    let until = clock.now() + SWEEP_MAX;
    while directory.exists() {
        let removed = fs::remove_dir_all(directory);
        while !directory.exists() && clock.now() < until {
            wait(SWEEP_PAUSE);
        }
        if clock.now() >= until {
            return if directory.exists() { removed } else { Ok(()) };
        }
        // Something was there while it was removed.
        wait(SWEEP_PAUSE);
    }
    Ok(())
}

/// Reads the join file of a run.
///
/// # Errors
///
/// As [`trust::read_join_file`].
pub fn join_file(directory: &Path) -> Result<JoinFile, exit::Failure> {
    trust::read_join_file(&join_path(directory))
}

/// Reads the key of one process.
///
/// # Errors
///
/// As [`trust::read_identity`].
pub fn identity(directory: &Path, name: &str) -> Result<Identity, exit::Failure> {
    trust::read_identity(&key_path(directory, name))
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

/// How long [`sweep`] goes on: past the time that the processes of a run have to end.
pub const SWEEP_MAX: Duration = Duration::from_secs(3);
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// What the names of all keyrings' folders begin with.
pub const PREFIX: &str = "tickwire-demo-";
/// Name of the join file.
const JOIN: &str = "join";
/// Name of the hub's folder.
const STORE: &str = "hub-store";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Block, PlanOptions};

    #[test]
    fn every_process_finds_its_key_in_the_join_file_and_nothing_is_left() {
        let options = PlanOptions {
            players: 2,
            ..PlanOptions::default()
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

    #[test]
    fn no_two_folders_share_a_name_and_one_that_was_left_is_in_nobodys_way() {
        let (one, other) = (Keyring::new().unwrap(), Keyring::new().unwrap());
        assert_ne!(one.directory(), other.directory());
        // As a process leaves it that has no time for its end.
        let left = one.directory().to_owned();
        std::mem::forget(one);
        fs::write(left.join("relay-0.pem"), "a key").unwrap();
        let third = Keyring::new().unwrap();
        assert!(third.directory().exists() && left.exists());
        // A process that is about to end writes once more.
        let (late, at) = (left.clone(), SWEEP_MAX / 3);
        let writer = std::thread::spawn(move || {
            wait(at);
            fs::create_dir_all(late.join("hub-store")).unwrap();
        });
        sweep(&left).unwrap();
        writer.join().unwrap();
        assert!(!left.exists());
        sweep(&left).unwrap();
    }

    #[test]
    fn only_the_folder_of_a_keyring_is_swept() {
        let keyring = Keyring::new().unwrap();
        let precious = keyring.directory().join("precious");
        fs::create_dir(&precious).unwrap();
        let error = sweep(&precious).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(precious.exists());
        assert!(sweep(Path::new("/")).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_join_file_that_others_may_read_is_not_taken() {
        use std::os::unix::fs::PermissionsExt;
        let options = PlanOptions {
            players: 2,
            ..PlanOptions::default()
        };
        let keyring = Keyring::make(&Plan::new(options, "127.70.9".parse().unwrap())).unwrap();
        let path = join_path(keyring.directory());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let failure = join_file(keyring.directory()).unwrap_err();
        assert!(failure.sentence.contains("chmod 600"), "{failure}");
    }
}
