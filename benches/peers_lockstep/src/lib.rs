//! The same matches in virtual time for Tickwire's lockstep and other stacks.
//!
//! `cargo xtask peers lockstep` builds and runs it, evaluates the results, and writes the table of
//! `docs/benchmarks.md`, which describes the method.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a bench whose matches do not work must stop, not measure something else"
)]

pub mod case;
pub mod conditions;
pub mod cost;
pub mod game;
pub mod gauge;
pub mod network;
pub mod play;
pub mod race;
pub mod stack;
pub mod sync;
