//! Other platforms: what must build there is checked for each, with the targets it takes.

use crate::failure::Failure;
use crate::process;

/// Which targets.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// One of them only, by its triple; may be said several times.
    #[arg(long = "target", value_name = "TRIPLE", value_parser = TARGETS)]
    only: Vec<String>,
    /// Instead, test the driver here with what every system has: no call that is Linux's own.
    #[arg(long, conflicts_with = "only")]
    portable: bool,
    /// Install nothing: a target that is missing is a failure.
    #[arg(long)]
    offline: bool,
}

/// Every platform that is promised, beside the one at hand.
const TARGETS: [&str; 5] = [
    WASM,
    "x86_64-pc-windows-gnu",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
    "aarch64-unknown-linux-gnu",
];

/// It has no sockets.
const WASM: &str = "wasm32-unknown-unknown";

/// A protocol crate, with the provider that needs no C compiler for the target.
const PROTOCOL: [&str; 5] = [
    "--package=tickwire-udp-proto",
    "--lib",
    "--no-default-features",
    "--features=rustcrypto,postcard",
    "--locked",
];

/// What has sockets, clocks and threads.
const DRIVER: [&str; 5] = [
    "--package=tickwire-servicer",
    "--lib",
    "--no-default-features",
    "--features=udp",
    "--locked",
];

/// The driver's tests; those with TLS, a hub or a conditioner are not about how datagrams leave.
const PORTABLE: [&str; 8] = [
    "test",
    "--package=tickwire-servicer",
    "--lib",
    "--test=it",
    "--no-default-features",
    "--features=udp",
    "--locked",
    "--quiet",
];

/// Takes what only Linux has out of `servicer`, where a compiler for Linux builds it.
const PORTABLE_FLAG: &str = "--cfg=tickwire_portable";

/// One run of `cargo check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step<'a> {
    target: &'a str,
    arguments: [&'static str; 5],
}

/// Checks each crate for each target, after it has installed those that are missing.
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

/// Runs the tests of the driver on what every system has.
fn test_portable() -> Result<(), Failure> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = process::cargo(PORTABLE);
    command.env("RUSTFLAGS", format!("{flags} {PORTABLE_FLAG}"));
    println!("targets: {PORTABLE_FLAG}: {}", process::line(&command));
    process::run(&mut command)
}

/// The targets asked for, in the order of the list; all where none is.
fn chosen(only: &[String]) -> Vec<&'static str> {
    TARGETS
        .into_iter()
        .filter(|target| only.is_empty() || only.iter().any(|name| name == target))
        .collect()
}

/// What is to be checked.
fn steps<'a>(targets: &[&'a str]) -> Vec<Step<'a>> {
    let of = |target: &&'a str| {
        let step = |arguments| Step { target, arguments };
        let driver = (*target != WASM).then(|| step(DRIVER));
        core::iter::once(step(PROTOCOL)).chain(driver)
    };
    targets.iter().flat_map(of).collect()
}

/// Sees to it that the standard library of each target is there.
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

/// Those of `targets` that `rustup target list --installed` does not name.
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
    fn u25_some_may_be_asked_for_and_others_are_no_target() {
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
    fn u25_what_is_not_installed_is_found_by_whole_names() {
        let listed = "x86_64-apple-darwin\nwasm32-unknown-unknown-extra\n";
        let targets = [WASM, "x86_64-apple-darwin"];
        assert_eq!(missing(&targets, listed), [WASM]);
        assert_eq!(missing(&targets[1..], listed), [""; 0]);
    }
}
