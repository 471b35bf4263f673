//! Tables of a hub: open calls, claims of players, and commands to the store.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, CommandId, ConnectionId, Instant, NodeId, UnixTime};

use super::ENTRY_BYTES;
use super::fanout::GroupPending;
use super::kv::KvPending;
use crate::field::{Addr, BatchSeq, CallId, ClaimNumber, Lease, MailSeq, RequestId, SenderSeq};
use crate::record::{MailTo, MailVerdict, PlayerList};
use crate::store::{Command, NewMail, Settled, StoreOp};

/// Open calls, and ended calls with a request that still occupies an outbox.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: RequestId,
    open: BTreeMap<RequestId, OpenCall>,
    /// Earliest deadline first.
    deadlines: BTreeSet<(Instant, RequestId)>,
    /// Open calls by the caller's link and number.
    by_caller: BTreeMap<(ConnectionId, CallId), RequestId>,
    /// Open calls by the callee's link.
    by_callee: BTreeSet<(ConnectionId, RequestId)>,
    /// Calls per link, as caller or callee.
    load: Usage<ConnectionId>,
    load_by_caller: BTreeMap<NodeId, CallLoad>,
    /// Requests not written yet; if the call has ended, with the load that is still charged for it.
    unwritten: BTreeMap<RequestId, Option<(NodeId, usize)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallLoad {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenCall {
    pub(super) caller: ConnectionId,
    pub(super) from: NodeId,
    pub(super) call: CallId,
    pub(super) callee: ConnectionId,
    /// Length of the request, bytes.
    pub(super) len: usize,
    pub(super) deadline: Instant,
    /// Whether the caller has cancelled it. It stays charged until it ends, so that a caller cannot
    /// open more than its limit by cancelling.
    pub(super) is_cancelled: bool,
}

impl OpenCall {
    /// Returns the links that the call is charged to: one, if a node calls itself.
    fn links(&self) -> impl Iterator<Item = ConnectionId> + use<> {
        let callee = (self.callee != self.caller).then_some(self.callee);
        [self.caller].into_iter().chain(callee)
    }
}

impl Calls {
    /// Returns whether the caller has an open call with this number.
    pub(super) fn is_open(&self, caller: ConnectionId, call: CallId) -> bool {
        self.by_caller.contains_key(&(caller, call))
    }

    /// Opens a call. The caller has no [open](Self::is_open) call with the same number.
    pub(super) fn open(&mut self, call: OpenCall) -> RequestId {
        self.last = RequestId(self.last.0.saturating_add(1));
        let request = self.last;
        self.open.insert(request, call);
        self.by_caller.insert((call.caller, call.call), request);
        self.by_callee.insert((call.callee, request));
        self.deadlines.insert((call.deadline, request));
        self.unwritten.insert(request, None);
        let load = self.load_by_caller.entry(call.from).or_default();
        load.count = load.count.saturating_add(1);
        load.bytes = load.bytes.saturating_add(call.len);
        for link in call.links() {
            self.load.add(link, 1);
        }
        request
    }

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

    /// Marks the caller's call as cancelled, if it is open. Returns the request, and the callee if
    /// the request was written.
    pub(super) fn cancel(
        &mut self,
        caller: ConnectionId,
        call: CallId,
    ) -> Option<(RequestId, Option<ConnectionId>)> {
        let request = self.by_caller.remove(&(caller, call))?;
        let call = self.open.get_mut(&request)?;
        call.is_cancelled = true;
        let is_written = !self.unwritten.contains_key(&request);
        Some((request, is_written.then_some(call.callee)))
    }

    /// Closes a call that was cancelled before its request was written; returns whether it was.
    pub(super) fn skip_cancelled(&mut self, request: RequestId) -> bool {
        let is_cancelled = |call: &OpenCall| call.is_cancelled;
        if !self.open.get(&request).is_some_and(is_cancelled) {
            return false;
        }
        self.close(request);
        self.on_written(request);
        true
    }

    /// Returns whether no call is open, and no request of an ended one is unwritten.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.unwritten.is_empty()
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

    pub(super) fn close_one_of(&mut self, link: ConnectionId) -> Option<OpenCall> {
        let called = (link, CallId(0))..=(link, CallId(u64::MAX));
        let called = self.by_caller.range(called).map(|(_, request)| *request);
        let answers = (link, RequestId(0))..=(link, RequestId(u64::MAX));
        let answers = self.by_callee.range(answers).map(|(_, request)| *request);
        let request = called.chain(answers).next()?;
        self.close(request)
    }

    pub(super) fn load(&self, link: ConnectionId) -> usize {
        self.load.get(link)
    }

    pub(super) fn load_of_caller(&self, node: NodeId) -> CallLoad {
        self.load_by_caller.get(&node).copied().unwrap_or_default()
    }

    /// Returns how many calls are open, or have ended with their request unwritten.
    pub(super) fn len(&self) -> usize {
        // Open calls with an unwritten request are in both tables.
        let ended = self.unwritten.values().flatten().count();
        self.open.len().saturating_add(ended)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn discharge(&mut self, from: NodeId, len: usize) {
        if let Some(load) = self.load_by_caller.get_mut(&from) {
            load.count = load.count.saturating_sub(1);
            load.bytes = load.bytes.saturating_sub(len);
            if load.count == 0 {
                self.load_by_caller.remove(&from);
            }
        }
    }

    fn close(&mut self, request: RequestId) -> Option<OpenCall> {
        let call = self.open.remove(&request)?;
        self.deadlines.remove(&(call.deadline, request));
        // A cancelled call is not there, and its number may be in use again.
        if !call.is_cancelled {
            self.by_caller.remove(&(call.caller, call.call));
        }
        self.by_callee.remove(&(call.callee, request));
        match self.unwritten.get_mut(&request) {
            Some(charge) => *charge = Some((call.from, call.len)),
            None => self.discharge(call.from, call.len),
        }
        for link in call.links() {
            self.load.subtract(link, 1);
        }
        Some(call)
    }
}

/// Claims of players, and the delivery state of their mail.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Boxed, since a third of an ordered map is empty room.
    by_player: BTreeMap<ClientId, Box<Claim>>,
    /// No set is empty.
    by_node: BTreeMap<NodeId, BTreeSet<ClientId>>,
    generation: Generation,
}

/// Identifies an entry of the table. A renewed claim is a new entry, so that store completions for
/// the old one are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) node: NodeId,
    pub(super) generation: Generation,
    /// `None` while the node is disconnected.
    pub(super) link: Option<ConnectionId>,
    /// The node's number of the session.
    pub(super) number: ClaimNumber,
    /// Orders claims of one player: the larger one wins.
    pub(super) lease: Lease,
    /// The end of the grant that proved it, if one did.
    pub(super) granted: Option<UnixTime>,
    /// The node's note for watchers.
    pub(super) meta: Bytes,
    /// The last mail delivered to the node.
    pub(super) given: MailSeq,
    /// Mails delivered and not acknowledged, with their bytes.
    pub(super) unacknowledged: VecDeque<(MailSeq, usize)>,
    pub(super) acknowledged: MailSeq,
    pub(super) acknowledging: Option<MailSeq>,
    pub(super) reading: Reading,
    /// Whether to report to the node when no mail is left to deliver.
    pub(super) reports_empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// All mail was delivered.
    Done,
    /// There may be more mail.
    Due,
    /// A read is in flight.
    InFlight,
    /// A read is in flight that may miss mail stored since.
    InFlightAndDue,
}

