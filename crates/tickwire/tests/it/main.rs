//! Servers and clients on loopback.

#![cfg(test)]

mod door;
mod exchange;
mod providers;
