//! The children of a run: started with a role, heard and told by pipes, gone when the run is.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt;
use std::io::{self, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use super::message::{News, Order};
use crate::role::Role;
use daemon::control::{read_line, wait, write_line};

/// Which child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The hub.
    Hub,
    /// The matchmaker, and the game server that it starts, which speaks by the same pipe.
    Matchmaker,
    /// A relay, by its number.
    Relay(u8),
    /// All players.
    Players,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub => f.write_str("hub"),
            Self::Matchmaker => f.write_str("matchmaker"),
            Self::Relay(number) => write!(f, "relay {number}"),
            Self::Players => f.write_str("players"),
        }
    }
}

/// What comes from a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It says something.
    News(News),
    /// It says nothing any more: it has ended, or what it says is no news.
    Silence,
}

/// The children of this process.
#[derive(Debug)]
pub struct Children {
    running: BTreeMap<Who, Running>,
    sender: SyncSender<(Who, Heard)>,
    heard: Receiver<(Who, Heard)>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    stdin: ChildStdin,
}

impl Children {
    /// Makes an empty nursery.
    #[must_use]
    pub fn new() -> Self {
        let (sender, heard) = mpsc::sync_channel(HEARD_MAX);
        Self {
            running: BTreeMap::new(),
            sender,
            heard,
        }
    }

    /// Starts this program again, as `role`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn start(&mut self, who: Who, role: &Role) -> io::Result<()> {
        let mut child = this_program(role)?.stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let sender = self.sender.clone();
        self.running.insert(who, Running { child, stdin });
        thread::Builder::new()
            .name(format!("hear {who}"))
            .spawn(move || {
                let (mut stdout, mut line) = (BufReader::new(stdout), Vec::new());
                while let Ok(Some(news)) = read_line(&mut stdout, &mut line) {
                    if sender.send((who, Heard::News(news))).is_err() {
                        return;
                    }
                }
                // Nobody listens any more where the run is over.
                drop(sender.send((who, Heard::Silence)));
            })?;
        Ok(())
    }

    /// Waits up to `patience` for what comes next.
    pub fn hear(&self, patience: Duration) -> Option<(Who, Heard)> {
        // A sender is ours, so the channel stays open.
        self.heard.recv_timeout(patience).ok()
    }

    /// Returns whether a child was started and neither killed nor let go.
    #[must_use]
    pub fn is_running(&self, who: Who) -> bool {
        self.running.contains_key(&who)
    }

    /// Returns a child that has ended and was neither killed nor let go.
    pub fn find_ended(&mut self) -> Option<Who> {
        self.running.iter_mut().find_map(|(who, running)| {
            let status = running.child.try_wait();
            status.is_ok_and(|status| status.is_some()).then_some(*who)
        })
    }

    /// Tells a child something.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such child; else the system's.
    pub fn tell(&mut self, who: Who, order: &Order) -> io::Result<()> {
        let child = self.running.get_mut(&who).ok_or(io::ErrorKind::NotFound)?;
        write_line(&mut child.stdin, order)
    }

    /// Ends a child by SIGKILL: it has no time for anything.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such child; else the system's.
    pub fn kill(&mut self, who: Who) -> io::Result<()> {
        let mut child = self.running.remove(&who).ok_or(io::ErrorKind::NotFound)?;
        child.child.kill()?;
        child.child.wait().map(drop)
    }

    /// Lets go of a child, by closing its pipe, and waits for its end.
    ///
    /// Returns whether it ended in time; one that did not is killed.
    pub fn release(&mut self, who: Who) -> bool {
        let Some(Running { child, stdin }) = self.running.remove(&who) else {
            return true;
        };
        drop(stdin);
        ended(child)
    }

    /// Lets go of all children at once; returns which did not end in time.
    pub fn release_all(&mut self) -> Vec<Who> {
        let running = std::mem::take(&mut self.running);
        let open: Vec<(Who, Child)> = running
            .into_iter()
            .map(|(who, Running { child, stdin })| {
                drop(stdin);
                (who, child)
            })
            .collect();
        open.into_iter()
            .filter_map(|(who, child)| (!ended(child)).then_some(who))
            .collect()
    }
}

