//! The bounded request queue from other threads to a driver, with its wake and stop signals.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use wire::Instant;

use crate::counters::AtomicCounters;

/// Sends requests to the application of a driver, from any thread. `C` is the driver's counters
/// type.
#[derive(Debug)]
pub struct Requests<R, C> {
    sender: Sender<R>,
    signals: Arc<Signals>,
    ledger: Arc<dyn AtomicCounters<Counters = C>>,
}

impl<R, C> Requests<R, C> {
    /// Puts `request` into the queue and wakes the driver. Never blocks.
    ///
    /// # Errors
    ///
    /// Returns `request` if the queue is full or the driver has ended.
    pub fn send(&self, request: R) -> Result<(), RequestError<R>> {
        let result = self.sender.try_send(request);
        self.signals.wake();
        result.map_err(|error| match error {
            TrySendError::Full(request) => {
                self.ledger.count_refused_request();
                RequestError::Full(request)
            }
            TrySendError::Disconnected(request) => RequestError::Ended(request),
        })
    }

    /// Wakes the driver for one turn, for example if another queue of the application has data.
    pub fn wake(&self) {
        self.signals.wake();
    }

    /// Returns whether the queue is not full.
    #[cfg(feature = "tcp")]
    pub(crate) fn has_room(&self) -> bool {
        !self.sender.is_full()
    }

    /// Returns a snapshot of the driver's counters.
    pub fn counters(&self) -> C {
        self.ledger.snapshot()
    }

    /// Asks the driver to drain and end by `deadline`. The earliest deadline applies.
    pub(crate) fn stop(&self, deadline: Instant) {
        self.signals
            .stop_at_nanos
            .fetch_min(deadline.as_nanos().min(NEVER - 1), Ordering::SeqCst);
        self.signals.wake();
    }
}

impl<R, C> Clone for Requests<R, C> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            signals: Arc::clone(&self.signals),
            ledger: Arc::clone(&self.ledger),
        }
    }
}

/// Why a request was rejected. Each variant holds the request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestError<R> {
    /// The queue is full.
    Full(R),
    /// The driver has ended.
    Ended(R),
}

impl<R> RequestError<R> {
    /// Returns the rejected request.
    pub fn into_request(self) -> R {
        match self {
            Self::Full(request) | Self::Ended(request) => request,
        }
    }
}

impl<R> fmt::Debug for RequestError<R> {
    /// Omits the request, which may hold data that must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Ended(_) => "Ended(..)",
        })
    }
}

impl<R> fmt::Display for RequestError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the queue of the servicer is full",
            Self::Ended(_) => "the servicer has ended",
        })
    }
}

impl<R> std::error::Error for RequestError<R> {}

/// The driver's end of the queue.
#[derive(Debug)]
pub(crate) struct Inbox<R, L> {
    receiver: Receiver<R>,
    signals: Arc<Signals>,
    ledger: Arc<L>,
}

impl<R, L: AtomicCounters + Default + 'static> Inbox<R, L> {
    /// Creates both ends of a queue of `capacity` requests. `waker` ends the driver's wait.
    pub(crate) fn new(capacity: usize, waker: mio::Waker) -> (Requests<R, L::Counters>, Self) {
        let (sender, receiver) = crossbeam_channel::bounded(capacity);
        let signals = Arc::new(Signals {
            waker,
            woken: AtomicBool::new(false),
            stop_at_nanos: AtomicU64::new(NEVER),
        });
        let ledger = Arc::new(L::default());
        let inbox = Self {
            receiver,
            signals: Arc::clone(&signals),
            ledger: Arc::clone(&ledger),
        };
        let requests = Requests {
            sender,
            signals,
            ledger,
        };
        (requests, inbox)
    }

    /// Returns the requests that are queued now. Later requests wake the driver again.
    #[cfg(feature = "udp")]
    pub(crate) fn drain(&self) -> impl Iterator<Item = R> + use<'_, R, L> {
        let waiting = self.begin_drain();
        self.receiver.try_iter().take(waiting)
    }

    /// Returns how many requests are queued now. Later requests wake the driver again.
    pub(crate) fn begin_drain(&self) -> usize {
        // Cleared before the queue is read, so a request added after the read wakes the driver.
        self.signals.woken.store(false, Ordering::SeqCst);
        self.receiver.len()
    }

    #[cfg(feature = "tcp")]
    pub(crate) fn next(&self) -> Option<R> {
        self.receiver.try_recv().ok()
    }

    /// Returns the deadline of the shutdown, if one was requested.
    pub(crate) fn stop_at(&self) -> Option<Instant> {
        match self.signals.stop_at_nanos.load(Ordering::SeqCst) {
            NEVER => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    pub(crate) const fn ledger(&self) -> &Arc<L> {
        &self.ledger
    }
}

#[derive(Debug)]
struct Signals {
    waker: mio::Waker,
    /// Set by a wake, cleared when the driver reads the queue. A burst of requests thus costs one
    /// system call.
    woken: AtomicBool,
    /// Deadline of the shutdown, ns; [`NEVER`] if none was requested.
    stop_at_nanos: AtomicU64,
}

impl Signals {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) && is_lost(&self.waker.wake()) {
            self.woken.store(false, Ordering::SeqCst);
        }
    }
}

/// Returns whether a wake failed, so the next request must wake the driver again.
const fn is_lost(result: &io::Result<()>) -> bool {
    result.is_err()
}

const NEVER: u64 = u64::MAX;
