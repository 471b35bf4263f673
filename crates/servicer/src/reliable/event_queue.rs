//! The bounded queue of events from a server's or client's threads to the application.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};

use super::event::{JoinRequest, LeaveCause, MemberId};

#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// Maximum events. Each thread may exceed it by one.
    pub(super) events_max: usize,
    /// Maximum bytes. Each thread may exceed it by one event.
    pub(super) bytes_max: usize,
}

/// The fill level, shared by both ends because a channel bounds only the number of events.
#[derive(Debug)]
struct QueueLevel {
    events: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether a thread found the queue full since the application last checked.
    is_awaited: AtomicBool,
    limits: QueueLimits,
}

/// The sending end, for threads.
#[derive(Debug)]
pub(super) struct EventSender<T> {
    sender: Sender<(usize, T)>,
    level: Arc<QueueLevel>,
}

/// The receiving end, for the application.
#[derive(Debug)]
pub(super) struct EventReceiver<T> {
    receiver: Receiver<(usize, T)>,
    level: Arc<QueueLevel>,
}

pub(super) fn event_queue<T>(limits: QueueLimits) -> (EventSender<T>, EventReceiver<T>) {
    // `QueueLevel` bounds the queue, not the channel: events that must not be lost, such as the end
    // of a thread, always fit.
    let (sender, receiver) = crossbeam_channel::unbounded();
    let level = Arc::new(QueueLevel {
        events: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        is_awaited: AtomicBool::new(false),
        limits,
    });
    let events = EventSender {
        sender,
        level: Arc::clone(&level),
    };
    (events, EventReceiver { receiver, level })
}

impl<T> EventSender<T> {
    /// Returns whether there is room for an event. If not, the application wakes the threads
    /// after it has taken half of the queued events.
    pub(super) fn has_room(&self) -> bool {
        if self.level.has_room() {
            return true;
        }
        self.level.is_awaited.store(true, Ordering::SeqCst);
        // Checked again, because a take before the flag was set wakes no thread.
        self.level.has_room()
    }

    /// Sends an event whose payload holds `bytes`.
    pub(super) fn put(&self, bytes: usize, event: T) {
        self.level.events.fetch_add(1, Ordering::SeqCst);
        self.level.bytes.fetch_add(bytes, Ordering::SeqCst);
        // Fails if the application's end was dropped.
        drop(self.sender.send((bytes, event)));
    }
}

impl<T> Clone for EventSender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            level: Arc::clone(&self.level),
        }
    }
}

impl<T> EventReceiver<T> {
    pub(super) fn take(&self) -> Option<T> {
        let taken = self.receiver.try_recv().ok()?;
        Some(self.release(taken))
    }

    pub(super) fn wait(&self, within: Duration) -> Option<T> {
        let taken = self.receiver.recv_timeout(within).ok()?;
        Some(self.release(taken))
    }

    /// Returns whether threads wait for room and there is room now. Clears the flag.
    pub(super) fn is_awaited(&self) -> bool {
        self.level.is_awaited.load(Ordering::SeqCst)
            && self.level.is_half_empty()
            && self.level.is_awaited.swap(false, Ordering::SeqCst)
    }

    /// Frees the room of an event taken from the queue.
    fn release(&self, (bytes, event): (usize, T)) -> T {
        self.level.events.fetch_sub(1, Ordering::SeqCst);
        self.level.bytes.fetch_sub(bytes, Ordering::SeqCst);
        event
    }
}

impl QueueLevel {
    fn has_room(&self) -> bool {
        self.events.load(Ordering::SeqCst) < self.limits.events_max
            && self.bytes.load(Ordering::SeqCst) < self.limits.bytes_max
    }

    fn is_half_empty(&self) -> bool {
        self.events.load(Ordering::SeqCst) <= self.limits.events_max / 2
            && self.bytes.load(Ordering::SeqCst) <= self.limits.bytes_max / 2
    }
}

/// An internal event from a thread to the application's end of a server.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// Boxed to keep the enum small, since many messages may be queued.
    Join(Box<JoinRequest>),
    Message {
        from: MemberId,
        payload: Bytes,
    },
    Slow {
        member: MemberId,
        waiting_bytes: usize,
        waiting_for: Duration,
    },
    Left {
        member: MemberId,
        cause: LeaveCause,
    },
    /// A thread has ended, by itself or on request.
    Ended(WorkerId),
}

/// Id of a thread within a server. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkerId(pub(super) u32);

impl WorkerEvent {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Join(request) => request.payload().len(),
            Self::Message { payload, .. } => payload.len().saturating_add(MESSAGE_COST),
            Self::Slow { .. } | Self::Left { .. } | Self::Ended(_) => 0,
        }
    }
}

/// Overhead of a queued message, bytes: its entry in the queue.
pub(super) const MESSAGE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_in_events_and_in_bytes() {
        let limits = QueueLimits {
            events_max: 4,
            bytes_max: 100,
        };
        let (sender, receiver) = event_queue(limits);
        for number in 0..4 {
            assert!(sender.has_room());
            sender.put(1, number);
        }
        assert!(!sender.has_room());
        assert!(!receiver.is_awaited(), "more than half waits");
        assert_eq!((receiver.take(), receiver.take()), (Some(0), Some(1)));
        assert!(receiver.is_awaited());
        assert!(!receiver.is_awaited(), "once");
        sender.put(100, 4);
        assert!(!sender.has_room());
        assert_eq!(
            (receiver.take(), receiver.take(), receiver.take()),
            (Some(2), Some(3), Some(4))
        );
        assert!(sender.has_room() && receiver.is_awaited());
    }

    #[test]
    fn a_queued_message_uses_no_more_memory_than_it_is_counted() {
        // Includes the length that the events stores.
        assert!(size_of::<(usize, WorkerEvent)>() <= MESSAGE_COST);
    }
}
