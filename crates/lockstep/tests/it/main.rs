//! Integration tests: public machines over a simulated network, in virtual time.

#![cfg(test)]

mod agreement;
mod alloc;
mod chunk;
mod contract;
mod delay;
mod desync;
mod hostile;
mod joining;
mod membership;
mod policies;
mod repair;
mod rollback;
mod rollback_world;
mod snapshots;
mod sync_test;
mod transfer;
mod vectors;
mod welcome;
mod world;
