//! Changes of keys on their way from the API's node to a `WebSocket`: a bounded queue for each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hub::WatchId;
use hub::kv::{KvChange, Revision};
use tokio::sync::watch;

/// What a watch of the hub reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyNews {
    /// Changes are missing: read all keys again.
    Reset,
    Changed(KvChange),
    /// All changes up to this revision were reported.
    Complete(Revision),
}

/// Changes in the queue of one feed, at most.
const CHANGES_MAX: usize = 4_096;

/// The same in bytes. A single change may be longer.
const BYTES_MAX: usize = 1 << 20;

/// The queue of one `WebSocket`. Once it is full, it is over: the reader is too slow.
#[derive(Debug)]
pub(super) struct KeyFeed {
    queue: Mutex<Queue>,
    /// Grows with each change.
    arrived: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    news: VecDeque<KeyNews>,
    bytes: usize,
    is_over: bool,
}

impl KeyFeed {
    fn new() -> Self {
        Self {
            queue: Mutex::default(),
            arrived: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue stays valid after a panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends news; returns false if the queue is over.
    fn push(&self, news: KeyNews) -> bool {
        let mut queue = self.lock();
        let bytes = queue.bytes.saturating_add(bytes(&news));
        let is_full = queue.news.len() >= CHANGES_MAX || bytes > BYTES_MAX;
        if is_full && !queue.news.is_empty() {
            // What is in it would end in a gap.
            *queue = Queue {
                is_over: true,
                ..Queue::default()
            };
        }
        if !queue.is_over {
            queue.bytes = bytes;
            queue.news.push_back(news);
        }
        let is_over = queue.is_over;
        drop(queue);
        self.arrived
            .send_modify(|count| *count = count.saturating_add(1));
        !is_over
    }

    /// Takes at most `max` news; `None` if the queue is over.
    pub(super) fn take(&self, max: usize) -> Option<Vec<KeyNews>> {
        let mut queue = self.lock();
        if queue.is_over {
            return None;
        }
        let len = queue.news.len().min(max);
        let taken: Vec<KeyNews> = queue.news.drain(..len).collect();
        let taken_bytes = taken.iter().map(bytes).sum();
        queue.bytes = queue.bytes.saturating_sub(taken_bytes);
        Some(taken)
    }

    /// Returns a receiver that is notified of news.
    pub(super) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrived.subscribe()
    }
}

fn bytes(news: &KeyNews) -> usize {
    match news {
        KeyNews::Changed(change) => {
            let value = change.value.as_ref().map_or(0, |(value, _)| value.len());
            value
                .saturating_add(change.key.as_str().len())
                .saturating_add(size_of::<KeyNews>())
        }
        KeyNews::Reset | KeyNews::Complete(_) => size_of::<KeyNews>(),
    }
}

/// The feeds of the API's node. A feed without a reader ends with its next change, or before the next
/// one begins.
#[derive(Debug, Default)]
pub(super) struct KeyFeeds(BTreeMap<WatchId, Weak<KeyFeed>>);

impl KeyFeeds {
    /// Creates the feed of a watch.
    pub(super) fn begin(&mut self, watch: WatchId) -> Arc<KeyFeed> {
        let feed = Arc::new(KeyFeed::new());
        self.0.insert(watch, Arc::downgrade(&feed));
        feed
    }

    /// Removes a watch that has no reader, if there is one.
    pub(super) fn remove_unread(&mut self) -> Option<WatchId> {
        let mut feeds = self.0.iter();
        let unread = feeds.find(|(_, feed)| feed.strong_count() == 0);
        let watch = unread.map(|(watch, _)| *watch);
        watch.inspect(|watch| drop(self.0.remove(watch)))
    }

    /// Passes news on; returns false if nobody reads them any longer.
    pub(super) fn push(&mut self, watch: WatchId, news: KeyNews) -> bool {
        let feed = self.0.get(&watch).and_then(Weak::upgrade);
        let is_read = feed.is_some_and(|feed| feed.push(news));
        if !is_read {
            self.0.remove(&watch);
        }
        is_read
    }
}

#[cfg(test)]
mod tests {
    use hub::Redacted;
    use hub::kv::KvKey;

    use super::*;

    fn change(number: u64, len: usize) -> KeyNews {
        KeyNews::Changed(KvChange {
            key: KvKey::new("zone/7").unwrap(),
            revision: Revision(number),
            value: Some((Redacted(vec![0; len].into()), None)),
        })
    }

    #[test]
    fn ha3_a_feed_that_is_not_read_is_over_at_its_limits() {
        for (len, expected) in [(0, CHANGES_MAX), (60_000, 17)] {
            let mut feeds = KeyFeeds::default();
            let feed = feeds.begin(WatchId(1));
            let mut pushed = 0;
            while feeds.push(WatchId(1), change(pushed, len)) {
                pushed += 1;
            }
            assert_eq!(pushed, expected as u64);
            assert_eq!(feed.take(9), None, "no change follows a gap");
            assert_eq!(feed.lock().news.len(), 0);
        }
    }

    #[test]
    fn ha3_a_feed_returns_all_changes_in_order_and_keeps_no_bytes() {
        let mut feeds = KeyFeeds::default();
        let feed = feeds.begin(WatchId(1));
        // Larger than the limit, and alone.
        assert!(feeds.push(WatchId(1), change(1, 2 << 20)));
        assert_eq!(feed.take(9).unwrap(), [change(1, 2 << 20)]);
        for number in 2..5 {
            assert!(feeds.push(WatchId(1), change(number, 10)));
        }
        assert_eq!(feed.take(2).unwrap(), [change(2, 10), change(3, 10)]);
        assert_eq!(feed.take(9).unwrap(), [change(4, 10)]);
        assert_eq!(feed.take(9).unwrap(), []);
        assert_eq!(feed.lock().bytes, 0);
    }

    #[test]
    fn ha3_a_feed_without_a_reader_is_removed() {
        let mut feeds = KeyFeeds::default();
        drop(feeds.begin(WatchId(1)));
        let kept = feeds.begin(WatchId(2));
        drop(feeds.begin(WatchId(3)));
        assert!(!feeds.push(WatchId(3), KeyNews::Reset));
        assert_eq!(feeds.remove_unread(), Some(WatchId(1)));
        assert_eq!(feeds.remove_unread(), None);
        assert!(feeds.push(WatchId(2), KeyNews::Reset));
        drop(kept);
    }
}