impl Claims {
    pub(super) fn get(&self, player: ClientId) -> Option<&Claim> {
        self.by_player.get(&player).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, player: ClientId) -> Option<&mut Claim> {
        self.by_player.get_mut(&player).map(Box::as_mut)
    }

    pub(super) fn insert(&mut self, player: ClientId, mut claim: Claim) -> Option<Claim> {
        self.generation = Generation(self.generation.0.saturating_add(1));
        claim.generation = self.generation;
        let node = claim.node;
        let old = self.by_player.insert(player, Box::new(claim));
        if let Some(old) = &old {
            self.remove_of_node(old.node, player);
        }
        self.by_node.entry(node).or_default().insert(player);
        old.map(|old| *old)
    }

    fn remove_of_node(&mut self, node: NodeId, player: ClientId) {
        if let Some(players) = self.by_node.get_mut(&node) {
            players.remove(&player);
            if players.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    pub(super) fn count_of(&self, node: NodeId) -> usize {
        self.by_node.get(&node).map_or(0, BTreeSet::len)
    }

    pub(super) fn remove(&mut self, player: ClientId) -> Option<Claim> {
        let claim = self.by_player.remove(&player)?;
        self.remove_of_node(claim.node, player);
        Some(*claim)
    }

    pub(super) fn len(&self) -> usize {
        self.by_player.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let claims = self.by_player.values();
        let notes: usize = claims.clone().map(|claim| claim.meta.len()).sum();
        let mails: usize = claims.map(|claim| claim.unacknowledged.len()).sum();
        self.by_player
            .len()
            .saturating_mul(CLAIM_BYTES)
            .saturating_add(notes)
            .saturating_add(mails.saturating_mul(16))
    }

    /// Returns the first player after `after`.
    pub(super) fn after(&self, after: Option<ClientId>) -> Option<ClientId> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut players = self.by_player.range((after, Bound::Unbounded));
        players.next().map(|(player, _)| *player)
    }

    pub(super) fn of_node(
        &self,
        node: NodeId,
        after: Option<ClientId>,
        max: usize,
    ) -> Vec<ClientId> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let players = self.by_node.get(&node).into_iter();
        players
            .flat_map(|players| players.range((after, Bound::Unbounded)))
            .copied()
            .take(max)
            .collect()
    }
}

