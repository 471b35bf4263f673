//! Child processes: no stdin, inherited output, and one-sentence errors.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// Makes the workspace root the current directory, independent of where cargo was called.
///
/// The folder is that of the running cargo, not the one at build time: two checkouts may share a
/// build folder and therefore this program.
pub(crate) fn enter_workspace() -> Result<(), Failure> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = manifest
        .as_deref()
        .and_then(Path::parent)
        .ok_or_else(|| Failure::Check("call me as `cargo xtask`".to_owned()))?;
    std::env::set_current_dir(root).map_err(|source| Failure::File {
        path: root.to_path_buf(),
        source,
    })
}

/// Returns a `cargo` command of the toolchain that built this program.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = program("cargo");
    command.args(arguments);
    command
}

/// Returns a command for a program, without stdin.
///
/// Cargo's variables about this package are removed from the environment: build scripts depend on
/// some of them and would run again whenever they differ.
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

/// Runs `command` to its end with inherited output.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|source| start(command, source))?;
    ended(command, status)
}

/// Runs `command` to its end, passes each line of output to `on_line`, and prints it.
///
/// Stdout and stderr are merged in the order of writing.
pub(crate) fn run_lines(
    command: &mut Command,
    mut on_line: impl FnMut(&str),
) -> Result<(), Failure> {
    run_quietly(command, |line| {
        println!("{line}");
        on_line(line);
    })
}

/// As [`run_lines`], without printing.
pub(crate) fn run_quietly(command: &mut Command, on_line: impl FnMut(&str)) -> Result<(), Failure> {
    let (reader, mut child) = spawn_merged(command).map_err(|source| start(command, source))?;
    read_lines(reader, on_line).map_err(|source| start(command, source))?;
    let status = child.wait().map_err(|source| start(command, source))?;
    ended(command, status)
}

/// Like [`run_quietly`], but kills the command and all its children after `limit`. On Unix they are
/// also killed if this process ends for any reason, such as Ctrl-C.
pub(crate) fn run_bounded(
    command: &mut Command,
    limit: Duration,
    on_line: impl FnMut(&str),
) -> Result<(), Failure> {
    let spawned = spawn_merged(&mut bound_to_us(command));
    let (reader, mut child) = spawned.map_err(|source| start(command, source))?;
    let first = child.id();
    let (over, is_over) = mpsc::channel::<()>();
    let guard = thread::spawn(move || {
        let is_late = is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if is_late {
            kill_group(first);
        }
        is_late
    });
    // Reading ends only when no process can write any more.
    let read = read_lines(reader, on_line);
    let status = child.wait();
    drop(over);
    if guard.join().is_ok_and(|is_late| is_late) {
        let line = line(command);
        return Err(Failure::Check(format!(
            "{line}: not over after {limit:?}, and killed"
        )));
    }
    read.map_err(|source| start(command, source))?;
    ended(command, status.map_err(|source| start(command, source))?)
}

/// Returns `command` as a process group which can be killed together, and which kills itself when
/// its stdin ends. Only this process holds the other end of that pipe, so it closes however this
/// process ends.
#[cfg(unix)]
fn bound_to_us(command: &Command) -> Command {
    let mut bound = program("sh");
    bound.args(["-c", BOUND, "sh"]).stdin(Stdio::piped());
    bound.arg(command.get_program()).args(command.get_args());
    place_as(&mut bound, command);
    std::os::unix::process::CommandExt::process_group(&mut bound, 0);
    bound
}

/// Runs its arguments, while another process waits for the end of stdin and then kills the group.
#[cfg(unix)]
const BOUND: &str = "\
exec 3<&0 </dev/null
{ cat <&3; kill -s KILL 0; } >/dev/null 2>&1 &
exec \"$@\" 3<&-";

/// On other systems, a process and its children can be killed without a group.
#[cfg(not(unix))]
fn bound_to_us(command: &Command) -> Command {
    let mut bound = program(command.get_program());
    bound.args(command.get_args());
    place_as(&mut bound, command);
    bound
}

/// Copies the working directory and the environment of `command` to `bound`.
fn place_as(bound: &mut Command, command: &Command) {
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
}

/// Kills a process and its children.
fn kill_group(first: u32) {
    let mut kill = if cfg!(windows) {
        let mut kill = program("taskkill");
        kill.args(["/T", "/F", "/PID", &first.to_string()]);
        kill
    } else {
        let mut kill = program("kill");
        kill.args(["-KILL", "--", &format!("-{first}")]);
        kill
    };
    // The process may just have ended.
    kill.status().ok();
}

fn read_lines(reader: PipeReader, mut on_line: impl FnMut(&str)) -> io::Result<()> {
    // A test's output may not be valid UTF-8.
    for line in BufReader::new(reader).split(b'\n') {
        on_line(&String::from_utf8_lossy(&line?));
    }
    Ok(())
}

fn spawn_merged(command: &mut Command) -> io::Result<(PipeReader, Child)> {
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn();
    // The command also holds write ends of the pipe; reading ends only when all are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok((reader, child?))
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

fn start(command: &Command, source: io::Error) -> Failure {
    Failure::Start {
        line: line(command),
        source,
    }
}

/// Returns the command line as it would be typed.
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
        command.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let failure = run_lines(&mut command, |line| seen.push(line.to_owned())).unwrap_err();
        assert_eq!(seen, ["one", "two", "three"]);
        assert!(failure.to_string().contains("sh -c"), "{failure}");
        assert!(failure.to_string().contains('3'), "{failure}");
    }

    #[test]
    fn a_process_that_times_out_is_killed_with_its_children() {
        let mut command = program("sh");
        // The background process would keep the output open for a minute.
        command.args(["-c", "sleep 60 & echo begun; sleep 60"]);
        let mut seen = Vec::new();
        let limit = Duration::from_millis(300);
        let failure = run_bounded(&mut command, limit, |line| seen.push(line.to_owned()));
        let failure = failure.unwrap_err().to_string();
        assert!(failure.contains("not over after 300ms"), "{failure}");
        assert_eq!(seen, ["begun"]);
        let mut command = program("sh");
        command.args(["-c", "exit 3"]);
        let failure = run_bounded(&mut command, Duration::from_secs(60), |_| ()).unwrap_err();
        assert!(failure.to_string().contains('3'), "{failure}");
    }

    /// If this process is killed, the pipe to the group's stdin closes in the same manner.
    #[cfg(unix)]
    #[test]
    fn bound_processes_end_with_their_parent() {
        let mut command = program("sh");
        command.args(["-c", "sleep 60 & echo begun $HERE $PWD; sleep 60"]);
        command.env("HERE", "here").current_dir("/");
        let (reader, mut child) = spawn_merged(&mut bound_to_us(&command)).unwrap();
        let mut stdin = child.stdin.take();
        let mut seen = Vec::new();
        // Reading ends when the last writer has exited.
        read_lines(reader, |line| {
            seen.push(line.to_owned());
            stdin = None;
        })
        .unwrap();
        assert_eq!(seen, ["begun here /"]);
        let status = child.wait().unwrap();
        assert!(!status.success(), "killed, and not slept through: {status}");
    }

    #[test]
    fn children_have_no_stdin_and_no_variables_of_this_package() {
        let mut command = program("sh");
        command.args(["-c", "cat; echo ${CARGO_PKG_NAME:-absent}"]);
        assert_eq!(output(&mut command).unwrap(), "absent\n");
    }
}
