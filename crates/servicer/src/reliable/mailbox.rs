//! The bounded event queue from servicers to the application.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

/// Limits of the event queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Maximum events. Each servicer may exceed it by one.
    pub(super) events_max: usize,
    /// Maximum bytes. Each servicer may exceed it by one event.
    pub(super) bytes_max: usize,
}

/// The fill level, shared by both ends because a channel bounds only the number of events.
#[derive(Debug)]
struct Level {
    events: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether a servicer found the queue full since the application last checked.
    is_awaited: AtomicBool,
    room: Room,
}

/// The sending end, for servicers.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    sender: Sender<(usize, T)>,
    level: Arc<Level>,
}

/// The receiving end, for the application.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    receiver: Receiver<(usize, T)>,
    level: Arc<Level>,
}

/// Creates both ends.
pub(super) fn mailbox<T>(room: Room) -> (Mailbox<T>, Inbox<T>) {
    // `Level` bounds the queue. The channel has no bound, so events that must not be lost, such as
    // the end of a servicer, always fit.
    let (sender, receiver) = crossbeam_channel::unbounded();
    let level = Arc::new(Level {
        events: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        is_awaited: AtomicBool::new(false),
        room,
    });
    let mailbox = Mailbox {
        sender,
        level: Arc::clone(&level),
    };
    (mailbox, Inbox { receiver, level })
}

impl<T> Mailbox<T> {
    /// Returns whether there is room for an event. If not, the application wakes the servicers
    /// after it has taken half of the queued events.
    pub(super) fn has_room(&self) -> bool {
        if self.level.has_room() {
            return true;
        }
        self.level.is_awaited.store(true, Ordering::SeqCst);
        // Checked again, because a take before the flag was set wakes no servicer.
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

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            level: Arc::clone(&self.level),
        }
    }
}

impl<T> Inbox<T> {
    /// Returns the next event without waiting.
    pub(super) fn take(&self) -> Option<T> {
        let taken = self.receiver.try_recv().ok()?;
        Some(self.note(taken))
    }

    /// Waits for the next event, up to `within`.
    pub(super) fn wait(&self, within: Duration) -> Option<T> {
        let taken = self.receiver.recv_timeout(within).ok()?;
        Some(self.note(taken))
    }

    /// Returns whether servicers wait for room and there is room now. Clears the flag.
    pub(super) fn is_awaited(&self) -> bool {
        self.level.is_awaited.load(Ordering::SeqCst)
            && self.level.is_half_empty()
            && self.level.is_awaited.swap(false, Ordering::SeqCst)
    }

    fn note(&self, (bytes, event): (usize, T)) -> T {
        self.level.events.fetch_sub(1, Ordering::SeqCst);
        self.level.bytes.fetch_sub(bytes, Ordering::SeqCst);
        event
    }
}

impl Level {
    fn has_room(&self) -> bool {
        self.events.load(Ordering::SeqCst) < self.room.events_max
            && self.bytes.load(Ordering::SeqCst) < self.room.bytes_max
    }

    fn is_half_empty(&self) -> bool {
        self.events.load(Ordering::SeqCst) <= self.room.events_max / 2
            && self.bytes.load(Ordering::SeqCst) <= self.room.bytes_max / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_events_and_in_bytes() {
        let room = Room {
            events_max: 4,
            bytes_max: 100,
        };
        let (mailbox, inbox) = mailbox(room);
        for number in 0..4 {
            assert!(mailbox.has_room());
            mailbox.put(1, number);
        }
        assert!(!mailbox.has_room());
        assert!(!inbox.is_awaited(), "more than half waits");
        assert_eq!((inbox.take(), inbox.take()), (Some(0), Some(1)));
        assert!(inbox.is_awaited());
        assert!(!inbox.is_awaited(), "once");
        mailbox.put(100, 4);
        assert!(!mailbox.has_room());
        assert_eq!(
            (inbox.take(), inbox.take(), inbox.take()),
            (Some(2), Some(3), Some(4))
        );
        assert!(mailbox.has_room() && inbox.is_awaited());
    }
}
