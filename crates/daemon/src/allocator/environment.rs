//! The environment variables of a game server that an allocator starts. Its command line stays its
//! own.

use std::env;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// Parameters of a game server process.
///
/// | variable | holds |
/// |---|---|
/// | `TICKWIRE_IDENTITY` | path of its identity file |
/// | `TICKWIRE_JOIN_FILE` | path of the join file |
/// | `TICKWIRE_LISTEN` | address for players, `IP:PORT` |
/// | `TICKWIRE_SLOT` | slot in the pool, from 0 |
///
/// Its stdin is a pipe to which the allocator writes nothing. When the pipe closes, the process
/// must exit within two seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotEnvironment {
    /// Its identity file.
    pub identity: PathBuf,
    /// The join file.
    pub join_file: PathBuf,
    /// Address for players.
    pub listen: SocketAddr,
    /// Slot in the pool.
    pub slot: u16,
}

impl SlotEnvironment {
    /// Reads the variables of this process.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] names the missing or malformed variable.
    pub fn read() -> Result<Self, EnvironmentError> {
        let text = |name| env::var(name).map_err(|_| EnvironmentError(name));
        Ok(Self {
            identity: env::var_os(IDENTITY)
                .ok_or(EnvironmentError(IDENTITY))?
                .into(),
            join_file: env::var_os(JOIN_FILE)
                .ok_or(EnvironmentError(JOIN_FILE))?
                .into(),
            listen: text(LISTEN)?
                .parse()
                .map_err(|_| EnvironmentError(LISTEN))?,
            slot: text(SLOT)?.parse().map_err(|_| EnvironmentError(SLOT))?,
        })
    }

    pub(super) fn write(&self, command: &mut Command) {
        command
            .env(IDENTITY, &self.identity)
            .env(JOIN_FILE, &self.join_file)
            .env(LISTEN, self.listen.to_string())
            .env(SLOT, self.slot.to_string());
    }
}

/// This variable is missing or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvironmentError(pub &'static str);

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the environment variable {} is missing or malformed; a matchmaker sets it",
            self.0
        )
    }
}

impl std::error::Error for EnvironmentError {}

const IDENTITY: &str = "TICKWIRE_IDENTITY";
const JOIN_FILE: &str = "TICKWIRE_JOIN_FILE";
const LISTEN: &str = "TICKWIRE_LISTEN";
const SLOT: &str = "TICKWIRE_SLOT";
