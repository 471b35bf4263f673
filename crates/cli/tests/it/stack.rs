//! Short runs of the whole demonstration.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use demo::process::descendants;
use demo::report::{Cause, Report};

/// Runs the demonstration and reads its report.
fn run(name: &str, arguments: &[&str]) -> (Output, Report) {
    let _alone = crate::alone();
    let path = path(name);
    leave_stale(&path);
    let output = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .arg("demo")
        .args(arguments)
        .arg("--report")
        .arg(&path)
        .output()
        .unwrap();
    let report = read(&path);
    (output, report)
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"))
}

fn read(path: &Path) -> Report {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Writes the report of an earlier successful run.
fn leave_stale(path: &Path) {
    let stale = Report {
        ok: true,
        ..Report::default()
    };
    fs::write(path, serde_json::to_string(&stale).unwrap()).unwrap();
}

/// Checks of measured times, which fail on a loaded machine; tests of the simulated mesh cover
/// them.
const OF_TIMES: [&str; 4] = [
    "accelerated p50 is at most 85 % of direct p50",
    "accelerated p50 is at most direct p50 + 1 ms",
    "nobody is slower than directly by more than what changes sides",
    "the mesh takes the best of its routes",
];

/// Checks that do not depend on the machine's load.
#[test]
fn a_short_run_finishes_and_changes_routes() {
    let (output, report) = run("short", &["--seconds", "12"]);
    let reported = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(i32::from(!report.ok)),
        "{reported}"
    );
    assert_eq!((report.seed, report.seconds, report.players), (1, 12, 8));
    assert_eq!(report.ticks, 12 * 30, "{reported}");
    assert!(report.state_hashes_equal, "{reported}");
    assert_eq!(report.nodes, 5);
    assert_eq!(report.joins_refused, 0);
    assert_eq!(
        (report.tickets, report.tokens_issued),
        (24, 24),
        "{reported}"
    );
    assert_eq!(report.stats_events, 12 * 30, "{reported}");
    assert!(report.processes >= 9, "{reported}");
    assert!(report.mail.in_flight_at_kill >= 64, "{reported}");
    let causes: Vec<_> = report
        .reroutes
        .iter()
        .map(|reroute| reroute.cause)
        .collect();
    assert_eq!(causes, [Cause::Degraded, Cause::Killed], "{reported}");
    assert!(
        report.direct_rtt_ms.p50 > report.accelerated_rtt_ms.p50,
        "{reported}"
    );
    for check in &report.checks {
        let is_of_times = OF_TIMES.contains(&check.name.as_str());
        assert!(check.ok || is_of_times, "{check:?}");
    }
    for name in OF_TIMES {
        assert!(
            report.checks.iter().any(|check| check.name == name),
            "{name}: {reported}"
        );
    }
    assert_eq!(
        reported.contains("stack: every check holds"),
        report.ok,
        "{reported}"
    );
}

#[test]
fn sabotage_is_reported_by_player_and_tick() {
    let arguments = [
        "--seconds",
        "8",
        "--players",
        "3",
        "--seed",
        "5",
        "--sabotage",
    ];
    let (output, report) = run("sabotage", &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(!report.ok && !report.state_hashes_equal);
    let options = demo::plan::PlanOptions {
        seed: 5,
        seconds: 8,
        players: 3,
        sabotage: true,
        ..demo::plan::PlanOptions::default()
    };
    let plan = demo::plan::Plan::new(options, "127.70.1".parse().unwrap());
    let (seat, tick) = plan.sabotage().unwrap();
    let named = format!("player {seat} differs from tick {tick} on");
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(reported.contains(&named), "{named}: {reported}");
    let mut checks = report.checks.iter();
    assert!(checks.any(|check| !check.ok && check.detail.contains(&named)));
}

#[test]
fn an_unknown_option_exits_with_2() {
    for arguments in [&["demo", "--seconds", "0"][..], &["demo", "--what"], &[]] {
        let output = Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// The reason in a report of an incomplete run.
fn reason(report: &Report) -> &str {
    assert!(!report.ok);
    let mut checks = report.checks.iter();
    let check = checks.find(|check| check.name == "the run comes to its end");
    let check = check.unwrap_or_else(|| panic!("{report:?}"));
    assert!(!check.ok);
    &check.detail
}

#[test]
fn a_run_that_cannot_start_is_reported() {
    let path = path("unbegun");
    leave_stale(&path);
    let output = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .args(["demo", "--seed", "7", "--report"])
        .arg(&path)
        .env("TMPDIR", path.with_extension("absent"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = read(&path);
    assert!(reason(&report).contains("cannot make"), "{report:?}");
    assert_eq!((report.seed, report.players, report.nodes), (7, 8, 5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAILED  the run comes to its end"));
}

#[test]
#[cfg(unix)]
fn aborted_and_killed_runs_are_reported_with_the_reason() {
    let _alone = crate::alone();
    let path = path("broken");
    for signalled in ["players", "matchmaker", "game-server", "the run"] {
        leave_stale(&path);
        let mut child = Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .args(["demo", "--seconds", "60", "--players", "2", "--report"])
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("tick") {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended early");
        }
        assert_eq!(reason(&read(&path)), "it was ended before that");
        let all = descendants(child.id()).unwrap();
        let is_signalled = |id: &u32| {
            let mut ps = Command::new("ps");
            let output = ps.args(["-o", "args=", "-p", &id.to_string()]).output();
            String::from_utf8(output.unwrap().stdout)
                .unwrap()
                .contains(&format!(" role {signalled} "))
        };
        let victim = if signalled == "the run" {
            child.id()
        } else {
            all.into_iter().find(is_signalled).unwrap()
        };
        let status = Command::new("kill")
            .args(["-KILL", &victim.to_string()])
            .status();
        assert!(status.unwrap().success());
        // A run ends too if its reader closes the pipe.
        std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        let status = child.wait().unwrap();
        let report = read(&path);
        if signalled == "the run" {
            assert_eq!(status.code(), None);
            assert_eq!(reason(&report), "it was ended before that");
        } else {
            assert_eq!(status.code(), Some(1));
            let who = signalled.replace('-', " ");
            assert_eq!(reason(&report), format!("{who}: ended before its time"));
        }
    }
}

#[test]
fn an_unwritable_report_fails_before_the_run() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("absent/report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .args(["demo", "--report"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(
        reported.contains("absent/report.json: report: "),
        "{reported}"
    );
}
