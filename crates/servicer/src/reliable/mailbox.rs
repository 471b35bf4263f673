//! The bounded way from servicers to the application.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

/// How much waits for the application at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Events; each servicer may be one beyond it.
    pub(super) events_max: usize,
    /// Bytes in them; each servicer may be one event beyond it.
    pub(super) bytes_max: usize,
}

/// Both ends share how much waits, since a channel bounds its length alone.
#[derive(Debug)]
struct Level {
    events: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether a servicer has found no room since the application last looked.
    is_awaited: AtomicBool,
    room: Room,
}

/// The servicers' end.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    sender: Sender<(usize, T)>,
    level: Arc<Level>,
}

/// The application's end.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    receiver: Receiver<(usize, T)>,
    level: Arc<Level>,
}

/// Makes both ends.
pub(super) fn mailbox<T>(room: Room) -> (Mailbox<T>, Inbox<T>) {
    // Bounded by `Level`: what must not be lost, such as the end of a servicer, never finds it full.
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
    /// Returns whether there is room for an event; if not, the application wakes the servicers when
    /// it has taken half of what waits.
    pub(super) fn has_room(&self) -> bool {
        if self.level.has_room() {
            return true;
        }
        self.level.is_awaited.store(true, Ordering::SeqCst);
        // Again, since what was taken before the word was left wakes nobody.
        self.level.has_room()
    }

    /// Puts an event in, whose variable part holds `bytes`.
    pub(super) fn put(&self, bytes: usize, event: T) {
        self.level.events.fetch_add(1, Ordering::SeqCst);
        self.level.bytes.fetch_add(bytes, Ordering::SeqCst);
        // Nobody listens any more where the application is gone.
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
    /// Takes the next event, without waiting.
    pub(super) fn take(&self) -> Option<T> {
        let taken = self.receiver.try_recv().ok()?;
        Some(self.note(taken))
    }

    /// Waits for the next event, up to `within`.
    pub(super) fn wait(&self, within: Duration) -> Option<T> {
        let taken = self.receiver.recv_timeout(within).ok()?;
        Some(self.note(taken))
    }

    /// Returns whether servicers wait for room that there is by now; says so once.
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
