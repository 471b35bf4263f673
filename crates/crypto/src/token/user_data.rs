//! Application data that a matchmaker passes to a server.

use alloc::vec::Vec;
use core::fmt;

use wire::{Reader, Writer};

use super::{TokenError, USER_DATA_MAX};

/// At most [`USER_DATA_MAX`] opaque bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(Vec<u8>);

impl UserData {
    /// Creates user data.
    ///
    /// # Errors
    ///
    /// [`UserDataTooLong`] if there are more than [`USER_DATA_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, UserDataTooLong> {
        if bytes.len() > USER_DATA_MAX {
            return Err(UserDataTooLong(bytes.len()));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        let [.., high, low] = self.0.len().to_be_bytes();
        out.bytes(&[high, low]);
        out.bytes(&self.0);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, TokenError> {
        let len = usize::from(reader.u16()?);
        Self::new(reader.bytes(len)?).map_err(|_| TokenError::Malformed)
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// The user data is longer than [`USER_DATA_MAX`]; the number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserDataTooLong(pub usize);

impl fmt::Display for UserDataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(len) = self;
        write!(
            f,
            "user data of {len} bytes is over the limit of {USER_DATA_MAX}"
        )
    }
}

impl core::error::Error for UserDataTooLong {}
