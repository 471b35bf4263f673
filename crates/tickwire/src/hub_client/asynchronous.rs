//! The client with futures. They need no particular executor: a future is woken by the client's thread.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hub::kv::{KvEntry, KvError, KvKey, KvPrefix, KvPut, KvRange, Revision};
use hub::record::{CallError, LiveOutcome, MailRefusal};
use hub::{Addr, KvAnswer, Name};
use servicer::{HubNode, HubNodeError};
use wire::ClientId;

use super::application::{Op, Order};
use super::reply::Reply;
use super::{Core, HubClientConfig, HubClientEvent, HubOutcome, HubWatchId, NotSent, TryError};

/// Why a request of an [`AsyncHubClient`] has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubClientError {
    /// The request was not taken.
    NotTaken(TryError),
    /// The request was not sent.
    NotSent(NotSent),
    /// The call has no reply.
    Call(CallError),
    /// The mail is refused.
    Mail(MailRefusal),
    /// The link closed before the hub reported the outcome of a live message.
    LinkClosed,
    /// The request to the key-value store was not executed.
    Key(KvError),
}

wire::error_text! { HubClientError {
    Self::NotTaken(error) => "{error}",
    Self::NotSent(error) => "{error}",
    Self::Call(error) => "{error}",
    Self::Mail(refusal) => "{refusal}",
    Self::LinkClosed => "the link closed before the hub reported the outcome",
    Self::Key(error) => "{error}",
}}

/// A client of a hub with futures, for any executor. A future that is dropped does not take its request
/// back.
///
/// ```no_run
/// use core::time::Duration;
/// use tickwire::hub::{Addr, Name};
/// use tickwire::hub_client::{AsyncHubClient, HubClientConfig};
/// use tickwire::servicer::HubNode;
/// use tickwire::wire::ClientId;
///
/// # async fn run(node: HubNode<'_>) -> Result<(), Box<dyn core::error::Error>> {
/// let client = AsyncHubClient::connect(node, HubClientConfig::default())?;
/// client.mail(ClientId(42), "You won a sword.", Duration::from_secs(86_400)).await?;
/// let to = Addr::Service(Name::new("matchmaker")?);
/// let reply = client.call(to, "how many wait?", Duration::from_secs(2)).await?;
/// println!("{} bytes", reply.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncHubClient(Core);

impl AsyncHubClient {
    /// Starts the client's thread, which dials the hub.
    ///
    /// # Errors
    ///
    /// [`HubNodeError`], if the join file names no hub with an address or no thread can be started.
    pub fn connect(node: HubNode<'_>, config: HubClientConfig) -> Result<Self, HubNodeError> {
        Core::connect(node, config).map(Self)
    }

    /// Calls a node or a service; returns its reply within `timeout`.
    ///
    /// # Errors
    ///
    /// [`HubClientError`], here and below.
    pub async fn call(
        &self,
        to: Addr,
        body: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, HubClientError> {
        let HubOutcome::Reply(reply) = self.outcome(Op::Call(to, body.into(), timeout)).await?
        else {
            return Err(UNEXPECTED);
        };
        reply.map(|body| body.0).map_err(HubClientError::Call)
    }

    /// Stores a mail for a player; returns once it is on the hub's disk. It waits for a hub that is away,
    /// however long. Zero for `ttl` is the hub's own limit.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn mail(
        &self,
        player: ClientId,
        body: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<(), HubClientError> {
        let HubOutcome::Mail(stored) = self.outcome(Op::Mail(player, body.into(), ttl)).await?
        else {
            return Err(UNEXPECTED);
        };
        stored.map_err(HubClientError::Mail)
    }

    /// Sends a message to a player that is online.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn forward(
        &self,
        player: ClientId,
        body: impl Into<Bytes>,
    ) -> Result<LiveOutcome, HubClientError> {
        self.live(Op::Forward(player, body.into())).await
    }

