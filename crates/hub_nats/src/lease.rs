//! The lease of a log: one hub holds it, and another waits.
//!
//! The lease only keeps two hubs from replacing each other all the time. That the earlier one can write
//! nothing is held by the numbers of the messages (`publish`).

use core::time::Duration;
use std::sync::Arc;

use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, Store, UpdateErrorKind};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::error::NatsError;
use crate::link::{Link, describe};

/// The key of the lease in its bucket.
const KEY: &str = "owner";

/// A lease that was acquired.
#[derive(Debug)]
pub(crate) struct Lease {
    bucket: Store,
    owner: String,
    revision: u64,
    /// When it was last renewed, at the latest.
    renewed: Instant,
}

impl Lease {
    /// Acquires the lease, or returns `None` once `keep_waiting` returns false.
    pub(crate) async fn acquire(
        link: &Link,
        owner: &str,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Option<Self>, NatsError> {
        let bucket = open_bucket(link).await?;
        let pause = link.config.lease_ttl.div_f32(10.0).min(PAUSE_MAX);
        let mut is_waiting = false;
        loop {
            let renewed = Instant::now();
            match bucket.create(KEY, owner.to_owned().into()).await {
                Ok(revision) => {
                    return Ok(Some(Self {
                        bucket,
                        owner: owner.to_owned(),
                        revision,
                        renewed,
                    }));
                }
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {
                    if !is_waiting {
                        let holder = bucket.get(KEY).await.ok().flatten();
                        let holder = holder.unwrap_or_default();
                        let holder = String::from_utf8_lossy(&holder);
                        tracing::info!(%holder, "another hub holds the log; waiting as its standby");
                        is_waiting = true;
                    }
                }
                Err(error) => {
                    let error = describe(&error);
                    tracing::warn!(error, "the lease could not be asked for; trying again");
                }
            }
            if !keep_waiting() {
                return Ok(None);
            }
            sleep(pause).await;
        }
    }

    /// Renews the lease until the result is dropped, which returns it.
    pub(crate) fn hold(self, link: &Arc<Link>) -> Holding {
        let (ttl, limit) = (link.config.lease_ttl, link.config.outage_max);
        let shared = Arc::clone(&link.shared);
        let bucket = self.bucket.clone();
        let task = link.handle.spawn(async move {
            let reason = self.renew(ttl, limit.max(ttl)).await;
            shared.lose(reason);
        });
        Holding {
            link: Arc::clone(link),
            bucket,
            task,
        }
    }

    /// Renews until the lease is lost, or could not be renewed for `limit`; returns why.
    ///
    /// A lease that has ended and was taken by nobody is taken again: servers that elect a leader do
    /// not answer for longer than it lasts.
    async fn renew(mut self, ttl: Duration, limit: Duration) -> String {
        loop {
            sleep(ttl.div_f32(3.0)).await;
            let asked = Instant::now();
            let left = (self.renewed + limit).saturating_duration_since(asked);
            match timeout(left, self.ask()).await {
                Ok(Ok(Some(revision))) => {
                    self.revision = revision;
                    self.renewed = asked;
                }
                Ok(Ok(None)) => return "another hub has taken the lease".to_owned(),
                Ok(Err(error)) => {
                    tracing::warn!(error, "the lease was not renewed; trying again");
                }
                Err(_) => {}
            }
            if self.renewed.elapsed() >= limit {
                let seconds = limit.as_secs_f32();
                return format!("the lease could not be renewed for {seconds} s");
            }
        }
    }

    /// Asks for the lease once more; returns its revision, or `None` if another hub has it.
    async fn ask(&self) -> Result<Option<u64>, String> {
        let value = || self.owner.clone().into();
        match self.bucket.update(KEY, value(), self.revision).await {
            Ok(revision) => return Ok(Some(revision)),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {}
            Err(error) => return Err(describe(&error)),
        }
        // If the answer to an update was lost, the update is a later revision too.
        match self.bucket.entry(KEY).await {
            Ok(Some(entry)) if entry.operation == Operation::Put => {
                let is_own = entry.value == self.owner.as_bytes();
                return Ok(is_own.then_some(entry.revision));
            }
            Ok(_) => {}
            Err(error) => return Err(describe(&error)),
        }
        match self.bucket.create(KEY, value()).await {
            Ok(revision) => Ok(Some(revision)),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(describe(&error)),
        }
    }
}

/// Longest pause between attempts to acquire a lease.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// A lease that is renewed. Dropping it returns the lease, unless it is lost.
#[derive(Debug)]
pub(crate) struct Holding {
    link: Arc<Link>,
    bucket: Store,
    task: JoinHandle<()>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.task.abort();
        if self.link.shared.lost().is_some() || !self.link.is_running() {
            return;
        }
        let limit = self.link.config.request_timeout;
        let returned = self
            .link
            .block_on(async { timeout(limit, self.bucket.delete(KEY)).await });
        if !matches!(returned, Ok(Ok(()))) {
            tracing::warn!("the lease was not returned; it ends by itself");
        }
    }
}

async fn open_bucket(link: &Link) -> Result<Store, NatsError> {
    let name = link.config.lease_bucket();
    if let Ok(bucket) = link.context.get_key_value(&name).await {
        return Ok(bucket);
    }
    let config = kv::Config {
        bucket: name.clone(),
        description: "the hub that writes to the log of Tickwire".to_owned(),
        history: 1,
        max_age: link.config.lease_ttl,
        num_replicas: link.config.replicas,
        ..kv::Config::default()
    };
    match link.context.create_key_value(config).await {
        Ok(bucket) => Ok(bucket),
        // Another hub may have created it meanwhile.
        Err(error) => match link.context.get_key_value(&name).await {
            Ok(bucket) => Ok(bucket),
            Err(_) => Err(NatsError::request(
                "the bucket of the lease",
                describe(&error),
            )),
        },
    }
}
