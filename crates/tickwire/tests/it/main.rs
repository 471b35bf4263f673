//! Servers and clients on loopback.

#![cfg(test)]

mod access;
#[cfg(feature = "accounts")]
mod accounts;
#[cfg(feature = "tokio")]
mod asynchronous;
mod background;
mod broadcast;
mod exchange;
mod game;
#[cfg(feature = "tcp")]
mod handover;
mod kick;
#[cfg(feature = "tcp")]
mod pair;
mod providers;
mod report;
mod reset_secret;
#[cfg(target_os = "linux")]
mod shards;
