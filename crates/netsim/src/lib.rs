#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chance;
pub mod link;
pub mod trace;
pub mod world;

pub use chance::Chance;
pub use link::{Jitter, Link, LinkConfig, LinkStats, Loss, Order, Rate};
pub use trace::Trace;
pub use world::{
    App, Datagram, Handle, Host, Journal, Node, NodeConfig, NodeIndex, Outbox, Overdue, TapId,
    Verdict, WallClock, World,
};
