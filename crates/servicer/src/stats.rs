//! Statistics: the store on a thread, queries from any thread, and counters of a game's threads.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use hub::log::SegmentFile;
use hub::stats::{
    Counters, Number, QueryReason, QueryRefusal, SeriesHandle, StatKey, StatsAnswer, StatsOp,
    Tallies,
};
use hub::stats_store::{StatsStore, StatsView};
use hub::{Node, Outcome, StoreError};
use wire::{ClientId, CommandId, UnixTime};

use crate::clock::Clock;
use crate::request::RequestError;
use crate::storage::{Jobs, Storage};

/// A job of the thread with the store of statistics.
#[derive(Debug)]
pub enum StatsJob {
    /// An operation of the hub, with the id that its outcome carries.
    Op(CommandId, StatsOp),
    /// A question of this process.
    Ask(StatsQuestion),
}

/// A question of a [`StatsReader`].
pub struct StatsQuestion(Ask);

type Ask = Box<dyn FnOnce(&mut dyn StatsView) + Send>;

wire::opaque_debug!(StatsQuestion);

/// Executes all operations of a batch with one sync, and then answers its questions.
impl<F: SegmentFile> Storage for StatsStore<F> {
    type Job = StatsJob;
    type Outcome = (CommandId, Outcome);

    fn execute(&mut self, jobs: impl Iterator<Item = StatsJob>, outcomes: &mut Vec<Self::Outcome>) {
        let (mut ops, mut questions) = (Vec::new(), Vec::new());
        for job in jobs {
            match job {
                StatsJob::Op(id, op) => ops.push((id, op)),
                StatsJob::Ask(question) => questions.push(question),
            }
        }
        let was_dead = self.is_dead();
        Self::execute(self, ops, outcomes);
        if self.is_dead() && !was_dead {
            tracing::error!("the disk of the statistics has failed; nodes keep their samples");
        }
        for StatsQuestion(ask) in questions {
            ask(self);
        }
    }

    fn keep_up(&mut self) -> bool {
        let before = self.stats();
        let has_more = Self::keep_up(self);
        if self.stats().checkpoints_failed > before.checkpoints_failed {
            tracing::warn!(
                "no checkpoint of the statistics was written; the next start takes longer"
            );
        }
        has_more
    }
}

/// Queries the statistics of this process, from any thread.
#[derive(Clone, Debug)]
pub struct StatsReader {
    jobs: Jobs<StatsJob>,
    clock: Clock,
}

impl StatsReader {
    /// Creates a reader of the store that executes `jobs`.
    #[must_use]
    pub fn new(jobs: Jobs<StatsJob>) -> Self {
        Self {
            jobs,
            clock: Clock::new(),
        }
    }

    /// Calls `question` on the thread of the store, after the operations that wait. It must be short:
    /// meanwhile nothing is stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Busy`] if too many jobs wait, and [`StoreError::Failed`] if the thread has ended;
    /// `question` is dropped.
    pub fn ask(
        &self,
        question: impl FnOnce(&mut dyn StatsView) + Send + 'static,
    ) -> Result<(), StoreError> {
        let question = StatsQuestion(Box::new(question));
        submit(&self.jobs, StatsJob::Ask(question))
    }

    /// Returns the wall clock, which queries call now.
    #[must_use]
    pub fn unix_time(&self) -> UnixTime {
        self.clock.unix_time()
    }

    /// Answers a [query](hub::stats::Query) in text form with its first part; waits for at most
    /// `timeout`. For the next part, query again from
    /// [`QueryPage::next`](hub::stats::QueryPage::next).
    ///
    /// # Errors
    ///
    /// [`QueryRefusal`], with [`QueryReason::Busy`] if the store did not answer in time.
    pub fn query(&self, text: &str, timeout: Duration) -> StatsAnswer {
        let (answer, receiver) = crossbeam_channel::bounded(1);
        let (text, now) = (text.to_owned(), self.clock.unix_time());
        let ask = move |view: &mut dyn StatsView| {
            // The reader may have given up.
            answer.send(view.query(&text, now)).unwrap_or_default();
        };
        let refuse = |reason, sentence: &str| {
            Err(QueryRefusal {
                reason,
                sentence: sentence.to_owned(),
            })
        };
        match self.ask(ask) {
            Ok(()) => {}
            Err(StoreError::Busy) => {
                return refuse(QueryReason::Busy, "too many queries wait; try again");
            }
            Err(_) => return refuse(QueryReason::Refused, "the statistics have ended"),
        }
        match receiver.recv_timeout(timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                refuse(QueryReason::Busy, "the statistics did not answer in time")
            }
            Err(RecvTimeoutError::Disconnected) => {
                refuse(QueryReason::Refused, "the statistics have ended")
            }
        }
    }
}

/// Submits an operation of the hub to the thread of its statistics.
///
/// # Errors
///
/// The outcome, if the thread does not take it.
pub fn submit_stats(jobs: &Jobs<StatsJob>, id: CommandId, op: StatsOp) -> Result<(), StoreError> {
    submit(jobs, StatsJob::Op(id, op))
}

fn submit(jobs: &Jobs<StatsJob>, job: StatsJob) -> Result<(), StoreError> {
    jobs.submit(job).map_err(|error| match error {
        RequestError::Full(_) => StoreError::Busy,
        RequestError::Ended(_) => StoreError::Failed,
    })
}

