//! The same workload for Tickwire and other stacks, in one run.
//!
//! `cargo xtask peers udp` builds and runs it, evaluates the results, and writes the table of
//! `docs/benchmarks.md`, which describes the method.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a bench whose connections do not work must stop, not measure something else"
)]

pub mod case;
pub mod count;
pub mod floor;
pub mod idle;
pub mod lane;
pub mod load;
pub mod pair;
pub mod refuse;
pub mod round;
pub mod shake;
pub mod stack;
