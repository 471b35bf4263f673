//! Checks the builds for other platforms.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;

/// Which targets to check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this target triple; may be repeated.
    #[arg(long = "target", value_name = "TRIPLE", value_parser = TARGETS)]
    only: Vec<String>,
    /// Instead, run the driver's tests here without Linux-specific system calls.
    #[arg(long, conflicts_with = "only")]
    portable: bool,
    /// Install nothing: a missing target is a failure.
    #[arg(long)]
    offline: bool,
}

/// Every supported platform except the current one.
const TARGETS: [&str; 5] = [
    WASM,
    "x86_64-pc-windows-gnu",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
    "aarch64-unknown-linux-gnu",
];

/// This target has no sockets.
const WASM: &str = "wasm32-unknown-unknown";

/// Arguments for a protocol crate, with the provider that needs no C compiler for the target.
const PROTOCOL: [&str; 5] = [
    "--package=tickwire-udp-proto",
    "--lib",
    "--no-default-features",
    "--features=rustcrypto,postcard",
    "--locked",
];

/// Arguments for the crates with sockets, clocks and threads.
const DRIVER: [&str; 5] = [
    "--package=tickwire-servicer",
    "--lib",
    "--no-default-features",
    "--features=udp",
    "--locked",
];

/// Arguments for the driver's tests. Tests with TLS, a hub or a conditioner do not depend on how
/// datagrams are sent.
const PORTABLE: [&str; 7] = [
    "test",
    "--package=tickwire-servicer",
    "--lib",
    "--test=it",
    "--no-default-features",
    "--features=udp",
    "--locked",
];

/// Disables the Linux-specific code of `servicer` in a Linux build.
const PORTABLE_FLAG: &str = "--cfg=tickwire_portable";

/// A driver test which exists only with that flag.
const PORTABLE_TEST: &str = "batches::b5_without_linux_calls_each_datagram_is_one_call";

/// One run of `cargo check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step<'a> {
    target: &'a str,
    arguments: [&'static str; 5],
}

/// Installs missing targets and checks each crate for each target.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.portable {
        return test_portable();
    }
    let chosen = chosen(&options.only);
    install(&chosen, options)?;
    let mut failed = 0;
    for step in steps(&chosen) {
        let mut command = process::cargo(["check", "--target", step.target]);
        command.args(step.arguments);
        println!("targets: {}", process::line(&command));
        if let Err(failure) = process::run(&mut command) {
            println!("targets: {failure}");
            failed += 1;
        }
    }
    if failed > 0 {
        return Err(Failure::Findings {
            check: "targets",
            count: failed,
        });
    }
    println!("targets: {} check(s) passed", steps(&chosen).len());
    Ok(())
}

/// Runs the driver's tests on the portable code.
fn test_portable() -> Result<(), Failure> {
    let mut command = portable(&Metadata::load()?.target_directory);
    println!("targets: {PORTABLE_FLAG}: {}", process::line(&command));
    let mut was_portable = false;
    process::run_lines(&mut command, |line| was_portable |= tells_of(line))?;
    if !was_portable {
        return Err(Failure::Check(format!(
            "{PORTABLE_TEST} did not run: the tests were built without {PORTABLE_FLAG}"
        )));
    }
    Ok(())
}

/// Returns the command. It builds in a separate folder, so that other builds stay valid.
fn portable(target_directory: &Path) -> Command {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = process::cargo(PORTABLE);
    command
        .env("RUSTFLAGS", format!("{flags} {PORTABLE_FLAG}"))
        // If it is set, cargo ignores `RUSTFLAGS`.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .arg("--target-dir")
        .arg(target_directory.join("portable"));
    command
}

/// Returns whether an output line reports that the flag's test has passed.
fn tells_of(line: &str) -> bool {
    line.strip_prefix("test ")
        .and_then(|line| line.strip_prefix(PORTABLE_TEST))
        .is_some_and(|rest| rest == " ... ok")
}

/// Returns the requested targets in the order of the list, or all if none is given.
fn chosen(only: &[String]) -> Vec<&'static str> {
    TARGETS
        .into_iter()
        .filter(|target| only.is_empty() || only.iter().any(|name| name == target))
        .collect()
}

/// Returns the checks to run.
fn steps<'a>(targets: &[&'a str]) -> Vec<Step<'a>> {
    let of = |target: &&'a str| {
        let step = |arguments| Step { target, arguments };
        let driver = (*target != WASM).then(|| step(DRIVER));
        core::iter::once(step(PROTOCOL)).chain(driver)
    };
    targets.iter().flat_map(of).collect()
}

