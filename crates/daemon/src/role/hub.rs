//! The hub as a process: TLS connections, a store on a thread and a folder, and an HTTP API.

mod event_log;
mod folder_watch;
pub(crate) mod limits;
#[cfg(feature = "nats")]
mod nats;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use crypto::{Identity, Ring};
use hub::join_file::Grant;
use hub::log::{FileSegments, Recovery, SegmentFile};
use hub::stats_store::{StatsStore, StatsStoreConfig};
use hub::{
    Command, Hub, HubConfig, HubEvent, JoinFile, LogId, OpenFailure, Outcome, Role, ShardView,
    Store, StoreConfig, StoreError, StoreOp,
};
use servicer::{
    Admission, BackgroundSegments, Clock, Dial, End, JobQueue, Jobs, NodeList, P256Verifier,
    RequestError, StatsJob, StatsReader, StorageConfig, StorageThread, StreamApplication,
    StreamConfig, StreamCounters, StreamHandle, StreamListener, StreamRequests, StreamServicer,
    TlsIdentity, free_bytes, raise_descriptor_limit, submit_stats,
};
use tokio::sync::oneshot;
use wire::{CommandId, Instant, NodeId, StreamMachine};

use crate::exit::{Exit, Failure};
use crate::hub_api::{self, ApiConfig, BoundApi, HubApi};
use crate::hub_client::{
    ClientOps, HubClient, HubRequest, HubStatus, ObservedStats, ObservedStore,
};
use crate::trust;
use event_log::{EventLog, log_policy};
use folder_watch::{FolderWatch, first_fault};

/// Options of a hub process.
#[derive(Debug)]
pub struct HubOptions<'a> {
    /// Its identity; the join file lists it as the hub.
    pub identity: &'a Identity,
    /// The join file.
    pub join_file: JoinFile,
    /// Address to listen on; `None` for the first address in the join file.
    pub listen: Option<SocketAddr>,
    /// Folder for mail; created if it does not exist.
    pub data: &'a Path,
    /// Limits and timeouts of the hub.
    pub config: HubConfig,
    /// Limits of the store.
    pub store: StoreConfig,
    /// The HTTP API; `None` for none.
    pub api: Option<ApiConfig>,
    /// Limits of the store of statistics, in the folder `stats` of `data`.
    pub stats: StatsStoreConfig,
    /// Servers that keep mail instead of the folder.
    #[cfg(feature = "nats")]
    pub nats: Option<hub_nats::NatsConfig>,
}

impl<'a> HubOptions<'a> {
    /// Returns the default limits.
    #[must_use]
    pub fn new(identity: &'a Identity, join_file: JoinFile, data: &'a Path) -> Self {
        Self {
            identity,
            join_file,
            listen: None,
            data,
            config: HubConfig::default(),
            store: StoreConfig::default(),
            api: None,
            stats: StatsStoreConfig::default(),
            #[cfg(feature = "nats")]
            nats: None,
        }
    }

    /// Sets the part that the join file gives to the hub `node`.
    fn choose_shard(&mut self, node: NodeId) -> ShardView {
        let shard = self.join_file.shard_of(node);
        self.config.shard = shard;
        self.store.shard = Some(shard);
        self.join_file.view_of(shard)
    }
}

/// A running hub.
#[derive(Debug)]
pub struct HubProcess {
    // Ends first: it is a node of the hub.
    api: Option<HubApi>,
    handle: StreamHandle<HubRequest>,
    storage: StorageThread,
    statistics: StorageThread,
    reader: StatsReader,
    failed: Receiver<()>,
    address: SocketAddr,
    node: NodeId,
    /// Its part among the hubs of the join file.
    hubs: ShardView,
    admitted: NodeList,
    drains: Receiver<()>,
    folders: FolderWatch,
    /// Dropped last: it returns the lease of the log.
    #[cfg(feature = "nats")]
    watch: Option<Box<hub_nats::Watch>>,
}

impl HubProcess {
    /// Opens the store and the port, and accepts nodes.
    ///
    /// # Errors
    ///
    /// One sentence: the join file does not list the hub, the folder is in use or damaged, or the
    /// port is in use.
    pub fn start(options: HubOptions<'_>) -> Result<Self, Failure> {
        let started = Self::start_when(options, || true)?;
        started.ok_or_else(|| Failure::refused("another hub holds the log"))
    }

