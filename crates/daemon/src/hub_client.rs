//! Requests of other threads to a hub: its counters, and operations on its store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use hub::kv::Revision;
use hub::log::SegmentFile;
use hub::stats_store::StatsView;
use hub::store::StoreStats;
use hub::{
    Command, Completed, Hub, HubConfig, HubStats, JoinFile, KvStats, MailSeq, Outcome,
    StatsLinkStats, Store, StoreError, StoreOp,
};
use servicer::{StatsReader, Storage, StorageCounters, StreamCounters, StreamRequests};
use tokio::sync::oneshot;
use tokio::time::timeout;
use wire::CommandId;

/// A request of another thread to the hub's.
#[derive(Debug)]
pub(crate) enum HubRequest {
    Completed(Vec<(CommandId, Outcome)>),
    JoinFile(JoinFile),
    Limits(Box<HubConfig>),
    Status(oneshot::Sender<HubStatus>),
    KvRevision(oneshot::Sender<Revision>),
    Store(StoreOp, oneshot::Sender<Outcome>),
}

/// Sends requests to a running hub. Nothing here blocks the hub's turn: a full queue is an error.
#[derive(Clone, Debug)]
pub(crate) struct HubClient {
    requests: StreamRequests<HubRequest>,
    store: ObservedStats,
    statistics: StatsReader,
    drain: Sender<()>,
}

/// State and counters of a hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubStatus {
    pub(crate) stats: HubStats,
    pub(crate) kv: KvStats,
    pub(crate) statistics: StatsLinkStats,
    pub(crate) storage: StorageCounters,
    pub(crate) nodes: usize,
    pub(crate) players: usize,
    pub(crate) health: hub::HubStatus,
}

/// Why the hub does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HubFault {
    /// A queue is full.
    Busy,
    /// The hub has ended, or its disk has failed.
    Down,
    TimedOut,
}

impl HubFault {
    const fn of(error: StoreError) -> Self {
        match error {
            StoreError::Busy | StoreError::Full => Self::Busy,
            StoreError::Failed | _ => Self::Down,
        }
    }
}

impl HubClient {
    pub(crate) fn new(
        requests: StreamRequests<HubRequest>,
        (store, statistics): (ObservedStats, StatsReader),
        drain: Sender<()>,
    ) -> Self {
        Self {
            requests,
            store,
            statistics,
            drain,
        }
    }

    pub(crate) async fn status(&self, wait: Duration) -> Result<HubStatus, HubFault> {
        self.call(wait, HubRequest::Status).await
    }

    /// Executes `op` in the store, after the operations that the hub has queued.
    pub(crate) async fn store(&self, wait: Duration, op: StoreOp) -> Result<Completed, HubFault> {
        let outcome = self.call(wait, |answer| HubRequest::Store(op, answer));
        outcome.await?.map_err(HubFault::of)
    }

    /// Returns the last revision of its keys.
    pub(crate) async fn kv_revision(&self, wait: Duration) -> Result<Revision, HubFault> {
        self.call(wait, HubRequest::KvRevision).await
    }

    /// Calls `question` on the thread of the statistics.
    pub(crate) async fn ask_statistics<T: Send + 'static>(
        &self,
        wait: Duration,
        question: impl FnOnce(&mut dyn StatsView) -> T + Send + 'static,
    ) -> Result<T, HubFault> {
        let (answer, answered) = oneshot::channel();
        let asked = self.statistics.ask(|view| {
            // The receiver may be gone.
            drop(answer.send(question(view)));
        });
        asked.map_err(HubFault::of)?;
        match timeout(wait, answered).await {
            Ok(answer) => answer.map_err(|_| HubFault::Down),
            Err(_) => Err(HubFault::TimedOut),
        }
    }

    pub(crate) const fn statistics(&self) -> &StatsReader {
        &self.statistics
    }

    /// Returns the counters of the store.
    pub(crate) fn store_stats(&self) -> StoreStats {
        self.store.get().0
    }

    /// Returns the number of the last mail whose sender may know that it is stored.
    pub(crate) fn last_mail(&self) -> MailSeq {
        self.store.get().1
    }

    /// Returns the counters of the hub's port.
    pub(crate) fn port_counters(&self) -> StreamCounters {
        self.requests.counters()
    }

    /// Asks the process to drain and end.
    pub(crate) fn drain(&self) {
        // One request is enough.
        self.drain.try_send(()).unwrap_or_default();
    }

    async fn call<T>(
        &self,
        wait: Duration,
        request: impl FnOnce(oneshot::Sender<T>) -> HubRequest,
    ) -> Result<T, HubFault> {
        let (answer, answered) = oneshot::channel();
        self.requests
            .send(request(answer))
            .map_err(|error| match error {
                servicer::RequestError::Full(_) => HubFault::Busy,
                servicer::RequestError::Ended(_) => HubFault::Down,
            })?;
        match timeout(wait, answered).await {
            Ok(answer) => answer.map_err(|_| HubFault::Down),
            Err(_) => Err(HubFault::TimedOut),
        }
    }
}

