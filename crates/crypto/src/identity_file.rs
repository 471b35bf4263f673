//! Identity files: PEM with mode 0600, written atomically and never overwritten.

use alloc::string::String;
use alloc::vec::Vec;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::{Identity, NoEntropy, PemError, Provider};

/// Reads the identity in `path`.
///
/// # Errors
///
/// [`IdentityFileError`] names the fault. A file that other users may read is rejected, because
/// they may know its key.
pub fn read(path: &Path) -> Result<Identity, IdentityFileError> {
    let text = read_text(path)?;
    Identity::from_pem(&text).map_err(IdentityFileError::Pem)
}

pub(crate) fn read_text(path: &Path) -> Result<Zeroizing<String>, IdentityFileError> {
    // Checked before the open, because opening a pipe would block.
    check_is_file(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    check_is_file(&metadata)?;
    check_mode(&metadata)?;
    // The string has its full capacity, because a growing one leaves copies of the key in memory.
    let mut text = Zeroizing::new(String::with_capacity(FILE_LEN_MAX + 1));
    let limit = u64::try_from(FILE_LEN_MAX + 1).unwrap_or(u64::MAX);
    file.take(limit).read_to_string(&mut text)?;
    if text.len() > FILE_LEN_MAX {
        return Err(IdentityFileError::TooLong);
    }
    Ok(text)
}

pub(crate) fn machine_id() -> Vec<u8> {
    let mut found = MACHINE_ID_FILES.iter().filter_map(|path| {
        let mut id = Vec::new();
        let file = File::open(path).ok()?;
        file.take(MACHINE_ID_MAX).read_to_end(&mut id).ok()?;
        Some(id.trim_ascii().to_vec()).filter(|id| !id.is_empty())
    });
    found.next().unwrap_or_default()
}

/// Writes `identity` to `path`, which must not exist: to another name in the same directory, synced
/// and then linked, so that the file appears complete and readable by its owner only.
///
/// # Errors
///
/// [`IdentityFileError::Exists`] if `path` exists, whatever it is; otherwise
/// [`IdentityFileError::Io`].
pub fn write_new(path: &Path, identity: &Identity) -> Result<(), IdentityFileError> {
    write_new_text(path, &identity.to_pem())
}

/// Like [`write_new`], in SEC1 form; [`read`] accepts both.
///
/// # Errors
///
/// As for [`write_new`].
pub fn write_new_sec1(path: &Path, identity: &Identity) -> Result<(), IdentityFileError> {
    write_new_text(path, &identity.to_sec1_pem())
}

pub(crate) fn write_new_text(path: &Path, text: &str) -> Result<(), IdentityFileError> {
    let (draft_path, draft) = create_draft(path)?;
    let outcome = fill_and_link(&draft_path, draft, path, text);
    let removed = fs::remove_file(&draft_path);
    outcome?;
    removed?;
    sync_directory(path)
}

/// Reads the identity in `path`, or generates and writes one. Two processes that start at once get
/// the same.
///
/// # Errors
///
/// As for [`read`] and [`write_new`], and [`IdentityFileError::NoEntropy`].
pub fn read_or_create<P: Provider>(
    path: &Path,
    provider: &mut P,
) -> Result<Identity, IdentityFileError> {
    match read(path) {
        Err(IdentityFileError::Io(io::ErrorKind::NotFound)) => {}
        other => return other,
    }
    let identity =
        Identity::generate(provider).map_err(|NoEntropy| IdentityFileError::NoEntropy)?;
    match write_new(path, &identity) {
        Ok(()) => Ok(identity),
        Err(IdentityFileError::Exists) => read(path),
        Err(error) => Err(error),
    }
}

/// Why an identity file was not read or not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityFileError {
    /// An I/O error of the system.
    Io(io::ErrorKind),
    /// It is a directory, a pipe or a device.
    NotAFile,
    /// Users other than the owner may read or write it.
    TooOpen {
        /// The lowest 9 bits of the mode.
        mode: u32,
    },
    /// The file is longer than [`FILE_LEN_MAX`].
    TooLong,
    /// Its text contains no usable key.
    Pem(PemError),
    /// The file exists already; existing files are never overwritten.
    Exists,
    /// No identity could be generated.
    NoEntropy,
}

impl From<io::Error> for IdentityFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

wire::error_text! { IdentityFileError {
    Self::Io(io::ErrorKind::NotFound) => "there is no such identity file",
    Self::Io(io::ErrorKind::PermissionDenied) => "this user may not open the identity file",
    Self::Io(io::ErrorKind::InvalidData) => "identity file: the text is not UTF-8",
    Self::Io(kind) => "identity file: {kind}",
    Self::NotAFile => "this is a folder or a device; expected an identity file",
    Self::TooOpen { mode } =>
        "identity file has mode {mode:04o}, so others may know the key; chmod 600 it, or better \
         make a new one",
    Self::TooLong => "identity file is over {FILE_LEN_MAX} bytes",
    Self::Pem(error) => "identity file: {error}",
    Self::Exists => "identity file exists and is not written over",
    Self::NoEntropy => "{NoEntropy}",
}}

fn create_draft(path: &Path) -> Result<(PathBuf, File), IdentityFileError> {
    let name = path.file_name().ok_or(IdentityFileError::NotAFile)?;
    // A draft with this name is left over from a crash, or belongs to another thread.
    for number in 0..DRAFTS_MAX {
        let mut draft_name = name.to_os_string();
        draft_name.push(alloc::format!(".draft-{}-{number}", std::process::id()));
        let draft_path = path.with_file_name(draft_name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&draft_path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => return Ok((draft_path, outcome?)),
        }
    }
    Err(IdentityFileError::Io(io::ErrorKind::AlreadyExists))
}

fn fill_and_link(
    draft_path: &Path,
    mut draft: File,
    path: &Path,
    text: &str,
) -> Result<(), IdentityFileError> {
    draft.write_all(text.as_bytes())?;
    draft.sync_all()?;
    match fs::hard_link(draft_path, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(IdentityFileError::Exists)
        }
        outcome => Ok(outcome?),
    }
}

fn sync_directory(path: &Path) -> Result<(), IdentityFileError> {
    if cfg!(unix) {
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn check_is_file(metadata: &fs::Metadata) -> Result<(), IdentityFileError> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(IdentityFileError::NotAFile)
    }
}

#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata) -> Result<(), IdentityFileError> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
    if mode & OTHERS == 0 {
        Ok(())
    } else {
        Err(IdentityFileError::TooOpen { mode })
    }
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata) -> Result<(), IdentityFileError> {
    // On other systems, a file inherits the access rules of its directory.
    Ok(())
}

const MACHINE_ID_FILES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// Maximum bytes read from such a file: four times the usual length.
const MACHINE_ID_MAX: u64 = 128;
/// Maximum file length in bytes. A key with comments has a few hundred.
pub const FILE_LEN_MAX: usize = 16_384;

/// Permission bits of group and others.
#[cfg(unix)]
const OTHERS: u32 = 0o077;

/// Maximum draft names to try.
const DRAFTS_MAX: u32 = 64;
