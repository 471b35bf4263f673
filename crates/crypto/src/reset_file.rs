//! Reset secret files: the secret from which a server derives stateless reset tokens, kept across
//! restarts.
//!
//! A server sends the reset token of any session that it does not know. So no two servers may have
//! the same secret. Each bound address has its own file next to the identity, with a random secret.
//! [`secret_for`] mixes the address and the machine id into it: a file that is copied to another
//! host, or used at another address, gives different tokens. Like identity files, they have mode
//! 0600 and are never overwritten.

use alloc::string::String;
use core::net::SocketAddr;
use std::io;
use std::path::{Path, PathBuf};

use wire::address::mapped;
use zeroize::Zeroizing;

use crate::identity_file::{IdentityFileError, machine_id, read_text, write_new_text};
use crate::key_schedule::{Label, expand};
use crate::{NoEntropy, Provider, Secret32};

/// Returns the path of the reset secret of a server at `address` with the identity file `identity`:
/// `server.pem` at `192.0.2.1:7777` has `server.pem.reset-192.0.2.1-7777`.
#[must_use]
pub fn sibling_path(identity: &Path, address: SocketAddr) -> PathBuf {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    // Some file systems do not allow a colon in a file name.
    let ip = alloc::format!("{ip}").replace(':', "_");
    let mut name = identity.file_name().unwrap_or_default().to_os_string();
    name.push(alloc::format!(".reset-{ip}-{port}"));
    identity.with_file_name(name)
}

/// Returns the secret for stateless resets of a server on this machine that is bound to `address`
/// and has the identity file `identity`. Reads the file at [`sibling_path`], or creates it.
///
/// It is the same after a restart, and differs for another machine id (`/etc/machine-id`, or D-Bus'
/// file) or another address.
///
/// # Errors
///
/// As for [`read_or_create`].
pub fn secret_for<P: Provider>(
    identity: &Path,
    address: SocketAddr,
    provider: &mut P,
) -> Result<Secret32, ResetFileError> {
    let kept = read_or_create(&sibling_path(identity, address), provider)?;
    Ok(bound_to(provider, &kept, address, &machine_id()))
}

/// Derives the secret of a server at `address` on the machine with the id `machine` from the file's
/// secret.
pub fn bound_to<P: Provider>(
    provider: &P,
    kept: &Secret32,
    address: SocketAddr,
    machine: &[u8],
) -> Secret32 {
    let ip = mapped(address.ip().to_canonical());
    let place = provider.sha256(&[&ip.octets(), &address.port().to_be_bytes(), machine]);
    expand(provider, kept, RESET_PLACE, &place)
}

/// Reads the secret in `path`, or generates and writes one; for resets use [`secret_for`]. Two
/// processes that start at once get the same.
///
/// # Errors
///
/// [`ResetFileError`] names the fault. A file that other users may read is rejected.
pub fn read_or_create<P: Provider>(
    path: &Path,
    provider: &mut P,
) -> Result<Secret32, ResetFileError> {
    match read(path) {
        Err(ResetFileError::File(IdentityFileError::Io(io::ErrorKind::NotFound))) => {}
        other => return other,
    }
    let secret = Secret32::random(provider).map_err(|NoEntropy| IdentityFileError::NoEntropy)?;
    match write_new_text(path, &encode(&secret)) {
        Ok(()) => Ok(secret),
        Err(IdentityFileError::Exists) => read(path),
        Err(error) => Err(error.into()),
    }
}

/// Reads the secret in `path`.
///
/// # Errors
///
/// [`ResetFileError`] names the fault.
pub fn read(path: &Path) -> Result<Secret32, ResetFileError> {
    decode(&read_text(path)?).ok_or(ResetFileError::Text)
}

/// Why a file with a reset secret was not read or not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetFileError {
    /// A fault of the file itself, as for identity files.
    File(IdentityFileError),
    /// It contains no secret: 64 hexadecimal digits and a line end are expected.
    Text,
}

impl From<IdentityFileError> for ResetFileError {
    fn from(error: IdentityFileError) -> Self {
        Self::File(error)
    }
}

wire::error_text! { ResetFileError {
    Self::File(IdentityFileError::Io(kind)) => "reset secret file: {kind}",
    Self::File(IdentityFileError::TooOpen { mode }) =>
        "reset secret file has mode {mode:04o}, so others may know the secret; remove it, and a \
         new one is made",
    Self::File(error) => "reset secret: {error}",
    Self::Text =>
        "reset secret file does not hold 64 hexadecimal digits; remove it, and a new one is made",
}}

const RESET_PLACE: Label = Label::new("tw1 reset place");

fn encode(secret: &Secret32) -> Zeroizing<String> {
    // The string has its full capacity, because a growing one leaves copies of the secret in
    // memory.
    let mut text = Zeroizing::new(String::with_capacity(2 * Secret32::LEN + 1));
    for byte in secret.expose() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text.push('\n');
    text
}

fn decode(text: &str) -> Option<Secret32> {
    let text = text.strip_suffix('\n').unwrap_or(text).as_bytes();
    if text.len() != 2 * Secret32::LEN {
        return None;
    }
    let mut bytes = Zeroizing::new([0; Secret32::LEN]);
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        for digit in pair {
            let digit = char::from(*digit).to_digit(16)?;
            *byte = *byte << 4 | u8::try_from(digit).ok()?;
        }
    }
    Some(Secret32::take(&mut bytes))
}
