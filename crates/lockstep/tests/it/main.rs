//! Integration tests: public machines over a simulated network, in virtual time.

#![cfg(test)]

mod agreement;
mod alloc;
mod contract;
mod desync;
mod hostile;
mod membership;
mod mesh;
mod mesh_alloc;
mod mesh_contract;
mod mesh_hostile;
mod mesh_parting;
mod mesh_world;
mod repair;
mod vectors;
mod welcome;
mod world;
