//! The thread that hashes, and the two bounded queues to and from it.

use core::fmt;
use core::num::NonZeroU16;
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

use servicer::Clock;

use super::{AccountError, AccountName, AccountStore, Accounts, Cost, LockoutConfig, Password};

/// What a desk may cost.
#[derive(Clone, Debug)]
pub struct DeskConfig {
    /// What a password's hash costs.
    pub cost: Cost,
    /// When names are locked.
    pub lockout: LockoutConfig,
    /// Requests without an answer at a time; beyond it they are handed back. Each takes under
    /// 1 KiB, and at the default cost its turn comes about 20 ms after that of the one before.
    pub requests_max: NonZeroU16,
}

impl Default for DeskConfig {
    fn default() -> Self {
        Self {
            cost: Cost::DEFAULT,
            lockout: LockoutConfig::default(),
            // Who comes last waits about 5 s, which is what a person puts up with.
            requests_max: NonZeroU16::MIN.saturating_add(255),
        }
    }
}

/// Accounts on a thread of their own: hashes are computed there, one at a time, in the order of the
/// requests.
///
/// No call but [`wait`](Self::wait) waits. Dropping it ends the thread, which finishes the hash it
/// is at and leaves the other requests undone.
#[derive(Debug)]
pub struct Desk {
    requests: Option<SyncSender<(RequestId, Request)>>,
    answers: Receiver<Answer>,
    /// Requests whose answer has not been taken.
    open: u16,
    requests_max: u16,
    next: u64,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's, where it gives no thread or not the memory of a hash.
    pub fn start<S: AccountStore + 'static>(store: S, config: DeskConfig) -> io::Result<Self> {
        let DeskConfig {
            cost,
            lockout,
            requests_max,
        } = config;
        let accounts = Accounts::new(store, cost, lockout).map_err(io::Error::other)?;
        // As many answers as requests: neither side ever waits for room.
        let (requests, inbox) = sync_channel(requests_max.get().into());
        let (outbox, answers) = sync_channel(requests_max.get().into());
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = Builder::new()
            .name("accounts".to_owned())
            .spawn(move || work(accounts, &inbox, &outbox, &ends))?;
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

    /// Queues a request; its answer bears the number returned.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] hands the request back where too many wait or the thread is gone.
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

    /// Returns the next answer that is there.
    pub fn poll(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok();
        self.take(answer)
    }

    /// Waits for the next answer, at most for `most`: for a thread that has nothing else to do.
    pub fn wait(&mut self, most: Duration) -> Option<Answer> {
        let answer = self.answers.recv_timeout(most).ok();
        self.take(answer)
    }

    /// Returns how many requests have no answer yet.
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

impl Drop for Desk {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread's wait for requests ends with the last sender.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A store of the application's that panicked has told why on stderr.
            thread.join().ok();
        }
    }
}

/// What can be asked of a desk.
#[derive(Clone, Debug)]
pub enum Request {
    /// Add an account.
    Create {
        /// Whose it shall be.
        name: AccountName,
        /// By what its owner will be known.
        password: Password,
    },
    /// Check a password.
    Verify {
        /// Who somebody says to be.
        name: AccountName,
        /// What is said to prove it.
        password: Password,
    },
    /// Change a password, for whoever knows the present one.
    Change {
        /// Whose.
        name: AccountName,
        /// The present one.
        old: Password,
        /// What it shall be.
        new: Password,
    },
    /// Set a password and unlock the account, for an operator: nothing is asked.
    Reset {
        /// Whose.
        name: AccountName,
        /// What it shall be.
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

/// Names a request of one desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub id: RequestId,
    /// Whom it was about.
    pub name: AccountName,
    /// Whether it was granted.
    pub outcome: Result<(), AccountError>,
}

/// Why a request was not queued; hands it back.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// As many wait as may: try later, or tell whoever asked to.
    Busy(Box<Request>),
    /// The thread has ended: the store panicked.
    Gone(Box<Request>),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "too many requests about accounts wait",
            Self::Gone(_) => "the thread of the accounts has ended",
        })
    }
}

impl core::error::Error for SubmitError {}

fn work<S: AccountStore>(
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

    /// A store that tells of each call, and waits until it is let go.
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
    fn u21_an_end_leaves_undone_what_waits() {
        let (called, calls) = channel();
        let (let_go, go) = channel();
        let mut desk = Desk::start(Gate(called, go), DeskConfig::default()).unwrap();
        for who in ["a", "b", "c", "d"] {
            let request = Request::Create {
                name: who.parse().unwrap(),
                password: Password::new("correct horse").unwrap(),
            };
            desk.submit(request).unwrap();
        }
        calls.recv().unwrap();
        // As its end begins, while the thread is at work on the first.
        desk.is_over.store(true, Ordering::Relaxed);
        drop(let_go);
        drop(desk);
        assert_eq!(calls.iter().count(), 0);
    }
}
