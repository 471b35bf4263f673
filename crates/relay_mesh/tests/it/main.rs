//! Integration tests: meshes in virtual time.

#![cfg(test)]

mod alloc;
mod contract;
mod crowd;
mod failover;
mod harness;
mod hostile;
mod junk;
mod liar;
mod limits;
mod member;
mod memo;
mod missing;
mod play;
mod spread;
mod world;
