//! Servers and clients on loopback.

#![cfg(test)]

#[cfg(feature = "accounts")]
mod accounts;
mod exchange;
mod providers;
mod report;