    /// As [`start`](Self::start), once no other hub holds the log. While one does, `keep_waiting` is
    /// asked several times a second; `None` follows if it returns false. A folder is never waited for.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start), or the servers of NATS cannot be used.
    pub fn start_when(
        mut options: HubOptions<'_>,
        keep_waiting: impl FnMut() -> bool,
    ) -> Result<Option<Self>, Failure> {
        let node = options.identity.node_id();
        let hubs = options.choose_shard(node);
        let listed = || listed_address(&options.join_file, node);
        let listen = options.listen.map_or_else(listed, Ok)?;
        check_listed(&options.join_file, node)?;
        // A standby does not listen, so nodes try the next address of the hub.
        let Some(store) = HubStore::open(&options, listen, keep_waiting)? else {
            return Ok(None);
        };
        let tls = TlsIdentity::new(options.identity).map_err(Failure::usage)?;
        let admitted: NodeList = listed_nodes(&options.join_file).collect();
        let admission = Admission::Only(admitted.clone());
        let listener = StreamListener::bind(listen, &tls, admission).map_err(Failure::refused)?;
        let address = listener.local_address();
        let api = options.api.map(ApiConfig::bind).transpose()?;
        let stats_store = open_stats(&options.data.join("stats"), options.stats)?;
        check_descriptors(StreamConfig::default().connections_max);

        let own = hub_api::own_link(&options.join_file, node, address);
        let is_for_stats = options.join_file.grant(node, Role::Hub).is_none();
        let (jobs, queue) = Jobs::new(StorageConfig::default());
        let (stats_jobs, stats_queue) = Jobs::new(StorageConfig::default());
        let reader = StatsReader::new(stats_jobs.clone());
        let (failure, failed) = crossbeam_channel::bounded(1);
        let join_file = match api {
            Some(_) => with_admin(options.join_file, node),
            None => options.join_file,
        };
        log_policy(options.config.access.claims);
        let mut machine = Hub::new(options.config, join_file, Clock::new().now());
        machine.set_claim_verifier(Box::new(P256Verifier::new()));
        let application = HubApplication {
            jobs,
            stats_jobs,
            is_for_stats,
            failure,
            ops: ClientOps::default(),
            log: EventLog::default(),
        };
        let handle = StreamServicer::named("hub")
            .spawn(vec![listener], machine, application)
            .map_err(Failure::refused)?;
        let requests = handle.requests();
        #[cfg(feature = "nats")]
        let (store, watch) = store.split();
        let (storage, stats) = store.spawn(queue, requests)?;
        let requests = handle.requests();
        let completed = HubRequest::Completed;
        let statistics =
            StorageThread::spawn("hub stats", stats_queue, stats_store, requests, completed)
                .map_err(Failure::refused)?;
        let (drain, drains) = crossbeam_channel::bounded(1);
        let client = HubClient::new(handle.requests(), (stats, reader.clone()), drain);
        let start = |bound: BoundApi| bound.start(client, options.identity, &own);
        let api = api.map(start).transpose()?;
        Ok(Some(Self {
            api,
            handle,
            storage,
            statistics,
            reader,
            failed,
            address,
            node,
            hubs,
            admitted,
            drains,
            folders: FolderWatch::of(&[options.data, &options.data.join("stats")]),
            #[cfg(feature = "nats")]
            watch,
        }))
    }

