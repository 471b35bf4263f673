//! Game servers as child processes of the matchmaker.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{env, fmt, fs, io};

use crossbeam_channel::{Receiver, Sender, select_biased};
use matchmaker_core::{Outcome, Slot};
use servicer::Clock;
use wire::{CommandId, Instant};

use super::{AllocatorCommand, CommandQueue, Report, SlotEnvironment};
use crate::control::{spawn, wait};
use crate::exit::Failure;

/// How game server processes are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalProcessConfig {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; what differs between slots is in [`SlotEnvironment`].
    pub arguments: Vec<OsString>,
    /// Identity files, one for each slot, in the order of
    /// [`Game::slots`](matchmaker_core::Game::slots).
    pub identities: Vec<PathBuf>,
    /// The join file.
    pub join_file: PathBuf,
    /// Their address for players.
    pub ip: IpAddr,
    /// Their ports, one for each slot.
    pub ports: PortRange,
    /// Where their stdout goes.
    pub output: ChildOutput,
    /// Time from closing a process's stdin to killing it; 2 s.
    pub grace: Duration,
}

impl LocalProcessConfig {
    /// A configuration that discards the output of game servers.
    #[must_use]
    pub const fn new(
        program: PathBuf,
        arguments: Vec<OsString>,
        identities: Vec<PathBuf>,
        join_file: PathBuf,
        (ip, ports): (IpAddr, PortRange),
    ) -> Self {
        Self {
            program,
            arguments,
            identities,
            join_file,
            ip,
            ports,
            output: ChildOutput::Discard,
            grace: Duration::from_secs(2),
        }
    }
}

/// Where game servers' stdout goes; stderr is inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildOutput {
    /// Discarded.
    #[default]
    Discard,
    /// To the matchmaker's stdout.
    Inherit,
}

/// A range of ports, such as `40000-40015`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Returns the range from `first` to `last`, inclusive.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last {
            return None;
        }
        Some(Self { first, last })
    }

    /// Returns the port of a slot; `None` beyond the range.
    #[must_use]
    pub fn port(self, slot: Slot) -> Option<u16> {
        let port = self.first.checked_add(slot.0)?;
        (port <= self.last).then_some(port)
    }
}

impl PortRange {
    /// Returns the number of ports.
    #[must_use]
    pub const fn count(self) -> u32 {
        // Both are at most 65,535, and `last` is not below `first`.
        (self.last as u32)
            .saturating_sub(self.first as u32)
            .saturating_add(1)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().map_err(|_| PortRangeError);
        Self::new(port(first)?, port(last)?).ok_or(PortRangeError)
    }
}

/// The text is not a [`PortRange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRangeError;

wire::error_text! { PortRangeError {
    Self => "ports are given as FIRST-LAST, each from 1 to 65535",
}}

/// Runs game servers as child processes. Dropping it stops them all, which takes slightly longer
/// than [`LocalProcessConfig::grace`] at most.
///
/// No process can leak: it is killed if it does not stop in time; it exits when its stdin closes,
/// which happens however this process ends; and it exits when its lease expires.
#[derive(Debug)]
pub struct LocalProcess {
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl LocalProcess {
    /// Starts the thread. It stops all processes and ends on request, or when the last
    /// [`CommandSender`](super::CommandSender) of `queue` is dropped.
    ///
    /// `report` returns a report that cannot be handled now; it is repeated.
    ///
    /// # Errors
    ///
    /// One sentence: the program cannot be run, there are fewer ports than slots, or no thread can
    /// be started.
    pub fn start(
        config: LocalProcessConfig,
        queue: CommandQueue,
        report: impl FnMut(Report) -> Result<(), Report> + Send + 'static,
    ) -> Result<Self, Failure> {
        let last = u16::try_from(config.identities.len().saturating_sub(1)).unwrap_or(u16::MAX);
        if config.ports.port(Slot(last)).is_none() {
            return Err(Failure::usage(format_args!(
                "{} game servers need as many ports",
                config.identities.len()
            )));
        }
        check(&config.program)?;
        let mut pool = Processes {
            config,
            children: BTreeMap::new(),
            reports: VecDeque::new(),
            report: Box::new(report),
            clock: Clock::new(),
        };
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let thread =
            spawn("allocator", move || pool.run(&queue, &stopped)).map_err(Failure::thread)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Stops all processes and waits for them, even if a [`CommandSender`](super::CommandSender)
    /// remains.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the allocator's thread has panicked");
        }
    }
}

