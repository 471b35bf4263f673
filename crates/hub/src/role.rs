//! Roles of nodes.

use core::fmt;
use core::str::FromStr;

/// Role of a node. A key has the roles that the join file grants it, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The hub itself.
    Hub,
    /// A game server.
    GameNode,
    /// The matchmaker.
    Matchmaker,
    /// A node of the relay mesh.
    MeshNode,
    /// A statistics sink.
    Stats,
    /// An administration tool.
    Admin,
}

impl Role {
    /// All roles, ordered by code.
    pub const ALL: [Self; 6] = [
        Self::Hub,
        Self::GameNode,
        Self::Matchmaker,
        Self::MeshNode,
        Self::Stats,
        Self::Admin,
    ];

    /// Returns the name used in join files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::GameNode => "game-node",
            Self::Matchmaker => "matchmaker",
            Self::MeshNode => "mesh-node",
            Self::Stats => "stats",
            Self::Admin => "admin",
        }
    }

    /// Returns the code used in records.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Hub => 0,
            Self::GameNode => 1,
            Self::Matchmaker => 2,
            Self::MeshNode => 3,
            Self::Stats => 4,
            Self::Admin => 5,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.code() == code)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(RoleError)
    }
}

/// The text is not the name of a [`Role`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleError;

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("role is none of hub, game-node, matchmaker, mesh-node, stats, admin")
    }
}

impl core::error::Error for RoleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_read_as_it_is_written() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
            assert_eq!(Role::from_code(role.code()), Some(role));
        }
        assert_eq!("root".parse::<Role>(), Err(RoleError));
        assert_eq!(Role::from_code(6), None);
    }
}
