//! The storage thread: batches, completions, ends.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use hub::log::MemorySegments;
use hub::{Command, MailSeq, Store, StoreOp};
use servicer::{
    Dial, End, Jobs, RequestError, Storage, StorageConfig, StorageThread, StreamApplication,
    StreamConfig, StreamHandle, StreamServicer,
};
use wire::{
    ClientId, CloseCause, CommandId, ConnectionId, Instant, Outbound, PeerIdentity, StreamMachine,
    UnixTime,
};

use crate::harness::TIMEOUT;

/// Sends and receives nothing.
struct Still;

impl StreamMachine for Still {
    type Event = Infallible;
    type Command = Infallible;

    fn handle_opened(&mut self, _: Instant, _: ConnectionId, _: &PeerIdentity) {}
    fn handle_frame(&mut self, _: Instant, _: ConnectionId, _: &[u8]) {}
    fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}
    fn handle_closed(&mut self, _: Instant, _: ConnectionId, _: CloseCause) {}
    fn poll_outbound(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Outbound> {
        None
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }
    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }
    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Forwards batches of outcomes.
struct Passer(Sender<Vec<u32>>);

enum HarnessRequest {
    Completed(Vec<u32>),
    Block(Receiver<()>),
}

impl StreamApplication<Still> for Passer {
    type Request = HarnessRequest;

    fn apply_request(&mut self, _: Instant, _: &mut Still, ask: HarnessRequest) -> ControlFlow<()> {
        match ask {
            HarnessRequest::Completed(batch) => drop(self.0.send(batch)),
            HarnessRequest::Block(until) => drop(until.recv()),
        }
        ControlFlow::Continue(())
    }
    fn on_event(&mut self, _: Instant, _: &mut Still, event: Infallible) {
        match event {}
    }
    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Still,
        _: CommandId,
        command: Infallible,
    ) -> Option<Dial> {
        match command {}
    }
}

