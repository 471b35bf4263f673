//! Integration tests: public machines over a simulated network, in virtual time.

#![cfg(test)]

mod agreement;
mod alloc;
mod chunk;
mod contract;
mod delay;
mod desync;
mod fan;
mod hostile;
mod joining;
mod membership;
mod policies;
mod repair;

mod snapshots;
mod spectators;
mod transfer;
mod tree;
mod vectors;
mod welcome;
mod world;
