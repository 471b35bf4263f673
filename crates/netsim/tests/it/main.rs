//! Integration tests: worlds and contracts as users of the crate write them.

#![cfg(test)]

mod adversary;
mod contract;
mod directory;
mod ledger;
mod pair;
mod pinger;
mod seeds;
mod stream_contract;
mod world;