/// Installs the standard library of each missing target.
fn install(targets: &[&str], options: &Options) -> Result<(), Failure> {
    let listed =
        process::output(process::program("rustup").args(["target", "list", "--installed"]))?;
    let missing = missing(targets, &listed);
    if missing.is_empty() {
        return Ok(());
    }
    if options.offline {
        return Err(Failure::Check(format!(
            "not installed, and I was told to install nothing: {}",
            missing.join(", ")
        )));
    }
    println!("targets: installing {}", missing.join(", "));
    let mut command = process::program("rustup");
    command.args(["target", "add"]).args(&missing);
    process::run(&mut command)
}

/// Returns those of `targets` which `rustup target list --installed` does not list.
fn missing<'a>(targets: &[&'a str], listed: &str) -> Vec<&'a str> {
    let is_missing = |target: &&&str| !listed.lines().any(|line| line.trim() == **target);
    targets.iter().filter(is_missing).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        let line = core::iter::once("targets").chain(arguments.iter().copied());
        Line::try_parse_from(line).map(|line| line.options)
    }

    #[test]
    fn u25_all_targets_are_checked_and_the_driver_where_there_are_sockets() {
        let options = parse(&[]).unwrap();
        let chosen = chosen(&options.only);
        assert_eq!(chosen, TARGETS);
        let steps = steps(&chosen);
        assert_eq!(steps.len(), 9);
        for target in TARGETS {
            let has = |arguments| steps.contains(&Step { target, arguments });
            assert!(has(PROTOCOL), "{target}");
            assert_eq!(has(DRIVER), target != WASM, "{target}");
        }
    }

    #[test]
    fn u25_a_subset_may_be_requested_and_unknown_targets_are_refused() {
        let options = parse(&["--offline", "--target", WASM]).unwrap();
        assert!(options.offline);
        assert_eq!(chosen(&options.only), [WASM]);
        assert_eq!(steps(&chosen(&options.only)).len(), 1);
        let both = [
            "--target",
            "aarch64-apple-darwin",
            "--target",
            WASM,
            "--target",
            WASM,
        ];
        let options = parse(&both).unwrap();
        assert_eq!(chosen(&options.only), [WASM, "aarch64-apple-darwin"]);
        assert!(parse(&["--target", "pdp11-unknown-none"]).is_err());
        assert!(parse(&["--target"]).is_err());
        assert!(parse(&["--portable"]).unwrap().portable);
        assert!(parse(&["--portable", "--target", WASM]).is_err());
    }

    #[test]
    fn u25_missing_targets_are_found_by_their_full_names() {
        let listed = "x86_64-apple-darwin\nwasm32-unknown-unknown-extra\n";
        let targets = [WASM, "x86_64-apple-darwin"];
        assert_eq!(missing(&targets, listed), [WASM]);
        assert_eq!(missing(&targets[1..], listed), [""; 0]);
    }

    /// If the environment could override the flag, cargo would test the normal build and all tests
    /// would pass.
    #[test]
    fn u25_a_portable_build_gets_its_flag_and_a_folder_of_its_own() {
        let command = portable(Path::new("/target"));
        let of = |name: &str| command.get_envs().find(|(set, _)| *set == name);
        let (_, flags) = of("RUSTFLAGS").unwrap();
        let flags = flags.unwrap().to_str().unwrap();
        assert!(flags.ends_with(PORTABLE_FLAG), "{flags}");
        let (_, encoded) = of("CARGO_ENCODED_RUSTFLAGS").unwrap();
        assert_eq!(encoded, None, "it is taken out");
        let line = process::line(&command);
        assert!(line.ends_with("--target-dir /target/portable"), "{line}");
    }

    #[test]
    fn u25_a_portable_build_is_known_by_a_test_that_no_other_has() {
        process::enter_workspace().unwrap();
        let (module, test) = PORTABLE_TEST.split_once("::").unwrap();
        let path = format!("crates/servicer/tests/it/{module}.rs");
        let text = std::fs::read_to_string(path).unwrap();
        let head = format!("#[cfg(tickwire_portable)]\n#[test]\nfn {test}() {{");
        assert_eq!(text.matches(&head).count(), 1);
        assert!(tells_of(&format!("test {PORTABLE_TEST} ... ok")));
        for other in ["FAILED", "ignored", ""] {
            assert!(!tells_of(&format!("test {PORTABLE_TEST} ... {other}")));
        }
        assert!(!tells_of(&format!("test {PORTABLE_TEST}_too ... ok")));
        assert!(!tells_of("test result: ok. 1 passed"));
    }
}
