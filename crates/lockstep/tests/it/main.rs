//! Integration tests: public machines over a simulated network, in virtual time.

#![cfg(test)]

mod agreement;
mod alloc;
mod contract;
mod desync;
mod hostile;
mod membership;
mod repair;
mod rollback;
mod rollback_world;
mod sync_test;
mod vectors;
mod welcome;
mod world;
