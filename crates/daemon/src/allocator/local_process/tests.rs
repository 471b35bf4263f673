#![cfg(unix)]

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use crate::allocator::CommandSender;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_process_gets_its_environment_and_ends_with_its_stdin() {
    let script = "test $TICKWIRE_SLOT = 1 && test $TICKWIRE_LISTEN = 127.0.0.1:40001 \
                  && test $TICKWIRE_IDENTITY = b.pem && test $TICKWIRE_JOIN_FILE = net.join \
                  && cat >/dev/null";
    let pool = Pool::start(script, 2);
    assert!(pool.commands.send(start(1, 1)));
    let started = Report::Completed(CommandId(1), Outcome::Started);
    assert_eq!(pool.next(), started);
    assert!(pool.commands.send(stop(2, 1)));
    let stopped = Report::Completed(CommandId(2), Outcome::Stopped);
    assert_eq!(
        pool.next(),
        stopped,
        "the environment was right and it waited"
    );
}

#[test]
fn a_process_that_exits_by_itself_is_reported() {
    let pool = Pool::start("exit 3", 1);
    assert!(pool.commands.send(start(1, 0)));
    let started = Report::Completed(CommandId(1), Outcome::Started);
    assert_eq!(pool.next(), started);
    assert_eq!(pool.next(), Report::Exited(CommandId(1)));
    assert!(pool.commands.send(stop(2, 0)));
    let stopped = Report::Completed(CommandId(2), Outcome::Stopped);
    assert_eq!(pool.next(), stopped, "there is none: it has ended");
}

#[test]
fn a_process_that_ignores_its_stdin_is_killed() {
    // A shell that ignores signals and never reads its stdin.
    let pool = Pool::start("trap '' TERM HUP; while :; do sleep 1; done", 1);
    assert!(pool.commands.send(start(1, 0)));
    pool.next();
    assert!(pool.commands.send(stop(2, 0)));
    let stopped = Report::Completed(CommandId(2), Outcome::Stopped);
    assert_eq!(pool.next(), stopped);
}

#[test]
fn a_missing_program_is_rejected_and_a_removed_one_fails_to_start() {
    let mut config = config("", 1);
    config.program = "/nonexistent/server".into();
    let (_orders, queue) = CommandSender::new();
    let refused = LocalProcess::start(config.clone(), queue, |_| Ok(())).unwrap_err();
    assert_eq!(refused.exit, crate::exit::Exit::Usage);
    assert!(
        refused.sentence.starts_with("/nonexistent/server: "),
        "{refused}"
    );

    let name = format!("tickwire-server-{}", std::process::id());
    config.program = env::temp_dir().join(name);
    fs::copy("/bin/sh", &config.program).unwrap();
    let pool = Pool::of(config.clone(), |_| false);
    fs::remove_file(&config.program).unwrap();
    for run in 1..=2 {
        assert!(pool.commands.send(start(run, 0)));
        let failed = Report::Completed(CommandId(run), Outcome::Failed);
        assert_eq!(pool.next(), failed);
    }
    assert!(pool.commands.send(start(3, 7)), "no such slot");
    let failed = Report::Completed(CommandId(3), Outcome::Failed);
    assert_eq!(pool.next(), failed);
}

#[test]
fn a_rejected_report_is_repeated_in_order() {
    let mut refusals = 5;
    let pool = Pool::of(config("exit 0", 1), move |_| {
        refusals -= 1;
        refusals >= 0
    });
    assert!(pool.commands.send(start(1, 0)));
    let started = Report::Completed(CommandId(1), Outcome::Started);
    assert_eq!(pool.next(), started);
    assert_eq!(pool.next(), Report::Exited(CommandId(1)));
}

#[test]
fn dropping_the_command_sender_ends_every_process() {
    let Pool {
        commands,
        process,
        reports,
    } = Pool::start("cat >/dev/null", 3);
    for slot in 0..3 {
        assert!(commands.send(start(u64::from(slot) + 1, slot)));
        reports.recv_timeout(TIMEOUT).unwrap();
    }
    drop(commands);
    assert_eq!(
        reports.recv_timeout(TIMEOUT),
        Err(RecvTimeoutError::Disconnected),
        "the thread has ended, and it ends last"
    );
    drop(process);
}

