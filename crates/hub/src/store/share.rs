//! How much of a store one sender may fill, and all senders of a role.

use wire::{ClientId, NodeId};

use super::StoreConfig;
use crate::field::{MailSeq, Role};
use crate::kv::owners::{KeyUsage, Owners};
use crate::log::{Index, SenderUsage};

/// Shares of a store, by role of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderShares([SenderShare; Role::ALL.len()]);

/// How much nodes of a role may fill. A sender over its share keeps its mail, as if the store were full
/// for it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderShare {
    /// What the mail of one node may fill of [`StoreConfig::live_bytes_max`] and of
    /// [`StoreConfig::mails_max`], and its keys of their limits, percent. Default 50. Each mailbox that a
    /// node fills holds a mail of it, so this bounds these mailboxes too.
    pub node_percent: u8,
    /// The same for all nodes of the role. Default 100; 75 for game nodes, so that the others keep a
    /// quarter.
    pub role_percent: u8,
    /// What the mail of one node may fill of a mailbox, in mails and bytes, percent. Default 100. Beyond
    /// it, its mail for that player is rejected as if the mailbox were full.
    pub mailbox_percent: u8,
}

impl Default for SenderShare {
    fn default() -> Self {
        Self {
            node_percent: 50,
            ..Self::WHOLE
        }
    }
}

impl SenderShare {
    /// Everything.
    pub const WHOLE: Self = Self {
        node_percent: 100,
        role_percent: 100,
        mailbox_percent: 100,
    };
}

impl Default for SenderShares {
    fn default() -> Self {
        let mut shares = Self([SenderShare::default(); Role::ALL.len()]);
        let game_node = SenderShare {
            role_percent: 75,
            ..SenderShare::default()
        };
        shares.set(Role::GameNode, game_node);
        shares
    }
}

impl SenderShares {
    /// Shares without a limit: one sender may fill the whole store.
    pub const WHOLE: Self = Self([SenderShare::WHOLE; Role::ALL.len()]);

    /// Returns the share of nodes that have joined as `role`.
    #[must_use]
    pub fn of(&self, role: Role) -> SenderShare {
        let share = self.0.get(usize::from(role as u8));
        share.copied().unwrap_or_default()
    }

    /// Sets the share of nodes that join as `role`.
    pub fn set(&mut self, role: Role, share: SenderShare) {
        if let Some(known) = self.0.get_mut(usize::from(role as u8)) {
            *known = share;
        }
    }
}

impl SenderShares {
    /// Returns whether a node may write a key: `added` for what it frees, of `all` that there may be.
    pub(crate) fn has_key_room(
        &self,
        (node, role): (NodeId, Option<Role>),
        owners: &Owners,
        (added, freed): (KeyUsage, KeyUsage),
        all: KeyUsage,
    ) -> bool {
        let share = self.of(role.unwrap_or(Role::GameNode));
        let fits = |usage: KeyUsage, percent: u8| {
            let usage = usage.minus(freed).plus(added);
            let is_within =
                usage.keys <= part(all.keys, percent) && usage.bytes <= part(all.bytes, percent);
            percent >= 100 || is_within
        };
        fits(owners.of_node(node), share.node_percent)
            && role.is_none_or(|role| fits(owners.of_role(role), share.role_percent))
    }
}

impl StoreConfig {
    /// Returns whether `node` may fill the store by `added` more.
    pub(super) fn is_within_share(&self, index: &Index, node: NodeId, added: SenderUsage) -> bool {
        let role = index.role_of(node);
        let share = self.shares.of(role.unwrap_or(Role::GameNode));
        let senders = index.senders();
        let mails_max = u64::try_from(self.mails_max).unwrap_or(u64::MAX);
        let fits = |usage: SenderUsage, percent: u8| {
            let (mails, bytes) = (
                usage.mails.saturating_add(added.mails),
                usage.bytes.saturating_add(added.bytes),
            );
            let is_within =
                mails <= part(mails_max, percent) && bytes <= part(self.live_bytes_max, percent);
            percent >= 100 || is_within
        };
        senders.has_room_for(node)
            && fits(senders.of_node(node), share.node_percent)
            && role.is_none_or(|role| fits(senders.of_role(role), share.role_percent))
    }

    /// Returns whether `node` may fill the mailbox of `player` by a mail of `bytes`.
    pub(super) fn is_within_mailbox_share(
        &self,
        index: &Index,
        node: NodeId,
        player: ClientId,
        bytes: u64,
    ) -> bool {
        let role = index.role_of(node).unwrap_or(Role::GameNode);
        let percent = self.shares.of(role).mailbox_percent;
        if percent >= 100 {
            return true;
        }
        let mut sum = SenderUsage::one(bytes);
        let sender = index.senders().find(node);
        let mails = index.mails_after(player, MailSeq(0));
        for (_, mail) in mails.filter(|(_, mail)| Some(mail.sender) == sender) {
            sum.add(SenderUsage::one(mail.size.mail_bytes().into()));
        }
        sum.mails <= part(self.mailbox_mails_max.into(), percent)
            && sum.bytes <= part(self.mailbox_bytes_max, percent)
    }
}

/// Returns a part of `max`, rounded down.
fn part(max: u64, percent: u8) -> u64 {
    let part = u128::from(max).saturating_mul(percent.min(100).into()) / 100;
    u64::try_from(part).unwrap_or(u64::MAX)
}
