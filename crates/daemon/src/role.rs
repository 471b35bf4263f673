//! Processes: hub and matchmaker.

pub mod hub;
pub mod matchmaker;
