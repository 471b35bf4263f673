//! Removes the keys of a run even if the run is killed: a process of its own, outside the process
//! group that a terminal signals, which waits until its pipe closes.

use std::io;
use std::path::Path;

use super::Failure;
use crate::keyring;

/// Waits until the parent closes the pipe or exits.
pub(super) fn run(directory: &Path) -> Result<(), Failure> {
    // An input that cannot be read has no writer either.
    drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    Ok(keyring::sweep(directory)?)
}