struct Processes {
    config: LocalProcessConfig,
    children: BTreeMap<Slot, ServerChild>,
    /// Unsent reports; at most two per slot.
    reports: VecDeque<Report>,
    report: Box<dyn FnMut(Report) -> Result<(), Report> + Send>,
    clock: Clock,
}

impl Processes {
    fn run(&mut self, queue: &CommandQueue, stopped: &Receiver<Infallible>) {
        loop {
            // The exit of a child is only found by polling; without children or reports the thread
            // sleeps.
            let pause = if self.children.is_empty() && self.reports.is_empty() {
                IDLE_INTERVAL
            } else {
                POLL_INTERVAL
            };
            select_biased! {
                // Nothing is sent: the channel closes.
                recv(stopped) -> _ => break,
                recv(queue.0) -> command => match command {
                    Ok(command) => self.apply(command),
                    Err(_) => break,
                },
                default(pause) => {}
            }
            self.poll();
            self.flush_reports();
        }
        self.end_all();
    }

    fn apply(&mut self, command: AllocatorCommand) {
        match command {
            AllocatorCommand::Start { run, slot } => {
                let outcome = if self.start(run, slot) {
                    Outcome::Started
                } else {
                    Outcome::Failed
                };
                self.reports.push_back(Report::Completed(run, outcome));
            }
            AllocatorCommand::Stop { id, slot } => match self.children.get_mut(&slot) {
                Some(child) => child.close_stdin(id, self.clock.now() + self.config.grace),
                None => self
                    .reports
                    .push_back(Report::Completed(id, Outcome::Stopped)),
            },
        }
    }

    fn start(&mut self, run: CommandId, slot: Slot) -> bool {
        if let Some(mut other) = self.children.remove(&slot) {
            // Two processes with one identity would fence each other off.
            other.kill();
        }
        match self.spawn(run, slot) {
            Ok(child) => {
                tracing::info!(%slot, pid = child.id(), "started a game server");
                self.children.insert(slot, child);
                true
            }
            Err(sentence) => {
                tracing::error!(%slot, "no game server was started: {sentence}");
                false
            }
        }
    }

    fn spawn(&self, run: CommandId, slot: Slot) -> Result<ServerChild, String> {
        let config = &self.config;
        let identity = config.identities.get(usize::from(slot.0));
        let environment = SlotEnvironment {
            identity: identity.ok_or("there is no such slot")?.clone(),
            join_file: config.join_file.clone(),
            listen: SocketAddr::new(
                config.ip,
                config.ports.port(slot).ok_or("there is no port for it")?,
            ),
            slot: slot.0,
        };
        let mut command = Command::new(&config.program);
        command
            .args(&config.arguments)
            .stdin(Stdio::piped())
            .stdout(match config.output {
                ChildOutput::Discard => Stdio::null(),
                ChildOutput::Inherit => Stdio::inherit(),
            });
        environment.write(&mut command);
        ServerChild::spawn(&mut command, run)
            .map_err(|error| format!("{}: {error}", config.program.display()))
    }

    /// Reports exited processes, and kills those that are overdue.
    fn poll(&mut self) {
        let now = self.clock.now();
        let reports = &mut self.reports;
        self.children.retain(|slot, child| match child.poll(now) {
            ChildState::Running => true,
            ChildState::Exited(run) => {
                tracing::warn!(%slot, "a game server exited by itself");
                reports.push_back(Report::Exited(run));
                false
            }
            ChildState::Stopped(id) => {
                tracing::info!(%slot, "a game server has ended");
                reports.push_back(Report::Completed(id, Outcome::Stopped));
                false
            }
        });
    }

    fn flush_reports(&mut self) {
        while let Some(report) = self.reports.pop_front() {
            if let Err(report) = (self.report)(report) {
                self.reports.push_front(report);
                return;
            }
        }
    }

