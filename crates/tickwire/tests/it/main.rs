//! Servers and clients on loopback.

#![cfg(test)]

mod exchange;
mod report;
