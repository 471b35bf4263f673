//! The cases on NATS: core messages, `JetStream` and its KV.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::{self, Context, kv, stream};
use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;

use crate::process::{Certificate, Server};
use crate::sample::{DURATION, Recorder, Sample, now};
use crate::{
    FAN_BATCH, FAN_LINKS, FAN_SUBSCRIPTIONS, FAN_WINDOW, MAILBOX_MAILS, MAILBOXES, PAYLOAD, Result,
};

/// A server and the way to it.
#[derive(Debug)]
pub struct Nats {
    server: Server,
    certificate: Option<Certificate>,
}

const BODY: Bytes = Bytes::from_static(&[7; PAYLOAD]);

impl Nats {
    /// Creates the client side of `server`.
    #[must_use]
    pub const fn new(server: Server, certificate: Option<Certificate>) -> Self {
        Self {
            server,
            certificate,
        }
    }

    /// Connects with a large buffer: with the default one, the client drops messages under load.
    async fn connect(&self) -> Result<Client> {
        let mut options = ConnectOptions::new()
            .subscription_capacity(1 << 20)
            .client_capacity(1 << 16);
        if let Some(it) = &self.certificate {
            let chain = it.chain.clone();
            options = options.add_root_certificates(chain).require_tls(true);
        }
        let port = self.server.port;
        Ok(options.connect(format!("nats://localhost:{port}")).await?)
    }

    async fn jetstream(&self) -> Result<Context> {
        let mut context = jetstream::new(self.connect().await?);
        context.set_timeout(Duration::from_secs(30));
        Ok(context)
    }

    /// Requests to a responder on another connection, `window` at a time.
    pub async fn call(&self, window: usize) -> Result<Sample> {
        let responder = self.connect().await?;
        let mut requests = responder.subscribe("echo").await?;
        responder.flush().await?;
        let answering = tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                if let Some(reply) = request.reply {
                    responder.publish(reply, request.payload).await.ok();
                }
            }
        });
        let caller = self.connect().await?;
        let mut recorder = Recorder::default();
        let mut open = FuturesUnordered::new();
        loop {
            while open.len() < window && !recorder.is_over() {
                let caller = caller.clone();
                open.push(async move {
                    let since = now();
                    caller.request("echo", BODY).await.map(|_| since)
                });
            }
            let Some(done) = open.next().await else {
                break;
            };
            recorder.add(done?);
        }
        answering.abort();
        Ok(recorder.finish())
    }

    /// Publishes to 100 subscriptions on 10 connections.
    pub async fn fan_out(&self) -> Result<Sample> {
        let delivered = Arc::new(AtomicUsize::new(0));
        let window = Arc::new(Semaphore::new(FAN_WINDOW));
        let mut receivers = Vec::new();
        for _ in 0..FAN_LINKS {
            let client = self.connect().await?;
            for _ in 0..FAN_SUBSCRIPTIONS {
                let mut messages = client.subscribe("fan").await?;
                let (delivered, window) = (Arc::clone(&delivered), Arc::clone(&window));
                receivers.push(tokio::spawn(async move {
                    while messages.next().await.is_some() {
                        count_delivery(&delivered, &window);
                    }
                }));
            }
            client.flush().await?;
        }
        let publisher = self.connect().await?;
        let mut recorder = Recorder::default();
        let begin = now();
        while now() - begin < DURATION {
            window.acquire().await?.forget();
            for _ in 0..FAN_BATCH {
                publisher.publish("fan", BODY).await?;
            }
            publisher.flush().await?;
            recorder.add_count((FAN_BATCH * FAN_LINKS * FAN_SUBSCRIPTIONS) as u64);
        }
        for receiver in receivers {
            receiver.abort();
        }
        Ok(recorder.finish())
    }

    async fn mail_stream(context: &Context, name: &str) -> Result<stream::Stream> {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.>")],
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        Ok(context.get_or_create_stream(config).await?)
    }

    /// Publishes mail to a stream, `window` at a time. The server's `sync_interval` decides whether
    /// an answered one is on disk.
    pub async fn mail(&self, window: usize) -> Result<Sample> {
        let context = self.jetstream().await?;
        Self::mail_stream(&context, "mail").await?;
        let mut recorder = Recorder::default();
        let mut open = FuturesUnordered::new();
        let mut next = 0;
        loop {
            while open.len() < window && !recorder.is_over() {
                let context = context.clone();
                let subject = format!("mail.{}", next % MAILBOXES);
                next += 1;
                open.push(async move {
                    let since = now();
                    let answer = context.publish(subject, BODY).await?;
                    answer.await.map(|_| since)
                });
            }
            let Some(done) = open.next().await else {
                return Ok(recorder.finish());
            };
            recorder.add(done?);
        }
    }

    /// Reads mailboxes of 200 through a consumer each.
    pub async fn mailbox(&self) -> Result<Sample> {
        let context = self.jetstream().await?;
        let stream = Self::mail_stream(&context, "box").await?;
        let boxes = 50;
        for mailbox in 0..boxes {
            let mut open = FuturesUnordered::new();
            for _ in 0..MAILBOX_MAILS {
                open.push(
                    context
                        .publish(format!("box.{mailbox}"), BODY)
                        .await?
                        .into_future(),
                );
            }
            while let Some(done) = open.next().await {
                done?;
            }
        }
        let mut latencies = Vec::new();
        for mailbox in 0..boxes {
            let since = now();
            let consumer = stream
                .create_consumer(pull::OrderedConfig {
                    filter_subject: format!("box.{mailbox}"),
                    deliver_policy: DeliverPolicy::All,
                    ..pull::OrderedConfig::default()
                })
                .await?;
            let mut messages = consumer.messages().await?;
            for _ in 0..MAILBOX_MAILS {
                messages.next().await.ok_or("the consumer has ended")??;
            }
            latencies.push(since.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Sample::of(&latencies))
    }

    /// Puts a key until a watcher on another connection has seen it, again and again.
    pub async fn kv_watch(&self) -> Result<Sample> {
        let context = self.jetstream().await?;
        let config = kv::Config {
            bucket: "kv".to_owned(),
            ..kv::Config::default()
        };
        let store = context.create_key_value(config).await?;
        let watching = self.jetstream().await?.get_key_value("kv").await?;
        let mut changes = watching.watch("key").await?;
        let mut recorder = Recorder::default();
        while !recorder.is_over() {
            let since = now();
            // The change and the answer arrive on two connections.
            let put = store.put("key", BODY);
            let change = async { (changes.next().await, since.elapsed()) };
            let (revision, (change, latency)) = tokio::join!(put, change);
            revision?;
            change.ok_or("the watch has ended")??;
            recorder.add_latency(latency);
        }
        Ok(recorder.finish())
    }
}

/// Counts one delivery; returns a batch to the window when all of its messages are delivered.
fn count_delivery(delivered: &AtomicUsize, window: &Semaphore) {
    const BATCH: usize = FAN_BATCH * FAN_LINKS * FAN_SUBSCRIPTIONS;
    if (delivered.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(BATCH) {
        window.add_permits(1);
    }
}
