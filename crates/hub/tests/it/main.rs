#![cfg(test)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for what it is about"
)]
//! A hub and its nodes, through their public seams only.

mod hostile;
mod live;
mod mail;
mod properties;
mod vectors;
mod world;
