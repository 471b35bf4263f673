//! Executes operations on groups.

use wire::ClientId;

use super::StoreError;
use super::op::{GroupOp, GroupOutcome};
use crate::field::GroupId;
use crate::log::format::LogRecord;
use crate::log::{GROUP_BYTES, Log, MEMBER_BYTES, Purpose, SegmentFile, StateKind};
use crate::record::{GroupError, PlayerList};

/// Limits of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStoreConfig {
    /// Groups. Default 65,536. All members together take at most an eighth of a segment: 16 MiB hold
    /// 260,000.
    pub groups_max: usize,
    /// Members of one group. Default 4,096, which is also the largest.
    pub members_max: usize,
    /// Groups of one player. Default 64.
    pub player_groups_max: usize,
}

impl Default for GroupStoreConfig {
    fn default() -> Self {
        Self {
            groups_max: 65_536,
            members_max: PlayerList::LEN_MAX,
            player_groups_max: 64,
        }
    }
}

/// Executes `op`; its change is durable after the next flush.
pub(super) fn execute<F: SegmentFile>(
    log: &mut Log<F>,
    config: GroupStoreConfig,
    op: &GroupOp,
) -> Result<GroupOutcome, StoreError> {
    match op {
        GroupOp::Join { group, player } => join(log, config, *group, *player),
        GroupOp::Leave { group, player } => {
            let (group, player) = (*group, *player);
            if log.index.groups.is_member(group, player) {
                log.append(&LogRecord::GroupLeave { group, player }, Purpose::Delete)?;
            }
            Ok(GroupOutcome::Done)
        }
        GroupOp::Members { group, first } => {
            let (players, more) = log.index.groups.page(*group, *first, PlayerList::LEN_MAX);
            Ok(GroupOutcome::Members { players, more })
        }
    }
}

fn join<F: SegmentFile>(
    log: &mut Log<F>,
    config: GroupStoreConfig,
    group: GroupId,
    player: ClientId,
) -> Result<GroupOutcome, StoreError> {
    let groups = &log.index.groups;
    if groups.is_member(group, player) {
        return Ok(GroupOutcome::Done);
    }
    let members = groups.len_of(group);
    let grown = if members == 0 { GROUP_BYTES } else { 0 };
    let grown = grown.saturating_add(MEMBER_BYTES);
    let error = if members >= config.members_max.min(PlayerList::LEN_MAX) {
        Some(GroupError::GroupFull)
    } else if groups.groups_of(player) >= config.player_groups_max {
        Some(GroupError::PlayerFull)
    } else if (members == 0 && groups.len() >= config.groups_max)
        || !log.has_state_room(StateKind::Groups, grown)
    {
        Some(GroupError::Full)
    } else {
        None
    };
    if let Some(error) = error {
        return Ok(GroupOutcome::Refused(error));
    }
    log.append(&LogRecord::GroupJoin { group, player }, Purpose::Data)?;
    Ok(GroupOutcome::Done)
}
