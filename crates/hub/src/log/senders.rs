//! Which nodes have sent the stored mail, and how much of it.

use std::collections::BTreeMap;

use wire::NodeId;

use crate::field::Role;

/// The senders of stored mail. An index entry names its sender by a number.
#[derive(Clone, Debug)]
pub(crate) struct Senders {
    numbers: BTreeMap<NodeId, u16>,
    /// By number. The first one has the mail of unknown senders.
    list: Vec<Sender>,
    /// Sums by role; the last one is of unknown roles.
    roles: [SenderUsage; ROLES + 1],
}

#[derive(Clone, Copy, Debug)]
struct Sender {
    /// `None` if unknown.
    node: Option<NodeId>,
    role: Option<Role>,
    usage: SenderUsage,
}

/// What a sender has in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderUsage {
    /// Mails, one for each mailbox.
    pub mails: u64,
    /// Size of their records in the log, bytes.
    pub bytes: u64,
}

impl SenderUsage {
    /// Returns one mail of `bytes`.
    pub(crate) const fn one(bytes: u64) -> Self {
        Self { mails: 1, bytes }
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.mails = self.mails.saturating_add(other.mails);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    const fn subtract(&mut self, other: Self) {
        self.mails = self.mails.saturating_sub(other.mails);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

const ROLES: usize = Role::ALL.len();

/// Most numbers.
const SENDERS_MAX: usize = 1 << 16;

const UNKNOWN: Sender = Sender {
    node: None,
    role: None,
    usage: SenderUsage { mails: 0, bytes: 0 },
};

impl Default for Senders {
    fn default() -> Self {
        Self {
            numbers: BTreeMap::new(),
            list: vec![UNKNOWN],
            roles: [SenderUsage::default(); ROLES + 1],
        }
    }
}

impl Senders {
    /// Returns the number of `node`, a new one if it has none; 0 if all are in use.
    pub(super) fn number(&mut self, node: NodeId, role: Option<Role>) -> u16 {
        if let Some(number) = self.numbers.get(&node) {
            return *number;
        }
        let sender = Sender {
            node: Some(node),
            role,
            ..UNKNOWN
        };
        let number = if self.has_fresh() {
            self.list.push(sender);
            self.list.len().saturating_sub(1)
        } else {
            let mut all = self.list.iter().skip(1);
            let Some(unused) = all.position(|sender| sender.usage.mails == 0) else {
                return 0;
            };
            let number = unused.saturating_add(1);
            if let Some(place) = self.list.get_mut(number) {
                place.node.map(|old| self.numbers.remove(&old));
                *place = sender;
            }
            number
        };
        let number = u16::try_from(number).unwrap_or(0);
        self.numbers.insert(node, number);
        number
    }

    /// Returns whether a number is left that no sender has had. If none is, the next new sender may
    /// get the number of one without mail.
    pub(super) const fn has_fresh(&self) -> bool {
        self.list.len() < SENDERS_MAX
    }

    /// Returns whether `node` has or can get a number.
    pub(crate) fn has_room_for(&self, node: NodeId) -> bool {
        self.has_fresh()
            || self.numbers.contains_key(&node)
            || self.list.iter().skip(1).any(|it| it.usage.mails == 0)
    }

    pub(crate) fn find(&self, node: NodeId) -> Option<u16> {
        self.numbers.get(&node).copied()
    }

    /// Notes the role with which `node` has joined.
    pub(super) fn set_role(&mut self, node: NodeId, role: Option<Role>) {
        let number = self.find(node).map(usize::from);
        if let Some(sender) = number.and_then(|number| self.list.get_mut(number))
            && sender.role != role
        {
            let old = core::mem::replace(&mut sender.role, role);
            let usage = sender.usage;
            sum(&mut self.roles, old).subtract(usage);
            sum(&mut self.roles, role).add(usage);
        }
    }

    /// Adds a mail; `bytes` is 0 if its record is counted already.
    pub(super) fn add(&mut self, number: u16, bytes: u64) {
        let number = usize::from(number);
        if number >= self.list.len() {
            // Of a snapshot with its senders behind its entries.
            self.list.resize(number.saturating_add(1), UNKNOWN);
        }
        if let Some(sender) = self.list.get_mut(number) {
            let usage = SenderUsage::one(bytes);
            sender.usage.add(usage);
            sum(&mut self.roles, sender.role).add(usage);
        }
    }

    pub(super) fn subtract(&mut self, number: u16, bytes: u64) {
        if let Some(sender) = self.list.get_mut(usize::from(number)) {
            let usage = SenderUsage::one(bytes);
            sender.usage.subtract(usage);
            sum(&mut self.roles, sender.role).subtract(usage);
        }
    }

    /// Returns the node of a number.
    pub(super) fn node(&self, number: u16) -> Option<NodeId> {
        self.list.get(usize::from(number))?.node
    }

    /// Restores a sender from a snapshot; returns whether its number is free.
    pub(super) fn restore(&mut self, number: u16, node: NodeId) -> bool {
        if number == 0 || self.node(number).is_some() {
            return false;
        }
        let place = usize::from(number);
        if place >= self.list.len() {
            self.list.resize(place.saturating_add(1), UNKNOWN);
        }
        if let Some(sender) = self.list.get_mut(place) {
            sender.node = Some(node);
        }
        self.numbers.insert(node, number).is_none()
    }

    /// Returns whether each sender with mail is known.
    pub(super) fn is_complete(&self) -> bool {
        let mut all = self.list.iter().skip(1);
        all.all(|sender| sender.node.is_some() || sender.usage.mails == 0)
    }

    /// Returns all senders with their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, NodeId)> {
        self.numbers.iter().map(|(node, number)| (*number, *node))
    }

    pub(crate) fn of_node(&self, node: NodeId) -> SenderUsage {
        let number = self.find(node).map(usize::from);
        let sender = number.and_then(|number| self.list.get(number));
        sender.map(|sender| sender.usage).unwrap_or_default()
    }

    pub(crate) fn of_role(&self, role: Role) -> SenderUsage {
        let sum = self.roles.get(usize::from(role as u8));
        sum.copied().unwrap_or_default()
    }
}

fn sum(roles: &mut [SenderUsage; ROLES + 1], role: Option<Role>) -> &mut SenderUsage {
    let [known @ .., unknown] = roles;
    match role.and_then(|role| known.get_mut(usize::from(role as u8))) {
        Some(known) => known,
        None => unknown,
    }
}
