//! The whole stack on one machine: a hub, a matchmaker, a mesh of relays, a game server and
//! players, as processes of their own over a virtual wide-area network, while things break.
//!
//! ```text
//! cargo run --release --example stack
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    demo::main()
}
