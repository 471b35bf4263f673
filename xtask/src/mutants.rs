//! Mutation testing of the parts whose mistakes no other test may notice: replay window,
//! acknowledgements, key update, token cache.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;

/// Which parts.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only files with this in their paths.
    #[arg(default_value = "")]
    file: String,
}

/// Files, and the tests that ought to notice: all of a crate would take minutes for each mutant.
struct Part {
    name: &'static str,
    files: &'static [&'static str],
    /// Of which test binary, as cargo-mutants tells cargo.
    binary: &'static str,
    /// What the names of the tests hold, and what they do not.
    tests: &'static [&'static str],
}

const PARTS: [Part; 5] = [
    Part {
        name: "window",
        files: &["replay", "marks"],
        binary: "--cargo-arg=--lib",
        tests: &["replay::", "marks::", "received::"],
    },
    Part {
        name: "tokens",
        files: &["handshake/token_cache"],
        binary: "--cargo-arg=--lib",
        tests: &["token_cache::"],
    },
    Part {
        name: "received",
        files: &["received"],
        binary: "--cargo-arg=--lib",
        tests: &["received::"],
    },
    Part {
        name: "sent",
        files: &[
            "sent",
            "sent/contents",
            "sent/flight",
            "sent/reference",
            "sent/report",
            "sent/ring",
            "sent/scan",
            "sent/tolerance",
        ],
        binary: "--cargo-arg=--lib",
        tests: &["sent::"],
    },
    Part {
        name: "keys",
        files: &["session/key_update", "session/opening"],
        binary: "--cargo-arg=--test=it",
        // The two left out send 270,000 packets.
        tests: &[
            "key_update::",
            "key_limits::",
            "key_rogue::",
            "--skip=twp_k1_",
            "--skip=twp_r2_",
        ],
    },
];

/// Less than this of all mutants noticed is a failure, percent.
const LEAST: u32 = 90;

/// What cargo-mutants writes when it has ended.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Counts {
    caught: u32,
    timeout: u32,
    missed: u32,
    unviable: u32,
}

/// Runs each part, and says which mutants no test noticed.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    process::output(process::cargo(["mutants", "--version"]).stderr(std::process::Stdio::null()))
        .map_err(|_| Failure::Check("`cargo install cargo-mutants --locked` first".to_owned()))?;
    let folder = Metadata::load()?.target_directory.join("mutants");
    let mut all = Counts::default();
    for part in &PARTS {
        let files: Vec<_> = part.files.iter().map(|file| path(file)).collect();
        let files: Vec<_> = files
            .iter()
            .filter(|it| it.contains(&options.file))
            .collect();
        if files.is_empty() {
            continue;
        }
        let counts = mutate(part, &files, &folder.join(part.name))?;
        println!("mutants: {}: {counts}", part.name);
        all.add(counts);
    }
    println!("mutants: all: {all}");
    if all.percent() < LEAST {
        return Err(Failure::Check(format!("less than {LEAST} % noticed")));
    }
    Ok(())
}

fn path(file: &str) -> String {
    format!("crates/udp_proto/src/{file}.rs")
}

/// Has cargo-mutants make a copy of the workspace and all mutants of `files`, one after the other.
fn mutate(part: &Part, files: &[&String], folder: &Path) -> Result<Counts, Failure> {
    let mut command = process::cargo(["mutants", "--package=tickwire-udp-proto", "--output"]);
    command.arg(folder).args(["--timeout=40", part.binary]);
    for file in files {
        command.arg("--file").arg(file);
    }
    command.args(["--", "--"]).args(part.tests);
    // What is compiled most often is compiled fast, and run for as long as that.
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
    // Of the last run, where there was one: this one may write none.
    std::fs::remove_file(&path).ok();
    // It fails where a mutant was missed, too.
    let ended = process::run(&mut command);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Err(ended
            .err()
            .unwrap_or_else(|| Failure::Check("no outcomes".to_owned())));
    };
    serde_json::from_str(&text).map_err(|source| Failure::Unreadable {
        line: process::line(&command),
        source,
    })
}

impl Counts {
    const fn add(&mut self, other: Self) {
        self.caught += other.caught;
        self.timeout += other.timeout;
        self.missed += other.missed;
        self.unviable += other.unviable;
    }

    /// How many of 100 were noticed; those that do not compile do not count.
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
    fn every_file_is_there_and_stands_once() {
        process::enter_workspace().unwrap();
        let all: Vec<_> = PARTS.iter().flat_map(|part| part.files).collect();
        for file in &all {
            assert!(Path::new(&path(file)).is_file(), "{file}");
            assert_eq!(all.iter().filter(|other| other == &file).count(), 1);
        }
    }

    #[test]
    fn what_no_test_noticed_counts_and_what_does_not_compile_does_not() {
        let text = r#"{"caught": 8, "timeout": 1, "missed": 1, "unviable": 30, "success": 0}"#;
        let counts: Counts = serde_json::from_str(text).unwrap();
        assert_eq!(counts.percent(), LEAST);
        let text = "9 of 10 noticed, 90 % (1 by their time, 30 did not compile)";
        assert_eq!(counts.to_string(), text);
        let mut both = counts;
        both.add(counts);
        assert_eq!((both.percent(), both.missed, both.unviable), (90, 2, 60));
        let none = Counts {
            missed: 0,
            caught: 0,
            timeout: 0,
            unviable: 3,
        };
        assert_eq!(none.percent(), 0);
    }
}
