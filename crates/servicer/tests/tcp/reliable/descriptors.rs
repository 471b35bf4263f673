//! A server in a process without free file descriptors.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use servicer::reliable::AcceptFault;
use servicer::{Dest, ReliableConfig, TcpServicers};

use super::harness::{Harness, message, next_event, text};
use crate::harness::TIMEOUT;
use crate::raw_client::plain;

/// Makes this process serve with few descriptors.
const FEW: &str = "FEW_DESCRIPTORS";

/// Descriptor limit of the server's process.
const DESCRIPTORS: u32 = 64;

/// Not a test: [`a_server_out_of_descriptors_serves_members_and_accepts_again`] runs it in a
/// process of its own.
#[test]
fn keeps_serving_with_few_descriptors_and_logs_it() {
    if std::env::var_os(FEW).is_none() {
        return;
    }
    let mut config = ReliableConfig::default();
    config.servicers = Some(TcpServicers::ThreadPerClient);
    config.stream.handshake_timeout = TIMEOUT;
    // The whole flood uses one address.
    config.stream.handshakes_per_source_max = 1_024;
    config.queued_age_max = TIMEOUT;
    let mut harness = Harness::new(&config);
    let (mut member, _) = harness.join("member");
    let mut waiting = harness.call("waiting");
    let request = harness.request();
    // Starts a new line after the harness's unfinished one.
    println!("\nlistens {}", harness.address);
    wait("flood");
    super::harness::until(|| harness.sum(|counters| counters.accept_errors) > 0);
    let turns = |harness: &Harness| harness.sum(|counters| counters.turns);
    let before = turns(&harness);
    for number in 0..200 {
        harness.send_retrying(Dest::All, &text(&number.to_string()));
        assert_eq!(message(&mut member), number.to_string());
    }
    let made = turns(&harness) - before;
    assert!(made < 5_000, "{made} turns for 200 messages");
    // There is no descriptor for its thread; the request is returned.
    let fault = harness.server.accept(request, text("welcome")).unwrap_err();
    assert!(matches!(fault.cause, AcceptFault::NoThread(_)), "{fault}");
    println!("\nserves");
    wait("over");
    let mut request = *fault.request;
    // The others' slots are free once their ends are reported.
    let id = loop {
        match harness.server.accept(request, text("welcome")) {
            Ok(id) => break id,
            Err(error) => request = *error.request,
        }
        std::thread::yield_now();
    };
    let welcome = text("welcome");
    assert_eq!(
        next_event(&mut waiting),
        servicer::ClientEvent::Accepted { welcome }
    );
    harness.server.send(id, text("hello")).unwrap();
    assert_eq!(message(&mut waiting), "hello");
    let (mut newcomer, id) = harness.join("newcomer");
    harness.server.send(id, text("hello")).unwrap();
    assert_eq!(message(&mut newcomer), "hello");
    let report = harness.server.shutdown(TIMEOUT, Bytes::new());
    assert_eq!((report.joined, report.faults), (report.started, Vec::new()));
    println!("\nended");
}

/// Waits until the parent process sends `word`.
fn wait(word: &str) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert_eq!(line.trim(), word);
}

/// The server's process, killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_server_out_of_descriptors_serves_members_and_accepts_again() {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n \"$1\" && shift && exec \"$@\"", "sh"])
        .arg(DESCRIPTORS.to_string())
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "reliable::descriptors::keeps_serving_with_few_descriptors_and_logs_it",
            "--nocapture",
        ])
        .env(FEW, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let mut to = server.0.stdin.take().unwrap();
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut sent_len = |word: &str| -> String {
        let mut all = lines.by_ref().map(Result::unwrap);
        let found = all.find_map(|line| Some(line.strip_prefix(word)?.trim().to_owned()));
        found.unwrap_or_else(|| panic!("it ended before it said that it {word}"))
    };
    let address: SocketAddr = sent_len("listens").parse().unwrap();
    let flood: Vec<_> = (0..2 * DESCRIPTORS).map(|_| plain(address)).collect();
    writeln!(to, "flood").unwrap();
    sent_len("serves");
    drop(flood);
    writeln!(to, "over").unwrap();
    sent_len("ended");
    assert!(server.0.wait().unwrap().success());
}
