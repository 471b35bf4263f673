//! Child processes: no stdin, their output ours, a failure in one sentence.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Makes the workspace root the current directory, wherever cargo was called.
pub(crate) fn enter_workspace() -> Result<(), Failure> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().unwrap_or(manifest);
    std::env::set_current_dir(root).map_err(|source| Failure::File {
        path: root.to_path_buf(),
        source,
    })
}

/// A `cargo` of the toolchain that built this program.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = program("cargo");
    command.args(arguments);
    command
}

/// A program by name, without stdin.
///
/// What cargo told this process about its own package is taken out of the environment: build
/// scripts watch some of it, and would run again each time it differs.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_told_by_cargo) {
            command.env_remove(name);
        }
    }
    command
}

fn is_told_by_cargo(name: &str) -> bool {
    [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// Runs `command` to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|source| start(command, source))?;
    ended(command, status)
}

/// Runs `command` to its end, handing each line of its stdout to `on_line` and printing it.
pub(crate) fn run_lines(
    command: &mut Command,
    mut on_line: impl FnMut(&str),
) -> Result<(), Failure> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| start(command, source))?;
    if let Some(stdout) = child.stdout.take() {
        // A test may print bytes that are no text.
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|source| start(command, source))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            on_line(&line);
        }
    }
    let status = child.wait().map_err(|source| start(command, source))?;
    ended(command, status)
}

/// Returns what `command` writes to stdout.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| start(command, source))?;
    ended(command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ended(command: &Command, status: std::process::ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::Status {
        line: line(command),
        status,
    })
}

fn start(command: &Command, source: std::io::Error) -> Failure {
    Failure::Start {
        line: line(command),
        source,
    }
}

/// The command line, as one would type it.
pub(crate) fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_in_order_and_a_failure_names_its_command() {
        let mut seen = Vec::new();
        let mut command = program("sh");
        command.args(["-c", "echo one; echo two; exit 3"]);
        let failure = run_lines(&mut command, |line| seen.push(line.to_owned())).unwrap_err();
        assert_eq!(seen, ["one", "two"]);
        assert!(failure.to_string().contains("sh -c"), "{failure}");
        assert!(failure.to_string().contains('3'), "{failure}");
    }

    #[test]
    fn children_read_nothing_and_hear_nothing_of_this_package() {
        let mut command = program("sh");
        command.args(["-c", "cat; echo ${CARGO_PKG_NAME:-absent}"]);
        assert_eq!(output(&mut command).unwrap(), "absent\n");
    }
}
