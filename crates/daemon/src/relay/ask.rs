//! What other threads ask of a node.

use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

use servicer::{Counters, Requests};
use tokio::sync::oneshot;
use wire::Instant;

use super::beside::{BesideCounts, StrayStats};
use super::tcp::Carrier;

type Question = dyn FnOnce(Instant, &mut Carrier) + Send;

/// Something to be done with a node, on its thread.
pub(super) struct Ask(Box<Question>);

impl Ask {
    pub(super) fn new(question: impl FnOnce(Instant, &mut Carrier) + Send + 'static) -> Self {
        Self(Box::new(question))
    }

    pub(super) fn of(self, now: Instant, node: &mut Carrier) {
        (self.0)(now, node);
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask(..)")
    }
}

/// Asks a node from another thread.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    node: Requests<Ask>,
    beside: BesideCounts,
}

impl Asker {
    pub(super) const fn new(node: Requests<Ask>, beside: BesideCounts) -> Self {
        Self { node, beside }
    }

    /// Asks, and waits up to `patience`; `None` where the node does not answer.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        patience: Duration,
        question: impl FnOnce(Instant, &mut Carrier) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.post(move |now, node| {
            // Whoever asked may have given up.
            answer.try_send(question(now, node)).ok();
        })?;
        answered.recv_timeout(patience).ok()
    }

    /// Asks, and waits as a task; `None` where the node does not answer within `patience`.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        question: impl FnOnce(Instant, &mut Carrier) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.post(move |now, node| {
            answer.send(question(now, node)).ok();
        })?;
        tokio::time::timeout(patience, answered).await.ok()?.ok()
    }

    fn post(&self, ask: impl FnOnce(Instant, &mut Carrier) + Send + 'static) -> Option<()> {
        self.node.send(Ask::new(ask)).ok()
    }

    /// Returns what the drivers of the node's shards have counted, its own first.
    pub(super) fn shards(&self) -> Vec<Counters> {
        let own = self.node.counters();
        core::iter::once(own).chain(self.beside.drivers()).collect()
    }

    /// Returns what they have counted together.
    pub(super) fn counters(&self) -> Counters {
        let own = self.node.counters();
        self.beside.drivers().fold(own, Counters::plus)
    }

    /// Returns what came to the socket of another shard.
    pub(super) fn strays(&self) -> StrayStats {
        self.beside.strays()
    }
}
