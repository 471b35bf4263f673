//! No process outlives its parent.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use demo::keyring::{Keyring, PREFIX};
use demo::plan::{Block, Plan, PlanOptions};
use demo::process::descendants;
use servicer::Clock;
use wire::Instant;

/// A run with a match in progress.
struct Playing {
    child: Child,
    /// Kept open: the run ends when it closes.
    _stdout: BufReader<ChildStdout>,
    processes: BTreeSet<u32>,
    /// Contains only the run's key folders.
    temp: PathBuf,
}

/// Starts a run and waits until its match is in progress.
fn playing(name: &str) -> Playing {
    let temp = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Left by an earlier test run.
    fs::remove_dir_all(&temp).ok();
    fs::create_dir_all(&temp).unwrap();
    // A stale folder of an earlier run must not matter.
    fs::create_dir(temp.join(format!("{PREFIX}stale"))).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .args(["demo", "--seconds", "60", "--players", "2"])
        .env("TMPDIR", &temp)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("tick") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let processes = descendants(child.id()).unwrap();
    assert!(processes.len() >= 10, "{processes:?}");
    let folders = folders(&temp);
    assert_eq!(folders.len(), 1, "{folders:?}");
    assert!(folders[0].join("hub.pem").exists());
    Playing {
        child,
        _stdout: stdout,
        processes,
        temp,
    }
}

/// Folders of runs in `temp`.
fn folders(temp: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(temp)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .filter(|path| !path.ends_with(format!("{PREFIX}stale")))
        .collect()
}

/// Waits until none of `processes` runs; returns those that still run after `patience`.
fn survivors(processes: &BTreeSet<u32>, patience: Duration) -> BTreeSet<u32> {
    let until = Clock::new().now() + patience;
    let (_open, nothing) = mpsc::channel::<()>();
    loop {
        let left: BTreeSet<u32> = processes
            .iter()
            .copied()
            .filter(|id| is_alive(*id))
            .collect();
        if left.is_empty() || Clock::new().now() >= until {
            return left;
        }
        nothing.recv_timeout(Duration::from_millis(50)).ok();
    }
}

/// Whether the process runs; a zombie does not.
fn is_alive(id: u32) -> bool {
    let output = Command::new("ps")
        .args(["-o", "stat=", "-p", &id.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

fn end(child: &mut Child, signal: &str) {
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &id])
            .status()
            .unwrap()
            .success()
    );
    child.wait().unwrap();
}

/// Sends `signal` to a run's first process, and checks after 5 s what is left.
fn end_and_look(name: &str, signal: &str) {
    let _alone = crate::alone();
    let mut playing = playing(name);
    end(&mut playing.child, signal);
    let left = survivors(&playing.processes, Duration::from_secs(5));
    assert_eq!(left, BTreeSet::new());
    assert_eq!(folders(&playing.temp), Vec::<PathBuf>::new());
    fs::remove_dir_all(&playing.temp).unwrap();
}

#[test]
fn nothing_is_left_5_s_after_sigkill_of_the_run() {
    end_and_look("killed", "-KILL");
}

#[test]
fn nothing_is_left_5_s_after_ctrl_c() {
    end_and_look("interrupted", "-INT");
}

/// A terminal signals a whole process group. Only the first process may be in it; otherwise none
/// would be left to remove the keys.
#[test]
#[cfg(unix)]
fn a_terminal_signals_only_the_first_process() {
    let _alone = crate::alone();
    let mut playing = playing("group");
    let group = |id: u32| {
        let mut ps = Command::new("ps");
        let output = ps.args(["-o", "pgid=", "-p", &id.to_string()]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let of_run = group(playing.child.id());
    for process in &playing.processes {
        assert_ne!(group(*process), of_run);
    }
    end(&mut playing.child, "-KILL");
    let left = survivors(&playing.processes, Duration::from_secs(5));
    assert_eq!(left, BTreeSet::new());
    fs::remove_dir_all(&playing.temp).unwrap();
}

#[test]
fn a_child_ends_within_2_s_of_the_end_of_its_stdin() {
    let _alone = crate::alone();
    let options = PlanOptions::default();
    let claim = Block::claim().unwrap();
    let plan = Plan::new(options, claim.block());
    let keyring = Keyring::make(&plan).unwrap();
    for role in ["hub", "players", "game-server", "matchmaker"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .args(["role", role])
            .arg(format!("--block={}", claim.block()))
            .arg("--directory")
            .arg(keyring.directory())
            // The environment of a game server.
            .env("TICKWIRE_IDENTITY", keyring.directory().join("game.pem"))
            .env("TICKWIRE_JOIN_FILE", keyring.directory().join("join"))
            .env("TICKWIRE_LISTEN", plan.server().to_string())
            .env("TICKWIRE_SLOT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "{role} serves");
        let released_at: Instant = Clock::new().now();
        drop(child.stdin.take());
        child.wait().unwrap();
        let span = Clock::new().now().saturating_since(released_at);
        assert!(span < Duration::from_secs(2), "{role} took {span:?}");
    }
}
