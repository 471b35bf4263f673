//! How many keys each node and each role has written.

use std::collections::BTreeMap;

use wire::NodeId;

use crate::field::Role;

/// Keys and their size, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyUsage {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// The nodes that have written keys; the last writer of a key owns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    nodes: BTreeMap<NodeId, (Option<Role>, KeyUsage)>,
    roles: BTreeMap<Option<Role>, KeyUsage>,
}

impl KeyUsage {
    /// Returns one key of `bytes`.
    pub(crate) const fn one(bytes: u64) -> Self {
        Self { keys: 1, bytes }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys.saturating_add(other.keys),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(crate) const fn minus(self, other: Self) -> Self {
        Self {
            keys: self.keys.saturating_sub(other.keys),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Owners {
    pub(crate) fn of_node(&self, node: NodeId) -> KeyUsage {
        let known = self.nodes.get(&node);
        known.map(|(_, usage)| *usage).unwrap_or_default()
    }

    pub(crate) fn of_role(&self, role: Role) -> KeyUsage {
        self.roles.get(&Some(role)).copied().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a key of `node`, which has joined as `role`.
    pub(crate) fn add(&mut self, node: NodeId, role: Option<Role>, bytes: u64) {
        self.set_role(node, role);
        let (_, usage) = self
            .nodes
            .entry(node)
            .or_insert_with(|| (role, KeyUsage::default()));
        *usage = usage.plus(KeyUsage::one(bytes));
        let sum = self.roles.entry(role).or_default();
        *sum = sum.plus(KeyUsage::one(bytes));
    }

    pub(crate) fn subtract(&mut self, node: NodeId, bytes: u64) {
        let Some((role, usage)) = self.nodes.get_mut(&node) else {
            return;
        };
        *usage = usage.minus(KeyUsage::one(bytes));
        let (role, is_empty) = (*role, usage.keys == 0);
        if is_empty {
            self.nodes.remove(&node);
        }
        self.change_role(role, |sum| sum.minus(KeyUsage::one(bytes)));
    }

    /// Notes the role with which `node` has joined.
    pub(crate) fn set_role(&mut self, node: NodeId, role: Option<Role>) {
        if let Some((known, usage)) = self.nodes.get_mut(&node)
            && *known != role
        {
            let (old, usage) = (core::mem::replace(known, role), *usage);
            self.change_role(old, |sum| sum.minus(usage));
            self.change_role(role, |sum| sum.plus(usage));
        }
    }

    fn change_role(&mut self, role: Option<Role>, change: impl FnOnce(KeyUsage) -> KeyUsage) {
        let sum = self.roles.entry(role).or_default();
        *sum = change(*sum);
        if *sum == KeyUsage::default() {
            self.roles.remove(&role);
        }
    }
}
