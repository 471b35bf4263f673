//! Storage of accounts, in memory or in a folder.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use wire::UnixTime;

use super::{AccountName, Failures, PasswordHash};

/// The stored state of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    /// The password's hash.
    pub password: PasswordHash,
    /// Failures since the last success.
    pub failures: Failures,
}

/// Storage of accounts: a table in memory, a folder, a game's own database.
///
/// One thread calls it, and calls may block. When a call returns `Ok`, the change must be durable.
pub trait AccountStore: Send {
    /// Returns the account of `name`, if there is one.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it cannot be read.
    fn load(&mut self, name: &AccountName) -> Result<Option<AccountRecord>, StoreError>;

    /// Adds an account; returns `false` if `name` already has one.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it cannot be added.
    fn insert(&mut self, name: &AccountName, record: &AccountRecord) -> Result<bool, StoreError>;

    /// Replaces the record of `name`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it cannot be replaced.
    fn replace(&mut self, name: &AccountName, record: &AccountRecord) -> Result<(), StoreError>;
}

/// Why a store operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The store holds the most accounts allowed.
    Full,
    /// The account's record cannot be read and needs repair.
    Corrupt,
    /// A system call failed.
    Io(io::ErrorKind),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

wire::error_text! { StoreError {
    Self::Full => "there is no room for another account",
    Self::Corrupt => "the account's record cannot be read",
    Self::Io(kind) => "the accounts cannot be reached: {kind}",
}}

/// Accounts in memory, which are lost when the process ends.
#[derive(Debug)]
pub struct MemoryStore {
    accounts: BTreeMap<AccountName, AccountRecord>,
    accounts_max: usize,
}

impl MemoryStore {
    /// Creates a store for at most `accounts_max` accounts.
    #[must_use]
    pub const fn new(accounts_max: usize) -> Self {
        Self {
            accounts: BTreeMap::new(),
            accounts_max,
        }
    }
}

impl AccountStore for MemoryStore {
    fn load(&mut self, name: &AccountName) -> Result<Option<AccountRecord>, StoreError> {
        Ok(self.accounts.get(name).cloned())
    }

    fn insert(&mut self, name: &AccountName, record: &AccountRecord) -> Result<bool, StoreError> {
        if self.accounts.contains_key(name) {
            return Ok(false);
        }
        if self.accounts.len() >= self.accounts_max {
            return Err(StoreError::Full);
        }
        self.accounts.insert(*name, record.clone());
        Ok(true)
    }

    fn replace(&mut self, name: &AccountName, record: &AccountRecord) -> Result<(), StoreError> {
        let kept = self.accounts.get_mut(name).ok_or(StoreError::Corrupt)?;
        kept.clone_from(record);
        Ok(())
    }
}

/// Accounts in a folder, one small text file for each. One process uses it at a time, and only its
/// owner can read it.
///
/// ```text
/// tickwire-account 1
/// password $argon2id$v=19$m=19456,t=2,p=1$...
/// failures 2
/// locked-until 1800000000000
/// ```
///
/// The last line (Unix milliseconds) is present only during a lock. A file is written under another
/// name, synced and renamed, so a crash leaves either the old or the new version.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    accounts: usize,
    accounts_max: usize,
    /// The locked file; the lock lasts while it is open.
    _lock: File,
}

impl FileStore {
    /// Opens the folder, or creates it; it may hold `accounts_max` accounts.
    ///
    /// # Errors
    ///
    /// [`OpenStoreError`] if the folder is in use or a system call fails.
    pub fn open(folder: &Path, accounts_max: usize) -> Result<Self, OpenStoreError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
        let lock = private().open(folder.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenStoreError::Busy),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut accounts: usize = 0;
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
                accounts = accounts.saturating_add(1);
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            accounts,
            accounts_max,
            _lock: lock,
        })
    }

    fn path(&self, name: &AccountName) -> PathBuf {
        // Prefix and suffix are needed: they avoid Windows device names and a trailing dot.
        self.folder.join(format!("{PREFIX}{name}.txt"))
    }

    fn write(&self, name: &AccountName, record: &AccountRecord) -> Result<(), StoreError> {
        let draft = self.folder.join(DRAFT);
        let mut file = private().truncate(true).open(&draft)?;
        file.write_all(to_text(record).as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, self.path(name))?;
        if cfg!(unix) {
            // The rename is durable only once the folder is synced.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }
}

impl AccountStore for FileStore {
    fn load(&mut self, name: &AccountName) -> Result<Option<AccountRecord>, StoreError> {
        let file = match File::open(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        match file.take(FILE_LEN_MAX).read_to_string(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(StoreError::Corrupt);
            }
            read => read?,
        };
        from_text(&text).map(Some).ok_or(StoreError::Corrupt)
    }

    fn insert(&mut self, name: &AccountName, record: &AccountRecord) -> Result<bool, StoreError> {
        if self.path(name).try_exists()? {
            return Ok(false);
        }
        if self.accounts >= self.accounts_max {
            return Err(StoreError::Full);
        }
        self.write(name, record)?;
        self.accounts = self.accounts.saturating_add(1);
        Ok(true)
    }

    fn replace(&mut self, name: &AccountName, record: &AccountRecord) -> Result<(), StoreError> {
        self.write(name, record)
    }
}

/// Why a folder of accounts could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenStoreError {
    /// The folder is in use, by another process or by this one.
    Busy,
    /// A system call failed.
    Io(io::ErrorKind),
}

impl From<io::Error> for OpenStoreError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

wire::error_text! { OpenStoreError {
    Self::Busy => "the folder of accounts is in use",
    Self::Io(kind) => "the folder of accounts cannot be opened: {kind}",
}}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn to_text(record: &AccountRecord) -> String {
    let AccountRecord { password, failures } = record;
    let lock = failures.locked_until.map_or_else(String::new, |until| {
        format!("locked-until {}\n", until.as_millis())
    });
    format!(
        "{HEAD}\npassword {password}\nfailures {}\n{lock}",
        failures.count
    )
}

fn from_text(text: &str) -> Option<AccountRecord> {
    // A truncated file lacks the final newline.
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != HEAD {
        return None;
    }
    let password: PasswordHash = lines.next()?.strip_prefix("password ")?.parse().ok()?;
    let count = lines.next()?.strip_prefix("failures ")?.parse().ok()?;
    let locked_until = match lines.next() {
        Some(line) => {
            let millis = line.strip_prefix("locked-until ")?.parse().ok()?;
            Some(UnixTime::from_millis(millis))
        }
        None => None,
    };
    let failures = Failures {
        count,
        locked_until,
    };
    lines
        .next()
        .is_none()
        .then_some(AccountRecord { password, failures })
}

const HEAD: &str = "tickwire-account 1";
const PREFIX: &str = "account-";
const LOCK: &str = "lock";
const DRAFT: &str = "draft";
/// Most bytes read from a file; the files written here have fewer than 400.
const FILE_LEN_MAX: u64 = 1_024;

#[cfg(test)]
mod tests;