#[test]
fn dropping_the_allocator_kills_processes_that_ignore_signals() {
    let note = env::temp_dir().join(format!("tickwire-deaf-{}", std::process::id()));
    let script = format!(
        "trap '' TERM HUP INT; echo $$ > {0}.draft && mv {0}.draft {0}; \
         while :; do sleep 0.1; done",
        note.display()
    );
    let pool = Pool::start(&script, 1);
    assert!(pool.commands.send(start(1, 0)));
    pool.next();
    let pid = loop {
        match fs::read_to_string(&note) {
            Ok(text) => break text.trim().to_owned(),
            Err(_) => std::thread::yield_now(),
        }
    };
    fs::remove_file(&note).unwrap();
    assert!(lives(&pid));
    let Pool {
        commands,
        process,
        reports,
    } = pool;
    drop(process);
    assert!(!lives(&pid), "{pid} outlived its allocator");
    assert!(reports.recv().is_err(), "the thread has ended");
    assert!(!commands.send(start(2, 0)), "the queue is closed");
}

/// Whether process `pid` exists.
fn lives(pid: &str) -> bool {
    let mut kill = Command::new("kill");
    let status = kill.args(["-0", pid]).stderr(Stdio::null()).status();
    status.unwrap().success()
}

#[test]
fn a_port_range_is_parsed_and_has_a_port_for_each_slot() {
    let range: PortRange = "40000-40002".parse().unwrap();
    let ports: Vec<_> = (0..4).map(|slot| range.port(Slot(slot))).collect();
    assert_eq!(ports, [Some(40_000), Some(40_001), Some(40_002), None]);
    assert_eq!("7".parse(), Ok(PortRange { first: 7, last: 7 }));
    for text in ["", "0-1", "2-1", "1-65536", "a-b", "1-2-3"] {
        assert_eq!(text.parse::<PortRange>(), Err(PortRangeError), "{text}");
    }
    let few = LocalProcess::start(
        LocalProcessConfig {
            ports: "40000-40001".parse().unwrap(),
            ..config("", 3)
        },
        CommandSender::new().1,
        |_| Ok(()),
    );
    assert!(few.is_err());
}

/// An allocator, and its reports.
struct Pool {
    commands: CommandSender,
    process: LocalProcess,
    reports: Receiver<Report>,
}

impl Pool {
    fn start(script: &str, slots: usize) -> Self {
        Self::of(config(script, slots), |_| false)
    }

    fn of(
        config: LocalProcessConfig,
        mut is_refused: impl FnMut(&Report) -> bool + Send + 'static,
    ) -> Self {
        let (commands, queue) = CommandSender::new();
        let (sender, reports) = mpsc::sync_channel(64);
        let report = move |report| {
            if is_refused(&report) {
                return Err(report);
            }
            sender.send(report).unwrap_or_default();
            Ok(())
        };
        let process = LocalProcess::start(config, queue, report).unwrap();
        Self {
            commands,
            process,
            reports,
        }
    }

    fn next(&self) -> Report {
        self.reports.recv_timeout(TIMEOUT).unwrap()
    }
}

fn config(script: &str, slots: usize) -> LocalProcessConfig {
    let identities = ["a.pem", "b.pem", "c.pem"];
    let mut config = LocalProcessConfig::new(
        "/bin/sh".into(),
        vec!["-c".into(), script.into()],
        identities.iter().take(slots).map(PathBuf::from).collect(),
        "net.join".into(),
        ("127.0.0.1".parse().unwrap(), "40000-40009".parse().unwrap()),
    );
    config.grace = Duration::from_millis(300);
    config
}

const fn start(run: u64, slot: u16) -> AllocatorCommand {
    AllocatorCommand::Start {
        run: CommandId(run),
        slot: Slot(slot),
    }
}

const fn stop(id: u64, slot: u16) -> AllocatorCommand {
    AllocatorCommand::Stop {
        id: CommandId(id),
        slot: Slot(slot),
    }
}
