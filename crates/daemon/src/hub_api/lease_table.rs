//! Leases of the API's clients: each ends by itself unless its client renews it, and its keys with it.
//!
//! A key is written with the lease of the API's own node, so it also ends with the process. When a
//! client's lease ends, each of its keys is read, and deleted if the node's lease still holds it at that
//! revision: a key that another writer has taken since is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hub::kv::KvKey;
use wire::Instant;

/// Number of a lease; `RUN-NUMBER`, valid during one run of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseId {
    run: u32,
    number: u64,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.run, self.number)
    }
}

impl FromStr for LeaseId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, number) = text.split_once('-').ok_or(())?;
        let run = u32::from_str_radix(run, 16).map_err(|_| ())?;
        let number = number.parse().map_err(|_| ())?;
        let lease = Self { run, number };
        // One spelling each.
        (lease.to_string() == text).then_some(lease).ok_or(())
    }
}

/// Why a lease cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseFault {
    /// It has ended, or never was.
    Ended,
    /// As many leases or keys as allowed.
    Full,
}

/// Leases, at most.
const LEASES_MAX: usize = 1_024;

/// Keys of one lease, and puts of it without an answer, at most.
const LEASE_KEYS_MAX: usize = 256;

/// Keys of ended leases that are read or deleted at once.
const ENDING_OPEN_MAX: usize = 64;

/// Pause until a key is read again that could not be read or deleted.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    end: Instant,
    keys: BTreeSet<KvKey>,
    /// Puts without an answer.
    puts: usize,
}

/// A key of an ended lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// To be read then.
    Waits(Instant),
    /// It is read or deleted.
    Open,
}

/// How a put with a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutEnd {
    Written,
    /// It may have been written.
    Unknown,
    NotWritten,
}

/// The leases, and the keys of those that have ended.
#[derive(Debug)]
pub(super) struct LeaseTable {
    run: u32,
    last: u64,
    leases: BTreeMap<LeaseId, Lease>,
    holders: BTreeMap<KvKey, BTreeSet<LeaseId>>,
    ending: BTreeMap<KvKey, Ending>,
    open: usize,
}

impl LeaseTable {
    /// Creates a table without leases; draw `run` at random.
    pub(super) const fn new(run: u32) -> Self {
        Self {
            run,
            last: 0,
            leases: BTreeMap::new(),
            holders: BTreeMap::new(),
            ending: BTreeMap::new(),
            open: 0,
        }
    }

    pub(super) fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, LeaseFault> {
        // Keys of ended leases count too, until they are gone.
        let ending = self.ending.len().div_ceil(LEASE_KEYS_MAX);
        if self.leases.len().saturating_add(ending) >= LEASES_MAX {
            return Err(LeaseFault::Full);
        }
        self.last = self.last.saturating_add(1);
        let id = LeaseId {
            run: self.run,
            number: self.last,
        };
        let lease = Lease {
            ttl,
            end: now + ttl,
            keys: BTreeSet::new(),
            puts: 0,
        };
        self.leases.insert(id, lease);
        Ok(id)
    }

    /// Starts the time of a lease again; returns its length.
    pub(super) fn renew(&mut self, now: Instant, id: LeaseId) -> Result<Duration, LeaseFault> {
        let lease = self.live(now, id)?;
        lease.end = now + lease.ttl;
        Ok(lease.ttl)
    }

    /// Ends a lease now.
    pub(super) fn end(&mut self, now: Instant, id: LeaseId) -> Result<(), LeaseFault> {
        self.live(now, id)?;
        self.remove(now, id);
        Ok(())
    }

    /// A put with the lease is about to be sent.
    pub(super) fn begin_put(&mut self, now: Instant, id: LeaseId) -> Result<(), LeaseFault> {
        let lease = self.live(now, id)?;
        if lease.keys.len().saturating_add(lease.puts) >= LEASE_KEYS_MAX {
            return Err(LeaseFault::Full);
        }
        lease.puts = lease.puts.saturating_add(1);
        Ok(())
    }

