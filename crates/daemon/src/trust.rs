//! The identity and the join file of a process, and random ids.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use crypto::{Identity, NoEntropy, Provider, Ring, Secret32, identity_file, reset_file};
use hub::JoinFile;
use wire::InstanceId;
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure, SystemFault};

/// Reads the identity file at `path`.
///
/// # Errors
///
/// One sentence with the path.
pub fn read_identity(path: &Path) -> Result<Identity, Failure> {
    identity_file::read(path).map_err(|error| Failure::file(path, error))
}

/// Reads the join file at `path`. It holds the network's secret, so a file that others may read is
/// rejected.
///
/// # Errors
///
/// One sentence with the path, and the line of a parse error.
pub fn read_join_file(path: &Path) -> Result<JoinFile, Failure> {
    let fail =
        |what: &dyn std::fmt::Display| Failure::file(path, format_args!("join file: {what}"));
    let io = |error: std::io::Error| fail(&SystemFault(&error));
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(fail(&"this is a folder or a device; expected a file"));
    }
    check_mode(&metadata).map_err(|mode| {
        fail(&format_args!(
            "others may read the network's secret (mode {mode:o}); chmod 600 it"
        ))
    })?;
    let limit = u64::try_from(JoinFile::BYTES_MAX).unwrap_or(u64::MAX);
    // Filled without growing, since growing leaves copies in memory.
    let len = usize::try_from(metadata.len().min(limit)).unwrap_or_default();
    let mut text = Zeroizing::new(String::with_capacity(len.saturating_add(1)));
    fs::File::open(path)
        .map_err(io)?
        .take(limit.saturating_add(1))
        .read_to_string(&mut text)
        .map_err(io)?;
    JoinFile::parse(&text).map_err(|error| {
        let mut failure = fail(&error);
        failure.line = Some(error.line).filter(|line| *line > 0);
        failure
    })
}

/// Writes `join_file` to a new file at `path`, readable by its owner only.
///
/// # Errors
///
/// One sentence with the path.
pub fn write_new_join_file(path: &Path, join_file: &JoinFile) -> Result<(), Failure> {
    let text = Zeroizing::new(join_file.to_text());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        let name = path.display();
        if error.kind() == ErrorKind::AlreadyExists {
            let sentence = "there is a file already, and none is written over";
            Failure::refused(format_args!("{name}: {sentence}"))
        } else {
            Failure::usage(format_args!("{name}: join file: {error}"))
        }
    })
}

/// Reads a file with secrets, `what`, that only its owner may read.
pub(crate) fn read_private(
    path: &Path,
    what: &str,
    bytes_max: u64,
) -> Result<Zeroizing<String>, Failure> {
    let io = |error: std::io::Error| Failure::file(path, SystemFault(&error));
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        let sentence = "this is a folder or a device; expected a file";
        return Err(Failure::file(path, sentence));
    }
    check_mode(&metadata).map_err(|mode| {
        Failure::file(
            path,
            format_args!("others may read {what} (mode {mode:o}); chmod 600 it"),
        )
    })?;
    if metadata.len() > bytes_max {
        return Err(Failure::file(
            path,
            format_args!("it is longer than {bytes_max} bytes"),
        ));
    }
    // Filled without growing, since growing leaves copies in memory.
    let len = usize::try_from(metadata.len()).unwrap_or_default();
    let mut text = Zeroizing::new(String::with_capacity(len.saturating_add(1)));
    let file = fs::File::open(path).map_err(io)?;
    file.take(bytes_max).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

/// Writes a new file that only its owner may read.
pub(crate) fn write_new_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            let name = path.display();
            let sentence = "there is a file already, and none is written over";
            Failure::refused(format_args!("{name}: {sentence}"))
        } else {
            Failure::file(path, SystemFault(&error))
        }
    })
}

/// Reads or creates the secret of stateless resets for the socket at `address` and the identity
/// file `identity`. Returns `None` and logs the reason on failure; peers then notice a restart only
/// by a timeout.
pub fn reset_secret(identity: &Path, address: SocketAddr, provider: &mut Ring) -> Option<Secret32> {
    if address.port() == 0 {
        tracing::info!("no resets for peers of the last run: the port is another each time");
        return None;
    }
    reset_file::secret_for(identity, address, provider)
        .inspect_err(|error| {
            let file = reset_file::sibling_path(identity, address);
            tracing::warn!(file = %file.display(), %error, "no resets for peers of the last run");
        })
        .ok()
}

/// Draws the id of this run.
///
/// # Errors
///
/// If the system has no randomness.
pub fn random_instance(provider: &mut Ring) -> Result<InstanceId, Failure> {
    provider.random_instance().map_err(|NoEntropy| no_entropy())
}

pub(crate) fn no_entropy() -> Failure {
    Failure::new(
        Exit::CheckFailed,
        "the system's source of randomness failed",
    )
}

#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata) -> Result<(), u32> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
    if mode.trailing_zeros() >= OTHERS_BITS {
        Ok(())
    } else {
        Err(mode)
    }
}

/// Mode bits of group and others.
#[cfg(unix)]
const OTHERS_BITS: u32 = 6;

#[cfg(not(unix))]
fn check_mode(_metadata: &fs::Metadata) -> Result<(), u32> {
    Ok(())
}
