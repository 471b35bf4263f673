//! Events of a client that wait to be taken: outcomes, which always have room, and others, within limits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "async")]
use std::task::{Context, Poll, Waker};

use super::{HubClientEvent, HubOutcome, HubRequestId};

pub(super) struct EventQueue {
    state: Mutex<State>,
    events_max: usize,
    bytes_max: usize,
    /// Requests whose outcome was not taken.
    open: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    events: VecDeque<HubClientEvent>,
    /// Events that are no outcomes, and the values in them, bytes.
    others: usize,
    bytes: usize,
    dropped: u64,
    #[cfg(feature = "async")]
    waker: Option<Waker>,
}

impl EventQueue {
    pub(super) fn new((events_max, bytes_max): (usize, usize), open: Arc<AtomicUsize>) -> Self {
        Self {
            state: Mutex::default(),
            events_max,
            bytes_max,
            open,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The queue stays valid after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an outcome; the request has taken its place.
    pub(super) fn push_outcome(&self, request: HubRequestId, outcome: HubOutcome) {
        let event = HubClientEvent::Done { request, outcome };
        append(self.lock(), event);
    }

    /// Appends another event, unless there is no room.
    pub(super) fn push(&self, event: HubClientEvent) {
        if !self.try_push(event) {
            let mut state = self.lock();
            state.dropped = state.dropped.saturating_add(1);
        }
    }

    /// Appends an event of a watch; returns false if there is no room.
    pub(super) fn try_push(&self, event: HubClientEvent) -> bool {
        let mut state = self.lock();
        let bytes = state.bytes.saturating_add(bytes(&event));
        let is_full =
            state.others >= self.events_max || (bytes > self.bytes_max && state.others > 0);
        if !is_full {
            state.others = state.others.saturating_add(1);
            state.bytes = bytes;
            append(state, event);
        }
        !is_full
    }

    /// Appends an event of which there is at most one for each watch.
    pub(super) fn push_end(&self, event: HubClientEvent) {
        let mut state = self.lock();
        state.others = state.others.saturating_add(1);
        append(state, event);
    }

    pub(super) fn take(&self, events: &mut Vec<HubClientEvent>, max: usize) -> usize {
        let mut state = self.lock();
        let count = state.events.len().min(max);
        let before = events.len();
        let taken: Vec<HubClientEvent> = state.events.drain(..count).collect();
        events.extend(taken);
        for event in events.iter().skip(before) {
            self.on_taken(&mut state, event);
        }
        count
    }

    fn on_taken(&self, state: &mut State, event: &HubClientEvent) {
        if let HubClientEvent::Done { .. } = event {
            self.open.fetch_sub(1, Ordering::Relaxed);
        } else {
            state.others = state.others.saturating_sub(1);
            state.bytes = state.bytes.saturating_sub(bytes(event));
        }
    }

    #[cfg(feature = "async")]
    pub(super) fn poll_next(&self, context: &Context<'_>) -> Poll<HubClientEvent> {
        let mut state = self.lock();
        let Some(event) = state.events.pop_front() else {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        self.on_taken(&mut state, &event);
        Poll::Ready(event)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }
}

/// Appends an event, and wakes the task that waits for one.
fn append(mut state: MutexGuard<'_, State>, event: HubClientEvent) {
    state.events.push_back(event);
    #[cfg(feature = "async")]
    if let Some(waker) = state.waker.take() {
        drop(state);
        waker.wake();
    }
}

/// The value in an event, bytes.
fn bytes(event: &HubClientEvent) -> usize {
    let HubClientEvent::KeyChanged { change, .. } = event else {
        return 0;
    };
    change.value.as_ref().map_or(0, |(value, _)| value.len())
}

#[cfg(test)]
mod tests {
    use hub::Redacted;
    use hub::kv::{KvChange, KvKey, Revision};

    use super::super::HubWatchId;
    use super::*;

    fn queue(events_max: usize, bytes_max: usize) -> EventQueue {
        EventQueue::new((events_max, bytes_max), Arc::default())
    }

    fn change(len: usize) -> HubClientEvent {
        HubClientEvent::KeyChanged {
            watch: HubWatchId(1),
            change: KvChange {
                key: KvKey::new("zone/7").unwrap(),
                revision: Revision(1),
                value: Some((Redacted(vec![0; len].into()), None)),
            },
        }
    }

    #[test]
    fn events_max_and_event_bytes_max_are_limits_but_not_of_outcomes() {
        // As `HubClientConfig::events_max` and `event_bytes_max` set them.
        let config = super::super::HubClientConfig {
            events_max: 2,
            event_bytes_max: 100,
            ..Default::default()
        };
        let events = queue(config.events_max, config.event_bytes_max);
        events.push(HubClientEvent::Up);
        assert!(events.try_push(change(100)));
        assert!(!events.try_push(change(0)));
        events.push(HubClientEvent::Down);
        assert_eq!(events.dropped(), 1);
        events.open.store(1, Ordering::Relaxed);
        events.push_outcome(HubRequestId(7), HubOutcome::Live(None));
        let mut taken = Vec::new();
        assert_eq!(events.take(&mut taken, 2), 2);
        assert_eq!(events.take(&mut taken, 9), 1);
        assert_eq!(taken.first(), Some(&HubClientEvent::Up));
        assert_eq!(events.open.load(Ordering::Relaxed), 0);
        // One that is longer than the limit fits alone.
        assert!(events.try_push(change(101)));
        assert!(!events.try_push(change(1)));
        assert_eq!(events.take(&mut taken, 9), 1);
        let state = events.lock();
        assert_eq!((state.others, state.bytes), (0, 0));
    }
}
