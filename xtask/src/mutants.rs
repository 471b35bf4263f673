//! Mutation testing of the parts in which no other test may find an error: replay window,
//! acknowledgements, key update, token cache.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;

/// Which parts to test.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only files with this in their paths.
    #[arg(default_value = "")]
    file: String,
}

/// Files and their tests. All tests of a crate would take minutes per mutant.
struct Part {
    name: &'static str,
    files: &'static [&'static str],
    /// The test binary, as arguments for cargo.
    binary: &'static str,
    /// Filters for test names, and exclusions.
    tests: &'static [&'static str],
}

const PARTS: [Part; 6] = [
    Part {
        name: "window",
        files: &["replay"],
        binary: "--cargo-arg=--lib",
        tests: &["replay::", "received::"],
    },
    Part {
        name: "tokens",
        files: &["handshake/half_open"],
        binary: "--cargo-arg=--lib",
        tests: &["half_open::"],
    },
    Part {
        name: "received",
        files: &["received"],
        binary: "--cargo-arg=--lib",
        tests: &["received::"],
    },
    Part {
        name: "sent",
        files: &["sent", "sent/contents", "sent/loss"],
        binary: "--cargo-arg=--lib",
        tests: &["sent::"],
    },
    Part {
        name: "scan",
        files: &["sent/scan"],
        binary: "--cargo-arg=--lib",
        tests: &["sent::"],
    },
    Part {
        name: "opening",
        files: &["session/opening_keys"],
        binary: "--cargo-arg=--test=it",
        tests: &KEYS,
    },
];

/// The tests of keys, and of idle sessions, which drop expanded keys. Two tests that send 270,000
/// packets are excluded.
const KEYS: [&str; 6] = [
    "key_update::",
    "key_limits::",
    "key_rogue::",
    "idle_keys::",
    "--skip=twp_k1_",
    "--skip=twp_r2_",
];

/// Minimum percentage of a part's mutants that tests must catch.
const LEAST: u32 = 90;

/// Result counts of cargo-mutants.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Counts {
    caught: u32,
    timeout: u32,
    missed: u32,
    unviable: u32,
}

/// Tests each part and prints the mutants that no test caught.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let chosen = chosen(&options.file)?;
    process::output(process::cargo(["mutants", "--version"]).stderr(std::process::Stdio::null()))
        .map_err(|_| Failure::Check("`cargo install cargo-mutants --locked` first".to_owned()))?;
    let folder = Metadata::load()?.target_directory.join("mutants");
    let mut all = Vec::new();
    for (part, files) in chosen {
        let counts = mutate(part, &files, &folder.join(part.name))?;
        println!("mutants: {}: {counts}", part.name);
        all.push((part.name, counts));
    }
    judge(&all)
}

/// Returns the files with `text` in their paths, by part.
fn chosen(text: &str) -> Result<Vec<(&'static Part, Vec<String>)>, Failure> {
    let files = |part: &Part| -> Vec<_> {
        let files = part.files.iter().map(|file| path(file));
        files.filter(|path| path.contains(text)).collect()
    };
    let all = PARTS.iter().map(|part| (part, files(part)));
    let chosen: Vec<_> = all.filter(|(_, files)| !files.is_empty()).collect();
    if chosen.is_empty() {
        return Err(Failure::Check(format!("no file has `{text}` in its path")));
    }
    Ok(chosen)
}

/// Fails if any single part is below the minimum.
fn judge(all: &[(&str, Counts)]) -> Result<(), Failure> {
    let short = all.iter().filter(|(_, counts)| counts.percent() < LEAST);
    let short: Vec<_> = short.map(|(part, _)| *part).collect();
    if short.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!(
        "less than {LEAST} % noticed: {}",
        short.join(", ")
    )))
}

fn path(file: &str) -> String {
    format!("crates/udp_proto/src/{file}.rs")
}

