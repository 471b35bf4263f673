//! Accounts with passwords, behind the feature `accounts`.
//!
//! A [`Desk`] hashes on a thread of its own, so that a login never costs a tick: requests go in by
//! [`Desk::submit`], which does not wait, and answers come out by [`Desk::poll`]. Passwords are kept
//! as Argon2id (RFC 9106) in the self-describing string of the PHC format, so that costs can be
//! raised later: whoever logs in next gets the new ones. Names are locked for a growing while after
//! failures, and a name that nobody has is not told from a wrong password.
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
