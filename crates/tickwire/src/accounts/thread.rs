//! The hashing thread and its two bounded queues.

use core::num::NonZeroU16;
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

use servicer::Clock;

use super::{AccountError, AccountName, AccountStore, Accounts, Cost, LockoutConfig, Password};

/// Settings of a [`AccountThread`].
#[derive(Clone, Debug)]
pub struct AccountThreadConfig {
    /// Cost of a password hash.
    pub cost: Cost,
    /// When names are locked.
    pub lockout: LockoutConfig,
    /// Most unanswered requests; further ones are handed back. Each takes less than 1 KiB. At the
    /// default cost, a hash takes about 20 ms.
    pub requests_max: NonZeroU16,
}

impl Default for AccountThreadConfig {
    fn default() -> Self {
        Self {
            cost: Cost::DEFAULT,
            lockout: LockoutConfig::default(),
            // A full queue takes about 5 s, an acceptable wait for a login.
            requests_max: NonZeroU16::MIN.saturating_add(255),
        }
    }
}

/// Accounts on their own thread, which computes one hash at a time, in the order of the requests.
///
/// Only [`wait`](Self::wait) waits. Dropping it waits for the current hash, drops the other
/// requests and ends the thread.
#[derive(Debug)]
pub struct AccountThread {
    requests: Option<SyncSender<(RequestId, Request)>>,
    answers: Receiver<Answer>,
    /// Requests whose answer was not taken.
    open: u16,
    requests_max: u16,
    next: u64,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AccountThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's error if it lacks a thread, or randomness or memory for a hash.
    pub fn start<S: AccountStore + 'static>(
        store: S,
        config: AccountThreadConfig,
    ) -> io::Result<Self> {
        let AccountThreadConfig {
            cost,
            lockout,
            requests_max,
        } = config;
        let accounts = Accounts::new(store, cost, lockout).map_err(io::Error::other)?;
        // As many answers as requests, so neither side waits for room.
        let (requests, inbox) = sync_channel(requests_max.get().into());
        let (outbox, answers) = sync_channel(requests_max.get().into());
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = Builder::new()
            .name("accounts".to_owned())
            .spawn(move || run(accounts, &inbox, &outbox, &ends))?;
        Ok(Self {
            requests: Some(requests),
            answers,
            open: 0,
            requests_max: requests_max.get(),
            next: 0,
            is_over,
            thread: Some(thread),
        })
    }

    /// Queues a request; its answer contains the returned id.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] hands the request back if too many wait or the thread has ended.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, SubmitError> {
        if self.open >= self.requests_max {
            return Err(SubmitError::Busy(Box::new(request)));
        }
        let Some(requests) = &self.requests else {
            return Err(SubmitError::Gone(Box::new(request)));
        };
        let id = RequestId(self.next);
        match requests.try_send((id, request)) {
            Ok(()) => {
                self.next = self.next.wrapping_add(1);
                self.open = self.open.saturating_add(1);
                Ok(id)
            }
            Err(TrySendError::Full((_, request))) => Err(SubmitError::Busy(Box::new(request))),
            Err(TrySendError::Disconnected((_, request))) => {
                Err(SubmitError::Gone(Box::new(request)))
            }
        }
    }

    /// Returns the next answer without waiting.
    pub fn poll(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok();
        self.take(answer)
    }

    /// Waits up to `most` for the next answer, for threads that have nothing else to do.
    pub fn wait(&mut self, most: Duration) -> Option<Answer> {
        let answer = self.answers.recv_timeout(most).ok();
        self.take(answer)
    }

    /// Returns how many requests have no answer taken yet.
    pub const fn open_requests(&self) -> u16 {
        self.open
    }

    const fn take(&mut self, answer: Option<Answer>) -> Option<Answer> {
        if answer.is_some() {
            self.open = self.open.saturating_sub(1);
        }
        answer
    }
}

impl Drop for AccountThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread's wait for requests ends with the last sender.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // If the application's store panicked, the panic was already printed to stderr.
            thread.join().ok();
        }
    }
}

/// A request to an account thread.
#[derive(Clone, Debug)]
pub enum Request {
    /// Create an account.
    Create {
        /// The account's name.
        name: AccountName,
        /// Its password.
        password: Password,
    },
    /// Check a password.
    Verify {
        /// The account's name.
        name: AccountName,
        /// The password to check.
        password: Password,
    },
    /// Change a password if the current one is given.
    Change {
        /// The account's name.
        name: AccountName,
        /// The current password.
        old: Password,
        /// The new password.
        new: Password,
    },
    /// Set a password and unlock the account, without a check; for operators.
    Reset {
        /// The account's name.
        name: AccountName,
        /// The new password.
        password: Password,
    },
}

impl Request {
    fn run<S: AccountStore>(&self, clock: Clock, accounts: &mut Accounts<S>) -> Answered {
        let now = clock.unix_time();
        match self {
            Self::Create { name, password } => (*name, accounts.create(name, password)),
            Self::Verify { name, password } => (*name, accounts.verify(now, name, password)),
            Self::Change { name, old, new } => (*name, accounts.change(now, name, [old, new])),
            Self::Reset { name, password } => (*name, accounts.reset(name, password)),
        }
    }
}

type Answered = (AccountName, Result<(), AccountError>);

/// Id of a request, unique within its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request's id.
    pub id: RequestId,
    /// The account's name.
    pub name: AccountName,
    /// `Ok` if the request succeeded.
    pub outcome: Result<(), AccountError>,
}

/// Why a request was not queued; contains the request.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// The queue is full: retry later, or report it to the user.
    Busy(Box<Request>),
    /// The thread has ended because the store panicked.
    Gone(Box<Request>),
}

wire::error_text! { SubmitError {
    Self::Busy(_) => "too many requests about accounts wait",
    Self::Gone(_) => "the thread of the accounts has ended",
}}

fn run<S: AccountStore>(
    mut accounts: Accounts<S>,
    inbox: &Receiver<(RequestId, Request)>,
    outbox: &SyncSender<Answer>,
    is_over: &AtomicBool,
) {
    let clock = Clock::new();
    while let Ok((id, request)) = inbox.recv() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let (name, outcome) = request.run(clock, &mut accounts);
        let answer = Answer { id, name, outcome };
        if outbox.send(answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::super::{AccountRecord, StoreError};
    use super::*;

    /// A store that signals each `load` and blocks until it is released.
    struct Gate(Sender<()>, Receiver<()>);

    impl AccountStore for Gate {
        fn load(&mut self, _: &AccountName) -> Result<Option<AccountRecord>, StoreError> {
            self.0.send(()).unwrap();
            self.1.recv().ok();
            Ok(None)
        }

        fn insert(&mut self, _: &AccountName, _: &AccountRecord) -> Result<bool, StoreError> {
            Ok(true)
        }

        fn replace(&mut self, _: &AccountName, _: &AccountRecord) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn u21_requests_queued_at_the_end_are_not_executed() {
        let (called, calls) = channel();
        let (let_go, go) = channel();
        let mut thread =
            AccountThread::start(Gate(called, go), AccountThreadConfig::default()).unwrap();
        for name in ["a", "b", "c", "d"] {
            let request = Request::Create {
                name: name.parse().unwrap(),
                password: Password::new("correct horse").unwrap(),
            };
            thread.submit(request).unwrap();
        }
        calls.recv().unwrap();
        // As in `drop`, while the thread processes the first request.
        thread.is_over.store(true, Ordering::Relaxed);
        drop(let_go);
        drop(thread);
        assert_eq!(calls.iter().count(), 0);
    }
}
