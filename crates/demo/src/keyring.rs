//! The join file and the identity keys of one run, in a folder that only its user can read.
//!
//! The process that starts the run makes them, as an operator does for a network of hosts. Each
//! process reads the join file and its own key.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crypto::{Identity, Provider, Ring, identity_file};
use hub::join_file::{Grant, NetworkSecret};
use hub::{JoinFile, Role};
use servicer::Clock;

use crate::BoxError;
use crate::plan::{Plan, RELAYS};
use daemon::control::wait;
use daemon::{exit, hex, trust};

/// A folder for keys. Dropping it removes the folder with all files in it.
#[derive(Debug)]
pub struct Keyring {
    directory: PathBuf,
}

impl Keyring {
    /// Makes an empty folder with an unpredictable name.
    ///
    /// If this process is killed, nothing removes the folder. So start a process that calls
    /// `sweep` before [`fill`](Self::fill).
    ///
    /// # Errors
    ///
    /// I/O errors, and [`crypto::NoEntropy`].
    pub fn new() -> Result<Self, BoxError> {
        let mut name = [0; 16];
        Ring::new().random(&mut name)?;
        let directory = std::env::temp_dir().join(format!("{PREFIX}{}", hex::encode(&name)));
        private_directory(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Makes a folder with the join file and a key for each process of `plan`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`fill`](Self::fill).
    pub fn make(plan: &Plan) -> Result<Self, BoxError> {
        let keyring = Self::new()?;
        keyring.fill(plan)?;
        Ok(keyring)
    }

    /// Makes the join file and a key for each process of `plan`.
    ///
    /// # Errors
    ///
    /// I/O errors, and [`crypto::NoEntropy`].
    pub fn fill(&self, plan: &Plan) -> Result<(), BoxError> {
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

    /// Returns the path of the folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the folder. Returns whether it no longer exists.
    pub fn clear(&self) -> bool {
        // If it cannot be removed now, the system clears its temporary folder later.
        fs::remove_dir_all(&self.directory).ok();
        !self.directory.exists()
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Removes the folder of a keyring left by a killed process. For [`SWEEP_MAX`] it also removes
/// files that ending processes of the run still write there.
/// Fails if the name is not that of a keyring's folder, or if something is left.
pub(crate) fn sweep(directory: &Path) -> io::Result<()> {
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
        // A process wrote a file meanwhile.
        wait(SWEEP_PAUSE);
    }
    Ok(())
}

pub(crate) fn join_file(directory: &Path) -> Result<JoinFile, exit::Failure> {
    trust::read_join_file(&join_path(directory))
}

pub(crate) fn identity(directory: &Path, name: &str) -> Result<Identity, exit::Failure> {
    trust::read_identity(&key_path(directory, name))
}

pub(crate) fn relay_name(number: u8) -> String {
    format!("relay-{number}")
}

/// Returns the members of the network: role, name, and address if others dial it.
fn members(plan: &Plan) -> Vec<(Role, String, Option<String>)> {
    let mut members = vec![
        (Role::Hub, "hub".to_owned(), Some(plan.hub().to_string())),
        (Role::Matchmaker, "matchmaker".to_owned(), None),
        (Role::GameNode, "game".to_owned(), None),
        // The game server sends mail and counts as nodes of their own, apart from its lease's link.
        (Role::GameNode, "mail".to_owned(), None),
        (Role::GameNode, "players".to_owned(), None),
    ];
    members.extend((0..RELAYS).map(|number| {
        let address = plan.relay(number).to_string();
        (Role::MeshNode, relay_name(number), Some(address))
    }));
    members
}

pub(crate) fn join_path(directory: &Path) -> PathBuf {
    directory.join(JOIN)
}

/// Returns the folder of the hub's mail and counts.
pub(crate) fn store_path(directory: &Path) -> PathBuf {
    directory.join(STORE)
}

pub(crate) fn key_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pem"))
}

fn private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// How long [`sweep`] runs: longer than the processes of a run take to end.
const SWEEP_MAX: Duration = Duration::from_secs(3);
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Prefix of the names of all keyrings' folders.
pub const PREFIX: &str = "tickwire-demo-";
const JOIN: &str = "join";
const STORE: &str = "hub-store";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Block, PlanOptions};

    #[test]
    fn each_process_finds_its_key_and_the_folder_is_removed() {
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
    fn folder_names_are_unique_and_leftovers_are_harmless() {
        let (one, other) = (Keyring::new().unwrap(), Keyring::new().unwrap());
        assert_ne!(one.directory(), other.directory());
        // A killed process leaves its folder like this.
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
    fn a_join_file_readable_by_others_is_rejected() {
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