/// Runs cargo-mutants on a copy of the workspace with all mutants of `files`, one after the other.
fn mutate(part: &Part, files: &[String], folder: &Path) -> Result<Counts, Failure> {
    let mut command = process::cargo(["mutants", "--package=tickwire-udp-proto", "--output"]);
    command.arg(folder).args(["--timeout=40", part.binary]);
    for file in files {
        command.arg("--file").arg(file);
    }
    command.args(["--", "--"]).args(part.tests);
    // Shortens the rebuild for each mutant at the expense of the tests' run time.
    command.envs([
        ("CARGO_INCREMENTAL", "1"),
        ("CARGO_PROFILE_DEV_DEBUG", "0"),
        ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
        ("PROPTEST_CASES", "48"),
    ]);
    std::fs::create_dir_all(folder).map_err(|source| Failure::File {
        path: folder.to_path_buf(),
        source,
    })?;
    let path: PathBuf = folder.join("mutants.out/outcomes.json");
    // Removes the result of an earlier run, because this one may write none.
    std::fs::remove_file(&path).ok();
    // The command also fails if a mutant was missed.
    let ended = process::run(&mut command);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Err(ended
            .err()
            .unwrap_or_else(|| Failure::Check("no outcomes".to_owned())));
    };
    let unreadable = |source| Failure::Unreadable {
        line: process::line(&command),
        source,
    };
    let counts: Counts = serde_json::from_str(&text).map_err(unreadable)?;
    let list = folder.join("mutants.out/mutants.json");
    let text =
        std::fs::read_to_string(&list).map_err(|source| Failure::File { path: list, source })?;
    let listed: Vec<IgnoredAny> = serde_json::from_str(&text).map_err(unreadable)?;
    counts.of_all(listed.len())
}

impl Counts {
    /// Returns the counts if every listed mutant was tried, including those that do not compile. An
    /// interrupted run is an error, because it proves nothing about the rest.
    fn of_all(self, listed: usize) -> Result<Self, Failure> {
        let tried = self.caught + self.timeout + self.missed + self.unviable;
        if usize::try_from(tried) == Ok(listed) {
            return Ok(self);
        }
        Err(Failure::Check(format!(
            "only {tried} of {listed} mutants were tried"
        )))
    }

    /// Returns the percentage of caught mutants, without those that do not compile.
    fn percent(self) -> u32 {
        let noticed = self.caught + self.timeout;
        noticed * 100 / (noticed + self.missed).max(1)
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (percent, noticed) = (self.percent(), self.caught + self.timeout);
        let viable = noticed + self.missed;
        write!(f, "{noticed} of {viable} noticed, {percent} %")?;
        write!(
            f,
            " ({} by their time, {} did not compile)",
            self.timeout, self.unviable
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_once() {
        process::enter_workspace().unwrap();
        let all: Vec<_> = PARTS.iter().flat_map(|part| part.files).collect();
        for file in &all {
            assert!(Path::new(&path(file)).is_file(), "{file}");
            assert_eq!(all.iter().filter(|other| other == &file).count(), 1);
        }
    }

    #[test]
    fn surviving_mutants_count_and_unbuildable_ones_do_not() {
        let text = r#"{"caught": 8, "timeout": 1, "missed": 1, "unviable": 30, "success": 0}"#;
        let counts: Counts = serde_json::from_str(text).unwrap();
        assert_eq!(counts.percent(), LEAST);
        assert!(counts.of_all(40).is_ok());
        let failure = counts.of_all(41).unwrap_err();
        assert_eq!(failure.to_string(), "only 40 of 41 mutants were tried");
        let text = "9 of 10 noticed, 90 % (1 by their time, 30 did not compile)";
        assert_eq!(counts.to_string(), text);
        let none = Counts {
            missed: 0,
            caught: 0,
            timeout: 0,
            unviable: 3,
        };
        assert_eq!(none.percent(), 0);
    }

    #[test]
    fn each_part_below_its_goal_is_named() {
        let counts = |caught, missed| Counts {
            caught,
            timeout: 0,
            missed,
            unviable: 0,
        };
        let good = ("window", counts(1_000, 0));
        assert!(judge(&[good, ("sent", counts(9, 1))]).is_ok());
        let all = [good, ("keys", counts(89, 11)), ("scan", counts(0, 0)), good];
        let failure = judge(&all).unwrap_err();
        assert_eq!(failure.to_string(), "less than 90 % noticed: keys, scan");
    }

    #[test]
    fn files_are_selected_by_path_and_unknown_names_are_refused() {
        let count = |text| {
            let parts = chosen(text).unwrap();
            let files = parts.iter().map(|(_, files)| files.len());
            (parts.len(), files.sum::<usize>())
        };
        let files = PARTS.iter().map(|part| part.files.len());
        assert_eq!(count(""), (PARTS.len(), files.sum()));
        assert_eq!(count("scan"), (1, 1));
        assert_eq!(count("session/"), (1, 1));
        let failure = chosen("nosuchfile").err().unwrap();
        assert_eq!(failure.to_string(), "no file has `nosuchfile` in its path");
    }
}
