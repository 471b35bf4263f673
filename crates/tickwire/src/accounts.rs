//! Accounts with passwords, with the feature `accounts`.
//!
//! A [`Desk`] hashes on its own thread, so a login never delays a tick: [`Desk::submit`] queues a
//! request without waiting, and [`Desk::poll`] returns the results. Passwords are stored as
//! Argon2id (RFC 9106) in the PHC string format, which contains the cost. If you raise the cost,
//! each password is hashed again at its next successful login. After several failures a name is
//! locked, for longer each time. An unknown name and a wrong password give the same error.
//!
//! ```
//! use core::time::Duration;
//! use tickwire::accounts::{AccountError, Desk, DeskConfig, MemoryStore, Password, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut desk = Desk::start(MemoryStore::new(1_000), DeskConfig::default())?;
//! let name = "ann".parse()?;
//! desk.submit(Request::Create { name, password: Password::new("correct horse")? })?;
//! desk.submit(Request::Verify { name, password: Password::new("wrong horse")? })?;
//! // A game calls `poll` once a tick; a lobby's own thread may wait.
//! let outcomes: Vec<_> = (0..2)
//!     .filter_map(|_| desk.wait(Duration::from_secs(10)))
//!     .map(|answer| answer.outcome)
//!     .collect();
//! assert_eq!(outcomes, [Ok(()), Err(AccountError::Refused)]);
//! # Ok(())
//! # }
//! ```

mod book;
mod desk;
mod file_store;
mod lockout;
mod name;
mod password;
mod store;

pub use book::{AccountError, Accounts};
pub use desk::{Answer, Desk, DeskConfig, Request, RequestId, SubmitError};
pub use file_store::{FileStore, OpenStoreError};
pub use lockout::{Failures, LockoutConfig};
pub use name::{AccountName, AccountNameError};
pub use password::{Cost, HashError, Password, PasswordError, PasswordHash, PasswordHashError};
pub use store::{AccountRecord, AccountStore, MemoryStore, StoreError};
