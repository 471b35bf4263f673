//! Runs every fuzz function under libFuzzer from its committed corpus.
//!
//! The stable compiler builds the targets with the coverage that libFuzzer needs (the
//! `SanitizerCoverage` flags of LLVM, as cargo-fuzz passes them). Only `AddressSanitizer` needs a
//! nightly compiler, and it finds little because `unsafe` is forbidden. Debug assertions and
//! overflow checks are on.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::failure::Failure;
use crate::member::Metadata;
use crate::process;

/// Manifest of the targets' package, which is not a workspace member.
const MANIFEST: &str = "fuzz/libfuzzer/Cargo.toml";
/// One file for each target.
const TARGETS: &str = "fuzz/libfuzzer/fuzz_targets";
/// One folder for each target.
const CORPUS: &str = "fuzz/corpus";
/// Coverage flags for libFuzzer.
const FLAGS: [&str; 9] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Ccodegen-units=1",
];

/// Which targets to run, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Minutes that each target runs.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Seconds that each target runs, instead of minutes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Only targets with this in their names.
    #[arg(long, default_value = "")]
    target: String,
    /// Number of parallel targets; the number of cores by default.
    #[arg(long)]
    jobs: Option<usize>,
}

/// Builds the targets, runs them, and prints how many inputs each executed.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let names = chosen(&names()?, &options.target)?;
    let run = Run {
        folder: Metadata::load()?.target_directory.join("fuzz"),
        host: host()?,
        seconds: options.seconds.unwrap_or(options.minutes * 60),
    };
    run.build()?;
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = options.jobs.unwrap_or_else(cores).clamp(1, names.len());
    println!(
        "fuzz: {} targets, {} s each, {jobs} at a time",
        names.len(),
        run.seconds
    );
    let failed = Mutex::new(Vec::new());
    side_by_side(jobs, &names, |name| match run.target(name) {
        Ok(line) => println!("fuzz: {line}"),
        Err(failure) => {
            println!("fuzz: {name}: {failure}");
            lock(&failed).push(name.to_owned());
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        println!("fuzz: {} targets held", names.len());
        return Ok(());
    }
    Err(Failure::Check(format!(
        "{} did not hold: with the repair, commit the input to {CORPUS}",
        failed.join(", ")
    )))
}

/// Calls `work` for each name, on `jobs` threads.
fn side_by_side(jobs: usize, names: &[String], work: impl Fn(&str) + Sync) {
    let waiting = Mutex::new(VecDeque::from(names.to_vec()));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    // A separate statement: in the loop's head, the lock would be held during the
                    // work.
                    let next = lock(&waiting).pop_front();
                    let Some(name) = next else { break };
                    work(&name);
                }
            });
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings of a run.
struct Run {
    /// Folder for builds, new inputs and logs; not committed.
    folder: PathBuf,
    /// The compiler's host triple.
    host: String,
    seconds: u64,
}

impl Run {
    fn build(&self) -> Result<(), Failure> {
        let mut build = process::cargo(["build", "--release", "--locked"]);
        // An explicit target, so that the flags do not apply to build scripts.
        build.args(["--manifest-path", MANIFEST, "--target", &self.host]);
        build.arg("--target-dir").arg(&self.folder);
        build.env("RUSTFLAGS", FLAGS.join(" "));
        process::run(&mut build)
    }

    /// Runs one target to its end and returns its summary.
    fn target(&self, name: &str) -> Result<String, Failure> {
        let [found, artifacts, logs] =
            ["corpus", "artifacts", "logs"].map(|part| self.folder.join(part));
        let (found, artifacts) = (found.join(name), artifacts.join(name));
        for folder in [&found, &artifacts, &logs] {
            fs::create_dir_all(folder).map_err(|source| file(folder, source))?;
        }
        let path = logs.join(format!("{name}.log"));
        let log = fs::File::create(&path).map_err(|source| file(&path, source))?;
        let again = log.try_clone().map_err(|source| file(&path, source))?;
        let program = self.folder.join(&self.host).join("release").join(name);
        let mut command = process::program(program);
        // libFuzzer writes new inputs to the first folder.
        command.arg(&found).arg(Path::new(CORPUS).join(name));
        command
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args(["-print_final_stats=1", "-max_len=4096", "-timeout=20"])
            .stdout(again)
            .stderr(log);
        let ended = process::run(&mut command);
        let text = fs::read(&path).map_err(|source| file(&path, source))?;
        let text = String::from_utf8_lossy(&text);
        if let Err(failure) = ended {
            return Err(Failure::Check(format!(
                "{failure}; {} says why, the input is in {}",
                path.display(),
                artifacts.display()
            )));
        }
        summary(name, &text)
            .ok_or_else(|| Failure::Check(format!("{} tells no inputs", path.display())))
    }
}

