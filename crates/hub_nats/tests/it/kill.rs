//! Processes that write to the log and are killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hub_nats::NatsConfig;

use hub::StoreConfig;

use crate::harness::{NatsBackend, Server, append_op, config, limits};

/// A process that appends numbered mails for player 1, and prints each number that was acknowledged.
pub(crate) struct Writer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// Addresses for the writer's process; its presence makes the test a writer.
const SERVERS: &str = "TICKWIRE_NATS_WRITER";

impl Writer {
    pub(crate) fn start(config: &NatsConfig) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::writes_until_it_is_killed", "--nocapture"])
            .env(SERVERS, config.servers.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Reads until `count` more mails were acknowledged; returns the number of the last.
    pub(crate) fn read_acked(&mut self, count: u32) -> u64 {
        let mut last = 0;
        for _ in 0..count {
            last = self.next_acked().expect("the writer writes");
        }
        last
    }

    /// Returns the next acknowledged number, or `None` once the output has ended.
    fn next_acked(&mut self) -> Option<u64> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some((_, number)) = line.trim_end().split_once("acked ") {
                return number.parse().ok();
            }
        }
    }

    /// Reads to the end of the output; returns whether the writer reported that its log has failed.
    pub(crate) fn read_end(&mut self) -> bool {
        let mut line = String::new();
        let mut has_failed = false;
        while self.lines.read_line(&mut line).is_ok_and(|len| len > 0) {
            has_failed |= line.contains("failed");
            line.clear();
        }
        has_failed
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The writer's process; as a test without the variable it does nothing.
#[test]
fn writes_until_it_is_killed() {
    let Ok(servers) = std::env::var(SERVERS) else {
        return;
    };
    let servers = servers.split(',').map(str::to_owned).collect();
    let mut backend = NatsBackend::open(&writer_config(servers), large_mailbox());
    let epoch = backend.join(1);
    let stored = backend.read(1).len() as u64;
    let mut out = std::io::stdout();
    // Bounded, if the test that started it has ended.
    let (start, (_, soak)) = (Instant::now(), size());
    let mut seq = stored;
    while start.elapsed() < soak {
        seq += 1;
        let outcome = backend.run(append_op(epoch, seq, 1, seq.to_string().as_bytes()));
        if outcome.is_err() {
            writeln!(out, "failed").unwrap();
            return;
        }
        writeln!(out, "acked {seq}").unwrap();
    }
}

/// The mailbox of the writer is larger than that of a player.
fn large_mailbox() -> StoreConfig {
    let mut limits = limits();
    limits.mailbox_mails_max = 1_000_000;
    limits
}

fn writer_config(servers: Vec<String>) -> NatsConfig {
    let mut config = config(servers);
    config.lease_ttl = Duration::from_millis(500);
    config
}

/// Kills of one run at most, and its time. `ALL_SIZES=1` plays the long one.
fn size() -> (u32, Duration) {
    if std::env::var_os("ALL_SIZES").is_some() {
        (100, Duration::from_secs(90))
    } else {
        (20, Duration::from_secs(25))
    }
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_no_acknowledged_mail_is_lost_by_a_kill_of_the_hub() {
    let server = Server::start("");
    let config = writer_config(vec![server.url()]);
    let mut acked = 0;
    let mut kills = 0;
    let (start, (kills_max, soak)) = (Instant::now(), size());
    while kills < kills_max && start.elapsed() < soak && acked < 5_000 {
        let mut writer = Writer::start(&config);
        // At a point that moves through a write. On a loaded machine it may have ended by itself.
        for number in (0..=kills % 7).map_while(|_| writer.next_acked()) {
            acked = acked.max(number);
        }
        std::thread::sleep(Duration::from_micros(u64::from(kills) * 37 % 1_500));
        writer.signal("-KILL");
        while let Some(number) = writer.next_acked() {
            acked = acked.max(number);
        }
        kills += 1;
    }
    let mut backend = NatsBackend::open(&config, large_mailbox());
    let stored = backend.read(1);
    let expected: Vec<_> = (1..=stored.len())
        .map(|it| it.to_string().into_bytes())
        .collect();
    assert_eq!(stored, expected, "each once and in order");
    assert!(stored.len() as u64 >= acked, "{acked} of {}", stored.len());
    assert!(
        kills >= 5,
        "only {kills} kills in {soak:?}, {acked} acknowledged"
    );
}
