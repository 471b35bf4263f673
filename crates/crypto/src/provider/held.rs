//! How long an ephemeral key serves.

use super::Role;
use crate::{BadPoint, Secret32};

/// A private key as its role may use it: a dialler's any number of times, an accepter's once.
pub(super) struct Held<K> {
    role: Role,
    /// `None` once an accepter's has served.
    key: Option<K>,
}

impl<K> Held<K> {
    pub(super) const fn new(role: Role, key: K) -> Self {
        Self {
            role,
            key: Some(key),
        }
    }

    /// Agrees with the key, and drops an accepter's whether or not that succeeded.
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
