//! Invariant D1 across platforms: runs one simulation on each platform available here. Its test
//! holds the trace.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::need;
use crate::process;
use crate::sim;

/// The test, which compares its trace with the committed one.
const TEST: &str = "world::platforms::twp_d1_every_platform_gives_one_trace";

/// Arguments for its crate, with the provider that builds everywhere.
const ARGUMENTS: [&str; 6] = [
    "test",
    "--package=tickwire-udp-proto",
    "--test=it",
    "--no-default-features",
    "--features=rustcrypto,postcard",
    "--locked",
];

/// A platform other than the current one, and how to run its programs here.
struct Platform {
    triple: &'static str,
    /// Programs that must be installed.
    tools: &'static [&'static str],
    /// Environment variables for cargo.
    environment: &'static [(&'static str, &'static str)],
}

const PLATFORMS: [Platform; 2] = [
    Platform {
        triple: "aarch64-unknown-linux-gnu",
        // Debian's packages gcc-aarch64-linux-gnu and qemu-user.
        tools: &["aarch64-linux-gnu-gcc", "qemu-aarch64"],
        environment: &[
            (
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                "aarch64-linux-gnu-gcc",
            ),
            (
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64 -L /usr/aarch64-linux-gnu",
            ),
        ],
    },
    Platform {
        triple: "wasm32-wasip1",
        tools: &["node"],
        environment: &[],
    },
];

/// Cargo's runner variable for WebAssembly. Its value contains the path of this workspace.
const WASM_RUNNER: &str = "CARGO_TARGET_WASM32_WASIP1_RUNNER";

/// Runs the test on each platform and prints the platforms that were skipped.
pub(crate) fn run() -> Result<(), Failure> {
    let host = trace(&mut test(None))?;
    println!("trace-hash: here: {host}");
    let installed =
        process::output(process::program("rustup").args(["target", "list", "--installed"]))
            .unwrap_or_default();
    let mut left_out = 0;
    for platform in &PLATFORMS {
        let triple = platform.triple;
        if let Some(lacking) = lacking(platform, &installed, |tool| need::find(tool).is_some()) {
            println!("trace-hash: {triple}: not run: {lacking} is not here");
            left_out += 1;
            continue;
        }
        let mut command = test(Some(triple));
        command.envs(platform.environment.iter().copied());
        command.env(WASM_RUNNER, wasm_runner()?);
        let found = trace(&mut command)?;
        if found != host {
            return Err(Failure::Check(format!(
                "{triple} gives the trace {found}, and this platform {host}"
            )));
        }
        println!("trace-hash: {triple}: {found}");
    }
    println!(
        "trace-hash: {} platform(s) beside this one give its trace, {left_out} not run",
        PLATFORMS.len() - left_out
    );
    Ok(())
}

fn test(triple: Option<&str>) -> Command {
    let mut command = process::cargo(ARGUMENTS);
    if let Some(triple) = triple {
        command.args(["--target", triple]);
    }
    command.args([TEST, "--", "--exact", "--nocapture"]);
    command
}

/// Returns the runner with an absolute path, because cargo runs programs in varying folders.
fn wasm_runner() -> Result<String, Failure> {
    let path = Path::new("xtask/wasi.mjs");
    let absolute = std::path::absolute(path).map_err(|source| Failure::File {
        path: path.to_path_buf(),
        source,
    })?;
    Ok(format!("node --no-warnings {}", absolute.display()))
}

/// Runs the test and returns the trace that it prints.
fn trace(command: &mut Command) -> Result<String, Failure> {
    let mut found = None;
    process::run_lines(command, |line| {
        found = sim::trace(line).or_else(|| found.take());
    })?;
    found.ok_or_else(|| Failure::Check(format!("{TEST} told no trace")))
}

/// Returns the first missing tool.
fn lacking(
    platform: &Platform,
    installed: &str,
    is_present: impl Fn(&str) -> bool,
) -> Option<String> {
    if !installed.lines().any(|line| line.trim() == platform.triple) {
        return Some("its standard library (rustup target add)".to_owned());
    }
    let tool = platform.tools.iter().find(|tool| !is_present(tool))?;
    Some((*tool).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_without_its_tools_is_skipped() {
        let [arm, wasm] = &PLATFORMS;
        let both = "aarch64-unknown-linux-gnu\nwasm32-wasip1\n";
        assert_eq!(lacking(arm, both, |_| true), None);
        assert_eq!(lacking(wasm, both, |tool| tool == "node"), None);
        let found = lacking(arm, both, |tool| tool != "qemu-aarch64");
        assert_eq!(found.unwrap(), "qemu-aarch64");
        assert!(lacking(wasm, "wasm32-wasip10\n", |_| true).is_some());
        assert!(lacking(wasm, "", |_| true).is_some());
    }

    #[test]
    fn the_webassembly_runner_exists() {
        process::enter_workspace().unwrap();
        let runner = wasm_runner().unwrap();
        let path = runner.rsplit(' ').next().unwrap();
        assert!(Path::new(path).is_file(), "{runner}");
    }
}