impl Default for Children {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        // Whoever was late is dead by now.
        drop(self.release_all());
    }
}

/// The process that removes the keys of a run once this one has gone, by whatever end.
#[derive(Debug)]
pub struct Sweeper(Option<Child>);

impl Sweeper {
    /// Has `directory`, the folder of a keyring, removed when this process lets go or is gone.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn start(directory: &Path) -> io::Result<Self> {
        let directory = directory.to_owned();
        let mut command = this_program(&Role::Sweeper { directory })?;
        let child = command.stdout(Stdio::null()).spawn()?;
        Ok(Self(Some(child)))
    }

    /// Lets go of it, and waits for its end; returns whether it ended in time.
    pub fn release(&mut self) -> bool {
        let Some(mut child) = self.0.take() else {
            return true;
        };
        drop(child.stdin.take());
        ended(child)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // One that was late is dead by now.
        self.release();
    }
}

/// Prepares to start this program again, as `role`, with a pipe to its stdin.
///
/// It gets a process group to itself: a terminal's Ctrl-C ends the run alone, and what it started
/// goes by its pipe, which leaves time to clear up.
fn this_program(role: &Role) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(role.arguments()).stdin(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

/// Waits for a child whose pipe is closed; kills it where it takes too long.
fn ended(mut child: Child) -> bool {
    for _ in 0..RELEASE_STEPS {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) => wait(RELEASE_STEP),
            Err(_) => break,
        }
    }
    if child.kill().is_ok() {
        drop(child.wait());
    }
    false
}

/// Returns the ids of all living processes below `root`: children, their children, and so on.
///
/// # Errors
///
/// The system's, where processes cannot be listed.
pub fn descendants(root: u32) -> io::Result<BTreeSet<u32>> {
    let parents = processes()?;
    let mut found = BTreeSet::new();
    let mut frontier = vec![root];
    while let Some(parent) = frontier.pop() {
        for (child, _) in parents.iter().filter(|(_, of)| *of == parent) {
            if found.insert(*child) {
                frontier.push(*child);
            }
        }
    }
    Ok(found)
}

/// Lists every living process with its parent.
#[cfg(target_os = "linux")]
fn processes() -> io::Result<Vec<(u32, u32)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // One that ends between two lines of this is no descendant any more.
        if let Ok(stat) = std::fs::read_to_string(entry.path().join("stat"))
            && let Some(parent) = parent_in(&stat)
        {
            all.push((process, parent));
        }
    }
    Ok(all)
}

/// Lists every living process with its parent.
#[cfg(not(target_os = "linux"))]
fn processes() -> io::Result<Vec<(u32, u32)>> {
    let output = Command::new("ps")
        .args(["-axo", "pid=,ppid=,stat="])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (process, parent) = (fields.next()?, fields.next()?);
            let is_alive = !fields.next()?.starts_with('Z');
            is_alive.then_some((process.parse().ok()?, parent.parse().ok()?))
        })
        .collect())
}

/// Reads the parent from `/proc/PID/stat`, proc(5); `None` where the process has ended and only
/// its status is left.
#[cfg(target_os = "linux")]
fn parent_in(stat: &str) -> Option<u32> {
    // The name before it may hold anything, parentheses and spaces too.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

/// News that wait for the orchestrator; past it children wait in their pipes.
const HEARD_MAX: usize = 16_384;

/// A child has two seconds to end once its pipe is closed.
const RELEASE_STEPS: u32 = 200;
const RELEASE_STEP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("7 (a) b) (c) S 42 7 7 0"), Some(42));
        assert_eq!(parent_in("7 (gone) Z 42 7 7 0"), None);
        assert_eq!(parent_in("7 (cut"), None);
    }

    #[test]
    fn a_child_is_a_descendant_until_it_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let us = std::process::id();
        assert!(descendants(us).unwrap().contains(&child.id()));
        drop(child.stdin.take());
        let id = child.id();
        assert!(ended(child));
        assert!(!descendants(us).unwrap().contains(&id));
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_and_told_of() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        assert!(!ended(child));
        assert!(!descendants(std::process::id()).unwrap().contains(&id));
    }
}