impl Claim {
    /// Applies an acknowledgement; returns the bytes that it frees.
    pub(super) fn acknowledge(&mut self, upto: MailSeq) -> usize {
        // A node cannot acknowledge mail that was not delivered to it.
        let upto = upto.min(self.given);
        self.acknowledged = self.acknowledged.max(upto);
        let mut freed = 0_usize;
        while let Some((seq, bytes)) = self.unacknowledged.front()
            && *seq <= upto
        {
            freed = freed.saturating_add(*bytes);
            self.unacknowledged.pop_front();
        }
        freed
    }

    pub(super) fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged.iter().map(|(_, bytes)| *bytes).sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct Ops {
    last: u64,
    queue: VecDeque<(CommandId, Command)>,
    in_flight: BTreeMap<CommandId, Pending>,
    /// Mails for the next `Append`.
    staged: Vec<NewMail>,
    /// Their cost per link, bytes.
    staged_bytes: Usage<ConnectionId>,
    /// Cost of all mail staged or in flight, bytes.
    mail_bytes: usize,
    mail_bytes_of: Usage<ConnectionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Join(ConnectionId),
    /// Report verdicts, and release these bytes per link. If the store fails, report the verdicts
    /// in the second field.
    Append(Usage<ConnectionId>, Vec<Settled>),
    Read(MailRead),
    /// Continue, or retry.
    Ack(ClientId, Generation, MailSeq),
    /// Nothing: the claim has ended.
    Part,
    Count(ConnectionId, BatchSeq),
    Group(GroupPending),
    /// Continue if more mail has expired.
    Expire,
    /// An operation of the key-value store.
    Kv(KvPending),
    /// Report the state of the store.
    Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailRead {
    pub(super) player: ClientId,
    /// The claim that it is for; the result is dropped if that has been replaced.
    pub(super) generation: Generation,
    /// The link with the reserved room.
    pub(super) link: ConnectionId,
    /// The last mail of the reading node with a verdict when the read was issued.
    pub(super) settled: SenderSeq,
}

impl Ops {
    pub(super) fn push(&mut self, op: StoreOp, pending: Pending) {
        self.last = self.last.saturating_add(1);
        let id = CommandId(self.last);
        self.in_flight.insert(id, pending);
        self.queue.push_back((id, Command::Store(op)));
    }

    pub(super) fn stage(&mut self, link: ConnectionId, mail: NewMail) {
        let cost = cost(&mail);
        self.mail_bytes = self.mail_bytes.saturating_add(cost);
        self.staged_bytes.add(link, cost);
        self.mail_bytes_of.add(link, cost);
        self.staged.push(mail);
    }

    /// Returns the next command; the staged mails become the last one.
    pub(super) fn poll(&mut self) -> Option<(CommandId, Command)> {
        if !self.staged.is_empty() {
            let mails = core::mem::take(&mut self.staged);
            let bytes = core::mem::take(&mut self.staged_bytes);
            let busy = mails.iter().map(busy).collect();
            self.push(StoreOp::Append(mails), Pending::Append(bytes, busy));
        }
        self.queue.pop_front()
    }

    /// Completes `id`; `None` if it is unknown.
    pub(super) fn complete(&mut self, id: CommandId) -> Option<Pending> {
        let pending = self.in_flight.remove(&id)?;
        if let Pending::Append(freed, _) = &pending {
            for (link, freed) in &freed.0 {
                self.mail_bytes = self.mail_bytes.saturating_sub(*freed);
                self.mail_bytes_of.subtract(*link, *freed);
            }
        }
        Some(pending)
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns whether no command is in flight, and no mail waits for the next one.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.staged.is_empty()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.in_flight
            .len()
            .saturating_mul(OP_BYTES)
            .saturating_add(self.mail_bytes)
    }

    /// Returns the cost of mail not yet stored on disk, bytes.
    pub(super) const fn mail_bytes(&self) -> usize {
        self.mail_bytes
    }

    pub(super) fn mail_bytes_of(&self, link: ConnectionId) -> usize {
        self.mail_bytes_of.get(link)
    }
}

/// The verdict on a mail that the store did not accept.
fn busy(mail: &NewMail) -> Settled {
    Settled {
        node: mail.node,
        epoch: mail.epoch,
        seq: mail.seq,
        to: mail.to.clone(),
        verdict: MailVerdict::Busy,
        part: None,
        dropped: 0,
    }
}

/// Memory of a mail; an empty body is not free. Each recipient is charged, too, since the store visits
/// each mailbox.
fn cost(mail: &NewMail) -> usize {
    let recipients = match &mail.to {
        MailTo::One(Addr::Group(_)) => PlayerList::LEN_MAX,
        MailTo::One(_) => 1,
        MailTo::Many(players) => players.list().len(),
    };
    let recipients = recipients.saturating_sub(1).saturating_mul(RECIPIENT_BYTES);
    mail.body
        .0
        .len()
        .saturating_add(MAIL_BYTES)
        .saturating_add(recipients)
}

/// Charge for each further recipient of a mail, bytes.
const RECIPIENT_BYTES: usize = 64;

/// How much of something each key uses; no entry is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage<K>(BTreeMap<K, usize>);

impl<K> Default for Usage<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Copy + Ord> Usage<K> {
    pub(super) fn add(&mut self, key: K, amount: usize) {
        let used = self.0.entry(key).or_default();
        *used = used.saturating_add(amount);
    }

    pub(super) fn subtract(&mut self, key: K, amount: usize) {
        if let Some(used) = self.0.get_mut(&key) {
            *used = used.saturating_sub(amount);
            if *used == 0 {
                self.0.remove(&key);
            }
        }
    }

    pub(super) fn get(&self, key: K) -> usize {
        self.0.get(&key).copied().unwrap_or(0)
    }
}

/// Size of a claim without its note and mails, bytes.
const CLAIM_BYTES: usize = size_of::<Claim>() + 4 * ENTRY_BYTES;

/// Size of a command without its mails, bytes.
const OP_BYTES: usize = 256 + ENTRY_BYTES;

/// Size of a mail not yet stored on disk, without its body, bytes.
const MAIL_BYTES: usize = size_of::<NewMail>() + size_of::<Settled>();

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn ended_calls_with_an_unwritten_request_count_as_open() {
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
                    is_cancelled: false,
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
