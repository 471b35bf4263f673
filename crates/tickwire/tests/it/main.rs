//! Servers and clients on loopback.

#![cfg(test)]

#[cfg(feature = "accounts")]
mod accounts;
#[cfg(feature = "tokio")]
mod asynchronous;
mod background;
mod broadcast;
mod door;
mod exchange;
mod game;
#[cfg(feature = "tcp")]
mod handover;
mod kept;
mod kick;
#[cfg(feature = "tcp")]
mod pair;
mod providers;
mod report;
#[cfg(target_os = "linux")]
mod shards;
