//! The public API of `matchmaker_core`.

#![cfg(test)]

mod alloc;
mod contract;
mod harness;
mod leases;
mod limits;
mod matching;
mod records;
mod secrets;
mod slots;
mod tickets;
mod times;
mod tokens;
mod world;
