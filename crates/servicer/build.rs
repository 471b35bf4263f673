//! Gives a name to where calls are used that Linux alone has.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_linux_calls)");
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let is_portable = env::var_os("CARGO_CFG_TICKWIRE_PORTABLE").is_some();
    if matches!(system.as_str(), "android" | "linux") && !is_portable {
        println!("cargo::rustc-cfg=has_linux_calls");
    }
}
