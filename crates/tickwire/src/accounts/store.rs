//! Storage of accounts.

use core::fmt;
use std::collections::BTreeMap;
use std::io;

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

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there is no room for another account"),
            Self::Corrupt => f.write_str("the account's record cannot be read"),
            Self::Io(kind) => write!(f, "the accounts cannot be reached: {kind}"),
        }
    }
}

impl core::error::Error for StoreError {}

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
