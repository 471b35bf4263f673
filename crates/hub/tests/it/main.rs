#![cfg(test)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for what it is about"
)]
//! A hub and its nodes, through their public interface only.

mod alloc;
mod bare;
mod calls;
mod claims;
mod clock;
#[cfg(feature = "conformance")]
mod conformance;
mod contract;
mod drain;
mod flood;
mod full;
mod gonet;
mod grants;
mod groups;
mod hostile;
mod impersonation;
mod kv;
mod limit;
mod live;
mod live_messages;
mod mail;
mod mail_many;
mod memory;
mod power_cuts;
mod presence;
mod properties;
mod redact;
mod sharded;
mod share;
mod stats;
mod vectors;
mod vectors_kv;
mod world;