    /// Returns the address of its HTTP API, if it has one.
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.api.as_ref().map(HubApi::address)
    }

    /// Returns whether a request to the API asks the process to drain and end.
    pub fn is_drain_requested(&self) -> bool {
        self.drains.try_recv().is_ok()
    }

    /// Reads the keys and the certificate of the API again. Files that are invalid change nothing.
    ///
    /// # Errors
    ///
    /// One sentence with the path.
    pub fn reload_api(&self) -> Result<(), Failure> {
        self.api.as_ref().map_or(Ok(()), HubApi::reload)
    }

    /// Returns its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a reader of its statistics.
    pub fn statistics(&self) -> StatsReader {
        self.reader.clone()
    }

    /// Returns the counters of its port.
    pub fn counters(&self) -> StreamCounters {
        self.handle.counters()
    }

    /// Waits up to `timeout` for a failure: of the disk, or of a thread.
    ///
    /// # Errors
    ///
    /// The failure. End the process and start it again; it recovers from the disk.
    pub fn wait(&self, timeout: Duration) -> Result<(), Failure> {
        #[cfg(feature = "nats")]
        if let Some(reason) = self.watch.as_ref().and_then(|watch| watch.lost()) {
            return Err(Failure::new(Exit::CheckFailed, reason));
        }
        self.folders.check()?;
        let received = self.failed.recv_timeout(timeout);
        let sentence = if !self.storage.is_running() {
            "the hub's storage thread has ended; start the hub again"
        } else if received.is_ok() {
            "the disk of the hub has failed; start the hub again"
        } else if received == Err(RecvTimeoutError::Disconnected) || !self.handle.is_running() {
            "the hub's thread has ended"
        } else if self.api.as_ref().is_some_and(|api| !api.is_running()) {
            "a thread of the hub's HTTP API has ended"
        } else {
            return Ok(());
        };
        Err(Failure::new(Exit::CheckFailed, sentence))
    }

    /// Replaces the join file: admits the nodes that it lists, and closes links without a grant.
    ///
    /// # Errors
    ///
    /// The file does not list this hub, or other hubs than before; or the hub is too busy. The one in use
    /// stays.
    pub fn set_join_file(&self, join_file: JoinFile) -> Result<(), Failure> {
        check_listed(&join_file, self.node)?;
        let shard = join_file.shard_of(self.node);
        if join_file.view_of(shard) != self.hubs {
            let sentence = "the join file lists other hubs, or in another order: that needs a restart of \
                            all hubs and nodes";
            return Err(Failure::usage(sentence));
        }
        let nodes: Vec<_> = listed_nodes(&join_file).collect();
        let join_file = match self.api {
            Some(_) => with_admin(join_file, self.node),
            None => join_file,
        };
        let request = HubRequest::JoinFile(join_file);
        let sent = self.handle.requests().send(request);
        sent.map_err(|_| Failure::refused("the hub has no room for the request; send it again"))?;
        self.admitted.replace(nodes);
        Ok(())
    }

    /// Replaces the limits of the hub: see [`Hub::set_limits`].
    ///
    /// # Errors
    ///
    /// The hub is too busy; the limits in use stay.
    pub fn set_limits(&self, config: HubConfig) -> Result<(), Failure> {
        let request = HubRequest::Limits(Box::new(config));
        let sent = self.handle.requests().send(request);
        sent.map_err(|_| Failure::refused("the hub has no room for the request; send it again"))
    }

    /// Ends in order, within about `within`: notifies the nodes, answers open calls, and writes to
    /// disk what was accepted.
    ///
    /// # Errors
    ///
    /// The hub's thread or the storage thread did not end in time, or had ended before.
    pub fn shutdown(mut self, within: Duration) -> Result<(), Failure> {
        drop(self.api.take());
        let hub = self.handle.shutdown(within);
        let storage = self.storage.shutdown(within);
        let stats = self.statistics.shutdown(within);
        for (end, thread) in [
            (hub.end, "hub"),
            (storage.end, "storage"),
            (stats.end, "statistics"),
        ] {
            match end {
                End::Stopped | End::Drained => {}
                End::DeadlinePassed => {
                    tracing::warn!(thread, "nodes or calls were not waited for any longer");
                }
                End::Failed(_) | End::Panicked(_) | End::Stuck | _ => {
                    let sentence = format_args!(
                        "the {thread} thread did not end in order: {end}; acknowledged mail is kept"
                    );
                    return Err(Failure::new(Exit::CheckFailed, sentence));
                }
            }
        }
        tracing::info!("all accepted mail is on disk");
        Ok(())
    }
}

/// Returns the grant of a hub, or of one for statistics only.
fn hub_grant(join_file: &JoinFile, node: NodeId) -> Result<&Grant, Failure> {
    let grant = join_file.grant(node, Role::Hub);
    grant
        .or_else(|| join_file.grant(node, Role::Stats))
        .ok_or_else(|| {
            Failure::usage(format_args!(
                "the join file does not list node {node} as a hub"
            ))
        })
}

fn check_listed(join_file: &JoinFile, node: NodeId) -> Result<(), Failure> {
    hub_grant(join_file, node).map(drop)
}

/// Adds the grant of the API's node, which joins with the hub's own key.
fn with_admin(mut join_file: JoinFile, hub: NodeId) -> JoinFile {
    if join_file.grant(hub, Role::Admin).is_none() {
        join_file.grants.push(Grant::new(Role::Admin, hub));
    }
    join_file
}

fn listed_nodes(join_file: &JoinFile) -> impl Iterator<Item = NodeId> {
    join_file.grants.iter().map(|grant| grant.node)
}

