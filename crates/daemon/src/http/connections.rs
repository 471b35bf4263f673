//! Connections of one server: limits per source, and eviction of idle ones.
//!
//! A connection is idle while the server waits for the client: before a request, within its head or
//! body, and after a response. Idle connections keep no client out: a new connection evicts the
//! oldest idle one of its source if the source has half of its share, and the oldest idle one of
//! the largest source if all slots are taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Extension;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::oneshot;
use wire::SourceKey;

/// The connections of one server; never locked across an await.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    total_max: usize,
    each_max: usize,
    by_id: BTreeMap<u64, Entry>,
    /// By source; `None` for trusted proxies, which carry many sources and have no share.
    by_source: BTreeMap<Option<SourceKey>, Share>,
    /// Next connection id, and next order of becoming idle.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    source: Option<SourceKey>,
    /// Key in [`Share::idle`].
    idle: Option<u64>,
    _close: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Share {
    connections: usize,
    idle: BTreeMap<u64, u64>,
}

#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    activity: Activity,
    closed: oneshot::Receiver<()>,
}

#[derive(Clone, Debug)]
pub(crate) struct Activity {
    connections: Connections,
    id: u64,
}

impl Connections {
    /// Allows `total_max` connections, and `each_max` of one source.
    pub(crate) fn new(total_max: usize, each_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Table {
            total_max,
            each_max,
            by_id: BTreeMap::new(),
            by_source: BTreeMap::new(),
            next: 0,
        })))
    }

    /// Admits an idle connection of `source`, evicting another if necessary. `None` stands for many
    /// sources, which only the total limits.
    pub(crate) fn admit(&self, source: Option<SourceKey>) -> Option<ConnectionSlot> {
        let mut table = self.lock();
        if !table.make_room(source) {
            return None;
        }
        let id = table.name();
        let (close, closed) = oneshot::channel();
        let entry = Entry {
            source,
            idle: None,
            _close: close,
        };
        table.by_id.insert(id, entry);
        let share = table.by_source.entry(source).or_default();
        share.connections = share.connections.saturating_add(1);
        table.set_idle(id);
        let activity = Activity {
            connections: self.clone(),
            id,
        };
        Some(ConnectionSlot { activity, closed })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // The table stays valid after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    const fn name(&mut self) -> u64 {
        let name = self.next;
        self.next = name.saturating_add(1);
        name
    }

    /// Whether another connection of `source` fits, after an eviction if that helps.
    fn make_room(&mut self, source: Option<SourceKey>) -> bool {
        if source.is_some() {
            if self.count(source) >= self.each_max.div_ceil(2) {
                self.close_oldest(source);
            }
            if self.count(source) >= self.each_max {
                return false;
            }
        }
        if self.by_id.len() < self.total_max {
            return true;
        }
        let own = self.count(source);
        let idle = self.by_source.iter().filter(|(of, share)| {
            let is_larger = share.connections > own || **of == source;
            is_larger && !share.idle.is_empty()
        });
        let largest = idle.max_by_key(|(_, share)| share.connections);
        let largest = largest.map(|(of, _)| *of);
        largest.is_some_and(|largest| self.close_oldest(largest))
    }

    fn count(&self, source: Option<SourceKey>) -> usize {
        let share = self.by_source.get(&source);
        share.map_or(0, |share| share.connections)
    }

    fn close_oldest(&mut self, source: Option<SourceKey>) -> bool {
        let share = self.by_source.get(&source);
        let oldest = share.and_then(|share| share.idle.values().next().copied());
        oldest.is_some_and(|id| self.remove(id))
    }

    fn set_busy(&mut self, id: u64) {
        if let Some(entry) = self.by_id.get_mut(&id)
            && let Some(since) = entry.idle.take()
            && let Some(share) = self.by_source.get_mut(&entry.source)
        {
            share.idle.remove(&since);
        }
    }

    /// Marks it as the most recently idle one.
    fn set_idle(&mut self, id: u64) {
        self.set_busy(id);
        let since = self.name();
        if let Some(entry) = self.by_id.get_mut(&id)
            && let Some(share) = self.by_source.get_mut(&entry.source)
        {
            entry.idle = Some(since);
            share.idle.insert(since, id);
        }
    }

    fn remove(&mut self, id: u64) -> bool {
        self.set_busy(id);
        let Some(entry) = self.by_id.remove(&id) else {
            return false;
        };
        if let Some(share) = self.by_source.get_mut(&entry.source) {
            share.connections = share.connections.saturating_sub(1);
            if share.connections == 0 {
                self.by_source.remove(&entry.source);
            }
        }
        true
    }
}

impl ConnectionSlot {
    pub(crate) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    pub(crate) async fn closed(&mut self) {
        // The sender sends nothing and is dropped.
        drop((&mut self.closed).await);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Activity { connections, id } = &self.activity;
        connections.lock().remove(*id);
    }
}

