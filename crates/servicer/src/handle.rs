//! A running servicer: its thread, its end, and what it reports.

use std::any::Any;
use std::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::Clock;
use crate::end::End;
use crate::request::{RequestError, Requests};

/// A running servicer, whose counters are `C`. Dropping it shuts it down with no time left for an orderly end.
#[derive(Debug)]
pub struct Handle<R, C> {
    name: String,
    requests: Requests<R, C>,
    /// `None` once shut down.
    running: Option<Running>,
}

impl<R, C> Handle<R, C> {
    /// Starts a thread that runs until `run` returns.
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
    /// Hands `request` back where the queue is full or the servicer has ended.
    pub fn request(&self, request: R) -> Result<(), RequestError<R>> {
        self.requests.send(request)
    }

    /// Returns a sender of requests for another thread.
    pub fn requests(&self) -> Requests<R, C> {
        self.requests.clone()
    }

    /// Returns what the servicer has done so far.
    pub fn counters(&self) -> C {
        self.requests.counters()
    }

    /// Returns whether the queue has room for a request.
    #[cfg(feature = "tcp")]
    pub(crate) fn has_room(&self) -> bool {
        self.requests.has_room()
    }

    /// Wakes the servicer for one turn.
    #[cfg(feature = "tcp")]
    pub(crate) fn wake(&self) {
        self.requests.wake();
    }

    /// Asks the servicer to end as by [`shutdown`](Self::shutdown), and does not wait for it.
    pub(crate) fn stop(&self, within: Duration) {
        self.requests.stop(Clock::new().now() + within);
    }

    /// Returns whether the thread is still at work.
    pub fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| !running.is_finished())
    }

    /// Ends the servicer: the application may take up to `within` for an orderly end; the thread
    /// is joined.
    ///
    /// Returns within `within` and two seconds more, after which a thread that blocks against
    /// the rules of the application is left behind and reported as [`End::Stuck`].
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

/// A thread that ends with a word about how.
#[derive(Debug)]
pub(crate) struct Running {
    thread: JoinHandle<()>,
    /// Yields how it ended, or closes where it panicked.
    end: Receiver<End>,
}

impl Running {
    /// Starts a thread that runs until `run` returns.
    pub(crate) fn start(
        name: &str,
        run: impl FnOnce() -> End + Send + 'static,
    ) -> Result<Self, SpawnError> {
        let (ended, end) = crossbeam_channel::bounded(1);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let end = run();
            // Nobody listens any more where the thread was given up as stuck.
            drop(ended.try_send(end));
        })?;
        Ok(Self { thread, end })
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Joins the thread, or gives it up after `within` and [`JOIN_GRACE`].
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

/// How a servicer ended, and what it had done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report<C> {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub end: End,
    /// What it had done.
    pub counters: C,
}

impl<C: fmt::Display> fmt::Display for Report<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} after {}", self.name, self.end, self.counters)
    }
}

/// The system has no descriptor or thread left for a servicer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnError {
    kind: io::ErrorKind,
    /// The system's own number, where it gave one: its text says more than the kind does.
    code: Option<i32>,
}

impl SpawnError {
    /// Returns what kind of error it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn an_error_of_the_system_is_told_in_its_words() {
        // EMFILE of errno(3), for which there is no kind.
        let error = SpawnError::from(io::Error::from_raw_os_error(24));
        let told = error.to_string();
        assert!(told.contains("open files"), "{told}");
        assert_eq!(error.kind(), io::Error::from_raw_os_error(24).kind());
    }

    #[test]
    fn an_error_without_a_number_is_told_by_its_kind() {
        let error = SpawnError::from(io::Error::from(io::ErrorKind::OutOfMemory));
        assert_eq!(
            error.to_string(),
            "the servicer's thread cannot be started: out of memory"
        );
    }
}
