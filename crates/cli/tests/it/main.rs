//! The program as a user runs it: real processes and sockets on loopback.

#![cfg(test)]

mod admin;
mod child;
mod child_exit;
#[cfg(target_os = "linux")]
mod closed_output;
mod command;
mod doom;
mod edges;
mod hostile;
#[cfg(target_os = "linux")]
mod hosts;
mod http;
mod hub;
mod hub_api;
mod hub_client;
mod ipv6;
mod key;
mod lease;
mod malformed;
mod mesh_node;
mod net;
mod node;
mod pool;
mod proxied;
#[cfg(unix)]
mod readme;
mod rfc;
mod roles;
#[cfg(unix)]
mod seed;
mod server;
mod sharded_hub;
#[cfg(target_os = "linux")]
mod shards;
mod stack;
#[cfg(target_os = "linux")]
mod tcp;
mod tickets;
mod unlisted;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs one at a time: each needs the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static STAGE: Mutex<()> = Mutex::new(());
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}
