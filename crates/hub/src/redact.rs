//! Payloads that no debug output may contain: mail, and keys that travel in calls.

use core::fmt;
use core::ops::Deref;

use bytes::Bytes;

/// A payload that `Debug` prints as its length only.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Redacted<B>(pub B);

impl<B: AsRef<[u8]>> fmt::Debug for Redacted<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.as_ref().len())
    }
}

impl Redacted<&[u8]> {
    /// Copies the payload.
    pub(crate) fn to_bytes(self) -> Redacted<Bytes> {
        Redacted(Bytes::copy_from_slice(self.0))
    }
}

impl<B> Deref for Redacted<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0
    }
}

impl<B> From<B> for Redacted<B> {
    fn from(bytes: B) -> Self {
        Self(bytes)
    }
}