#[test]
fn the_next_segment_is_filled_by_another_thread() {
    use hub::log::{FileSegments, Prepared, SegmentFile, SegmentId, Wait};
    use servicer::BackgroundSegments;

    let folder = std::env::temp_dir().join(format!("tickwire-spare-{}", std::process::id()));
    let files = FileSegments::open(&folder).unwrap();
    let mut files = BackgroundSegments::new(files).unwrap();
    let (first, second) = (SegmentId(1), SegmentId(2));
    for segment in [first, second] {
        assert_eq!(files.prepare(segment, 3 << 20), Ok(Prepared::Started));
        assert_eq!(files.poll_prepared(Wait::UntilDone), Some(Ok(())));
    }
    assert_eq!(files.prepare(SegmentId(3), u64::MAX), Ok(Prepared::Started));
    let full = files.poll_prepared(Wait::UntilDone);
    assert_eq!(full, Some(Err(hub::log::FileError::Full)));
    files.write(second, 3 << 19, b"kept").unwrap();
    files.sync(second).unwrap();
    // An allocation that runs is waited for, and the folder is free afterwards.
    assert_eq!(files.prepare(SegmentId(3), 1 << 20), Ok(Prepared::Started));
    drop(files);
    let mut files = FileSegments::open(&folder).unwrap();
    let found: Vec<_> = files
        .list()
        .unwrap()
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(found, [first, second, SegmentId(3)]);
    let mut kept = [0; 4];
    files.read(second, 3 << 19, &mut kept).unwrap();
    assert_eq!(&kept, b"kept");
    drop(files);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Jobs from this number on are reads.
const READ: u32 = 10_000;

/// A number at which the storage panics.
const POISON: u32 = 9_999;

/// Doubles numbers; reports the start of each batch, and waits for the test.
struct Doubler {
    begun: Sender<usize>,
    go: Receiver<()>,
    /// Remaining housekeeping steps.
    tidy: u32,
    tidied: Sender<u32>,
    /// Gets the number of batches done at each `keep_up` call.
    kept_up: Sender<usize>,
    batches: usize,
}

impl Storage for Doubler {
    type Job = u32;
    type Outcome = u32;

    fn execute(&mut self, jobs: impl Iterator<Item = u32>, outcomes: &mut Vec<u32>) {
        outcomes.extend(jobs.map(|job| {
            assert_ne!(job, POISON, "the storage was told to");
            job * 2
        }));
        self.batches += 1;
        self.begun.send(outcomes.len()).ok();
        self.go.recv().ok();
    }

    fn take_reads(batch: &mut Vec<u32>) -> Vec<u32> {
        batch.extract_if(.., |job| *job >= READ).collect()
    }

    fn tidy(&mut self) -> bool {
        let Some(left) = self.tidy.checked_sub(1) else {
            return false;
        };
        self.tidy = left;
        self.tidied.send(left).ok();
        true
    }

    fn keep_up(&mut self) -> bool {
        self.kept_up.send(self.batches).ok();
        false
    }
}

struct Bench {
    handle: StreamHandle<HarnessRequest>,
    thread: StorageThread,
    jobs: Jobs<u32>,
    outcomes: Receiver<Vec<u32>>,
    begun: Receiver<usize>,
    go: Sender<()>,
    tidied: Receiver<u32>,
    kept_up: Receiver<usize>,
}

fn start(config: StorageConfig, requests_max: usize) -> Bench {
    let (jobs, queue) = Jobs::new(config);
    let (sender, outcomes) = crossbeam_channel::unbounded();
    let mut stream_config = StreamConfig::default();
    stream_config.requests_max = requests_max.try_into().unwrap();
    let handle = StreamServicer::named("still")
        .with_config(stream_config)
        .spawn(Vec::new(), Still, Passer(sender))
        .unwrap();
    let (begun_sender, begun) = crossbeam_channel::unbounded();
    let (go, go_receiver) = crossbeam_channel::unbounded();
    let (tidied_sender, tidied) = crossbeam_channel::unbounded();
    let (kept_up_sender, kept_up) = crossbeam_channel::unbounded();
    let doubler = Doubler {
        begun: begun_sender,
        go: go_receiver,
        tidy: 3,
        tidied: tidied_sender,
        kept_up: kept_up_sender,
        batches: 0,
    };
    let requests = handle.requests();
    let thread = StorageThread::spawn(
        "doubler",
        queue,
        doubler,
        requests,
        HarnessRequest::Completed,
    )
    .unwrap();
    Bench {
        handle,
        thread,
        jobs,
        outcomes,
        begun,
        go,
        tidied,
        kept_up,
    }
}

#[test]
fn waiting_jobs_share_a_batch_and_complete_in_order() {
    let bench = start(StorageConfig::default(), 16);
    bench.jobs.submit(1).unwrap();
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(1));
    for job in 2..=100 {
        bench.jobs.submit(job).unwrap();
    }
    bench.go.send(()).unwrap();
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![2]));
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(99));
    bench.go.send(()).unwrap();
    let expected: Vec<u32> = (2..=100).map(|job| job * 2).collect();
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(expected));
    let report = bench.thread.shutdown(TIMEOUT);
    assert_eq!(report.end, End::Drained);
    assert_eq!((report.counters.batches, report.counters.jobs), (2, 100));
    assert_eq!(
        report.to_string(),
        "doubler: shut down in order after 100 jobs in 2 batches"
    );
}

#[test]
fn reads_complete_before_the_sync_of_the_jobs_queued_before_them() {
    let bench = start(StorageConfig::default(), 16);
    bench.jobs.submit(1).unwrap();
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(1));
    for job in [2, READ, 3, READ + 1] {
        bench.jobs.submit(job).unwrap();
    }
    bench.go.send(()).unwrap();
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![2]));
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(2));
    bench.go.send(()).unwrap();
    let reads = vec![READ * 2, (READ + 1) * 2];
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(reads));
    assert_eq!(
        bench.begun.recv_timeout(TIMEOUT),
        Ok(2),
        "the jobs with a sync"
    );
    drop(bench.go);
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![4, 6]));
}

#[test]
fn a_read_does_not_overtake_a_deletion_of_the_same_mailbox() {
    let read = |player| StoreOp::Read {
        player: ClientId(player),
        after: MailSeq(0),
        bytes_max: 1,
        now: UnixTime::from_secs(1),
    };
    let acknowledge = StoreOp::Ack {
        player: ClientId(1),
        upto: MailSeq(5),
    };
    let clear = StoreOp::Clear {
        player: ClientId(2),
    };
    let ops = [acknowledge, read(1), clear, read(2), read(3)];
    let jobs = ops.into_iter().zip(0..);
    let mut batch: Vec<_> = jobs
        .map(|(op, id)| (CommandId(id), Command::Store(op)))
        .collect();
    let reads = <Store<MemorySegments> as Storage>::take_reads(&mut batch);
    assert_eq!(reads, [(CommandId(4), Command::Store(read(3)))]);
    assert_eq!(batch.len(), 4);
}

