//! Integration tests: public machines over a simulated network, in virtual time.

#![cfg(test)]

mod agreement;
mod alloc;
mod contract;
mod delay;
mod desync;
mod hostile;
mod joining;
mod membership;
mod mesh;
mod mesh_alloc;
mod mesh_contract;
mod mesh_hostile;
mod mesh_parting;
mod mesh_world;
mod policies;
mod repair;
mod rollback;
mod rollback_world;
mod sync_test;
mod transfer;
mod vectors;
mod welcome;
mod world;
