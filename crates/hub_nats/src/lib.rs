#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cache;
mod config;
mod error;
mod layout;
mod lease;
mod link;
mod log_stream;
mod publish;
mod segments;
mod server;
mod tls;
mod version;

pub use config::{Credentials, Durability, NatsConfig, Secret, Sync, Tls};
pub use error::NatsError;
pub use link::LinkStats;
pub use segments::{StreamSegments, store_config};
pub use server::{NatsServer, Watch};
pub use version::Version;
