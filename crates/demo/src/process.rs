//! The child processes of a run: started with a role, connected by pipes, ended with the run.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use super::message::{ChildCommand, ChildEvent};
use crate::role::Role;
use daemon::control::{read_line, spawn, wait, write_line};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChildId {
    Hub,
    /// The matchmaker, and the game server that it starts, which writes to the same pipe.
    Matchmaker,
    Relay(u8),
    Players,
}

wire::display_text! { ChildId {
    Self::Hub => "hub",
    Self::Matchmaker => "matchmaker",
    Self::Relay(number) => "relay {number}",
    Self::Players => "players",
}}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildOutput {
    Event(ChildEvent),
    /// The end of its output: it has ended, or wrote something that is no event.
    End,
}

#[derive(Debug)]
pub(crate) struct Children {
    running: BTreeMap<ChildId, Running>,
    sender: SyncSender<(ChildId, ChildOutput)>,
    output: Receiver<(ChildId, ChildOutput)>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    stdin: ChildStdin,
}

impl Children {
    pub(crate) fn new() -> Self {
        let (sender, output) = mpsc::sync_channel(OUTPUT_MAX);
        Self {
            running: BTreeMap::new(),
            sender,
            output,
        }
    }

    /// Starts this program again, as `role`.
    pub(crate) fn start(&mut self, id: ChildId, role: &Role) -> io::Result<()> {
        let mut child = this_program(role)?.stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let sender = self.sender.clone();
        self.running.insert(id, Running { child, stdin });
        spawn(format!("read {id}"), move || {
            let (mut stdout, mut line) = (BufReader::new(stdout), Vec::new());
            while let Ok(Some(event)) = read_line(&mut stdout, &mut line) {
                if sender.send((id, ChildOutput::Event(event))).is_err() {
                    return;
                }
            }
            // If nobody receives it, the run is over.
            drop(sender.send((id, ChildOutput::End)));
        })?;
        Ok(())
    }

    /// Waits up to `timeout` for the next output.
    pub(crate) fn next_output(&self, timeout: Duration) -> Option<(ChildId, ChildOutput)> {
        // This struct holds a sender, so the channel stays open.
        self.output.recv_timeout(timeout).ok()
    }

    /// Returns whether a child was started and neither killed nor released.
    pub(crate) fn is_running(&self, id: ChildId) -> bool {
        self.running.contains_key(&id)
    }

    /// Returns a child that has ended but was neither killed nor released.
    pub(crate) fn find_ended(&mut self) -> Option<ChildId> {
        self.running.iter_mut().find_map(|(id, running)| {
            let status = running.child.try_wait();
            status.is_ok_and(|status| status.is_some()).then_some(*id)
        })
    }

    pub(crate) fn send(&mut self, id: ChildId, command: &ChildCommand) -> io::Result<()> {
        let child = self.running.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
        write_line(&mut child.stdin, command)
    }

    /// Kills a child by SIGKILL.
    pub(crate) fn kill(&mut self, id: ChildId) -> io::Result<()> {
        let mut child = self.running.remove(&id).ok_or(io::ErrorKind::NotFound)?;
        child.child.kill()?;
        child.child.wait().map(drop)
    }

    /// Closes the pipe of a child and waits for its end; false if it was late and is killed.
    pub(crate) fn release(&mut self, id: ChildId) -> bool {
        let Some(Running { child, stdin }) = self.running.remove(&id) else {
            return true;
        };
        drop(stdin);
        ended(child)
    }

    /// Releases all children at once; returns those that did not end in time.
    pub(crate) fn release_all(&mut self) -> Vec<ChildId> {
        let running = std::mem::take(&mut self.running);
        let open: Vec<(ChildId, Child)> = running
            .into_iter()
            .map(|(id, Running { child, stdin })| {
                drop(stdin);
                (id, child)
            })
            .collect();
        open.into_iter()
            .filter_map(|(id, child)| (!ended(child)).then_some(id))
            .collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        // Late ones are killed by now.
        drop(self.release_all());
    }
}

/// The process that removes the keys of a run even if this one is killed.
#[derive(Debug)]
pub(crate) struct Sweeper(Option<Child>);

impl Sweeper {
    /// Starts a process that removes `directory`, the folder of a keyring, if this process releases
    /// it or ends.
    pub(crate) fn start(directory: &Path) -> io::Result<Self> {
        let directory = directory.to_owned();
        let mut command = this_program(&Role::Sweeper { directory })?;
        let child = command.stdout(Stdio::null()).spawn()?;
        Ok(Self(Some(child)))
    }

    /// Closes its pipe and waits for its end; returns whether it ended in time.
    pub(crate) fn release(&mut self) -> bool {
        let Some(mut child) = self.0.take() else {
            return true;
        };
        drop(child.stdin.take());
        ended(child)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // A late one is killed by now.
        self.release();
    }
}

/// Prepares to start this program again, as `role`, with a pipe to its stdin.
///
/// It gets its own process group, so a terminal's Ctrl-C ends the run alone. The children end by
/// their pipes, which leaves time to clean up.
fn this_program(role: &Role) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(role.arguments()).stdin(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

/// Waits for a child after its pipe is closed; kills it if it takes too long.
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

/// Returns the ids of all living descendants of `root`.
///
/// # Errors
///
/// An I/O error if processes cannot be listed.
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
        // A process may end between listing and reading.
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

/// Reads the parent from `/proc/PID/stat`, proc(5); `None` for a zombie.
#[cfg(target_os = "linux")]
fn parent_in(stat: &str) -> Option<u32> {
    // The name before it may hold any character, also parentheses and spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

/// Events that wait for the orchestrator; beyond it children block on their pipes.
const OUTPUT_MAX: usize = 16_384;

/// A child has two seconds to end after its pipe closes.
const RELEASE_STEPS: u32 = 200;
const RELEASE_STEP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_parent_is_parsed_after_any_process_name() {
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
    fn a_child_that_does_not_end_is_killed_and_reported() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        assert!(!ended(child));
        assert!(!descendants(std::process::id()).unwrap().contains(&id));
    }
}