#[test]
fn queue_and_batch_are_bounded_and_return_what_does_not_fit() {
    let mut config = StorageConfig::default();
    config.jobs_max = 8.try_into().unwrap();
    config.batch_max = 3.try_into().unwrap();
    let bench = start(config, 16);
    bench.jobs.submit(0).unwrap();
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(1));
    for job in 1..=8 {
        bench.jobs.submit(job).unwrap();
    }
    assert_eq!(bench.jobs.submit(9), Err(RequestError::Full(9)));
    assert_eq!(bench.thread.counters().requests_refused, 1);
    drop(bench.go);
    let sizes: Vec<_> = (0..3)
        .map(|_| bench.begun.recv_timeout(TIMEOUT).unwrap())
        .collect();
    assert_eq!(sizes, [3, 3, 2]);
    let all: Vec<u32> = (0..4)
        .flat_map(|_| bench.outcomes.recv_timeout(TIMEOUT).unwrap())
        .collect();
    assert_eq!(all, [0, 2, 4, 6, 8, 10, 12, 14, 16]);
}

#[test]
fn outcomes_wait_for_a_driver_that_is_behind() {
    let bench = start(StorageConfig::default(), 1);
    let (release, until) = crossbeam_channel::bounded(0);
    bench.handle.request(HarnessRequest::Block(until)).unwrap();
    // While blocked it takes no jobs, so its queue fills up.
    let mut ask = HarnessRequest::Completed(Vec::new());
    while let Err(error) = bench.handle.request(ask) {
        ask = error.into_request();
        std::thread::yield_now();
    }
    bench.jobs.submit(21).unwrap();
    bench.go.send(()).unwrap();
    while bench.thread.counters().completions_delayed < 3 {
        std::thread::yield_now();
    }
    assert!(bench.outcomes.is_empty());
    drop(release);
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(Vec::new()));
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![42]));
}

#[test]
fn housekeeping_runs_while_idle_and_ends() {
    let bench = start(StorageConfig::default(), 16);
    for left in [2, 1, 0] {
        assert_eq!(bench.tidied.recv_timeout(TIMEOUT), Ok(left));
    }
    drop(bench.go);
    bench.jobs.submit(4).unwrap();
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![8]));
}

#[test]
fn housekeeping_keeps_up_while_jobs_wait_all_the_time() {
    let mut config = StorageConfig::default();
    config.batch_max = 1.try_into().unwrap();
    let bench = start(config, 16);
    for left in [2, 1, 0] {
        assert_eq!(bench.tidied.recv_timeout(TIMEOUT), Ok(left));
    }
    // Each batch ends with the next job in the queue.
    bench.jobs.submit(0).unwrap();
    for batch in 1..=50 {
        assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(1));
        assert_eq!(
            bench.kept_up.try_recv().ok(),
            (batch > 1).then(|| batch - 1)
        );
        bench.jobs.submit(1).unwrap();
        bench.go.send(()).unwrap();
    }
}

#[test]
fn a_shutdown_executes_queued_jobs_first() {
    let bench = start(StorageConfig::default(), 16);
    bench.jobs.submit(1).unwrap();
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(1));
    bench.jobs.submit(2).unwrap();
    drop(bench.go);
    let report = bench.thread.shutdown(TIMEOUT);
    assert_eq!((report.end, report.counters.jobs), (End::Drained, 2));
    assert_eq!(bench.jobs.submit(3), Err(RequestError::Ended(3)));
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![2]));
    assert_eq!(bench.outcomes.recv_timeout(TIMEOUT), Ok(vec![4]));
}

#[test]
fn the_end_of_the_driver_stops_no_job_and_is_counted() {
    let bench = start(StorageConfig::default(), 16);
    assert_eq!(bench.handle.shutdown(TIMEOUT).end, End::Drained);
    bench.jobs.submit(1).unwrap();
    drop(bench.go);
    let report = bench.thread.shutdown(TIMEOUT);
    assert_eq!(report.end, End::Drained);
    assert_eq!(report.counters.completions_dropped, 1);
}

#[test]
fn a_panic_and_a_blocked_disk_are_reported() {
    let bench = start(StorageConfig::default(), 16);
    bench.jobs.submit(POISON).unwrap();
    while bench.thread.is_running() {
        std::thread::yield_now();
    }
    let report = bench.thread.shutdown(TIMEOUT);
    assert!(
        matches!(&report.end, End::Panicked(message) if message.contains("the storage was told to")),
        "{report}"
    );
    assert_eq!(bench.jobs.submit(3), Err(RequestError::Ended(3)));

    let bench = start(StorageConfig::default(), 16);
    bench.jobs.submit(1).unwrap();
    assert_eq!(bench.begun.recv_timeout(TIMEOUT), Ok(1));
    assert_eq!(bench.thread.shutdown(Duration::ZERO).end, End::Stuck);
}
