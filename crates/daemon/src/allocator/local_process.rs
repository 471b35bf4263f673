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
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fmt, fs, io};

use crossbeam_channel::{Receiver, Sender, select_biased};
use matchmaker_core::{Outcome, Slot};
use servicer::Clock;
use wire::{CommandId, Instant};

use super::environment::SlotEnvironment;
use super::{AllocatorCommand, CommandQueue, Report};
use crate::exit::Failure;

/// How game server processes are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalProcessConfig {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, the same for all; what differs is told by [`SlotEnvironment`].
    pub arguments: Vec<OsString>,
    /// Identity files, one for each slot, in the order of
    /// [`Game::slots`](matchmaker_core::Game::slots).
    pub identities: Vec<PathBuf>,
    /// The join file.
    pub join_file: PathBuf,
    /// The address that players find all of them at.
    pub ip: IpAddr,
    /// Their ports, one for each slot.
    pub ports: PortRange,
    /// What becomes of what they print.
    pub output: ChildOutput,
    /// Time that a process gets to end once its pipe is closed, before it is killed; 2 s.
    pub grace: Duration,
}

impl LocalProcessConfig {
    /// A configuration that throws away what game servers print.
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

/// What becomes of what game servers print to stdout; stderr is the matchmaker's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildOutput {
    /// It is thrown away.
    #[default]
    Discard,
    /// It goes where the matchmaker's own goes.
    Inherit,
}

/// Ports next to each other, as `40000-40015`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Accepts ports from `first` to `last`, both included.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last {
            return None;
        }
        Some(Self { first, last })
    }

    /// Returns the port of a slot, where the range reaches so far.
    #[must_use]
    pub fn port(self, slot: Slot) -> Option<u16> {
        let port = self.first.checked_add(slot.0)?;
        (port <= self.last).then_some(port)
    }
}

impl PortRange {
    /// Returns how many ports there are.
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

/// A text is no [`PortRange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRangeError;

impl fmt::Display for PortRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ports are given as FIRST-LAST, each from 1 to 65535")
    }
}

impl std::error::Error for PortRangeError {}

