//! A client of a hub for programs that are no game servers: calls, mail, live messages and keys.
//!
//! [`HubClient`] is for a frame loop: nothing in it blocks, requests are answered by events. With the
//! feature `async`, [`AsyncHubClient`] has futures for any executor. Both run a node of the hub on a
//! thread, which dials the hub until it is reached, and again after every disconnect.
//!
//! What happens to a request if the hub restarts meanwhile: a mail waits and is sent again, and is stored
//! once; a call ends with [`CallError::HubDown`]; a live message has
//! the outcome `None`; a write of a key ends with [`KvError::Unknown`] if it may
//! have been executed. Watches continue.

mod application;
#[cfg(feature = "async")]
mod asynchronous;
mod queue;
mod reply;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use hub::kv::{KvChange, KvError, KvKey, KvPrefix, KvPut, KvRange, Revision};
use hub::record::{CallError, DownReason, LiveOutcome, MailRefusal};
use hub::{Addr, KvAnswer, Name, NodeConfig, Redacted};
use servicer::{HubNode, HubNodeError, RequestError, StreamHandle};
use wire::ClientId;

use application::{ClientApplication, Op, Order};
#[cfg(feature = "async")]
pub use asynchronous::{AsyncHubClient, HubClientError};
use queue::EventQueue;
use reply::Reply;

/// Limits of a [`HubClient`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubClientConfig {
    /// Limits of the node, and its role.
    pub node: NodeConfig,
    /// Requests whose outcome was not taken yet. Default 1,024, each with up to 64 KiB.
    pub requests_max: usize,
    /// Other events that wait to be taken. Default 4,096. A watch whose event has no room ends with
    /// [`HubClientEvent::WatchEnded`]; other events are dropped and counted.
    pub events_max: usize,
    /// The values in these events, bytes. Default 4 MiB. One event may be longer.
    pub event_bytes_max: usize,
}

impl Default for HubClientConfig {
    fn default() -> Self {
        Self {
            node: NodeConfig::default(),
            requests_max: 1_024,
            events_max: 4_096,
            event_bytes_max: 4 << 20,
        }
    }
}

/// Number of a request of a [`HubClient`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubRequestId(u64);

/// Number of a watch of a [`HubClient`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubWatchId(u64);

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryError {
    /// As many requests as allowed wait for their outcome. Take events, and try again.
    Full,
    /// The client's thread has ended.
    Ended,
}

wire::error_text! { TryError {
    Self::Full => "as many requests as allowed wait for their outcome",
    Self::Ended => "the client's thread has ended",
}}

/// Why a request that was taken was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSent {
    /// No link to the hub is up.
    HubDown,
    /// As many messages as the node may hold wait for the hub.
    Full,
    /// The body exceeds 64 KiB.
    TooLong,
    /// The client's thread has ended.
    Ended,
}

wire::error_text! { NotSent {
    Self::HubDown => "no link to the hub is up",
    Self::Full => "too many messages wait for the hub",
    Self::TooLong => "the body exceeds 64 KiB",
    Self::Ended => "the client's thread has ended",
}}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubOutcome {
    /// The reply to a call.
    Reply(Result<Redacted<Bytes>, CallError>),
    /// A mail is on the hub's disk, or is refused.
    Mail(Result<(), MailRefusal>),
    /// How many receivers a live message reached; `None` if the link closed before the hub reported it.
    Live(Option<LiveOutcome>),
    /// The answer of the key-value store.
    Key(Result<KvAnswer, KvError>),
    /// It was not sent.
    NotSent(NotSent),
}

/// An event of a [`HubClient`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubClientEvent {
    /// The client has joined the hub.
    Up,
    /// The link has closed. The client reconnects.
    Down,
    /// The hub refuses the client, which tries again.
    Refused(DownReason),
    /// A request has ended.
    Done {
        /// The request.
        request: HubRequestId,
        /// How it ended.
        outcome: HubOutcome,
    },
    /// What the watch has reported is void; all keys follow.
    KeyReset(HubWatchId),
    /// A key of the snapshot, or a change.
    KeyChanged {
        /// The watch.
        watch: HubWatchId,
        /// The change.
        change: KvChange,
    },
    /// The watch has reported all changes up to this revision.
    KeyComplete {
        /// The watch.
        watch: HubWatchId,
        /// The revision.
        revision: Revision,
    },
    /// The watch has ended, since too many events waited or there are too many watches. Begin another
    /// one from the last revision that was reported.
    WatchEnded(HubWatchId),
}

/// A client of a hub for a frame loop. No method blocks.
///
/// ```no_run
/// use core::time::Duration;
/// use tickwire::crypto::{Identity, Provider as _, Ring};
/// use tickwire::hub::{Addr, JoinFile, Name};
/// use tickwire::hub_client::{HubClient, HubClientConfig, HubClientEvent, HubOutcome};
/// use tickwire::servicer::HubNode;
///
/// # fn run() -> Result<(), Box<dyn core::error::Error>> {
/// let identity = Identity::from_pem(&std::fs::read_to_string("shop.pem")?)?;
/// let join_file = JoinFile::parse(&std::fs::read_to_string("net.join")?)?;
/// let instance = Ring::new().random_instance()?;
/// let node = HubNode { identity: &identity, join_file: &join_file, instance };
/// let mut client = HubClient::connect(node, HubClientConfig::default())?;
///
/// let to = Addr::Service(Name::new("matchmaker")?);
/// let asked = client.try_call(to, "how many wait?", Duration::from_secs(2))?;
/// let mut events = Vec::new();
/// loop {
///     // Once a frame.
///     client.poll_events(&mut events, 64);
///     for event in events.drain(..) {
///         match event {
///             HubClientEvent::Done { request, outcome: HubOutcome::Reply(reply) }
///                 if request == asked => println!("{reply:?}"),
///             HubClientEvent::Down => println!("the hub is away"),
///             _ => {}
///         }
///     }
///     # break;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HubClient(Core);

