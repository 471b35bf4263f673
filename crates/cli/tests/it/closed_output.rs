//! Output that cannot be written: a log on a full disk, a closed stdout.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::mesh_node::tickwire_relay;
use crate::net::{Net, Program, tickwire};
use crate::node::Talker;

/// Writes to it fail with ENOSPC.
const FULL: &str = "/dev/full";

fn full() -> File {
    OpenOptions::new().write(true).open(FULL).unwrap()
}

/// A pipe without a reader.
fn closed() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

fn run_hub(net: &Net) -> Command {
    let mut command = tickwire();
    command
        .args(["hub", "run", "--end-with-stdin", "--identity"])
        .arg(net.key("hub"))
        .arg("--join-file")
        .arg(net.join_path())
        .arg("--data")
        .arg(net.path("data"));
    command
}

#[test]
fn an_unwritable_log_ends_no_hub() {
    let mut net = Net::new();
    drop(net.take_hub_port());
    let hub = Program::start(&mut run_hub(&net), Path::new(FULL));
    // Each join and leave is logged.
    for name in ["server-0", "server-1"] {
        Talker::start(&net, name).wait_joined();
    }
    assert_eq!(hub.release(), Some(0));
}

#[test]
fn an_unwritable_answer_is_one_sentence_and_a_status() {
    let net = Net::new();
    let outputs: [(&str, Stdio); 2] = [
        ("to-full.pem", full().into()),
        ("to-closed.pem", closed().into()),
    ];
    for (name, stdout) in outputs {
        let path = net.path(name);
        let mut command = tickwire();
        command.args(["key", "new"]).arg(&path);
        let end = output(command.stdout(stdout).stderr(Stdio::piped()));
        assert_failed(&end, 4, "the answer cannot be written");
        assert!(path.exists(), "what was to be done is done");
    }
}

#[test]
fn a_process_with_a_closed_stdout_keeps_running() {
    let mut net = Net::new();
    drop(net.take_hub_port());
    let end = output(run_hub(&net).stdout(full()));
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    let mut matchmaker = tickwire();
    matchmaker
        .args(["matchmaker", "run", "--app-id", "1", "--plain-http"])
        .args(["--no-servers", "--http", "127.0.0.1:0", "--end-with-stdin"])
        .arg("--identity")
        .arg(net.key("matchmaker"))
        .arg("--join-file")
        .arg(net.join_path());
    let end = output(matchmaker.stdout(closed()));
    assert_eq!(end.status.code(), Some(0), "{end:?}");
}

#[test]
fn an_unwritable_error_message_changes_no_exit_status() {
    let net = Net::new();
    let missing = net.path("no.pem");
    let end = output(
        tickwire()
            .args(["key", "public"])
            .arg(&missing)
            .stderr(full()),
    );
    assert_eq!(end.status.code(), Some(2));
    let end = output(tickwire_relay().arg(&missing).stderr(full()));
    assert_eq!(end.status.code(), Some(2));
    let mut stack = tickwire();
    stack.args(["demo", "--report"]).arg(missing.join("x"));
    assert_eq!(output(stack.stderr(full())).status.code(), Some(2));
}

/// Runs it with an empty stdin; other settings stay.
fn output(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    child.wait_with_output().unwrap()
}

fn assert_failed(end: &Output, code: i32, needle: &str) {
    let stderr = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(needle), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