struct HubApplication {
    jobs: Jobs<(CommandId, Command)>,
    stats_jobs: Jobs<StatsJob>,
    /// Whether the process is for statistics only, so that it is useless without them.
    is_for_stats: bool,
    failure: Sender<()>,
    ops: ClientOps,
    log: EventLog,
}

impl StreamApplication<Hub> for HubApplication {
    type Request = HubRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        hub: &mut Hub,
        request: HubRequest,
    ) -> ControlFlow<()> {
        match request {
            HubRequest::Completed(outcomes) => {
                for (id, outcome) in outcomes {
                    if let Some(outcome) = self.ops.complete(id, outcome) {
                        hub.handle_completed(now, id, outcome);
                    }
                }
            }
            HubRequest::JoinFile(join_file) => hub.set_join_file(join_file),
            HubRequest::Limits(config) => hub.set_limits(*config),
            // The receiver may be gone.
            HubRequest::Status(answer) => drop(answer.send(HubStatus {
                stats: hub.stats(),
                kv: hub.kv_stats(),
                statistics: hub.link_statistics(),
                storage: self.jobs.counters(),
                nodes: hub.nodes().count(),
                players: hub.player_count(),
                health: hub.health().status,
            })),
            HubRequest::KvRevision(answer) => drop(answer.send(hub.kv_revision())),
            HubRequest::Store(op, answer) => self.begin_op(op, answer),
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, _hub: &mut Hub, event: HubEvent) {
        let has_failed = matches!(event, HubEvent::StoreFailed)
            || self.is_for_stats && matches!(event, HubEvent::StatsFailed);
        self.log.event(now, &event);
        if has_failed {
            self.failure.try_send(()).unwrap_or_default();
        }
    }

    fn on_command(
        &mut self,
        now: Instant,
        hub: &mut Hub,
        id: CommandId,
        command: Command,
    ) -> Option<Dial> {
        let command = match command {
            Command::Stats(op) => {
                if let Err(error) = submit_stats(&self.stats_jobs, id, op) {
                    hub.handle_completed(now, id, Err(error));
                }
                return None;
            }
            command @ (Command::Store(_) | _) => command,
        };
        match self.jobs.submit((id, command)) {
            Ok(()) => {}
            // The hub has fewer commands outstanding than the queue holds, and retries.
            Err(RequestError::Full(_)) => hub.handle_completed(now, id, Err(StoreError::Busy)),
            Err(RequestError::Ended(_)) => hub.handle_completed(now, id, Err(StoreError::Failed)),
        }
        None
    }

    fn begin_shutdown(&mut self, now: Instant, hub: &mut Hub, deadline: Instant) {
        // The rest of the time is for the records that close the links.
        let waits = deadline.saturating_since(now).div_f32(2.0);
        hub.drain(now, now + waits);
    }

    fn is_drained(&self, hub: &Hub) -> bool {
        hub.is_drained()
    }

    fn on_unknown_node(&mut self, now: Instant, _hub: &mut Hub, claimed: NodeId) {
        self.log.unlisted(now, claimed);
    }
}

impl HubApplication {
    fn begin_op(&mut self, op: StoreOp, answer: oneshot::Sender<Outcome>) {
        let Some(job) = self.ops.begin(op, answer) else {
            return;
        };
        let id = job.0;
        let error = match self.jobs.submit(job) {
            Ok(()) => return,
            Err(RequestError::Full(_)) => StoreError::Busy,
            Err(RequestError::Ended(_)) => StoreError::Failed,
        };
        self.ops.complete(id, Err(error));
    }
}

/// Where the hub keeps its log.
enum HubStore {
    Files(Box<Store<BackgroundSegments>>),
    #[cfg(feature = "nats")]
    Nats(
        Box<Store<hub_nats::StreamSegments>>,
        Option<Box<hub_nats::Watch>>,
    ),
}

impl HubStore {
    /// Opens the store; `None` if `keep_waiting` returned false while another hub held the log.
    fn open(
        options: &HubOptions<'_>,
        listen: SocketAddr,
        keep_waiting: impl FnMut() -> bool,
    ) -> Result<Option<Self>, Failure> {
        #[cfg(feature = "nats")]
        if let Some(config) = &options.nats {
            let taken = nats::take_over(config, options.store, listen, keep_waiting)?;
            let on_nats = |(store, watch)| Self::Nats(Box::new(store), Some(Box::new(watch)));
            return Ok(taken.map(on_nats));
        }
        // Nobody waits for a folder.
        drop((listen, keep_waiting));
        let store = open_store(options.data, options.store)?;
        Ok(Some(Self::Files(Box::new(store))))
    }

