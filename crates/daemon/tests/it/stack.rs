//! Whole runs, short ones.

use std::path::PathBuf;
use std::process::{Command, Output};

use daemon::demo::report::{Cause, Report};

/// Runs the demonstration with a report, and reads it.
fn run(name: &str, arguments: &[&str]) -> (Output, Report) {
    let _alone = crate::alone();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    let output = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .arg("demo")
        .args(arguments)
        .arg("--report")
        .arg(&path)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, serde_json::from_str(&text).unwrap())
}

/// What must hold whatever this machine's clock and load make of times.
#[test]
fn a_short_run_plays_to_its_end_and_finds_other_ways() {
    let (output, report) = run("short", &["--seconds", "12"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(i32::from(!report.ok)), "{told}");
    assert_eq!((report.seed, report.seconds, report.players), (1, 12, 8));
    assert_eq!(report.ticks, 12 * 30, "{told}");
    assert!(report.state_hashes_equal, "{told}");
    assert_eq!(report.nodes, 5);
    assert_eq!(report.joins_refused, 0);
    assert_eq!((report.tickets, report.tokens_issued), (24, 24), "{told}");
    assert_eq!(report.stats_events, 12 * 30, "{told}");
    assert!(report.processes >= 9, "{told}");
    assert!(report.mail.sent > 64, "{told}");
    let causes: Vec<_> = report
        .reroutes
        .iter()
        .map(|reroute| reroute.cause)
        .collect();
    assert_eq!(causes, [Cause::Degraded, Cause::Killed], "{told}");
    assert!(
        report.direct_rtt_ms.p50 > report.accelerated_rtt_ms.p50,
        "{told}"
    );
    for check in &report.checks {
        assert!(check.ok, "{check:?}");
    }
    assert!(told.contains("every check holds"), "{told}");
}

#[test]
fn sabotage_is_named_by_player_and_tick() {
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
    let options = daemon::demo::plan::PlanOptions {
        seed: 5,
        seconds: 8,
        players: 3,
        sabotage: true,
    };
    let plan = daemon::demo::plan::Plan::new(options, "127.70.1".parse().unwrap());
    let (seat, tick) = plan.sabotage().unwrap();
    let named = format!("player {seat} differs from tick {tick} on");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains(&named), "{named}: {told}");
    let mut checks = report.checks.iter();
    assert!(checks.any(|check| !check.ok && check.detail.contains(&named)));
}

#[test]
fn what_is_no_option_is_told_and_exits_with_2() {
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
