//! Integration tests: meshes in virtual time.

#![cfg(test)]

mod alloc;
mod contract;
mod crowd;
mod echo;
mod failover;
mod flood;
mod harness;
mod hostile;
mod junk;
mod liar;
mod limits;
mod member;
mod memo;
mod missing;
mod play;
mod player;
mod process;
mod spread;
mod world;
