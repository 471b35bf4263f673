//! Integration tests: meshes in virtual time.

#![cfg(test)]

mod alloc;
mod contract;
mod harness;
mod hostile;
mod liar;
mod member;
mod play;
mod spread;
mod world;
