//! One game server process.

use std::io;
use std::process::{Child, ChildStdin, Command};

use wire::{CommandId, Instant};

/// A game server process and the pipe that it lives by.
#[derive(Debug)]
pub(super) struct ServerChild {
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
pub(super) enum Fate {
    /// It runs.
    Runs,
    /// It has ended by itself.
    Exited(CommandId),
    /// It has ended as it was told to.
    Stopped(CommandId),
}

impl ServerChild {
    pub(super) fn spawn(command: &mut Command, run: CommandId) -> io::Result<Self> {
        let mut child = command.spawn()?;
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            run,
            stop: None,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets go of the process: it shall end by itself until `kill_at`.
    pub(super) fn release(&mut self, id: CommandId, kill_at: Instant) {
        self.stdin = None;
        let kill_at = self.stop.map_or(kill_at, |(_, earlier)| earlier);
        self.stop = Some((id, kill_at));
    }

    /// Returns what has become of the process, which is killed where its time is over.
    pub(super) fn look(&mut self, now: Instant) -> Fate {
        match (self.child.try_wait(), self.stop) {
            // An error means that the system knows no such child any more.
            (Ok(Some(_)) | Err(_), Some((id, _))) => Fate::Stopped(id),
            (Ok(Some(_)) | Err(_), None) => Fate::Exited(self.run),
            (Ok(None), Some((_, kill_at))) if kill_at <= now => {
                self.kill();
                self.look_again()
            }
            (Ok(None), _) => Fate::Runs,
        }
    }

    /// Ends the process at once, and waits for its end.
    pub(super) fn kill(&mut self) {
        self.stdin = None;
        // It may have ended by now.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// After a kill there is nothing left to wait for.
    fn look_again(&self) -> Fate {
        self.stop
            .map_or(Fate::Exited(self.run), |(id, _)| Fate::Stopped(id))
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
