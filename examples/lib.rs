//! The examples stand beside this file, one program each: `cargo run --release --example echo`.
