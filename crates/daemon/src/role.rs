//! What one process can be.

pub mod hub;
pub mod matchmaker;