    /// Returns the watch of a log on NATS, which outlives the store.
    #[cfg(feature = "nats")]
    const fn split(mut self) -> (Self, Option<Box<hub_nats::Watch>>) {
        let watch = match &mut self {
            Self::Files(_) => None,
            Self::Nats(_, watch) => watch.take(),
        };
        (self, watch)
    }

    fn spawn(
        self,
        queue: JobQueue<(CommandId, Command)>,
        requests: StreamRequests<HubRequest>,
    ) -> Result<(StorageThread, ObservedStats), Failure> {
        match self {
            Self::Files(store) => spawn_storage(*store, queue, requests),
            #[cfg(feature = "nats")]
            Self::Nats(store, _) => spawn_storage(*store, queue, requests),
        }
    }
}

fn spawn_storage<F: SegmentFile + Send + 'static>(
    store: Store<F>,
    queue: JobQueue<(CommandId, Command)>,
    requests: StreamRequests<HubRequest>,
) -> Result<(StorageThread, ObservedStats), Failure> {
    let (store, stats) = ObservedStore::new(store);
    let spawned = StorageThread::spawn("hub store", queue, store, requests, HubRequest::Completed);
    Ok((spawned.map_err(Failure::refused)?, stats))
}

fn listed_address(join_file: &JoinFile, node: NodeId) -> Result<SocketAddr, Failure> {
    let grant = hub_grant(join_file, node)?;
    let first = grant
        .addresses
        .first()
        .ok_or_else(|| Failure::usage("the join file gives the hub no address: use --listen"))?;
    first.parse().map_err(|_| {
        Failure::usage(format_args!(
            "the join file's address {first} is no IP address and port: use --listen"
        ))
    })
}

fn open_files(folder: &Path) -> Result<FileSegments, Failure> {
    FileSegments::open(folder).map_err(|error| {
        let name = folder.display();
        if error.kind() == ErrorKind::WouldBlock {
            Failure::refused(format_args!("{name}: another process has this folder"))
        } else {
            Failure::usage(format_args!("{name}: {error}"))
        }
    })
}

fn open_stats(
    folder: &Path,
    config: StatsStoreConfig,
) -> Result<StatsStore<FileSegments>, Failure> {
    let files = open_files(folder)?;
    let store = StatsStore::open(files, config).map_err(|failure| not_opened(folder, &failure))?;
    let found = store.recovery();
    let (replayed_bytes, checkpoint) = (found.replayed_bytes, found.has_checkpoint);
    tracing::info!(replayed_bytes, checkpoint, "the statistics are open");
    if found.corrupt > 0 || found.checkpoints_ignored > 0 {
        let (holes, checkpoints) = (found.corrupt, found.checkpoints_ignored);
        tracing::error!(
            holes,
            checkpoints,
            "files of the statistics are broken; samples that were confirmed may be gone"
        );
    }
    Ok(store)
}

/// Checks that a new folder has room for two segments, the least that keeps a hub going, and warns if
/// one with mail has less: mail is then read and acknowledged, which frees room.
fn check_room(folder: &Path, files: &mut FileSegments, config: StoreConfig) -> Result<(), Failure> {
    let Ok(Some(found)) = free_bytes(folder) else {
        return Ok(());
    };
    let needed = config.segment_bytes.saturating_mul(2);
    if found >= needed {
        return Ok(());
    }
    let folder = folder.display();
    let is_new = files.list().is_ok_and(|segments| segments.is_empty());
    if is_new {
        return Err(Failure::new(
            Exit::CheckFailed,
            format_args!(
                "{folder}: the disk has {found} bytes free, and a hub needs {needed}: free some, or \
                 give --data on another disk"
            ),
        ));
    }
    tracing::warn!(
        %folder,
        found,
        needed,
        "the disk has little room: mail is kept and delivered; new mail may have to wait"
    );
    Ok(())
}

fn open_store(folder: &Path, config: StoreConfig) -> Result<Store<BackgroundSegments>, Failure> {
    let mut files = open_files(folder)?;
    check_room(folder, &mut files, config)?;
    let files = BackgroundSegments::new(files).map_err(Failure::refused)?;
    let log = LogId(trust::random_instance(&mut Ring::new())?.0);
    let store = Store::open(files, config, log).map_err(|failure| not_opened(folder, &failure))?;
    let found = store.recovery();
    if found.records == 0 {
        let folder = folder.display();
        tracing::warn!(
            %folder,
            "the folder has no mail log, so a new, empty store was made; if the hub ran before, check \
             the path"
        );
    }
    log_recovery(&found);
    Ok(store)
}

