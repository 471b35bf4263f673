//! The connection to NATS, on a separate thread with its executor.

use core::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, Event};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::config::NatsConfig;
use crate::error::NatsError;
use crate::tls;
use crate::version::{NEEDED, Version};

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Connections opened, the first included.
    pub connects: u64,
    /// Messages that the client dropped because a subscription's buffer was full. Reads count the
    /// messages and ask again, so none is missed.
    pub dropped: u64,
    /// Writes that were sent again because no answer came in time.
    pub resent: u64,
    /// Messages of the log that are missing on the server.
    pub missing: u64,
}

/// What the threads of a hub share about the connection.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    lost: Mutex<Option<String>>,
    connects: AtomicU64,
    dropped: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) missing: AtomicU64,
}

impl Shared {
    /// Ends all writes; the first reason stays.
    pub(crate) fn lose(&self, reason: String) {
        tracing::error!(reason, "this hub has lost its log");
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert(reason);
    }

    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.clone()
    }

    fn on_event(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.connects.fetch_add(1, Ordering::Relaxed);
                tracing::info!("connected to NATS");
            }
            Event::SlowConsumer(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Event::Disconnected | Event::LameDuckMode | Event::Draining | Event::Closed => {
                tracing::warn!(%event, "the connection to NATS has changed");
            }
            Event::ServerError(_) | Event::ClientError(_) => {
                tracing::warn!(%event, "an error on the connection to NATS");
            }
        }
    }

    pub(crate) fn stats(&self) -> LinkStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkStats {
            connects: get(&self.connects),
            dropped: get(&self.dropped),
            resent: get(&self.resent),
            missing: get(&self.missing),
        }
    }
}

/// The connection with its thread.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: NatsConfig,
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Handle,
    thread: Thread,
}

/// Runs the executor until it is dropped.
#[derive(Debug)]
struct Thread {
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

impl Thread {
    fn start() -> Result<(Handle, Self), NatsError> {
        let failed = |error| NatsError::request("a thread for NATS", error);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = std::thread::Builder::new()
            .name("hub nats".to_owned())
            .spawn(move || {
                // An error is the drop of the sender.
                runtime.block_on(stopped).unwrap_or_default();
            })
            .map_err(failed)?;
        let thread = Self {
            stop: Some(stop),
            running: Some(running),
        };
        Ok((handle, thread))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(running) = self.running.take()
            && running.join().is_err()
        {
            tracing::error!("the thread of the connection to NATS has panicked");
        }
    }
}

/// Messages that wait in the client for a reader. The default drops messages of a fast stream.
const SUBSCRIPTION_CAPACITY: usize = 1 << 20;

impl Link {
    pub(crate) fn connect(config: NatsConfig) -> Result<Self, NatsError> {
        let shared = Arc::new(Shared::default());
        let events = Arc::clone(&shared);
        let options = tls::options(&config)?
            .name(format!("tickwire hub {}", config.name))
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .connection_timeout(config.request_timeout)
            .request_timeout(Some(config.request_timeout))
            .event_callback(move |event| {
                events.on_event(&event);
                core::future::ready(())
            });
        let (handle, thread) = Thread::start()?;
        let client = handle.block_on(options.connect(&config.servers[..]));
        let client = client.map_err(|error| NatsError::Unreachable(describe(&error)))?;
        check(&client)?;
        let context = ContextBuilder::new()
            .timeout(config.request_timeout)
            .ack_timeout(config.request_timeout);
        // It spawns a task.
        let context = handle.block_on(async { context.build(client.clone()) });
        Ok(Self {
            config,
            client,
            context,
            shared,
            handle,
            thread,
        })
    }

    /// Runs `future` on this thread; the connection is served by its own.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Returns whether the connection's thread is running.
    pub(crate) fn is_running(&self) -> bool {
        let running = self.thread.running.as_ref();
        running.is_some_and(|running| !running.is_finished())
    }
}

fn check(client: &Client) -> Result<(), NatsError> {
    let info = client.server_info();
    if Version::parse(&info.version).is_none_or(|version| version < NEEDED) {
        return Err(NatsError::Version {
            found: info.version,
            needed: NEEDED,
        });
    }
    if info.jetstream {
        Ok(())
    } else {
        Err(NatsError::NoJetStream)
    }
}

/// Returns an error with its causes.
pub(crate) fn describe(error: &dyn core::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
