//! Accounts with passwords, with the feature `accounts`.
//!
//! An [`AccountThread`] hashes, so a login never delays a tick: [`AccountThread::submit`] queues a
//! request without waiting, and [`AccountThread::poll`] returns the results. Passwords are stored as
//! Argon2id (RFC 9106) in the PHC string format, which contains the cost. If you raise the cost,
//! each password is hashed again at its next successful login. After several failures a name is
//! locked, for longer each time. An unknown name and a wrong password give the same error.
//!
//! ```
//! use core::time::Duration;
//! use tickwire::accounts::{AccountError, AccountThread, AccountThreadConfig, MemoryStore, Password, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut thread = AccountThread::start(MemoryStore::new(1_000), AccountThreadConfig::default())?;
//! let name = "ann".parse()?;
//! thread.submit(Request::Create { name, password: Password::new("correct horse")? })?;
//! thread.submit(Request::Verify { name, password: Password::new("wrong horse")? })?;
//! // A game calls `poll` once a tick; a lobby's own thread may wait.
//! let outcomes: Vec<_> = (0..2)
//!     .filter_map(|_| thread.wait(Duration::from_secs(10)))
//!     .map(|answer| answer.outcome)
//!     .collect();
//! assert_eq!(outcomes, [Ok(()), Err(AccountError::Refused)]);
//! # Ok(())
//! # }
//! ```

mod lockout;
mod login;
mod store;
mod thread;

use core::fmt;

use crypto::Ring;
use wire::UnixTime;

use lockout::UnknownNames;
pub use lockout::{Failures, LockoutConfig};
pub use login::{
    AccountName, AccountNameError, Cost, HashError, Password, PasswordError, PasswordHash,
    PasswordHashError,
};
pub use store::{AccountRecord, AccountStore, FileStore, MemoryStore, OpenStoreError, StoreError};
pub use thread::{AccountThread, AccountThreadConfig, Answer, Request, RequestId, SubmitError};

/// The accounts of a store. Each call may compute a hash, so do not call it on the tick's thread; an
/// [`AccountThread`] runs it on its own.
#[derive(Debug)]
pub struct Accounts<S> {
    store: S,
    cost: Cost,
    lockout: LockoutConfig,
    unknown_names: UnknownNames,
    /// Dummy hash for names without an account, so that they take the same time.
    nobody: PasswordHash,
    provider: Ring,
    hashes: u64,
}

impl<S: AccountStore> Accounts<S> {
    /// Wraps a store; new passwords are hashed at `cost`.
    ///
    /// # Errors
    ///
    /// [`HashError`] if the system lacks randomness or memory for a hash.
    pub fn new(store: S, cost: Cost, lockout: LockoutConfig) -> Result<Self, HashError> {
        let mut provider = Ring::new();
        let password = Password::new("nobody's password").map_err(|_| HashError)?;
        let nobody = cost.hash(&mut provider, &password)?;
        Ok(Self {
            store,
            cost,
            lockout,
            unknown_names: UnknownNames::default(),
            nobody,
            provider,
            hashes: 1,
        })
    }

    /// Adds an account.
    ///
    /// # Errors
    ///
    /// [`AccountError::Taken`] if the name has an account; errors of the store and the system.
    pub fn create(&mut self, name: &AccountName, password: &Password) -> Result<(), AccountError> {
        // Checked first, so that a taken name costs no hash.
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

    /// Checks the password of `name`.
    ///
    /// A failure counts towards a lock, and a success resets the count. While a name is locked,
    /// attempts are neither checked nor counted.
    ///
    /// # Errors
    ///
    /// [`AccountError::Refused`] if the name is unknown or the password is wrong;
    /// [`AccountError::Locked`]; errors of the store and the system.
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

    /// Changes the password if `old` is correct.
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

    /// Sets the password and unlocks the account, without a check; for operators.
    ///
    /// # Errors
    ///
    /// [`AccountError::Refused`] if the name is unknown; errors of the store and the system.
    pub fn reset(&mut self, name: &AccountName, password: &Password) -> Result<(), AccountError> {
        if self.store.load(name)?.is_none() {
            return Err(AccountError::Refused);
        }
        self.put(name, password)
    }

    /// Returns how many hashes were computed, which is most of the work.
    pub const fn hashes(&self) -> u64 {
        self.hashes
    }

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
        let noted = self.unknown_names.get(name).lock(now, &self.lockout);
        if let Some(until) = kept.max(noted) {
            return Err(AccountError::Locked { until });
        }
        let hash = record.as_ref().map_or(&self.nobody, |it| &it.password);
        self.hashes = self.hashes.saturating_add(1);
        let is_right = hash.verify(password)?;
        match record {
            Some(record) if is_right => {
                self.unknown_names.forget(name);
                Ok(record)
            }
            Some(mut record) => {
                record.failures.add(now, &self.lockout);
                if let Err(error) = self.store.replace(name, &record) {
                    // If the store cannot save the failure, it is counted in memory, so that
                    // guessing stays limited.
                    self.unknown_names.add(now, name, &self.lockout);
                    return Err(error.into());
                }
                Err(AccountError::Refused)
            }
            None => {
                self.unknown_names.add(now, name, &self.lockout);
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
        self.unknown_names.forget(name);
        Ok(())
    }

    fn hash(&mut self, password: &Password) -> Result<PasswordHash, HashError> {
        self.hashes = self.hashes.saturating_add(1);
        self.cost.hash(&mut self.provider, password)
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccountError {
    /// The name already has an account.
    Taken,
    /// The name is unknown or the password is wrong; the two are not distinguished.
    Refused,
    /// The name is locked after too many failures.
    Locked {
        /// When the next attempt is checked.
        until: UnixTime,
    },
    /// The store failed; no login succeeds without it.
    Store(StoreError),
    /// The system lacks randomness or memory for a hash.
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