impl HubClient {
    /// Starts the client's thread, which dials the hub.
    ///
    /// # Errors
    ///
    /// [`HubNodeError`], if the join file names no hub with an address or no thread can be started.
    pub fn connect(node: HubNode<'_>, config: HubClientConfig) -> Result<Self, HubNodeError> {
        Core::connect(node, config).map(Self)
    }

    /// Calls a node or a service; ends with [`HubOutcome::Reply`] within `timeout`.
    ///
    /// # Errors
    ///
    /// [`TryError`], here and below.
    pub fn try_call(
        &self,
        to: Addr,
        body: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<HubRequestId, TryError> {
        let body = body.into();
        self.0.submit(Op::Call(to, body, timeout))
    }

    /// Stores a mail for a player; ends with [`HubOutcome::Mail`] once it is on the hub's disk. Zero
    /// for `ttl` is the hub's own limit.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_mail(
        &self,
        player: ClientId,
        body: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Mail(player, body.into(), ttl))
    }

    /// Sends a message to a player that is online; ends with [`HubOutcome::Live`].
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_forward(
        &self,
        player: ClientId,
        body: impl Into<Bytes>,
    ) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Forward(player, body.into()))
    }

    /// Sends a message to the subscribers of a topic; ends with [`HubOutcome::Live`].
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_cast(&self, topic: Name, body: impl Into<Bytes>) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Cast(topic, body.into()))
    }

    /// Sets a key; ends with [`HubOutcome::Key`], as the requests below.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_put(&self, put: KvPut) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Put(put))
    }

    /// Deletes a key, if it has the revision `expected`.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_delete(
        &self,
        key: KvKey,
        expected: Option<Revision>,
    ) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Delete(key, expected))
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_get(&self, key: KvKey) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Get(key))
    }

    /// Reads the first `limit` entries of a range, at most 1,024.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_range(&self, range: KvRange, limit: u16) -> Result<HubRequestId, TryError> {
        self.0.submit(Op::Range(range, limit))
    }

    /// Watches the keys that begin with `prefix`, from the changes after `from`; if that is
    /// [`Revision::NONE`] or too old, from a snapshot.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_watch(&self, prefix: KvPrefix, from: Revision) -> Result<HubWatchId, TryError> {
        self.0.watch(prefix, from)
    }

    /// Ends a watch.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn try_unwatch(&self, watch: HubWatchId) -> Result<(), TryError> {
        self.0.send(Order::Unwatch(watch))
    }

    /// Appends the next events to `events`, at most `max`; returns how many.
    pub fn poll_events(&mut self, events: &mut Vec<HubClientEvent>, max: usize) -> usize {
        self.0.events.take(events, max)
    }

    /// Returns whether the client has joined and its link is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.is_up.load(Ordering::Relaxed)
    }

    /// Returns how many events were dropped, since they were not taken.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.0.events.dropped()
    }

    /// Leaves the hub and ends the thread, within about `within`. Mail without an outcome may be lost.
    pub fn shutdown(self, within: Duration) {
        self.0.handle.shutdown(within);
    }
}

/// What both flavours share.
struct Core {
    handle: StreamHandle<Order>,
    events: Arc<EventQueue>,
    /// Requests whose outcome was not taken.
    open: Arc<AtomicUsize>,
    requests_max: usize,
    last: AtomicU64,
    is_up: Arc<AtomicBool>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("open", &self.open)
            .field("is_up", &self.is_up)
            .finish_non_exhaustive()
    }
}

impl Core {
    fn connect(node: HubNode<'_>, config: HubClientConfig) -> Result<Self, HubNodeError> {
        let open = Arc::new(AtomicUsize::new(0));
        let limits = (config.events_max, config.event_bytes_max);
        let events = Arc::new(EventQueue::new(limits, Arc::clone(&open)));
        let is_up = Arc::new(AtomicBool::new(false));
        let application = ClientApplication::new(Arc::clone(&events), Arc::clone(&is_up));
        let handle = node.spawn("hub client", config.node, application)?;
        Ok(Self {
            handle,
            events,
            open,
            requests_max: config.requests_max,
            last: AtomicU64::new(0),
            is_up,
        })
    }

    fn next_id(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    fn submit(&self, op: Op) -> Result<HubRequestId, TryError> {
        let id = HubRequestId(self.next_id());
        let reply = Reply::to_queue(Arc::clone(&self.events), id);
        self.order(op, reply)?;
        Ok(id)
    }

    /// Takes a place for an outcome, and sends the request.
    fn order(&self, op: Op, reply: Reply) -> Result<(), TryError> {
        let place = |open: usize| (open < self.requests_max).then(|| open.saturating_add(1));
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, place);
        if taken.is_err() {
            reply.forget();
            return Err(TryError::Full);
        }
        let sent = self.send(Order::Op(op, reply));
        if sent.is_err() {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }

    fn watch(&self, prefix: KvPrefix, from: Revision) -> Result<HubWatchId, TryError> {
        let watch = HubWatchId(self.next_id());
        self.send(Order::Watch(watch, prefix, from))?;
        Ok(watch)
    }

    /// Sends an order; one that is not taken ends without an event.
    fn send(&self, order: Order) -> Result<(), TryError> {
        let (order, error) = match self.handle.requests().send(order) {
            Ok(()) => return Ok(()),
            Err(RequestError::Full(order)) => (order, TryError::Full),
            Err(RequestError::Ended(order)) => (order, TryError::Ended),
        };
        if let Order::Op(_, reply) = order {
            reply.forget();
        }
        Err(error)
    }
}
