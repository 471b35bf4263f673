#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod address;
pub mod count;
mod hub;
pub mod id;
pub mod join_file;
pub mod log;
pub mod name;
mod node;
pub mod record;
mod redact;
pub mod role;
pub mod store;

pub use hub::{DuplicateClaim, Hub, HubConfig, HubEvent, HubStats};
pub use join_file::JoinFile;
pub use node::{
    ClaimId, DialError, Node, NodeCommand, NodeConfig, NodeEvent, NodeStats, SendError, Ticket,
};
pub use redact::Redacted;
pub use store::{
    Command, Completed, OpenFailure, Outcome, Store, StoreConfig, StoreError, StoreOp,
};