    fn live(&mut self, now: Instant, id: LeaseId) -> Result<&mut Lease, LeaseFault> {
        let lease = self.leases.get_mut(&id).filter(|lease| lease.end > now);
        lease.ok_or(LeaseFault::Ended)
    }

    /// A put has ended, with the lease that it had.
    pub(super) fn end_put(
        &mut self,
        now: Instant,
        (key, id): (&KvKey, Option<LeaseId>),
        end: PutEnd,
    ) {
        let lease = id.and_then(|id| self.leases.get_mut(&id).map(|lease| (id, lease)));
        let lease = lease.map(|(id, lease)| {
            lease.puts = lease.puts.saturating_sub(1);
            id
        });
        if end == PutEnd::NotWritten {
            return;
        }
        if end == PutEnd::Written {
            // Whatever held it before, this write holds it now.
            self.release(key);
        }
        match (id, lease) {
            (_, Some(id)) => {
                self.holders.entry(key.clone()).or_default().insert(id);
                if let Some(lease) = self.leases.get_mut(&id) {
                    lease.keys.insert(key.clone());
                }
            }
            (Some(_), None) => drop(self.ending.insert(key.clone(), Ending::Waits(now))),
            (None, None) => {}
        }
    }

    /// The key was written without a lease, or deleted.
    pub(super) fn release(&mut self, key: &KvKey) {
        for id in self.holders.remove(key).unwrap_or_default() {
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.keys.remove(key);
            }
        }
        self.drop_ending(key);
    }

    fn drop_ending(&mut self, key: &KvKey) {
        if self.ending.remove(key) == Some(Ending::Open) {
            self.open = self.open.saturating_sub(1);
        }
    }

    fn remove(&mut self, now: Instant, id: LeaseId) {
        let lease = self.leases.remove(&id);
        for key in lease.into_iter().flat_map(|lease| lease.keys) {
            if let Some(holders) = self.holders.get_mut(&key) {
                holders.remove(&id);
                if holders.is_empty() {
                    self.holders.remove(&key);
                }
            }
            self.ending.entry(key).or_insert(Ending::Waits(now));
        }
    }

    /// Ends the leases whose time is over.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let over = self.leases.iter().filter(|(_, lease)| lease.end <= now);
        let over: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.remove(now, id);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.leases.values().map(|lease| lease.end);
        let waits = self.ending.values().filter_map(|ending| match ending {
            Ending::Waits(at) => Some(*at),
            Ending::Open => None,
        });
        let waits = waits.min().filter(|_| self.open < ENDING_OPEN_MAX);
        ends.min().into_iter().chain(waits).min()
    }

    /// Returns the next key of an ended lease to read.
    pub(super) fn next_ending(&mut self, now: Instant) -> Option<KvKey> {
        if self.open >= ENDING_OPEN_MAX {
            return None;
        }
        let mut ending = self.ending.iter_mut();
        let (key, state) = ending.find(|(_, ending)| match ending {
            Ending::Waits(at) => *at <= now,
            Ending::Open => false,
        })?;
        *state = Ending::Open;
        self.open = self.open.saturating_add(1);
        Some(key.clone())
    }

    /// Whether the key that was read still is one of an ended lease.
    pub(super) fn is_ending(&self, key: &KvKey) -> bool {
        self.ending.get(key) == Some(&Ending::Open)
    }

    /// The key is deleted, or another writer has it.
    pub(super) fn ended(&mut self, key: &KvKey) {
        self.drop_ending(key);
    }

    /// The key could not be read or deleted.
    pub(super) fn retry(&mut self, now: Instant, key: &KvKey) {
        if let Some(ending) = self.ending.get_mut(key) {
            *ending = Ending::Waits(now + RETRY);
            self.open = self.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const START: Instant = Instant::ZERO;

    fn key(text: &str) -> KvKey {
        KvKey::new(text).unwrap()
    }

    fn put(table: &mut LeaseTable, at: Instant, name: &str, id: LeaseId, end: PutEnd) {
        table.begin_put(at, id).unwrap();
        table.end_put(at, (&key(name), Some(id)), end);
    }

    #[test]
    fn ha6_a_lease_that_is_not_renewed_ends_with_its_keys() {
        let mut table = LeaseTable::new(7);
        let id = table.grant(START, TTL).unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        put(&mut table, START, "zone/7", id, PutEnd::Written);
        put(&mut table, START, "zone/8", id, PutEnd::NotWritten);
        assert_eq!(table.poll_timeout(), Some(START + TTL));
        let later = START + TTL / 2;
        assert_eq!(table.renew(later, id), Ok(TTL));
        table.handle_timeout(START + TTL);
        assert_eq!(table.next_ending(START + TTL), None);
        let end = later + TTL;
        assert_eq!(
            table.renew(end, id),
            Err(LeaseFault::Ended),
            "before its timer"
        );
        table.handle_timeout(end);
        assert_eq!(table.next_ending(end), Some(key("zone/7")));
        assert_eq!(table.next_ending(end), None);
        table.retry(end, &key("zone/7"));
        assert_eq!(table.next_ending(end), None);
        assert_eq!(table.poll_timeout(), Some(end + RETRY));
        assert_eq!(table.next_ending(end + RETRY), Some(key("zone/7")));
        table.ended(&key("zone/7"));
        assert_eq!((table.poll_timeout(), table.open), (None, 0));
    }

    #[test]
    fn ha6_a_key_written_since_is_not_ended_by_an_earlier_lease() {
        let mut table = LeaseTable::new(7);
        let ids = [(); 2].map(|()| table.grant(START, TTL).unwrap());
        put(&mut table, START, "zone/7", ids[0], PutEnd::Written);
        put(&mut table, START, "zone/7", ids[1], PutEnd::Written);
        table.end(START, ids[0]).unwrap();
        assert_eq!(table.next_ending(START), None);
        table.end(START, ids[1]).unwrap();
        assert_eq!(table.next_ending(START), Some(key("zone/7")));
        // While it is read, a write without a lease is answered.
        table.end_put(START, (&key("zone/7"), None), PutEnd::Written);
        assert!(!table.is_ending(&key("zone/7")) && table.open == 0);
    }

    #[test]
    fn ha6_a_put_answered_after_its_lease_has_ended_is_taken_back() {
        let mut table = LeaseTable::new(7);
        let id = table.grant(START, TTL).unwrap();
        table.begin_put(START, id).unwrap();
        table.end(START, id).unwrap();
        table.end_put(START, (&key("zone/7"), Some(id)), PutEnd::Unknown);
        assert_eq!(table.next_ending(START), Some(key("zone/7")));
    }

    #[test]
    fn ha6_a_put_with_an_unknown_end_leaves_the_key_with_both_leases() {
        let mut table = LeaseTable::new(7);
        let ids = [(); 2].map(|()| table.grant(START, TTL).unwrap());
        put(&mut table, START, "zone/7", ids[0], PutEnd::Written);
        put(&mut table, START, "zone/7", ids[1], PutEnd::Unknown);
        table.end(START, ids[0]).unwrap();
        assert_eq!(table.next_ending(START), Some(key("zone/7")));
    }

    #[test]
    fn ha6_leases_max_lease_keys_max_and_ending_open_max_are_limits() {
        let mut table = LeaseTable::new(7);
        let ids: Vec<LeaseId> = (0..LEASES_MAX)
            .map(|_| table.grant(START, TTL).unwrap())
            .collect();
        assert_eq!(table.grant(START, TTL), Err(LeaseFault::Full));
        for number in 0..LEASE_KEYS_MAX {
            put(
                &mut table,
                START,
                &format!("k{number}"),
                ids[0],
                PutEnd::Written,
            );
        }
        assert_eq!(table.begin_put(START, ids[0]), Err(LeaseFault::Full));
        table.end(START, ids[0]).unwrap();
        assert_eq!(
            table.grant(START, TTL),
            Err(LeaseFault::Full),
            "its keys are there"
        );
        let mut open = 0;
        while table.next_ending(START).is_some() {
            open += 1;
        }
        assert_eq!(open, ENDING_OPEN_MAX);
    }
}
