//! What removes the keys of a run, whatever ends the run: its own process, in no group that a
//! terminal sends signals to, waits for the end of its pipe.

use std::io;
use std::path::Path;

use super::Failure;
use crate::keyring;

/// Waits until the parent lets go or is gone.
pub(super) fn run(directory: &Path) -> Result<(), Failure> {
    // An input that cannot be read has nobody at its other end either.
    drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    Ok(keyring::sweep(directory)?)
}