/// Store operations of [`HubClient`] that have not completed. Their ids are above all of the hub.
#[derive(Debug, Default)]
pub(crate) struct ClientOps {
    last: u64,
    waiting: BTreeMap<CommandId, oneshot::Sender<Outcome>>,
}

/// Operations in flight, at most.
const OPS_MAX: usize = 256;

const FIRST: u64 = Hub::COMMAND_IDS_END.0;

impl ClientOps {
    /// Returns the command to submit; answers `Busy` if too many are in flight.
    pub(crate) fn begin(
        &mut self,
        op: StoreOp,
        answer: oneshot::Sender<Outcome>,
    ) -> Option<(CommandId, Command)> {
        if self.waiting.len() >= OPS_MAX {
            // The receiver may be gone, here and below.
            drop(answer.send(Err(StoreError::Busy)));
            return None;
        }
        self.last = self.last.saturating_add(1);
        let id = CommandId(FIRST | self.last);
        self.waiting.insert(id, answer);
        Some((id, Command::Store(op)))
    }

    /// Answers the operation `id`; returns the outcome if that is one of the hub.
    pub(crate) fn complete(&mut self, id: CommandId, outcome: Outcome) -> Option<Outcome> {
        if id.0 < FIRST {
            return Some(outcome);
        }
        if let Some(answer) = self.waiting.remove(&id) {
            drop(answer.send(outcome));
        }
        None
    }
}

/// The counters of a store on another thread, and the number of its last mail, as of its last batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedStats(Arc<Mutex<(StoreStats, MailSeq)>>);

impl ObservedStats {
    fn get(&self) -> (StoreStats, MailSeq) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set<F: SegmentFile>(&self, store: &Store<F>) {
        let observed = (store.stats(), store.last_mail());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = observed;
    }
}

/// A store that publishes its counters after each step.
pub(crate) struct ObservedStore<F> {
    store: Store<F>,
    stats: ObservedStats,
}

impl<F: SegmentFile> ObservedStore<F> {
    pub(crate) fn new(store: Store<F>) -> (Self, ObservedStats) {
        let stats = ObservedStats::default();
        stats.set(&store);
        let observed = Self {
            store,
            stats: stats.clone(),
        };
        (observed, stats)
    }
}

impl<F: SegmentFile> Storage for ObservedStore<F> {
    type Job = (CommandId, Command);
    type Outcome = (CommandId, Outcome);

    fn execute(
        &mut self,
        jobs: impl Iterator<Item = Self::Job>,
        outcomes: &mut Vec<Self::Outcome>,
    ) {
        Storage::execute(&mut self.store, jobs, outcomes);
        self.stats.set(&self.store);
    }

    fn take_reads(batch: &mut Vec<Self::Job>) -> Vec<Self::Job> {
        <Store<F> as Storage>::take_reads(batch)
    }

    fn tidy(&mut self) -> bool {
        let has_more = Storage::tidy(&mut self.store);
        self.stats.set(&self.store);
        has_more
    }

    fn keep_up(&mut self) -> bool {
        Storage::keep_up(&mut self.store)
    }
}

#[cfg(test)]
mod tests {
    use wire::ClientId;

    use super::*;

    #[test]
    fn ops_max_is_a_limit_and_ids_are_not_those_of_the_hub() {
        let mut ops = ClientOps::default();
        let op = || StoreOp::Clear {
            player: ClientId(1),
        };
        let mut answers = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..OPS_MAX {
            let (answer, answered) = oneshot::channel();
            ids.push(ops.begin(op(), answer).unwrap().0);
            answers.push(answered);
        }
        let (answer, mut answered) = oneshot::channel();
        assert!(ops.begin(op(), answer).is_none());
        assert_eq!(answered.try_recv(), Ok(Err(StoreError::Busy)));

        let done = Ok(Completed::Acked);
        let of_hub = ops.complete(CommandId(7), done.clone());
        assert_eq!(of_hub, Some(done.clone()), "passed to the hub");
        assert_eq!(ops.complete(ids[3], done.clone()), None);
        assert_eq!(answers[3].try_recv(), Ok(done.clone()));
        assert_eq!(ops.complete(ids[3], done), None, "once");
    }
}