/// Creates recorders for the threads of a game, which never block.
///
/// Pass the [`StatsInlet`] to [`HubNode`](crate::HubNode).
#[derive(Clone, Debug)]
pub struct StatsRecorders {
    samples: Sender<Samples>,
}

/// The receiving end of [`StatsRecorders`], for the thread of the node.
#[derive(Debug)]
pub struct StatsInlet {
    samples: Receiver<Samples>,
}

/// What one thread has measured since its last flush.
#[derive(Debug)]
struct Samples {
    tallies: Tallies,
    keys: Arc<[StatKey]>,
    time: UnixTime,
    /// Returns the emptied memory.
    spares: Sender<Tallies>,
}

/// Flushes that wait for the thread of the node.
const FLUSHES_MAX: usize = 256;

impl StatsRecorders {
    /// Creates the recorders' side, and the node's.
    #[must_use]
    pub fn new() -> (Self, StatsInlet) {
        let (sender, receiver) = crossbeam_channel::bounded(FLUSHES_MAX);
        (Self { samples: sender }, StatsInlet { samples: receiver })
    }

    /// Creates the recorder of one thread, for at most `series_max` series, and `events_max` events
    /// between two flushes.
    #[must_use]
    pub fn recorder(&self, series_max: usize, events_max: usize) -> StatsRecorder {
        let (spares_in, spares) = crossbeam_channel::bounded(2);
        StatsRecorder {
            counters: Counters::new(series_max, events_max),
            keys: Arc::new([]),
            held: None,
            samples: self.samples.clone(),
            spares_in,
            spares,
            clock: Clock::new(),
        }
    }
}

/// Counters of one thread. Call [`flush`](Self::flush) at the end of each tick.
#[derive(Debug)]
pub struct StatsRecorder {
    counters: Counters,
    /// The registered keys, as sent with the last flush.
    keys: Arc<[StatKey]>,
    /// A flush for which the queue had no room.
    held: Option<Samples>,
    samples: Sender<Samples>,
    spares_in: Sender<Tallies>,
    spares: Receiver<Tallies>,
    clock: Clock,
}

impl StatsRecorder {
    /// As [`Counters::register`]; call it ahead of need.
    pub fn register(&mut self, key: StatKey) -> Option<SeriesHandle> {
        self.counters.register(key)
    }

    /// As [`Counters::count`]: takes a few nanoseconds, and neither blocks nor allocates.
    pub fn count(&mut self, series: SeriesHandle, increase: u64) {
        self.counters.count(series, increase);
    }

    /// As [`Counters::record`]: takes a few nanoseconds, and neither blocks nor allocates.
    pub fn record(&mut self, series: SeriesHandle, value: Number, player: Option<ClientId>) {
        self.counters.record(series, value, player);
    }

    /// Passes what was measured to the node. Never blocks: if the node's thread does not keep up, it
    /// stays here, and counts are added up; only events beyond the limit are dropped and counted.
    pub fn flush(&mut self) {
        if let Some(samples) = self.held.take()
            && let Err(error) = self.samples.try_send(samples)
        {
            self.held = Some(error.into_inner());
            return;
        }
        if self.counters.is_empty() {
            return;
        }
        if self.keys.len() != self.counters.keys().len() {
            self.keys = self.counters.keys().into();
        }
        let spare = self.spares.try_recv().unwrap_or_default();
        let samples = Samples {
            tallies: self.counters.take(spare),
            keys: Arc::clone(&self.keys),
            time: self.clock.unix_time(),
            spares: self.spares_in.clone(),
        };
        if let Err(error) = self.samples.try_send(samples) {
            self.held = Some(error.into_inner());
        }
    }
}

impl StatsInlet {
    /// Moves everything that was flushed into the statistics of `node`. The thread of the node calls
    /// it every [`INTERVAL`](Self::INTERVAL).
    pub fn drain(&self, node: &mut Node) {
        for mut samples in self.samples.try_iter().take(FLUSHES_MAX) {
            let (tallies, keys) = (&mut samples.tallies, &samples.keys);
            node.statistics().add(tallies, keys, samples.time);
            // Without room, or after the thread's end, the memory is freed.
            samples.spares.try_send(samples.tallies).unwrap_or_default();
        }
    }

    /// Interval of [`drain`](Self::drain).
    pub const INTERVAL: Duration = Duration::from_millis(100);
}

#[cfg(test)]
mod tests {
    use hub::Name;

    use super::*;

    #[test]
    fn h11_a_flush_without_room_keeps_counts_and_bounds_events() {
        let (recorders, inlet) = StatsRecorders::new();
        let mut recorder = recorders.recorder(2, 4);
        let kill = recorder
            .register(Name::new("kill").unwrap().into())
            .unwrap();
        let tick = recorder
            .register(Name::new("tick").unwrap().into())
            .unwrap();
        for _ in 0..1_000 {
            recorder.count(kill, 1);
            recorder.record(tick, 1.into(), None);
            recorder.flush();
        }
        let taken: Vec<_> = inlet.samples.try_iter().collect();
        assert_eq!(taken.len(), FLUSHES_MAX);
        assert!(taken.iter().all(|it| it.tallies.dropped() == 0));
        recorder.flush();
        recorder.flush();
        let late: Vec<_> = inlet.samples.try_iter().collect();
        assert_eq!(
            late.len(),
            2,
            "the flush that was held, and what was counted since"
        );
        assert_eq!(late[1].tallies.dropped(), 1_000 - 256 - 1 - 4);
    }
}