    /// Sends a message to the subscribers of a topic.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn cast(
        &self,
        topic: Name,
        body: impl Into<Bytes>,
    ) -> Result<LiveOutcome, HubClientError> {
        self.live(Op::Cast(topic, body.into())).await
    }

    async fn live(&self, op: Op) -> Result<LiveOutcome, HubClientError> {
        let HubOutcome::Live(outcome) = self.outcome(op).await? else {
            return Err(UNEXPECTED);
        };
        outcome.ok_or(HubClientError::LinkClosed)
    }

    /// Sets a key; returns its revision.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn put(&self, put: KvPut) -> Result<Revision, HubClientError> {
        written(&self.key(Op::Put(put)).await?)
    }

    /// Deletes a key, if it has the revision `expected`.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn delete(
        &self,
        key: KvKey,
        expected: Option<Revision>,
    ) -> Result<Revision, HubClientError> {
        written(&self.key(Op::Delete(key, expected)).await?)
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn get(&self, key: KvKey) -> Result<Option<KvEntry>, HubClientError> {
        let KvAnswer::Entry(entry) = self.key(Op::Get(key)).await? else {
            return Err(UNEXPECTED);
        };
        Ok(entry)
    }

    /// Reads the first `limit` entries of a range, at most 1,024; returns whether more follow.
    ///
    /// # Errors
    ///
    /// [`HubClientError`].
    pub async fn range(
        &self,
        range: KvRange,
        limit: u16,
    ) -> Result<(Vec<KvEntry>, bool), HubClientError> {
        let KvAnswer::Page { entries, more } = self.key(Op::Range(range, limit)).await? else {
            return Err(UNEXPECTED);
        };
        Ok((entries, more))
    }

    async fn key(&self, op: Op) -> Result<KvAnswer, HubClientError> {
        let HubOutcome::Key(answer) = self.outcome(op).await? else {
            return Err(UNEXPECTED);
        };
        answer.map_err(HubClientError::Key)
    }

    /// Watches the keys that begin with `prefix`; see [`HubClient::try_watch`](super::HubClient::try_watch).
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn watch(&self, prefix: KvPrefix, from: Revision) -> Result<HubWatchId, TryError> {
        self.0.watch(prefix, from)
    }

    /// Ends a watch.
    ///
    /// # Errors
    ///
    /// [`TryError`].
    pub fn unwatch(&self, watch: HubWatchId) -> Result<(), TryError> {
        self.0.send(Order::Unwatch(watch))
    }

    /// Returns the next event: of the link, or of a watch.
    pub async fn next_event(&mut self) -> HubClientEvent {
        poll_fn(|context| self.0.events.poll_next(context)).await
    }

    /// Returns whether the client has joined and its link is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.is_up.load(Ordering::Relaxed)
    }

    /// Leaves the hub and ends the thread; waits for it, within about `within`. Futures end with
    /// [`NotSent::Ended`].
    pub fn shutdown(self, within: Duration) {
        self.0.handle.shutdown(within);
    }

    async fn outcome(&self, op: Op) -> Result<HubOutcome, HubClientError> {
        let slot = Arc::new(Slot::default());
        let sender = Sender {
            slot: Arc::clone(&slot),
            open: Arc::clone(&self.0.open),
        };
        self.0
            .order(op, Reply::to_future(sender))
            .map_err(HubClientError::NotTaken)?;
        let outcome = OutcomeFuture(slot).await;
        if let HubOutcome::NotSent(error) = outcome {
            return Err(HubClientError::NotSent(error));
        }
        Ok(outcome)
    }
}

const fn written(answer: &KvAnswer) -> Result<Revision, HubClientError> {
    let KvAnswer::Written { revision, .. } = answer else {
        return Err(UNEXPECTED);
    };
    Ok(*revision)
}

/// The outcome is of another kind of request; that does not occur.
const UNEXPECTED: HubClientError = HubClientError::LinkClosed;

/// The outcome of one request.
struct OutcomeFuture(Arc<Slot>);

#[derive(Default)]
struct Slot(Mutex<State>);

#[derive(Default)]
struct State {
    outcome: Option<HubOutcome>,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        // It stays valid after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for OutcomeFuture {
    type Output = HubOutcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<HubOutcome> {
        let mut state = self.0.lock();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The other end of a [`OutcomeFuture`].
pub(super) struct Sender {
    slot: Arc<Slot>,
    open: Arc<AtomicUsize>,
}

impl Sender {
    pub(super) fn send(self, outcome: HubOutcome) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.slot.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_is_woken_by_its_outcome_and_by_the_end_of_the_client() {
        for is_dropped in [false, true] {
            let (slot, open) = (Arc::new(Slot::default()), Arc::new(AtomicUsize::new(1)));
            let reply = Reply::to_future(Sender {
                slot: Arc::clone(&slot),
                open: Arc::clone(&open),
            });
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&woken));
            let mut context = Context::from_waker(&waker);
            let mut future = pin!(OutcomeFuture(slot));
            assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
            let expected = if is_dropped {
                drop(reply);
                HubOutcome::NotSent(NotSent::Ended)
            } else {
                reply.finish(HubOutcome::Mail(Ok(())));
                HubOutcome::Mail(Ok(()))
            };
            assert!(woken.0.load(Ordering::Relaxed));
            assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(expected));
            assert_eq!(open.load(Ordering::Relaxed), 0);
        }
    }
}