fn not_opened<F>(folder: &Path, OpenFailure { error, .. }: &OpenFailure<F>) -> Failure {
    let name = folder.display();
    let fault = first_fault(folder).map(|fault| format!(" ({fault})"));
    let sentence = format_args!("{name}: {error}{}", fault.unwrap_or_default());
    Failure::new(Exit::CheckFailed, sentence)
}

/// Logs what was recovered; an error if acknowledged records are lost.
fn log_recovery(found: &Recovery) {
    let Recovery {
        segments,
        records,
        restored,
        ..
    } = *found;
    let torn_bytes = found.torn_bytes;
    tracing::info!(segments, records, torn_bytes, restored, "the store is open");
    if found.snapshots_ignored > 0 {
        let snapshots = found.snapshots_ignored;
        tracing::info!(
            snapshots,
            "ignored unfinished or broken snapshots of the mail index; the log has all mail"
        );
    }
    if found.corrupt > 0 {
        let holes = found.corrupt;
        tracing::error!(
            holes,
            "the disk has lost records that it had confirmed; mail that was acknowledged to its \
             sender may be gone"
        );
    }
}

/// Raises the limit of open files; warns if it is less than the connections need.
fn check_descriptors(connections_max: usize) {
    let Some(allowed) = raise_descriptor_limit() else {
        return;
    };
    let needed = u64::try_from(connections_max).unwrap_or(u64::MAX);
    if allowed < needed.saturating_add(DESCRIPTORS_RESERVED) {
        tracing::warn!(
            allowed,
            connections_max,
            "fewer open files are allowed than connections: some of them will not be taken"
        );
    }
}

/// Descriptors for segments, folder, lock, ports and poll.
const DESCRIPTORS_RESERVED: u64 = 64;

#[cfg(test)]
mod tests {
    mod statistics;

    use hub::Epoch;
    use hub::join_file::NetworkSecret;
    use hub::record::{Join, ToHub, VERSION};
    use wire::{ConnectionId, InstanceId, PeerIdentity};

    use super::*;

    #[test]
    fn a_new_folder_without_room_is_reported_with_path_and_bytes() {
        let folder = std::env::temp_dir().join(format!("tickwire-room-{}", std::process::id()));
        let mut config = StoreConfig::default();
        config.segment_bytes = u64::MAX / 4;
        let failure = open_store(&folder, config).map(drop).unwrap_err();
        let sentence = failure.to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(
            sentence.contains(&folder.display().to_string()),
            "{sentence}"
        );
        assert!(
            sentence.contains(&(u64::MAX / 2 - 1).to_string()),
            "{sentence}"
        );
    }

    #[test]
    fn a_hub_without_its_storage_thread_has_failed() {
        let (node, link, now) = (NodeId([1; 32]), ConnectionId(1), Instant::ZERO);
        let mut join_file = JoinFile::new(NetworkSecret::new([7; 32]));
        join_file.grants.push(Grant::new(Role::GameNode, node));
        let mut hub = Hub::new(HubConfig::default(), join_file, now);
        let (jobs, queue) = Jobs::new(StorageConfig::default());
        let (failure, failed) = crossbeam_channel::bounded(1);
        let (stats_jobs, _stats_queue) = Jobs::new(StorageConfig::default());
        let mut application = HubApplication {
            jobs,
            stats_jobs,
            is_for_stats: false,
            failure,
            ops: ClientOps::default(),
            log: EventLog::default(),
        };
        hub.handle_opened(now, link, &PeerIdentity::Node(node));
        let mut join = Vec::new();
        ToHub::Join(Join {
            version: VERSION,
            role: Role::GameNode,
            instance: InstanceId(1),
            epoch: Epoch(0),
            watch: 0,
            services: Vec::new(),
        })
        .encode(&mut join);
        hub.handle_frame(now, link, &join);
        let (id, command) = hub.poll_command().unwrap();
        drop(queue);
        assert!(application.on_command(now, &mut hub, id, command).is_none());
        while let Some(event) = hub.poll_event() {
            application.on_event(now, &mut hub, event);
        }
        assert!(failed.try_recv().is_ok(), "the process is notified");
    }
}
