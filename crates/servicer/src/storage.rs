//! A thread for blocking storage jobs, in batches that share one sync.
//!
//! Jobs enter by a bounded queue ([`Jobs`]). The thread takes all queued jobs, executes them as one
//! batch ([`Storage::execute`]) and sends the batch's outcomes to the driver as one request. Under
//! load the batches grow, so each job costs fewer syncs. Reads do not wait for that sync
//! ([`Storage::take_reads`]).
//!
//! Create the queue first, since the application submits to it. Then spawn the servicer, since its
//! requests carry the outcomes. Spawn the thread last.

mod background;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use hub::log::SegmentFile;
use hub::{Command, Store, StoreOp};
use wire::{ClientId, CommandId};

use crate::counters::{AtomicCounters as _, counters};
use crate::handle::{End, Report, Running, SpawnError};
use crate::request::{RequestError, Requests};

pub use background::{BackgroundSegments, free_bytes};

/// Executes storage jobs.
pub trait Storage {
    /// A job, with the id that its outcome carries.
    type Job;
    /// The outcome of a job, with the job's id.
    type Outcome;

    /// Executes all `jobs`, makes them durable with one sync and appends one outcome for each.
    fn execute(&mut self, jobs: impl Iterator<Item = Self::Job>, outcomes: &mut Vec<Self::Outcome>);

    /// Removes from `batch` the jobs that only read and may overtake the others. They are executed
    /// first, and their outcomes are sent before the others are synced.
    fn take_reads(_batch: &mut Vec<Self::Job>) -> Vec<Self::Job> {
        Vec::new()
    }

    /// Does one bounded step of housekeeping. Returns whether there is more. Called while no job is
    /// queued.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Does one bounded step of urgent housekeeping. Returns whether there is more. Called after
    /// each batch, once its outcomes are sent: under constant load [`tidy`](Self::tidy) may not run
    /// for hours.
    fn keep_up(&mut self) -> bool {
        false
    }
}

/// Limits of a storage thread.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct StorageConfig {
    /// Maximum queued jobs; 4,096. The queue is allocated at the start. Further jobs are returned
    /// to the caller, which reports them as "not now".
    pub jobs_max: NonZeroUsize,
    /// Maximum jobs per sync; 1,024. Larger batches raise each job's latency and save little work.
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
    /// The counters of a storage thread.
    StorageCounters,
    /// The counters of a running storage thread.
    StorageLedger,
    /// Batches executed, each with at most one sync.
    batches,
    /// Jobs executed.
    jobs,
    /// Jobs rejected because the queue was full.
    requests_refused,
    /// Times that a finished batch found the driver's queue full.
    completions_delayed,
    /// Batches whose outcomes were dropped, because the driver had ended or its queue stayed full.
    completions_dropped,
}

impl fmt::Display for StorageCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} jobs in {} batches", self.jobs, self.batches)
    }
}

/// How a storage thread ended, with its final counters.
pub type StorageReport = Report<StorageCounters>;

/// The bounded queue to a storage thread.
#[derive(Debug)]
pub struct Jobs<J> {
    sender: Sender<J>,
    ledger: Arc<StorageLedger>,
}

impl<J> Jobs<J> {
    /// Creates the queue and its receiving end for [`StorageThread::spawn`].
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

    /// Returns a snapshot of the storage thread's counters.
    #[must_use]
    pub fn counters(&self) -> StorageCounters {
        self.ledger.snapshot()
    }

    /// Puts `job` into the queue. Never blocks.
    ///
    /// # Errors
    ///
    /// Returns `job` if the queue is full or the thread has ended. The caller must answer it.
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

/// The receiving end of a job queue. Dropping it ends the queue.
#[derive(Debug)]
pub struct JobQueue<J> {
    receiver: Receiver<J>,
    ledger: Arc<StorageLedger>,
    batch_max: usize,
}

/// A running storage thread. Dropping it ends the thread after all queued jobs.
#[derive(Debug)]
pub struct StorageThread {
    name: String,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    running: Option<Running>,
    ledger: Arc<StorageLedger>,
}

impl StorageThread {
    /// Starts the thread. `complete` turns each batch of outcomes into a request for `requests`.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no thread left.
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
        let storage_loop = StorageLoop {
            queue,
            storage,
            requests,
            complete,
            stopped,
        };
        let running = Running::start(&name, move || storage_loop.run())?;
        Ok(Self {
            name,
            stop: Some(stop),
            running: Some(running),
            ledger,
        })
    }

