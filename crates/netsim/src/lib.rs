#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adversary;
pub mod contract;
pub mod link;
#[cfg(feature = "provider")]
pub mod provider;
pub mod seeds;
pub mod trace;
pub mod wan;
pub mod world;

pub use adversary::{Adversary, Mutation};
pub use contract::{
    ContractSubject, Limits, Reached, StreamContractSubject, check_contract, check_stream_contract,
};
pub use link::{Chance, Jitter, Link, LinkConfig, LinkStats, Loss, Order, Rate};
pub use seeds::{TestSite, for_each_seed};
pub use trace::Trace;
pub use world::{
    App, Captured, Datagram, Directory, Handle, Host, Journal, Node, NodeConfig, NodeIndex, Outbox,
    Overdue, TapId, Verdict, WallClock, World,
};
