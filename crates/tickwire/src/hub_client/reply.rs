//! The way of an outcome to the program that waits for it.

use std::sync::Arc;

use super::queue::EventQueue;
use super::{HubOutcome, HubRequestId, NotSent};

/// Takes the outcome of one request. If it is dropped without one, for example with its thread, the
/// outcome is [`NotSent::Ended`].
pub(super) struct Reply(Option<Target>);

enum Target {
    Queue(Arc<EventQueue>, HubRequestId),
    #[cfg(feature = "async")]
    Future(super::asynchronous::Sender),
}

impl Reply {
    pub(super) const fn to_queue(queue: Arc<EventQueue>, request: HubRequestId) -> Self {
        Self(Some(Target::Queue(queue, request)))
    }

    #[cfg(feature = "async")]
    pub(super) const fn to_future(sender: super::asynchronous::Sender) -> Self {
        Self(Some(Target::Future(sender)))
    }

    /// Delivers the outcome.
    pub(super) fn finish(mut self, outcome: HubOutcome) {
        self.deliver(outcome);
    }

    /// Ends without an outcome.
    pub(super) fn forget(mut self) {
        self.0 = None;
    }

    fn deliver(&mut self, outcome: HubOutcome) {
        match self.0.take() {
            Some(Target::Queue(queue, request)) => queue.push_outcome(request, outcome),
            #[cfg(feature = "async")]
            Some(Target::Future(sender)) => sender.send(outcome),
            None => {}
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.deliver(HubOutcome::NotSent(NotSent::Ended));
    }
}

#[cfg(test)]
mod tests {
    use super::super::HubClientEvent;
    use super::*;

    #[test]
    fn a_reply_that_is_dropped_ends_its_request_unless_it_is_forgotten() {
        let queue = Arc::new(EventQueue::new((1, 1), Arc::default()));
        drop(Reply::to_queue(Arc::clone(&queue), HubRequestId(1)));
        Reply::to_queue(Arc::clone(&queue), HubRequestId(2)).finish(HubOutcome::Live(None));
        Reply::to_queue(Arc::clone(&queue), HubRequestId(3)).forget();
        let mut events = Vec::new();
        queue.take(&mut events, 9);
        let done = |number, outcome| HubClientEvent::Done {
            request: HubRequestId(number),
            outcome,
        };
        assert_eq!(
            events,
            [
                done(1, HubOutcome::NotSent(NotSent::Ended)),
                done(2, HubOutcome::Live(None))
            ]
        );
    }
}
