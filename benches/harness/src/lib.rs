//! Shared parts of all comparisons.
//!
//! A benchmark program prints each value as a [`Row`](row::Row), a line of JSON. `cargo xtask
//! peers` collects the rows, compares them with the [`Goal`](goal::Goal)s of a
//! [`Comparison`](comparison::Comparison), and writes its tables.

#![forbid(unsafe_code)]

pub mod comparison;
pub mod goal;
pub mod hub;
pub mod lockstep;
pub mod relay;
pub mod row;
pub mod statistics;
pub mod udp;
pub mod usage;
