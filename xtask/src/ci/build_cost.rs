//! Measures the cost of building the stack from scratch.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::failure::Failure;
use crate::process;

/// The first command in the README, without running the result.
const BUILD: [&str; 4] = ["build", "--release", "--example", "stack"];
/// Maximum CPU seconds on the CI machine.
const CPU_SECONDS_MAX: f64 = 300.0;

/// Cost of one build from scratch.
#[derive(Debug)]
pub(crate) struct BuildCost {
    crates: usize,
    cpu_seconds: f64,
}

impl BuildCost {
    /// Builds the stack in a separate folder below `target`, which is removed before and after.
    pub(crate) fn measure(target: &Path) -> Result<Self, Failure> {
        let folder = target.join("footprint");
        remove(&folder)?;
        // `times` is the POSIX shell built-in which prints the CPU time of child processes.
        let mut command = process::program("sh");
        command
            .args(["-c", "\"$@\" && times", "sh", "cargo"])
            .args(BUILD);
        command.arg("--target-dir").arg(&folder);
        let mut lines = Vec::new();
        process::run_quietly(&mut command, |line| lines.push(line.to_owned()))?;
        remove(&folder)?;
        Self::read(&lines).ok_or_else(|| {
            Failure::Check("the shell's `times` prints no times of its children".to_owned())
        })
    }

    /// Parses cargo's progress lines, and the last line with the children's user and system time.
    fn read(lines: &[String]) -> Option<Self> {
        let names = lines.iter().filter_map(|line| {
            let rest = line.trim_start().strip_prefix("Compiling ")?;
            rest.split(' ').next()
        });
        let mut times = lines.last()?.split_whitespace().map(seconds);
        Some(Self {
            crates: names.collect::<BTreeSet<_>>().len(),
            cpu_seconds: times.next()?? + times.next()??,
        })
    }
}

impl fmt::Display for BuildCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cargo {}: {} packages, {:.0} CPU seconds from nothing (goal {CPU_SECONDS_MAX:.0})",
            BUILD.join(" "),
            self.crates,
            self.cpu_seconds
        )
    }
}

/// Parses a time such as `5m2.89s`.
fn seconds(text: &str) -> Option<f64> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Failure::File {
            path: folder.to_path_buf(),
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_packages_and_the_time_of_children() {
        let lines = [
            "   Compiling libc v0.2.1",
            "   Compiling wire v0.1.0 (path)",
            "    Finished `release` profile",
            "0m0.00s 0m0.01s",
            "5m2.89s 0m22.18s",
        ];
        let cost = BuildCost::read(&lines.map(str::to_owned)).unwrap();
        assert_eq!(cost.crates, 2);
        assert!((cost.cpu_seconds - 325.07).abs() < 0.001, "{cost}");
        assert!(BuildCost::read(&["no times".to_owned()]).is_none());
    }
}
