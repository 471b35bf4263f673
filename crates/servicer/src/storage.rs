//! The thread that does what a machine must not wait for: puts things on disk, many at once.
//!
//! Jobs go in by a bounded queue ([`Jobs`]); the thread takes all that wait, does them together
//! ([`Storage::execute`], with one sync for all), and hands the outcomes of the batch to the
//! driver as one request. The more work there is, the larger the batches, and the fewer the syncs
//! for each job.
//!
//! The order of making things: the queue first, since the application submits to it; then the
//! servicer, since its requests carry the outcomes; then the thread.

mod hub;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};

use crate::count::{Ledger as _, counters};
use crate::end::End;
use crate::handle::{Report, Running, SpawnError};
use crate::request::{RequestError, Requests};

/// What does the jobs.
pub trait Storage {
    /// Something to do, with the id under which its outcome is awaited.
    type Job;
    /// How it ended, with that id.
    type Outcome;

    /// Does all of `jobs`, makes them durable by one sync, and appends one outcome for each.
    fn execute(&mut self, jobs: impl Iterator<Item = Self::Job>, outcomes: &mut Vec<Self::Outcome>);

    /// Does one bounded step of housekeeping; returns whether there is more. Called while no job
    /// waits.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Does one bounded step of the housekeeping that must not wait until no job does; returns
    /// whether there is more of that. Called after each batch, once its outcomes are handed over:
    /// under load there may be no pause for [`tidy`](Self::tidy), for hours.
    fn keep_up(&mut self) -> bool {
        false
    }
}

/// Limits of a storage thread.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct StorageConfig {
    /// Jobs that may wait; 4,096. Room for all of them is allocated at the start. One more is
    /// handed back, to be answered as "not now".
    pub jobs_max: NonZeroUsize,
    /// Jobs that share a sync; 1,024. More make each wait longer for a little less work.
    pub batch_max: NonZeroUsize,
}

impl Default for StorageConfig {
    fn default() -> Self {
        const JOBS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
        const BATCH: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
        Self {
            jobs_max: JOBS,
            batch_max: BATCH,
        }
    }
}

counters! {
    /// What a storage thread has done so far.
    StorageCounters,
    /// The counters of a running one.
    StorageLedger,
    /// Batches done, each with one sync.
    batches,
    /// Jobs in them.
    jobs,
    /// Jobs handed back because the queue was full.
    requests_refused,
    /// Times that the driver's queue was full when a batch was done.
    completions_delayed,
    /// Batches whose outcomes nobody took, because the driver had ended or would not in time.
    completions_dropped,
}

impl fmt::Display for StorageCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} jobs in {} batches", self.jobs, self.batches)
    }
}

/// How a storage thread ended, and what it had done.
pub type StorageReport = Report<StorageCounters>;

/// The bounded queue to a storage thread.
#[derive(Debug)]
pub struct Jobs<J> {
    sender: Sender<J>,
    ledger: Arc<StorageLedger>,
}

impl<J> Jobs<J> {
    /// Makes the queue, and the end of it that the thread is started with.
    #[must_use]
    pub fn new(config: StorageConfig) -> (Self, JobQueue<J>) {
        let (sender, receiver) = crossbeam_channel::bounded(config.jobs_max.get());
        let ledger = Arc::new(StorageLedger::default());
        let queue = JobQueue {
            receiver,
            ledger: Arc::clone(&ledger),
            batch_max: config.batch_max.get(),
        };
        (Self { sender, ledger }, queue)
    }

    /// Puts `job` into the queue. Never blocks.
    ///
    /// # Errors
    ///
    /// Hands `job` back where the queue is full or the thread has ended; the caller answers it.
    pub fn submit(&self, job: J) -> Result<(), RequestError<J>> {
        self.sender.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) => {
                self.ledger.count_refused_request();
                RequestError::Full(job)
            }
            TrySendError::Disconnected(job) => RequestError::Ended(job),
        })
    }
}

impl<J> Clone for Jobs<J> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            ledger: Arc::clone(&self.ledger),
        }
    }
}

/// The thread's end of a queue of jobs. Where it is dropped, the queue has ended.
#[derive(Debug)]
pub struct JobQueue<J> {
    receiver: Receiver<J>,
    ledger: Arc<StorageLedger>,
    batch_max: usize,
}

/// A running storage thread. Dropping it ends it after what waits is done.
#[derive(Debug)]
pub struct StorageThread {
    name: String,
    /// Closed to end the thread.
    stop: Option<Sender<()>>,
    running: Option<Running>,
    ledger: Arc<StorageLedger>,
}