/// Runs game servers as child processes. Dropping it ends them all, which takes as long as they do,
/// but not much longer than [`LocalProcessConfig::grace`].
///
/// A process can leak in no way: it is killed where it does not end when told to; it holds a pipe
/// from this one, which the system closes whatever ends this one, and ends itself when the pipe
/// does; and it ends itself when its lease is not renewed.
#[derive(Debug)]
pub struct LocalProcess {
    /// Dropped to have the thread end. `None` once ended, as the thread.
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl LocalProcess {
    /// Starts the thread that starts, watches and ends the processes. It ends, and they with it,
    /// once it is told to, or the last [`CommandSender`](super::CommandSender) of `queue` is dropped.
    ///
    /// `report` hands a report back where it cannot be taken now; it is told again.
    ///
    /// # Errors
    ///
    /// One sentence: the program cannot be run, there are fewer ports than slots, or the system has
    /// no thread left.
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
        let thread = thread::Builder::new()
            .name("allocator".to_owned())
            .spawn(move || pool.run(&queue, &stopped))
            .map_err(|error| {
                Failure::refused(format_args!("a thread cannot be started: {error}"))
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends all processes, whoever still holds [`CommandSender`](super::CommandSender), and waits until they have
    /// ended.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the allocator's thread has panicked");
        }
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// What runs on the thread.
struct Processes {
    config: LocalProcessConfig,
    children: BTreeMap<Slot, ServerChild>,
    /// Reports that were handed back; two for each slot at most wait.
    reports: VecDeque<Report>,
    report: Box<dyn FnMut(Report) -> Result<(), Report> + Send>,
    clock: Clock,
}

impl Processes {
    fn run(&mut self, queue: &CommandQueue, stopped: &Receiver<Infallible>) {
        loop {
            // A child's end has no other sign than this look; with none and nothing to tell, the
            // thread sleeps.
            let pause = if self.children.is_empty() && self.reports.is_empty() {
                IDLE_INTERVAL
            } else {
                POLL_INTERVAL
            };
            select_biased! {
                // Nothing is ever sent: it is closed.
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

    /// Starts a process; returns whether it runs.
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

    /// Takes note of processes that have ended, and kills those that would not.
    fn poll(&mut self) {
        let now = self.clock.now();
        let reports = &mut self.reports;
        self.children.retain(|slot, child| match child.poll(now) {
            ChildState::Running => true,
            ChildState::Exited(run) => {
                tracing::warn!(%slot, "a game server has ended by itself");
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

    /// Tells what there is to tell, in order.
    fn flush_reports(&mut self) {
        while let Some(report) = self.reports.pop_front() {
            if let Err(report) = (self.report)(report) {
                self.reports.push_front(report);
                return;
            }
        }
    }

    /// Ends all processes: lets go of them at once, and kills who is late.
    fn end_all(&mut self) {
        let kill_at = self.clock.now() + self.config.grace;
        for child in self.children.values_mut() {
            child.close_stdin(CommandId(0), kill_at);
        }
        let (_open, nothing) = crossbeam_channel::bounded::<()>(0);
        while !self.children.is_empty() {
            let now: Instant = self.clock.now();
            self.children
                .retain(|_, child| child.poll(now) == ChildState::Running);
            if !self.children.is_empty() {
                // Nothing ever comes: the wait ends by its time.
                nothing.recv_timeout(POLL_INTERVAL).unwrap_or_default();
            }
        }
    }
}

/// How often processes are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long the thread sleeps where there is nothing to look at.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// A game server process and the pipe that it lives by.
#[derive(Debug)]
struct ServerChild {
    child: Child,
    /// What started it.
    run: CommandId,
    /// Held open until it shall end.
    stdin: Option<ChildStdin>,
    /// What to answer once it has ended, and when to kill it.
    stop: Option<(CommandId, Instant)>,
}

/// What has become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildState {
    /// It runs.
    Running,
    /// It has ended by itself.
    Exited(CommandId),
    /// It has ended as it was told to.
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

    /// Lets go of the process: it shall end by itself until `kill_at`.
    fn close_stdin(&mut self, id: CommandId, kill_at: Instant) {
        self.stdin = None;
        let kill_at = self.stop.map_or(kill_at, |(_, earlier)| earlier);
        self.stop = Some((id, kill_at));
    }

    /// Returns what has become of the process, which is killed where its time is over.
    fn poll(&mut self, now: Instant) -> ChildState {
        match (self.child.try_wait(), self.stop) {
            // An error means that the system knows no such child any more.
            (Ok(Some(_)) | Err(_), Some((id, _))) => ChildState::Stopped(id),
            (Ok(Some(_)) | Err(_), None) => ChildState::Exited(self.run),
            (Ok(None), Some((_, kill_at))) if kill_at <= now => {
                self.kill();
                self.look_again()
            }
            (Ok(None), _) => ChildState::Running,
        }
    }

    /// Ends the process at once, and waits for its end.
    fn kill(&mut self) {
        self.stdin = None;
        // It may have ended by now.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// After a kill there is nothing left to wait for.
    fn look_again(&self) -> ChildState {
        self.stop.map_or(ChildState::Exited(self.run), |(id, _)| {
            ChildState::Stopped(id)
        })
    }
}

impl Drop for ServerChild {
    fn drop(&mut self) {
        // One that has ended is not touched: its id may be another's by now.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// Finds the program as the system does when it is started.
///
/// # Errors
///
/// One sentence that names it: it is not there, no file, or not executable.
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
    let sentence =
        "the game server: no such program in PATH; a file stands with its folder, such as";
    let example = Path::new(".").join(program);
    Err(Failure::file(
        program,
        format_args!("{sentence} {}", example.display()),
    ))
}

/// Whether it is looked for in the folders of `PATH`: it has no folder of its own.
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
    fn a_program_is_found_as_the_system_finds_it() {
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
    fn a_file_that_may_not_be_run_is_named() {
        let name = format!("tickwire-program-{}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, "").unwrap();
        let failure = check(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(failure.sentence.contains("chmod +x"), "{failure}");
    }
}