    /// Returns whether the thread is still running.
    pub fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| !running.is_finished())
    }

    /// Returns a snapshot of the counters.
    pub fn counters(&self) -> StorageCounters {
        self.ledger.snapshot()
    }

    /// Ends and joins the thread after all queued jobs.
    ///
    /// Shut down the servicer first, so the jobs that it submits at its end are done too. Returns
    /// after at most `within` plus 2 s. A thread that is still blocked on the disk then is left
    /// running and reported as [`End::Stuck`].
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

struct StorageLoop<S: Storage, R, C, F> {
    queue: JobQueue<S::Job>,
    storage: S,
    requests: Requests<R, C>,
    complete: F,
    /// Disconnected when the thread should end.
    stopped: Receiver<()>,
}

impl<S, R, C, F> StorageLoop<S, R, C, F>
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
                    // All senders are dropped.
                    None => return End::Drained,
                }
                self.fill(&mut batch);
            }
            self.execute(&mut batch);
            while self.storage.keep_up() {}
        }
    }

    fn fill(&self, batch: &mut Vec<S::Job>) {
        let room = self.queue.batch_max.saturating_sub(batch.len());
        batch.extend(self.queue.receiver.try_iter().take(room));
    }

    /// Waits for a job. Returns `None` if the thread should end or all senders are dropped.
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
        let reads = S::take_reads(batch);
        for jobs in [reads, core::mem::take(batch)] {
            if !jobs.is_empty() {
                self.execute_all(jobs);
            }
        }
    }

    fn execute_all(&mut self, jobs: Vec<S::Job>) {
        let ledger = &self.queue.ledger;
        let count = u64::try_from(jobs.len()).unwrap_or(u64::MAX);
        let mut outcomes = Vec::with_capacity(jobs.len());
        self.storage.execute(jobs.into_iter(), &mut outcomes);
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
            // The driver is already awake and empties its queue.
            if self.stopped.recv_timeout(RETRY_PAUSE) == Err(RecvTimeoutError::Disconnected) {
                // Last attempt: the driver may be waiting for this thread to end.
                if self.requests.send(request).is_err() {
                    ledger.completions_dropped.add(1);
                }
                return;
            }
        }
    }
}

/// Pause before a retry if the driver's queue is full.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Executes all commands of a batch with one sync.
impl<F: SegmentFile> Storage for Store<F> {
    type Job = (CommandId, Command);
    type Outcome = (CommandId, hub::Outcome);

    fn execute(
        &mut self,
        jobs: impl Iterator<Item = Self::Job>,
        outcomes: &mut Vec<Self::Outcome>,
    ) {
        let before = self.stats();
        Self::execute(self, jobs, outcomes);
        let after = self.stats();
        if after.unreadable > before.unreadable {
            let reads = after.unreadable;
            tracing::warn!(reads, "a mailbox cannot be read now; it is tried again");
        }
    }

    /// A read of a mailbox may overtake appends, since the hub reads again after each. It does not
    /// overtake a deletion of the same mailbox: it would deliver what was acknowledged.
    fn take_reads(batch: &mut Vec<Self::Job>) -> Vec<Self::Job> {
        let deleting: BTreeSet<_> = batch.iter().filter_map(|(_, it)| deleted(it)).collect();
        let may_overtake = |(_, command): &mut Self::Job| matches!(command, Command::Store(StoreOp::Read { player, .. }) if !deleting.contains(player));
        batch.extract_if(.., may_overtake).collect()
    }

    fn tidy(&mut self) -> bool {
        Self::tidy(self)
    }

    fn keep_up(&mut self) -> bool {
        Self::keep_up(self)
    }
}

/// Returns the player from which mailbox a command deletes.
const fn deleted(command: &Command) -> Option<ClientId> {
    if let Command::Store(StoreOp::Ack { player, .. } | StoreOp::Clear { player, .. }) = command {
        Some(*player)
    } else {
        None
    }
}
