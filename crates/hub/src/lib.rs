#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod backend;
mod claim_grant;
#[cfg(feature = "conformance")]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow fails the test that calls it"
)]
pub mod conformance;
mod field;
pub mod game;
mod hub;
pub mod join_file;
pub mod kv;
pub mod log;
mod node;
pub mod record;
mod shard;
pub mod stats;
pub mod stats_store;
pub mod store;

pub use backend::Backend;
pub use claim_grant::{ClaimGrant, ClaimVerifier, GrantTerms};
pub use field::{
    Addr, BatchSeq, CallId, ClaimNumber, CountKey, CountKeyError, DecodeError, Epoch, GroupId,
    GroupRequest, KvRequest, Lease, LiveSeq, LogId, MailSeq, Name, NameError, QueryId, Redacted,
    RequestId, Role, RoleError, SenderSeq, WatchId,
};
pub use hub::{
    AccessConfig, ClaimPolicy, DuplicateClaim, Hub, HubConfig, HubEvent, HubHealth, HubStats,
    HubStatus, KvConfig, KvStats, SenderRate, SenderRates, StatsLinkConfig, StatsLinkStats,
};
pub use join_file::JoinFile;
pub use node::{
    ClaimId, DialError, KvAnswer, KvClient, KvClientConfig, LiveOverflow, MailOptions, Node,
    NodeCommand, NodeConfig, NodeEvent, NodeStats, NodeStatsConfig, NodeStatsCounters,
    PlayerMessage, QuerySendError, SendError, ShardsConfig, Statistics, Ticket,
};
pub use shard::{Shard, ShardView};
pub use store::{
    Command, Completed, FullReason, KvOp, KvOutcome, KvStoreConfig, OnFull, OpenFailure, Outcome,
    SenderShare, SenderShares, SenderUsage, Store, StoreConfig, StoreError, StoreOp, StoreStats,
    StoreStatus,
};
