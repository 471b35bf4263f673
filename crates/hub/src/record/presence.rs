//! Which presence a node watches.

use wire::{ClientId, Encode, Reader, Writer};

use super::{Join, SERVICES_MAX};
use crate::field::{DecodeError, Name, Role, decode_list, encode_list};

/// The nodes and players whose presence a node watches.
///
/// Encoding: nodes, then players; each begins with one byte for its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresenceFilter {
    /// The nodes.
    pub nodes: NodeFilter,
    /// The players.
    pub players: PlayerFilter,
}

/// Which nodes to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeFilter {
    /// None: `0`.
    #[default]
    None,
    /// All: `1`.
    All,
    /// Nodes with one of the roles, and nodes that provide one of the services: `2, count 1, roles, count
    /// 1, services`. At most 16 of each.
    Matching {
        /// The roles.
        roles: Vec<Role>,
        /// The services.
        services: Vec<Name>,
    },
}

/// Which players to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlayerFilter {
    /// None: `0`.
    #[default]
    None,
    /// All: `1`.
    All,
    /// From the first to the last of these: `2, first 8, last 8`.
    Range(ClientId, ClientId),
    /// Those listed: `3, count 2, players 8 each`, in increasing order. See
    /// [`players`](Self::players).
    List(Vec<ClientId>),
}

impl PlayerFilter {
    /// Most players of a list.
    pub const LIST_MAX: usize = 4_096;

    /// Creates the filter of these players; their order does not matter. Returns `None` if there are more
    /// than [`LIST_MAX`](Self::LIST_MAX).
    #[must_use]
    pub fn players(players: &[ClientId]) -> Option<Self> {
        let mut players = players.to_vec();
        players.sort_unstable();
        players.dedup();
        (players.len() <= Self::LIST_MAX).then_some(Self::List(players))
    }

    pub(crate) fn includes(&self, player: ClientId) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Range(first, last) => (*first..=*last).contains(&player),
            Self::List(players) => players.binary_search(&player).is_ok(),
        }
    }
}

impl NodeFilter {
    pub(crate) fn includes(&self, node: &Join) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Matching { roles, services } => {
                roles.contains(&node.role)
                    || node
                        .services
                        .iter()
                        .any(|service| services.contains(service))
            }
        }
    }
}

impl PresenceFilter {
    /// Returns the filter for the bits of [`Join::watch`].
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self {
            nodes: if bits & Join::WATCH_NODES == 0 {
                NodeFilter::None
            } else {
                NodeFilter::All
            },
            players: if bits & Join::WATCH_PLAYERS == 0 {
                PlayerFilter::None
            } else {
                PlayerFilter::All
            },
        }
    }

    /// Returns whether the hub accepts its lists: at most 16 roles and services, and 4,096 players in
    /// increasing order.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let are_nodes_valid = match &self.nodes {
            NodeFilter::None | NodeFilter::All => true,
            NodeFilter::Matching { roles, services } => {
                roles.len() <= SERVICES_MAX && services.len() <= SERVICES_MAX
            }
        };
        let are_players_valid = match &self.players {
            PlayerFilter::None | PlayerFilter::All | PlayerFilter::Range(..) => true,
            PlayerFilter::List(players) => {
                players.len() <= PlayerFilter::LIST_MAX
                    && players.is_sorted_by(|before, after| before < after)
            }
        };
        are_nodes_valid && are_players_valid
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let nodes = match reader.u8()? {
            0 => NodeFilter::None,
            1 => NodeFilter::All,
            2 => NodeFilter::Matching {
                roles: decode_list(reader, SERVICES_MAX, Role::decode)?,
                services: decode_list(reader, SERVICES_MAX, Name::decode)?,
            },
            kind => return Err(DecodeError::Choice(kind)),
        };
        let players = match reader.u8()? {
            0 => PlayerFilter::None,
            1 => PlayerFilter::All,
            2 => PlayerFilter::Range(ClientId(reader.u64()?), ClientId(reader.u64()?)),
            3 => {
                let count = reader.u16()?;
                if usize::from(count) > PlayerFilter::LIST_MAX {
                    return Err(DecodeError::Count);
                }
                let players = (0..count).map(|_| Ok(ClientId(reader.u64()?)));
                PlayerFilter::List(players.collect::<Result<_, DecodeError>>()?)
            }
            kind => return Err(DecodeError::Choice(kind)),
        };
        let filter = Self { nodes, players };
        if filter.is_valid() {
            Ok(filter)
        } else {
            Err(DecodeError::Count)
        }
    }
}

impl Encode for PresenceFilter {
    fn encode(&self, out: &mut Writer<'_>) {
        match &self.nodes {
            NodeFilter::None => out.u8(0),
            NodeFilter::All => out.u8(1),
            NodeFilter::Matching { roles, services } => {
                out.u8(2);
                encode_list(roles, out, Role::encode);
                encode_list(services, out, Name::encode);
            }
        }
        match &self.players {
            PlayerFilter::None => out.u8(0),
            PlayerFilter::All => out.u8(1),
            PlayerFilter::Range(first, last) => out.fields(&[&2_u8, first, last]),
            PlayerFilter::List(players) => {
                let count = u16::try_from(players.len()).unwrap_or(u16::MAX);
                out.fields(&[&3_u8, &count]);
                for player in players {
                    player.encode(out);
                }
            }
        }
    }
}
