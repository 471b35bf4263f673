//! What may be done with an account, and what it costs whoever guesses.

use core::fmt;

use crypto::Ring;
use wire::UnixTime;

use super::lockout::Strangers;
use super::{
    AccountName, AccountRecord, AccountStore, Cost, Failures, HashError, LockoutConfig, Password,
    PasswordHash, StoreError,
};

/// The accounts of a store. Each call may cost a hash, so it is not for the thread of a tick: a
/// [`Desk`](super::Desk) makes them elsewhere.
#[derive(Debug)]
pub struct Accounts<S> {
    store: S,
    cost: Cost,
    lockout: LockoutConfig,
    strangers: Strangers,
    /// What names without an account are verified against, so that they cost the same.
    nobody: PasswordHash,
    provider: Ring,
    hashes: u64,
}

impl<S: AccountStore> Accounts<S> {
    /// Takes a store; new passwords are hashed at `cost`.
    ///
    /// # Errors
    ///
    /// [`HashError`] where the system does not give what a hash costs.
    pub fn new(store: S, cost: Cost, lockout: LockoutConfig) -> Result<Self, HashError> {
        let mut provider = Ring::new();
        let password = Password::new("nobody's password").map_err(|_| HashError)?;
        let nobody = cost.hash(&mut provider, &password)?;
        Ok(Self {
            store,
            cost,
            lockout,
            strangers: Strangers::default(),
            nobody,
            provider,
            hashes: 1,
        })
    }

    /// Adds an account.
    ///
    /// # Errors
    ///
    /// [`AccountError::Taken`] where the name has one; otherwise the store's and the system's.
    pub fn create(&mut self, name: &AccountName, password: &Password) -> Result<(), AccountError> {
        // Looked at first: a name that is taken costs no hash.
        if self.store.load(name)?.is_some() {
            return Err(AccountError::Taken);
        }
        let record = AccountRecord {
            password: self.hash(password)?,
            failures: Failures::default(),
        };
        if self.store.insert(name, &record)? {
            Ok(())
        } else {
            Err(AccountError::Taken)
        }
    }

    /// Checks that `password` is that of `name`.
    ///
    /// A failure counts towards a lock, and a success ends the count. While a name is locked,
    /// nothing is looked at, and nothing counts.
    ///
    /// # Errors
    ///
    /// [`AccountError::Refused`] where nobody has the name or the password is another;
    /// [`AccountError::Locked`]; otherwise the store's and the system's.
    pub fn verify(
        &mut self,
        now: UnixTime,
        name: &AccountName,
        password: &Password,
    ) -> Result<(), AccountError> {
        let mut record = self.prove(now, name, password)?;
        let is_cheap = !record.password.has_cost(&self.cost);
        if is_cheap {
            record.password = self.hash(password)?;
        }
        if is_cheap || record.failures != Failures::default() {
            record.failures = Failures::default();
            self.store.replace(name, &record)?;
        }
        Ok(())
    }

    /// Puts `new` in the place of `old`, for whoever knows that.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn change(
        &mut self,
        now: UnixTime,
        name: &AccountName,
        [old, new]: [&Password; 2],
    ) -> Result<(), AccountError> {
        self.prove(now, name, old)?;
        self.put(name, new)
    }

    /// Gives an account a password and unlocks it, for an operator: nothing is asked.
    ///
    /// # Errors
    ///
    /// [`AccountError::Refused`] where nobody has the name; otherwise the store's and the system's.
    pub fn reset(&mut self, name: &AccountName, password: &Password) -> Result<(), AccountError> {
        if self.store.load(name)?.is_none() {
            return Err(AccountError::Refused);
        }
        self.put(name, password)
    }

    /// Returns how many hashes were computed: what most of the work is.
    pub const fn hashes(&self) -> u64 {
        self.hashes
    }

    /// Returns the record of `name` where `password` is its own; counts the failure where it is not.
    fn prove(
        &mut self,
        now: UnixTime,
        name: &AccountName,
        password: &Password,
    ) -> Result<AccountRecord, AccountError> {
        let record = self.store.load(name)?;
        let kept = record
            .as_ref()
            .and_then(|it| it.failures.lock(now, &self.lockout));
        let noted = self.strangers.get(name).lock(now, &self.lockout);
        if let Some(until) = kept.max(noted) {
            return Err(AccountError::Locked { until });
        }
        let hash = record.as_ref().map_or(&self.nobody, |it| &it.password);
        self.hashes = self.hashes.saturating_add(1);
        let is_right = hash.verify(password)?;
        match record {
            Some(record) if is_right => {
                self.strangers.forget(name);
                Ok(record)
            }
            Some(mut record) => {
                record.failures.add(now, &self.lockout);
                if let Err(error) = self.store.replace(name, &record) {
                    // A store that takes nothing must not make guessing free.
                    self.strangers.add(now, name, &self.lockout);
                    return Err(error.into());
                }
                Err(AccountError::Refused)
            }
            None => {
                self.strangers.add(now, name, &self.lockout);
                Err(AccountError::Refused)
            }
        }
    }

    fn put(&mut self, name: &AccountName, password: &Password) -> Result<(), AccountError> {
        let record = AccountRecord {
            password: self.hash(password)?,
            failures: Failures::default(),
        };
        self.store.replace(name, &record)?;
        self.strangers.forget(name);
        Ok(())
    }

    fn hash(&mut self, password: &Password) -> Result<PasswordHash, HashError> {
        self.hashes = self.hashes.saturating_add(1);
        self.cost.hash(&mut self.provider, password)
    }
}

/// Why a request was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccountError {
    /// The name has an account already.
    Taken,
    /// Nobody has the name, or the password is another: which of them is not told.
    Refused,
    /// Too many failures.
    Locked {
        /// When the next attempt is looked at.
        until: UnixTime,
    },
    /// The store could not do its part; nobody is let in without it.
    Store(StoreError),
    /// The system did not give what a hash costs.
    Hash,
}

impl From<StoreError> for AccountError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<HashError> for AccountError {
    fn from(HashError: HashError) -> Self {
        Self::Hash
    }
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("the name is taken"),
            Self::Refused => f.write_str("there is no such account with this password"),
            Self::Locked { until } => {
                write!(
                    f,
                    "the account is locked until {} (Unix time)",
                    until.as_secs()
                )
            }
            Self::Store(error) => error.fmt(f),
            Self::Hash => HashError.fmt(f),
        }
    }
}

impl core::error::Error for AccountError {}

#[cfg(test)]
mod tests;