fn file(path: &Path, source: std::io::Error) -> Failure {
    Failure::File {
        path: path.to_path_buf(),
        source,
    }
}

/// Returns the sorted names of the targets.
fn names() -> Result<Vec<String>, Failure> {
    let folder = Path::new(TARGETS);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| file(folder, source))? {
        let path = entry.map_err(|source| file(folder, source))?.path();
        names.extend(
            path.file_stem()
                .and_then(|name| name.to_str())
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

fn chosen(names: &[String], part: &str) -> Result<Vec<String>, Failure> {
    let chosen: Vec<_> = names
        .iter()
        .filter(|name| name.contains(part))
        .cloned()
        .collect();
    if chosen.is_empty() {
        return Err(Failure::Check(format!(
            "no target has `{part}` in its name"
        )));
    }
    Ok(chosen)
}

/// Returns the compiler's host triple.
fn host() -> Result<String, Failure> {
    let text = process::output(process::program("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::Check("rustc -vV names no host".to_owned()))
}

/// Summarises libFuzzer's final output in a line.
fn summary(name: &str, log: &str) -> Option<String> {
    let runs: u64 = log
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?
        .trim()
        .parse()
        .ok()
        .filter(|runs| *runs > 0)?;
    let after = |line: &str, word: &str| {
        let (_, rest) = line.split_once(word)?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let coverage = log.lines().rev().find_map(|line| after(line, " cov: "))?;
    let corpus = log.lines().rev().find_map(|line| after(line, " corp: "))?;
    Some(format!(
        "{name}: {runs} inputs, {coverage} edges, corpus {corpus}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_last_lines_of_libfuzzer() {
        let log = "INFO: seed corpus: files: 2\n#2\tINITED cov: 100 ft: 150 corp: 2/81b\n\
                   #524288\tpulse  cov: 412 ft: 961 corp: 88/9001b lim: 4096\n\
                   #600000\tDONE   cov: 415 ft: 970 corp: 90/9Kb lim: 4096 exec/s: 30000\n\
                   stat::number_of_executed_units: 600000\nstat::average_exec_per_sec: 30000\n";
        assert_eq!(
            summary("udp_pair", log).unwrap(),
            "udp_pair: 600000 inputs, 415 edges, corpus 90/9Kb"
        );
        assert_eq!(summary("udp_pair", "INFO: no run\n"), None);
        let none = log.replace("units: 600000", "units: 0");
        assert_eq!(summary("udp_pair", &none), None, "nothing ran");
    }

    #[test]
    fn the_requested_number_runs_at_a_time() {
        let names = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        // Each thread waits for two others, so the test hangs unless three run in parallel.
        let three = std::sync::Barrier::new(3);
        let done = Mutex::new(Vec::new());
        side_by_side(3, &names, |name| {
            three.wait();
            lock(&done).push(name.to_owned());
        });
        let mut done = done.into_inner().unwrap();
        done.sort();
        assert_eq!(done, names);
    }

    #[test]
    fn targets_are_chosen_by_a_part_of_their_names() {
        let names = ["mesh_flow", "udp_hello", "udp_pair"].map(str::to_owned);
        assert_eq!(chosen(&names, "").unwrap(), names);
        assert_eq!(chosen(&names, "udp_").unwrap(), names[1..]);
        assert!(chosen(&names, "none").is_err());
    }
}
