//! The servicer: a thread of its own for a machine on UDP sockets.

mod bind;
pub(crate) mod socket;

use std::any::Any;
use std::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use wire::Machine;

pub use bind::{BindCause, BindError, Granted, SocketConfig, SocketReport, Stack};
pub use socket::UdpSocket;

use crate::Clock;
#[cfg(feature = "conditioner")]
use crate::conditioner::{Conditioner, Direction};
use crate::driver::{
    Application, Conditioners, Config, Counters, Driver, End, PeerAddress, RequestError, Requests,
};

/// A UDP servicer that is not started yet.
#[derive(Debug)]
pub struct UdpServicer {
    /// Name of the thread, in logs and in the report.
    name: String,
    config: Config,
    conditioners: Conditioners,
}

impl UdpServicer {
    /// Prepares a servicer; `name` is that of its thread, of which systems show 15 bytes or so.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            config: Config::default(),
            conditioners: Conditioners::default(),
        }
    }

    /// Replaces the default limits.
    #[must_use]
    pub const fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Delays, loses and copies what `conditioner`'s rules name, in one direction.
    #[cfg(feature = "conditioner")]
    #[must_use]
    pub fn with_conditioner(mut self, direction: Direction, conditioner: Conditioner) -> Self {
        match direction {
            Direction::Inbound => self.conditioners.inbound = Some(conditioner),
            Direction::Outbound => self.conditioners.outbound = Some(conditioner),
        }
        self
    }

    /// Starts the thread.
    ///
    /// `machine` takes times of [`Clock`], so that is the clock to construct it with.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the system has no descriptor or thread left.
    pub fn spawn<M, A>(
        self,
        sockets: Vec<UdpSocket>,
        machine: M,
        application: A,
    ) -> Result<Handle<A::Request>, SpawnError>
    where
        M: Machine<Peer: PeerAddress> + Send + 'static,
        A: Application<M, Request: Send> + Send + 'static,
    {
        for socket in &sockets {
            tracing::info!(servicer = self.name, socket = %socket.report(), "bound");
        }
        let (driver, requests) = Driver::assemble(
            sockets,
            self.conditioners,
            machine,
            application,
            self.config,
        )
        .map_err(|error| SpawnError(error.kind()))?;
        let (ended, end) = crossbeam_channel::bounded(1);
        let thread = Builder::new()
            .name(self.name.clone())
            .spawn(move || {
                let end = driver.run();
                // Nobody listens any more where the thread was given up as stuck.
                drop(ended.try_send(end));
            })
            .map_err(|error| SpawnError(error.kind()))?;
        Ok(Handle {
            name: self.name,
            requests,
            running: Some(Running { thread, end }),
        })
    }
}

/// A running servicer. Dropping it shuts it down with no time left for an orderly end.
#[derive(Debug)]
pub struct Handle<R> {
    name: String,
    requests: Requests<R>,
    /// `None` once shut down.
    running: Option<Running>,
}

impl<R> Handle<R> {
    /// Puts `request` into the application's queue. Never blocks.
    ///
    /// # Errors
    ///
    /// Hands `request` back where the queue is full or the servicer has ended.
    pub fn request(&self, request: R) -> Result<(), RequestError<R>> {
        self.requests.send(request)
    }

    /// Returns a sender of requests for another thread.
    pub fn requests(&self) -> Requests<R> {
        self.requests.clone()
    }

    /// Returns what the servicer has done so far.
    pub fn counters(&self) -> Counters {
        self.requests.counters()
    }

    /// Returns whether the thread is still at work.
    pub fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| !running.thread.is_finished())
    }

    /// Ends the servicer: the application may take up to `within` for an orderly end; the thread
    /// is joined.
    ///
    /// Returns within `within` and two seconds more, after which a thread that blocks against
    /// the rules of [`Application`] is left behind and reported as [`End::Stuck`].
    pub fn shutdown(mut self, within: Duration) -> Report {
        let end = self.end(within);
        let report = Report {
            name: self.name.clone(),
            end,
            counters: self.counters(),
        };
        tracing::info!(servicer = report.name, end = %report.end, "ended");
        report
    }

    fn end(&mut self, within: Duration) -> End {
        let Some(Running { thread, end }) = self.running.take() else {
            return End::Drained;
        };
        self.requests.stop(Clock::new().now() + within);
        match end.recv_timeout(within.saturating_add(JOIN_GRACE)) {
            Err(RecvTimeoutError::Timeout) => End::Stuck,
            Ok(end) => match thread.join() {
                Ok(()) => end,
                Err(payload) => End::Panicked(message(payload.as_ref())),
            },
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Ok(()) => End::Stopped,
                Err(payload) => End::Panicked(message(payload.as_ref())),
            },
        }
    }
}

impl<R> Drop for Handle<R> {
    fn drop(&mut self) {
        if self.running.is_some() {
            let end = self.end(Duration::ZERO);
            tracing::debug!(servicer = self.name, %end, "dropped");
        }
    }
}

/// The thread of a servicer.
#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    /// Yields how it ended, or closes where it panicked.
    end: Receiver<End>,
}

/// How a servicer ended, and what it had done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub end: End,
    /// What it had done.
    pub counters: Counters,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} after {} turns, {} datagrams in, {} out",
            self.name,
            self.end,
            self.counters.turns,
            self.counters.datagrams_in,
            self.counters.datagrams_out
        )
    }
}

/// The system has no descriptor or thread left for a servicer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnError(pub io::ErrorKind);

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the servicer's thread cannot be started: {}", self.0)
    }
}

impl std::error::Error for SpawnError {}

/// The text of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").to_owned()
}

/// Time that a thread gets beyond its deadline to finish the turn it is in.
const JOIN_GRACE: Duration = Duration::from_secs(2);
