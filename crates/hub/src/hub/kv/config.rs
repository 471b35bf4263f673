//! Limits and counters of the key-value store.

use crate::store::SenderShares;

/// Limits of a hub's key-value store. Those of durable keys are in
/// [`KvStoreConfig`](crate::store::KvStoreConfig).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvConfig {
    /// Keys in memory. Default 65,536. Further ones are refused as `Full`.
    pub memory_keys_max: usize,
    /// Size of the keys in memory and their values, bytes. Default 64 MiB.
    pub memory_bytes_max: usize,
    /// How much of these one node may write, and all nodes of a role. Beyond it they are refused as
    /// `OverShare`.
    pub shares: SenderShares,
    /// Durable writes that are not on disk yet, of one link. Default 256. Further ones are refused as
    /// `Busy`.
    pub node_writes_max: usize,
    /// Size of all such writes, bytes. Default 16 MiB.
    pub write_bytes_max: usize,
    /// Watches of one link. Default 64. A link that begins more is closed.
    pub node_watches_max: usize,
    /// Changes kept for watches. Default 4,096. A watch that misses older ones starts over with a
    /// snapshot.
    pub history_changes_max: usize,
    /// Size of these changes, bytes. Default 8 MiB.
    pub history_bytes_max: usize,
}

impl Default for KvConfig {
    fn default() -> Self {
        Self {
            memory_keys_max: 65_536,
            memory_bytes_max: 64 << 20,
            shares: SenderShares::default(),
            node_writes_max: 256,
            write_bytes_max: 16 << 20,
            node_watches_max: 64,
            history_changes_max: 4_096,
            history_bytes_max: 8 << 20,
        }
    }
}

/// Counters of the key-value store since the hub was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KvStats {
    /// Changes of keys that became visible.
    pub changes: u64,
    /// Requests that were answered with an error.
    pub refused: u64,
    /// Keys refused since the keys of their writer, or of all nodes of its role, have their share.
    pub over_share: u64,
    /// Keys that were deleted since the lease of their holder ended.
    pub leases_ended: u64,
    /// Snapshots sent to watches that missed changes.
    pub watch_resets: u64,
}
