//! Nothing outlives whoever started it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use daemon::demo::plan::{Block, Plan, PlanOptions};
use daemon::demo::process::descendants;
use daemon::keyring::Keyring;
use servicer::Clock;
use wire::Instant;

/// Starts a run and waits until its match plays, with all processes there.
fn playing() -> (Child, BTreeSet<u32>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .args(["demo", "--seconds", "60", "--players", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("tick") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let all = descendants(child.id()).unwrap();
    assert!(all.len() >= 9, "{all:?}");
    (child, all)
}

/// Waits until none of `processes` lives; returns those that do after `patience`.
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

/// Whether the process runs; one that has ended and was not waited for does not.
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

#[test]
fn nothing_is_left_5_s_after_sigkill_of_the_run() {
    let _alone = crate::alone();
    let (mut child, all) = playing();
    end(&mut child, "-KILL");
    assert_eq!(survivors(&all, Duration::from_secs(5)), BTreeSet::new());
}

#[test]
fn nothing_is_left_5_s_after_ctrl_c() {
    let _alone = crate::alone();
    let (mut child, all) = playing();
    end(&mut child, "-INT");
    assert_eq!(survivors(&all, Duration::from_secs(5)), BTreeSet::new());
}

#[test]
fn a_child_ends_within_2_s_of_the_end_of_its_pipe() {
    let _alone = crate::alone();
    let options = PlanOptions {
        seed: 1,
        seconds: 30,
        players: 8,
        sabotage: false,
    };
    let claim = Block::claim().unwrap();
    let plan = Plan::new(options, claim.block());
    let keyring = Keyring::make(&plan).unwrap();
    for role in ["hub", "players", "game-server", "matchmaker"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .args(["role", role])
            .arg(format!("--block={}", claim.block()))
            .arg("--directory")
            .arg(keyring.directory())
            // What a matchmaker tells the game server that it starts.
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