impl Activity {
    /// The server has received the whole request.
    pub(crate) fn busy(&self) {
        self.connections.lock().set_busy(self.id);
    }

    fn idle(&self) {
        self.connections.lock().set_idle(self.id);
    }
}

/// Middleware around all routes: a request without a body is busy at once; the handler of one with
/// a body calls [`Activity::busy`] after reading it.
pub(crate) async fn track(
    Extension(activity): Extension<Activity>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        activity.busy();
    }
    let response = next.run(request).await;
    activity.idle();
    response
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const fn source(last: u8) -> SourceKey {
        SourceKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    const ONE: Option<SourceKey> = Some(source(1));
    const TWO: Option<SourceKey> = Some(source(2));
    const PROXY: Option<SourceKey> = None;

    fn is_closed(slot: &mut ConnectionSlot) -> bool {
        slot.closed.try_recv() == Err(TryRecvError::Closed)
    }

    fn closed(slots: &mut [ConnectionSlot]) -> Vec<usize> {
        let numbered = slots.iter_mut().enumerate();
        let closed = numbered.filter_map(|(number, slot)| is_closed(slot).then_some(number));
        closed.collect()
    }

    #[test]
    fn above_half_of_its_share_a_source_evicts_its_oldest_idle() {
        let connections = Connections::new(1_024, 256);
        let mut slots: Vec<ConnectionSlot> =
            (0..128).map(|_| connections.admit(ONE).unwrap()).collect();
        assert_eq!(closed(&mut slots), [0; 0]);
        let _newcomer = connections.admit(ONE).unwrap();
        assert_eq!(closed(&mut slots), [0]);
        // A connection that was busy since is not the oldest.
        slots[1].activity().busy();
        slots[1].activity().idle();
        let _next = connections.admit(ONE).unwrap();
        assert_eq!(closed(&mut slots), [0, 2]);
        // A connection that waits for its response is not idle.
        slots[3].activity().busy();
        let _third = connections.admit(ONE).unwrap();
        assert_eq!(closed(&mut slots), [0, 2, 4]);
        assert_eq!(connections.lock().count(ONE), 128);
    }

    #[test]
    fn busy_connections_may_fill_the_share_and_no_more() {
        let connections = Connections::new(1_024, 4);
        let mut slots = Vec::new();
        for _ in 0..4 {
            let slot = connections.admit(ONE).unwrap();
            slot.activity().busy();
            slots.push(slot);
        }
        assert!(connections.admit(ONE).is_none());
        assert!(connections.admit(TWO).is_some());
        slots[2].activity().idle();
        let _newcomer = connections.admit(ONE).unwrap();
        assert_eq!(closed(&mut slots), [2]);
        // Dropping an evicted connection frees nothing again.
        slots.remove(2);
        assert_eq!(connections.lock().count(ONE), 4);
        drop(slots);
        assert_eq!(connections.lock().count(ONE), 1);
        assert!(Connections::new(9, 0).admit(ONE).is_none());
    }

    #[test]
    fn with_all_slots_taken_the_largest_source_is_evicted() {
        let connections = Connections::new(5, 100);
        let mut first: Vec<ConnectionSlot> =
            (0..3).map(|_| connections.admit(ONE).unwrap()).collect();
        let mut second: Vec<ConnectionSlot> =
            (0..2).map(|_| connections.admit(TWO).unwrap()).collect();
        let third = connections.admit(Some(source(3))).unwrap();
        assert_eq!((closed(&mut first), closed(&mut second)), (vec![0], vec![]));
        // A new connection evicts one of its own source, not one of a source with fewer.
        let _own = connections.admit(TWO).unwrap();
        assert_eq!(
            (closed(&mut first), closed(&mut second)),
            (vec![0], vec![0])
        );
        for slot in first.iter().chain(&second).chain([&third]) {
            slot.activity().busy();
        }
        let mut last = connections.admit(TWO).unwrap();
        let _fourth = connections.admit(Some(source(4))).unwrap();
        assert!(is_closed(&mut last), "the only idle one");
        assert_eq!(connections.lock().by_id.len(), 5);
    }

    #[test]
    fn connections_of_many_sources_may_take_all_slots() {
        let connections = Connections::new(3, 1);
        let mut slots: Vec<ConnectionSlot> =
            (0..3).map(|_| connections.admit(PROXY).unwrap()).collect();
        let _one = connections.admit(ONE).unwrap();
        assert_eq!(closed(&mut slots), [0]);
        let _another = connections.admit(PROXY).unwrap();
        assert_eq!(closed(&mut slots), [0, 1]);
        assert_eq!(connections.lock().by_id.len(), 3);
    }

    #[test]
    fn ended_connections_are_removed() {
        let connections = Connections::new(8, 8);
        let slots: Vec<ConnectionSlot> = (0..20).filter_map(|_| connections.admit(ONE)).collect();
        drop(slots);
        let table = connections.lock();
        assert!(table.by_id.is_empty() && table.by_source.is_empty());
    }
}