impl StorageThread {
    /// Starts the thread; each batch of outcomes goes to `requests` as `complete` makes it one.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the system has no thread left.
    pub fn spawn<S, R, C>(
        name: impl Into<String>,
        queue: JobQueue<S::Job>,
        storage: S,
        requests: Requests<R, C>,
        complete: impl Fn(Vec<S::Outcome>) -> R + Send + 'static,
    ) -> Result<Self, SpawnError>
    where
        S: Storage<Job: Send> + Send + 'static,
        R: Send + 'static,
        C: 'static,
    {
        let name = name.into();
        let ledger = Arc::clone(&queue.ledger);
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let worker = Worker {
            queue,
            storage,
            requests,
            complete,
            stopped,
        };
        let running = Running::start(&name, move || worker.run())?;
        Ok(Self {
            name,
            stop: Some(stop),
            running: Some(running),
            ledger,
        })
    }

    /// Returns whether the thread is still at work.
    pub fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| !running.is_finished())
    }

    /// Returns what the thread has done so far.
    pub fn counters(&self) -> StorageCounters {
        self.ledger.snapshot()
    }

    /// Ends the thread once all jobs that wait are done; it is joined.
    ///
    /// Shut down the servicer first: what it still submits is then done. Returns within `within`
    /// and two seconds more, after which a thread that a disk holds is left behind and reported as
    /// [`End::Stuck`].
    pub fn shutdown(mut self, within: Duration) -> StorageReport {
        let end = self.end(within);
        let report = Report {
            name: self.name.clone(),
            end,
            counters: self.counters(),
        };
        tracing::info!(storage = report.name, end = %report.end, "ended");
        report
    }

    fn end(&mut self, within: Duration) -> End {
        self.stop = None;
        self.running
            .take()
            .map_or(End::Drained, |running| running.join(within))
    }
}

impl Drop for StorageThread {
    fn drop(&mut self) {
        if self.running.is_some() {
            let end = self.end(Duration::ZERO);
            tracing::debug!(storage = self.name, %end, "dropped");
        }
    }
}

/// What runs on the thread.
struct Worker<S: Storage, R, C, F> {
    queue: JobQueue<S::Job>,
    storage: S,
    requests: Requests<R, C>,
    complete: F,
    /// Closes when the end is wanted.
    stopped: Receiver<()>,
}

impl<S, R, C, F> Worker<S, R, C, F>
where
    S: Storage,
    F: Fn(Vec<S::Outcome>) -> R,
{
    fn run(mut self) -> End {
        let mut batch = Vec::with_capacity(self.queue.batch_max);
        loop {
            self.fill(&mut batch);
            if batch.is_empty() {
                if self.is_stopped() {
                    return End::Drained;
                }
                if self.storage.tidy() {
                    continue;
                }
                match self.wait() {
                    Some(job) => batch.push(job),
                    None if self.is_stopped() => continue,
                    // Nobody can submit any more.
                    None => return End::Drained,
                }
                self.fill(&mut batch);
            }
            self.execute(&mut batch);
            while self.storage.keep_up() {}
        }
    }

    /// Takes what waits, up to a batch.
    fn fill(&self, batch: &mut Vec<S::Job>) {
        let room = self.queue.batch_max.saturating_sub(batch.len());
        batch.extend(self.queue.receiver.try_iter().take(room));
    }

    /// Waits for a job; `None` where the end is wanted, or nobody can submit any more.
    fn wait(&self) -> Option<S::Job> {
        crossbeam_channel::select! {
            recv(self.queue.receiver) -> job => job.ok(),
            recv(self.stopped) -> _ => None,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)
    }

    fn execute(&mut self, batch: &mut Vec<S::Job>) {
        let ledger = &self.queue.ledger;
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let mut outcomes = Vec::with_capacity(batch.len());
        self.storage.execute(batch.drain(..), &mut outcomes);
        ledger.batches.add(1);
        ledger.jobs.add(count);
        let mut request = (self.complete)(outcomes);
        loop {
            request = match self.requests.send(request) {
                Ok(()) => return,
                Err(RequestError::Full(request)) => request,
                Err(RequestError::Ended(_)) => return ledger.completions_dropped.add(1),
            };
            ledger.completions_delayed.add(1);
            // The driver is awake and at work on its queue.
            if self.stopped.recv_timeout(RETRY_PAUSE) == Err(RecvTimeoutError::Disconnected) {
                // Its last chance, since it may wait for us to end.
                if self.requests.send(request).is_err() {
                    ledger.completions_dropped.add(1);
                }
                return;
            }
        }
    }
}

/// Pause before outcomes are offered again to a driver whose queue is full.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
