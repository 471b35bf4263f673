//! The handle of a running servicer: requests, shutdown and report.

use std::any::Any;
use std::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::Clock;
use crate::request::{RequestError, Requests};

/// A running servicer with counters of type `C`. Dropping the handle shuts the servicer down
/// without a drain.
#[derive(Debug)]
pub struct Handle<R, C> {
    name: String,
    requests: Requests<R, C>,
    running: Option<Running>,
}

impl<R, C> Handle<R, C> {
    pub(crate) fn start(
        name: String,
        requests: Requests<R, C>,
        run: impl FnOnce() -> End + Send + 'static,
    ) -> Result<Self, SpawnError> {
        let running = Running::start(&name, run)?;
        Ok(Self {
            name,
            requests,
            running: Some(running),
        })
    }

    /// Puts `request` into the application's queue. Never blocks.
    ///
    /// # Errors
    ///
    /// Returns `request` if the queue is full or the servicer has ended.
    pub fn request(&self, request: R) -> Result<(), RequestError<R>> {
        self.requests.send(request)
    }

    /// Returns a request sender for another thread.
    pub fn requests(&self) -> Requests<R, C> {
        self.requests.clone()
    }

    /// Returns a snapshot of the counters.
    pub fn counters(&self) -> C {
        self.requests.counters()
    }

    #[cfg(feature = "tcp")]
    pub(crate) fn has_room(&self) -> bool {
        self.requests.has_room()
    }

    #[cfg(feature = "tcp")]
    pub(crate) fn wake(&self) {
        self.requests.wake();
    }

    /// Requests a [`shutdown`](Self::shutdown) without waiting for it.
    pub(crate) fn stop(&self, within: Duration) {
        self.requests.stop(Clock::new().now() + within);
    }

    /// Returns whether the thread is still running.
    pub fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| !running.is_finished())
    }

    /// Shuts the servicer down and joins its thread. The application has `within` to drain.
    ///
    /// Returns after at most `within` plus 2 s. If a method of the application still blocks then,
    /// which its trait forbids, the thread is left running and [`End::Stuck`] is reported.
    pub fn shutdown(mut self, within: Duration) -> Report<C> {
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
        let Some(running) = self.running.take() else {
            return End::Drained;
        };
        self.requests.stop(Clock::new().now() + within);
        running.join(within)
    }
}

impl<R, C> Drop for Handle<R, C> {
    fn drop(&mut self) {
        if self.running.is_some() {
            let end = self.end(Duration::ZERO);
            tracing::debug!(servicer = self.name, %end, "dropped");
        }
    }
}

#[derive(Debug)]
pub(crate) struct Running {
    thread: JoinHandle<()>,
    /// Receives how the thread ended. Disconnected if the thread panicked.
    end: Receiver<End>,
}

impl Running {
    pub(crate) fn start(
        name: &str,
        run: impl FnOnce() -> End + Send + 'static,
    ) -> Result<Self, SpawnError> {
        let (ended, end) = crossbeam_channel::bounded(1);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let end = run();
            // Fails if the thread was given up as stuck.
            drop(ended.try_send(end));
        })?;
        Ok(Self { thread, end })
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Joins the thread, or gives it up after `within` plus [`JOIN_GRACE`].
    pub(crate) fn join(self, within: Duration) -> End {
        match self.end.recv_timeout(within.saturating_add(JOIN_GRACE)) {
            Err(RecvTimeoutError::Timeout) => End::Stuck,
            Ok(end) => match self.thread.join() {
                Ok(()) => end,
                Err(payload) => End::Panicked(message(payload.as_ref())),
            },
            Err(RecvTimeoutError::Disconnected) => match self.thread.join() {
                Ok(()) => End::Stopped,
                Err(payload) => End::Panicked(message(payload.as_ref())),
            },
        }
    }
}

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The application returned `Break`.
    Stopped,
    /// A shutdown was requested, and the application had drained.
    Drained,
    /// A shutdown was requested, and its deadline passed before the application had drained.
    DeadlinePassed,
    /// The system's wait failed.
    Failed(io::ErrorKind),
    /// The machine or the application panicked, with this message.
    Panicked(String),
    /// The thread blocks and did not end in time. It was left running.
    Stuck,
}

wire::display_text! { End {
    Self::Stopped => "stopped by the application",
    Self::Drained => "shut down in order",
    Self::DeadlinePassed => "shut down at the deadline",
    Self::Failed(kind) => "failed to wait: {kind}",
    Self::Panicked(message) => "panicked: {message}",
    Self::Stuck => "still running after the deadline",
}}

/// How a servicer ended, with its final counters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report<C> {
    /// The servicer's name.
    pub name: String,
    /// How the servicer ended.
    pub end: End,
    /// The final counters.
    pub counters: C,
}

impl<C: fmt::Display> fmt::Display for Report<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} after {}", self.name, self.end, self.counters)
    }
}

/// The system has no descriptor or thread left for the servicer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnError {
    kind: io::ErrorKind,
    /// The system's error number, if known. Its text is more precise than that of the kind.
    code: Option<i32>,
}

impl SpawnError {
    /// Returns the kind of the error.
    pub const fn kind(&self) -> io::ErrorKind {
        self.kind
    }
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self {
            kind: error.kind(),
            code: error.raw_os_error(),
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the servicer's thread cannot be started: ")?;
        match self.code {
            Some(code) => io::Error::from_raw_os_error(code).fmt(f),
            None => self.kind.fmt(f),
        }
    }
}

impl std::error::Error for SpawnError {}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").to_owned()
}

/// Time after the deadline in which a thread may finish its current turn.
const JOIN_GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn an_error_of_the_system_is_quoted() {
        // EMFILE, see errno(3). It has no `ErrorKind`.
        let error = SpawnError::from(io::Error::from_raw_os_error(24));
        let reported = error.to_string();
        assert!(reported.contains("open files"), "{reported}");
        assert_eq!(error.kind(), io::Error::from_raw_os_error(24).kind());
    }

    #[test]
    fn an_error_without_a_number_is_reported_by_its_kind() {
        let error = SpawnError::from(io::Error::from(io::ErrorKind::OutOfMemory));
        assert_eq!(
            error.to_string(),
            "the servicer's thread cannot be started: out of memory"
        );
    }
}
