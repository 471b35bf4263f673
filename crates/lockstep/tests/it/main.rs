//! Integration tests: public machines over a simulated network, in virtual time.

#![cfg(test)]

mod agreement;
mod alloc;
mod chunk;
mod contract;
mod delay;
mod desync;
mod detection_time;
mod fan;
mod fan_contract;
mod gnet;
mod hosted_alloc;
mod hosted_config;
mod hosted_contract;
mod hosted_hostile;
mod hosted_parting;
mod hosted_snapshots;
mod hosted_world;
mod hostile;
mod joining;
mod ladder;
mod membership;
mod mesh;
mod mesh_alloc;
mod mesh_commit;
mod mesh_commit_hostile;
mod mesh_contract;
mod mesh_hostile;
mod mesh_parting;
mod mesh_world;
mod migration;
mod misfits;
mod playout;
mod policies;
mod repair;
#[cfg(feature = "replay")]
mod replay;
mod rollback;
mod rollback_world;
mod sections;
mod snapshot_bounds;
mod snapshots;
mod spectators;
mod standing;
mod state_channel;
mod state_hostile;
mod stretch;
mod succession;
mod sync_test;
mod transfer;
mod tree;
mod vectors;
mod welcome;
mod world;
mod wrap;
