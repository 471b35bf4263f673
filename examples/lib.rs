//! The examples stand beside this file, one program each: `cargo run --release --example echo`.

/// The Rust of pages that belong to no crate: doc tests compile and run it.
#[cfg(doctest)]
#[doc = include_str!("../docs/determinism.md")]
mod determinism {}
