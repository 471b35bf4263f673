#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![expect(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a broken promise ends a fuzz function by a panic: that is what a fuzzer sees"
)]

pub mod wire_codec;
pub mod wire_id;

/// A function that takes any bytes and panics only where a promise is broken.
pub type Function = fn(&[u8]);

/// Every function under the name of its corpus folder and its libFuzzer target.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("wire_reader", wire_codec::reader),
    ("wire_node_id", wire_id::node_id),
];

/// Returns the function called `name`.
///
/// # Panics
///
/// Where no function is called so: a target's name is part of its one line.
#[must_use]
pub fn function(name: &str) -> Function {
    match FUNCTIONS.iter().find(|(known, _)| *known == name) {
        Some((_, function)) => *function,
        None => panic!("no fuzz function is called {name}"),
    }
}
