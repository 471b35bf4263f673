//! The number of uses of an ephemeral key.

use super::Role;
use crate::{BadPoint, Secret32};

/// A private key: a dialler may use it any number of times, an accepter once.
pub(super) struct Held<K> {
    role: Role,
    /// `None` after an accepter's key has been used.
    key: Option<K>,
}

impl<K> Held<K> {
    pub(super) const fn new(role: Role, key: K) -> Self {
        Self {
            role,
            key: Some(key),
        }
    }

    /// Agrees with the key. An accepter's key is dropped, even if the agreement fails.
    pub(super) fn agree(
        &mut self,
        agree: impl FnOnce(&K) -> Result<Secret32, BadPoint>,
    ) -> Result<Secret32, BadPoint> {
        match self.role {
            Role::Dialler => agree(self.key.as_ref().ok_or(BadPoint)?),
            Role::Accepter => agree(&self.key.take().ok_or(BadPoint)?),
        }
    }
}