    /// Stops all processes, and kills those that are overdue.
    fn end_all(&mut self) {
        let kill_at = self.clock.now() + self.config.grace;
        for child in self.children.values_mut() {
            child.close_stdin(CommandId(0), kill_at);
        }
        while !self.children.is_empty() {
            let now: Instant = self.clock.now();
            self.children
                .retain(|_, child| child.poll(now) == ChildState::Running);
            if !self.children.is_empty() {
                wait(POLL_INTERVAL);
            }
        }
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(50);

const IDLE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct ServerChild {
    child: Child,
    run: CommandId,
    /// Open until the process is to stop.
    stdin: Option<ChildStdin>,
    /// Id of the answer, and when to kill the process.
    stop: Option<(CommandId, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildState {
    Running,
    Exited(CommandId),
    Stopped(CommandId),
}

impl ServerChild {
    fn spawn(command: &mut Command, run: CommandId) -> io::Result<Self> {
        let mut child = command.spawn()?;
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            run,
            stop: None,
        })
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Closes the process's stdin; it is killed at `kill_at`.
    fn close_stdin(&mut self, id: CommandId, kill_at: Instant) {
        self.stdin = None;
        let kill_at = self.stop.map_or(kill_at, |(_, earlier)| earlier);
        self.stop = Some((id, kill_at));
    }

    /// Returns the state; kills a process that is overdue.
    fn poll(&mut self, now: Instant) -> ChildState {
        match (self.child.try_wait(), self.stop) {
            // On an error the system no longer knows the child.
            (Ok(Some(_)) | Err(_), Some((id, _))) => ChildState::Stopped(id),
            (Ok(Some(_)) | Err(_), None) => ChildState::Exited(self.run),
            (Ok(None), Some((_, kill_at))) if kill_at <= now => {
                self.kill();
                self.look_again()
            }
            (Ok(None), _) => ChildState::Running,
        }
    }

    fn kill(&mut self) {
        self.stdin = None;
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn look_again(&self) -> ChildState {
        self.stop.map_or(ChildState::Exited(self.run), |(id, _)| {
            ChildState::Stopped(id)
        })
    }
}

impl Drop for ServerChild {
    fn drop(&mut self) {
        // An exited process is not killed: its id may have been reused.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// Finds the program as the system does.
fn check(program: &Path) -> Result<(), Failure> {
    let why = |error: &Error| Failure::file(program, format_args!("the game server: {error}"));
    if !is_searched(program) {
        return check_file(program).map_err(|error| why(&error));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&folders).map(|folder| check_file(&folder.join(program)));
    if found.any(|of| of.is_ok()) {
        return Ok(());
    }
    let sentence = "the game server: no such program in PATH; give a file with its folder, such as";
    let example = Path::new(".").join(program);
    Err(Failure::file(
        program,
        format_args!("{sentence} {}", example.display()),
    ))
}

/// Whether the program is searched in `PATH`: its path has no folder.
fn is_searched(program: &Path) -> bool {
    let mut parts = program.components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

fn check_file(path: &Path) -> Result<(), Error> {
    let mut path = PathBuf::from(path);
    if !path.exists() && path.extension().is_none() {
        path.set_extension(env::consts::EXE_EXTENSION);
    }
    let metadata = fs::metadata(&path)?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 == 0 {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "the file is not executable; chmod +x it",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod program_tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn programs_are_found_in_the_search_path() {
        assert_eq!(check(&env::current_exe().unwrap()), Ok(()));
        #[cfg(unix)]
        assert_eq!(check(Path::new("sh")), Ok(()));
        let folder = env::temp_dir();
        for (path, sentence) in [
            (Path::new("no-such-game-server"), "no such program in PATH"),
            (Path::new("./no-such-game-server"), "No such file"),
            (&folder, "directory"),
        ] {
            let failure = check(path).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.sentence.contains(sentence), "{failure}");
            assert_eq!(failure.file.as_deref(), Some(path));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_not_executable_is_named() {
        let name = format!("tickwire-program-{}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, "").unwrap();
        let failure = check(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(failure.sentence.contains("chmod +x"), "{failure}");
    }
}
