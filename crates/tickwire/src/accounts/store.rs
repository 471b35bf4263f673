//! Where accounts are kept.

use core::fmt;
use std::collections::BTreeMap;
use std::io;

use super::{AccountName, Failures, PasswordHash};

/// What is kept of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    /// The password.
    pub password: PasswordHash,
    /// What went wrong since the last success.
    pub failures: Failures,
}

/// A place for accounts: a table in memory, a folder, a game's own database.
///
/// One thread calls it, which may wait for it. A call that returned `Ok` has taken effect for good.
pub trait AccountStore: Send {
    /// Returns the account of `name`, where there is one.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where it cannot be told.
    fn load(&mut self, name: &AccountName) -> Result<Option<AccountRecord>, StoreError>;

    /// Adds an account, and returns whether it did: it does not where `name` has one.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where it cannot be added.
    fn insert(&mut self, name: &AccountName, record: &AccountRecord) -> Result<bool, StoreError>;

    /// Puts `record` in the place of the one that `name` has.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where it cannot be put there.
    fn replace(&mut self, name: &AccountName, record: &AccountRecord) -> Result<(), StoreError>;
}

/// Why a store could not do as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// It holds as many accounts as it may.
    Full,
    /// What it holds of this account cannot be read; somebody must look at it.
    Corrupt,
    /// The system refused.
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

/// Accounts that end with the process.
#[derive(Debug)]
pub struct MemoryStore {
    accounts: BTreeMap<AccountName, AccountRecord>,
    accounts_max: usize,
}

impl MemoryStore {
    /// Makes a store for at most `accounts_max` accounts.
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
