//! Open calls.

use std::collections::{BTreeMap, BTreeSet};

use wire::{ConnectionId, Instant, NodeId};

use crate::id::{CallId, RequestId};

/// Open calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The last number assigned.
    last: RequestId,
    open: BTreeMap<RequestId, OpenCall>,
    /// Earliest deadline first.
    deadlines: BTreeSet<(Instant, RequestId)>,
    /// Each call once under the caller's link and once under the callee's.
    by_link: BTreeSet<(ConnectionId, RequestId)>,
    /// Calls per link, as caller or callee.
    load: BTreeMap<ConnectionId, usize>,
    /// Load per calling node.
    asked: BTreeMap<NodeId, CallLoad>,
    /// Requests not written yet; if the call has ended, with the load that is still charged for it.
    unwritten: BTreeMap<RequestId, Option<(NodeId, usize)>>,
}

/// Load of one calling node: its open calls, and ended calls with a request that still occupies an
/// outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallLoad {
    pub(super) count: usize,
    /// Bytes of the requests.
    pub(super) bytes: usize,
}

/// A call that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenCall {
    pub(super) caller: ConnectionId,
    /// The calling node.
    pub(super) from: NodeId,
    /// The caller's number.
    pub(super) call: CallId,
    pub(super) callee: ConnectionId,
    /// Length of the request, bytes.
    pub(super) len: usize,
    pub(super) deadline: Instant,
}

impl Calls {
    /// Registers a call and assigns its number.
    pub(super) fn open(&mut self, call: OpenCall) -> RequestId {
        self.last = RequestId(self.last.0.saturating_add(1));
        let request = self.last;
        self.open.insert(request, call);
        self.deadlines.insert((call.deadline, request));
        self.unwritten.insert(request, None);
        let load_of_caller = self.asked.entry(call.from).or_default();
        load_of_caller.count = load_of_caller.count.saturating_add(1);
        load_of_caller.bytes = load_of_caller.bytes.saturating_add(call.len);
        for link in [call.caller, call.callee] {
            if self.by_link.insert((link, request)) {
                let load = self.load.entry(link).or_default();
                *load = load.saturating_add(1);
            }
        }
        request
    }

    /// Notes that a request was written or dropped.
    pub(super) fn on_written(&mut self, request: RequestId) {
        if let Some(Some((from, len))) = self.unwritten.remove(&request) {
            self.discharge(from, len);
        }
    }

    /// Closes the call, if it is open and was sent to `callee`.
    pub(super) fn answer(&mut self, request: RequestId, callee: ConnectionId) -> Option<OpenCall> {
        if self.open.get(&request)?.callee == callee {
            self.close(request)
        } else {
            None
        }
    }

    /// Closes the first call with a deadline at or before `now`.
    pub(super) fn time_out(&mut self, now: Instant) -> Option<OpenCall> {
        let (deadline, request) = *self.deadlines.first()?;
        if deadline <= now {
            self.close(request)
        } else {
            None
        }
    }

    /// Closes one call in which `link` is caller or callee.
    pub(super) fn close_one_of(&mut self, link: ConnectionId) -> Option<OpenCall> {
        let first = (link, RequestId(0));
        let last = (link, RequestId(u64::MAX));
        let (_, request) = *self.by_link.range(first..=last).next()?;
        self.close(request)
    }

    /// Returns in how many calls `link` is caller or callee.
    pub(super) fn load(&self, link: ConnectionId) -> usize {
        self.load.get(&link).copied().unwrap_or(0)
    }

    /// Returns the load of `node`.
    pub(super) fn load_of_caller(&self, node: NodeId) -> CallLoad {
        self.asked.get(&node).copied().unwrap_or_default()
    }

    /// Returns how many calls are open, or have ended with their request unwritten.
    pub(super) fn len(&self) -> usize {
        // Open calls with an unwritten request are in both tables.
        let ended = self.unwritten.values().flatten().count();
        self.open.len().saturating_add(ended)
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn discharge(&mut self, from: NodeId, len: usize) {
        if let Some(load_of_caller) = self.asked.get_mut(&from) {
            load_of_caller.count = load_of_caller.count.saturating_sub(1);
            load_of_caller.bytes = load_of_caller.bytes.saturating_sub(len);
            if load_of_caller.count == 0 {
                self.asked.remove(&from);
            }
        }
    }

    fn close(&mut self, request: RequestId) -> Option<OpenCall> {
        let call = self.open.remove(&request)?;
        self.deadlines.remove(&(call.deadline, request));
        match self.unwritten.get_mut(&request) {
            Some(charge) => *charge = Some((call.from, call.len)),
            None => self.discharge(call.from, call.len),
        }
        for link in [call.caller, call.callee] {
            if self.by_link.remove(&(link, request))
                && let Some(load) = self.load.get_mut(&link)
            {
                *load = load.saturating_sub(1);
                if *load == 0 {
                    self.load.remove(&link);
                }
            }
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn calls_that_ended_before_they_were_written_count_beside_those_that_are_open() {
        let mut calls = Calls::default();
        let (caller, callee) = (ConnectionId(1), ConnectionId(2));
        let requests: Vec<_> = (0..6)
            .map(|number| {
                calls.open(OpenCall {
                    caller,
                    from: NodeId([1; 32]),
                    call: CallId(number),
                    callee,
                    len: 10,
                    deadline: Instant::ZERO + Duration::from_secs(number),
                })
            })
            .collect();
        assert_eq!(calls.len(), 6, "open and not written");
        for request in &requests[..3] {
            calls.on_written(*request);
        }
        assert_eq!(calls.len(), 6, "open");
        for request in &requests[3..] {
            calls.answer(*request, callee).unwrap();
        }
        assert_eq!(calls.len(), 6, "three open, three ended and not written");
        calls.on_written(requests[3]);
        calls.answer(requests[0], callee).unwrap();
        assert_eq!(calls.len(), 4);
    }
}
