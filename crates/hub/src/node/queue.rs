//! What survives a link: claimed players, mail and counts that the hub has not confirmed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use wire::{ClientId, Generator, Instant};

use super::{ClaimId, MailOptions, NodeConfig, NodeEvent, SendError};
use crate::claim_grant::ClaimGrant;
use crate::field::{Addr, BatchSeq, ClaimNumber, CountKey, Lease, MailSeq, Redacted, SenderSeq};
use crate::record::{
    COUNTS_MAX, MailManySubmission, MailSubmission, MailTo, MailVerdict, PartRefusal, Recipients,
    ToHub,
};

/// Claimed players, and their claims, acknowledgements and releases to send.
#[derive(Debug, Default)]
pub(super) struct ClaimedPlayers {
    last_claim: ClaimNumber,
    players: BTreeMap<ClientId, ClaimedPlayer>,
    /// Claims to release, each with a last acknowledgement to send first.
    releases: BTreeMap<ClientId, (ClaimNumber, Option<MailSeq>)>,
    claims: BTreeSet<ClientId>,
    acks: BTreeSet<ClientId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimedPlayer {
    pub(super) claim: ClaimId,
    pub(super) lease: Lease,
    /// The last mail delivered to the application.
    pub(super) delivered: MailSeq,
    /// The last mail that the application has acknowledged.
    pub(super) acknowledged: MailSeq,
    pub(super) meta: Bytes,
    pub(super) grant: Option<Box<ClaimGrant>>,
    /// Whether the claim was sent over this link.
    sent: bool,
}

impl ClaimedPlayers {
    /// Starts a claim; ends an earlier one of the player.
    pub(super) fn claim(&mut self, player: ClientId, delivered: MailSeq, meta: Bytes) -> ClaimId {
        self.release(player);
        self.last_claim = ClaimNumber(self.last_claim.0.saturating_add(1));
        let claim = ClaimId {
            player,
            number: self.last_claim,
        };
        let entry = ClaimedPlayer {
            claim,
            lease: Lease::NONE,
            delivered,
            acknowledged: MailSeq(0),
            meta,
            grant: None,
            sent: false,
        };
        self.players.insert(player, entry);
        self.claims.insert(player);
        claim
    }

    /// Sets the grant of a claim, and sends the claim with it; returns whether the claim is current.
    pub(super) fn prove(&mut self, claim: ClaimId, grant: ClaimGrant) -> bool {
        let Some(entry) = self.get_mut(claim.player, claim.number) else {
            return false;
        };
        entry.grant = Some(Box::new(grant));
        self.claims.insert(claim.player);
        true
    }

    /// Removes a player after the hub has ended the claim.
    pub(super) fn remove(&mut self, player: ClientId) -> Option<ClaimedPlayer> {
        self.claims.remove(&player);
        self.acks.remove(&player);
        self.players.remove(&player)
    }

    /// Removes a player, and queues a release if the hub knows the claim. Returns whether it was
    /// claimed.
    pub(super) fn release(&mut self, player: ClientId) -> bool {
        let ack = self.acks.contains(&player);
        let Some(entry) = self.remove(player) else {
            return false;
        };
        if entry.sent {
            let ack = ack.then_some(entry.acknowledged);
            self.releases.insert(player, (entry.claim.number, ack));
        }
        true
    }

    /// Drops acknowledgements and releases when the link closes: after the next join the hub ends
    /// each claim that is not renewed.
    pub(super) fn on_down(&mut self) {
        self.releases.clear();
        self.claims.clear();
        self.acks.clear();
        for entry in self.players.values_mut() {
            entry.sent = false;
        }
    }

    /// Resets delivery state, since the hub has another log.
    pub(super) fn forget_marks(&mut self) {
        for entry in self.players.values_mut() {
            entry.delivered = MailSeq(0);
            entry.acknowledged = MailSeq(0);
            entry.lease = Lease::NONE;
        }
    }

    pub(super) fn reclaim(&mut self) {
        self.claims = self.players.keys().copied().collect();
        self.acks.clear();
    }

    /// Records a delivered mail. Mail for an earlier claim is stray: its number may exceed what this
    /// claim has received.
    pub(super) fn deliver(
        &mut self,
        player: ClientId,
        number: ClaimNumber,
        seq: MailSeq,
    ) -> Delivered {
        let Some(entry) = self.get_mut(player, number) else {
            return Delivered::Stray;
        };
        if seq > entry.delivered {
            entry.delivered = seq;
            return Delivered::New(entry.claim);
        }
        // The acknowledgement did not reach the hub.
        if seq <= entry.acknowledged {
            self.acks.insert(player);
        }
        Delivered::Repeated
    }

    /// Records an acknowledgement; returns whether the claim is current.
    pub(super) fn acknowledge(&mut self, claim: ClaimId, upto: MailSeq) -> bool {
        let player = claim.player;
        let Some(entry) = self.get_mut(player, claim.number) else {
            return false;
        };
        let upto = upto.min(entry.delivered);
        if upto > entry.acknowledged {
            entry.acknowledged = upto;
            self.acks.insert(player);
        }
        true
    }

    pub(super) fn get_mut(
        &mut self,
        player: ClientId,
        number: ClaimNumber,
    ) -> Option<&mut ClaimedPlayer> {
        let entry = self.players.get_mut(&player);
        entry.filter(|entry| entry.claim.number == number)
    }

    /// Returns the next release, or the acknowledgement to send before it.
    pub(super) fn next_release(&self) -> Option<(ClientId, ClaimNumber, Option<MailSeq>)> {
        let (player, (claim, ack)) = self.releases.first_key_value()?;
        Some((*player, *claim, *ack))
    }

    pub(super) fn on_release_sent(&mut self, player: ClientId) {
        if let Some((_, ack)) = self.releases.get_mut(&player)
            && ack.take().is_none()
        {
            self.releases.remove(&player);
        }
    }

    pub(super) fn next_claim(&self) -> Option<(ClientId, &ClaimedPlayer)> {
        let player = self.claims.first()?;
        Some((*player, self.players.get(player)?))
    }

    pub(super) fn next_ack(&self) -> Option<(ClientId, MailSeq)> {
        let player = self.acks.first()?;
        Some((*player, self.players.get(player)?.acknowledged))
    }

    pub(super) fn on_claim_sent(&mut self, player: ClientId) {
        self.claims.remove(&player);
        if let Some(entry) = self.players.get_mut(&player) {
            entry.sent = true;
        }
    }

    pub(super) fn on_ack_sent(&mut self, player: ClientId) {
        self.acks.remove(&player);
    }

    pub(super) fn is_current(&self, claim: ClaimId) -> bool {
        let entry = self.players.get(&claim.player);
        entry.is_some_and(|entry| entry.claim == claim)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let each = size_of::<ClaimedPlayer>().saturating_add(64);
        let of_entry = |entry: &ClaimedPlayer| {
            let grant = entry.grant.as_ref().map_or(0, |_| ClaimGrant::LEN);
            entry.meta.len().saturating_add(grant)
        };
        let notes: usize = self.players.values().map(of_entry).sum();
        let waiting = self.releases.len().saturating_mul(64);
        let players = self.players.len().saturating_mul(each);
        players.saturating_add(notes).saturating_add(waiting)
    }

    pub(super) fn len(&self) -> usize {
        self.players.len()
    }
}

/// Draws a time up to `max`.
fn draw(generator: &mut Generator, max: Duration) -> Duration {
    let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(generator.between(0, nanos))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    New(ClaimId),
    Repeated,
    Stray,
}

/// Mails that are not confirmed as stored, ordered by number. Over a new link all are sent again:
/// the hub detects repeats by number.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    mails: VecDeque<OutgoingMail>,
    bytes: usize,
    last: SenderSeq,
    /// How many of `mails`, from the front, are sent or need not be sent over this link.
    sent: usize,
    /// Set while the hub has no room.
    paused: Option<Instant>,
    /// Set after the hub had no room: one mail is sent alone until it is settled.
    probing: bool,
    refusals: u32,
    /// The last verdict, if it was that there is no room for mail of this node.
    blocked: Option<MailVerdict>,
}

/// Longest pause, unless the hub requests a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The same while the hub's store is full.
const FULL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Most time after which mail is sent once the hub has room: so that not all nodes send at once.
const RESUME_SPREAD: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutgoingMail {
    pub(super) seq: SenderSeq,
    pub(super) to: MailTo,
    pub(super) options: MailOptions,
    pub(super) body: Bytes,
    /// Whether its verdict is known, while an earlier mail has none.
    settled: bool,
}

impl OutgoingMail {
    /// Appends the record; all mails up to `settled` have verdicts.
    pub(super) fn encode(&self, settled: SenderSeq, out: &mut Vec<u8>) {
        let (seq, ttl_s, priority) = (self.seq, self.options.ttl_s(), self.options.priority);
        let body = Redacted(&self.body[..]);
        let to = match &self.to {
            MailTo::Many(players) => Recipients::Players(players.list()),
            MailTo::One(Addr::Group(group)) => Recipients::Group(*group),
            MailTo::One(to) => {
                let to = *to;
                let mail = MailSubmission {
                    seq,
                    settled,
                    ttl_s,
                    to,
                    body,
                };
                return ToHub::Mail(mail).encode(out);
            }
        };
        let mail = MailManySubmission {
            seq,
            settled,
            ttl_s,
            priority,
            to,
            body,
        };
        ToHub::MailMany(mail).encode(out);
    }
}

impl Outgoing {
    /// Returns whether a mail is within the limits of `config`.
    pub(super) fn has_room(&self, to: &MailTo, body: &Bytes, config: &NodeConfig) -> bool {
        let bytes = self.bytes.saturating_add(cost(to, body));
        self.mails.len() < config.mails_max && bytes <= config.mail_bytes_max
    }

    /// Queues a mail within the limits of `config`.
    pub(super) fn push(
        &mut self,
        to: MailTo,
        options: MailOptions,
        body: Bytes,
        config: &NodeConfig,
    ) -> Result<SenderSeq, SendError> {
        if !self.has_room(&to, &body, config) {
            return Err(SendError::Full(body.into()));
        }
        self.last = self.last.next();
        self.bytes = self.bytes.saturating_add(cost(&to, &body));
        self.mails.push_back(OutgoingMail {
            seq: self.last,
            to,
            options,
            body,
            settled: false,
        });
        Ok(self.last)
    }

    /// Applies the verdict on a mail that some of its recipients' mailboxes rejected; returns the
    /// event, unless the verdict is known.
    pub(super) fn settle_part(&mut self, seq: SenderSeq, part: &PartRefusal) -> Option<NodeEvent> {
        let skipped = seq.0.saturating_sub(self.settled().0.saturating_add(1));
        let at = usize::try_from(skipped).unwrap_or(usize::MAX);
        let mail = self
            .mails
            .get(at)
            .filter(|mail| mail.seq == seq && !mail.settled)?;
        let refused = match &mail.to {
            MailTo::Many(players) => part.refused_of(players.list()),
            MailTo::One(_) => Vec::new(),
        };
        self.settle(seq, seq);
        Some(NodeEvent::MailPartRefused {
            seq,
            stored: part.stored,
            refused_count: part.refused,
            refused,
            reason: part.reason,
        })
    }

    /// Applies a verdict to a run of mails; returns the numbers that it settles. Runs arrive in any
    /// order.
    pub(super) fn settle(&mut self, first: SenderSeq, last: SenderSeq) -> Vec<SenderSeq> {
        let mut settled = Vec::new();
        let skipped = first.0.saturating_sub(self.settled().0.saturating_add(1));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        for mail in self.mails.iter_mut().skip(skipped) {
            if mail.seq > last {
                break;
            }
            if !mail.settled {
                mail.settled = true;
                settled.push(mail.seq);
                self.bytes = self.bytes.saturating_sub(cost(&mail.to, &mail.body));
                mail.body = Bytes::new();
                mail.to = SETTLED;
            }
        }
        while self.mails.front().is_some_and(|mail| mail.settled) {
            self.mails.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
        self.skip_settled();
        if !settled.is_empty() {
            self.probing = false;
            self.refusals = 0;
        }
        settled
    }

    /// Takes a verdict on a run of mails up to `last`: pauses if none of them was stored, and returns
    /// the event of a store that has become full, or has room again.
    pub(super) fn on_verdict(
        &mut self,
        (last, verdict): (SenderSeq, MailVerdict),
        now: Instant,
        wait: Duration,
        generator: &mut Generator,
    ) -> Option<NodeEvent> {
        match verdict {
            MailVerdict::Busy => {
                self.pause(last, now, (wait, false), generator);
                None
            }
            MailVerdict::Full | MailVerdict::OverShare => {
                self.pause(last, now, (wait, true), generator);
                let is_new = self.blocked.replace(verdict) != Some(verdict);
                let event = if verdict == MailVerdict::Full {
                    NodeEvent::HubFull
                } else {
                    NodeEvent::OverShare
                };
                is_new.then_some(event)
            }
            MailVerdict::Stored => {
                let was_full = self.resume(now, generator);
                was_full.then_some(NodeEvent::HubHasRoom)
            }
            MailVerdict::Refused(_) => None,
        }
    }

    /// Pauses for at least `wait`, longer with each consecutive refusal. Afterwards it sends one
    /// mail alone, and the others once that is settled: all at once would repeat the load.
    fn pause(
        &mut self,
        last: SenderSeq,
        now: Instant,
        (wait, is_full): (Duration, bool),
        generator: &mut Generator,
    ) {
        if self.mails.front().is_none_or(|front| front.seq > last) {
            return;
        }
        self.sent = 0;
        self.probing = true;
        // Verdicts on mails that were in flight together count as one refusal.
        if self.paused.is_none() {
            let doubled = wait.saturating_mul(1 << self.refusals.min(16));
            let longest = if is_full { FULL_PAUSE_MAX } else { PAUSE_MAX };
            let pause = doubled.min(wait.max(longest));
            self.paused = Some(now + pause + draw(generator, pause.div_f32(2.0)));
            self.refusals = self.refusals.saturating_add(1);
        }
    }

    /// Ends a pause soon if the hub's store was full; returns whether it was.
    pub(super) fn resume(&mut self, now: Instant, generator: &mut Generator) -> bool {
        let was_full = self.blocked.take().is_some();
        if was_full && let Some(until) = self.paused {
            self.paused = Some(until.min(now + draw(generator, RESUME_SPREAD)));
            self.refusals = 0;
        }
        was_full
    }

    /// Starts from the front over a new link.
    pub(super) const fn rewind(&mut self) {
        self.sent = 0;
        self.paused = None;
        self.probing = false;
        self.refusals = 0;
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
    }

    pub(super) const fn paused_until(&self) -> Option<Instant> {
        self.paused
    }

    pub(super) fn next(&self) -> Option<&OutgoingMail> {
        match self.paused {
            None if self.probing && self.sent > 0 => None,
            None => self.mails.get(self.sent),
            Some(_) => None,
        }
    }

    /// Marks [`next`](Self::next) as sent.
    pub(super) fn on_sent(&mut self) {
        self.sent = self.sent.saturating_add(1);
        self.skip_settled();
    }

    fn skip_settled(&mut self) {
        while self.mails.get(self.sent).is_some_and(|mail| mail.settled) {
            self.sent = self.sent.saturating_add(1);
        }
    }

    /// Returns the last number up to which all mails are settled.
    pub(super) fn settled(&self) -> SenderSeq {
        let front = self.mails.front();
        front.map_or(self.last, |front| SenderSeq(front.seq.0.saturating_sub(1)))
    }

    pub(super) fn len(&self) -> usize {
        self.mails.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let mails = self.mails.len().saturating_mul(size_of::<OutgoingMail>());
        mails.saturating_add(self.bytes)
    }
}

/// Recipients of a mail with a verdict: they are not needed any more.
const SETTLED: MailTo = MailTo::One(Addr::Player(ClientId(0)));

/// Memory of a mail's body and list of players, bytes.
fn cost(to: &MailTo, body: &Bytes) -> usize {
    let players = match to {
        MailTo::One(_) => 0,
        MailTo::Many(players) => players.list().len().saturating_mul(8),
    };
    body.len().saturating_add(players)
}

/// Counts to send to the hub: one batch in flight, the rest accumulated.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Increases since the last batch.
    waiting: BTreeMap<CountKey, u64>,
    last: BatchSeq,
    /// The batch that is not confirmed as stored.
    in_flight: Option<Vec<(CountKey, u64)>>,
    due: bool,
}

impl Counter {
    /// Adds to a key; returns false if there is no room for it.
    pub(super) fn add(&mut self, key: CountKey, increase: u64, keys_max: usize) -> bool {
        let is_full = self.waiting.len() >= keys_max;
        match self.waiting.get_mut(&key) {
            Some(waiting) => *waiting = waiting.saturating_add(increase),
            None if is_full => return false,
            None => {
                self.waiting.insert(key, increase);
            }
        }
        true
    }

    /// Creates the next batch, or resends the one in flight.
    pub(super) fn on_interval(&mut self) {
        if self.in_flight.is_none() && !self.waiting.is_empty() {
            let mut entries = Vec::new();
            while entries.len() < COUNTS_MAX
                && let Some(entry) = self.waiting.pop_first()
            {
                entries.push(entry);
            }
            self.last = BatchSeq(self.last.0.saturating_add(1));
            self.in_flight = Some(entries);
        }
        self.due = self.in_flight.is_some();
    }

    pub(super) fn on_counted(&mut self, upto: BatchSeq) {
        if upto >= self.last && self.in_flight.take().is_some() {
            self.due = false;
            // Do not wait for the next interval if another batch is full.
            if self.waiting.len() >= COUNTS_MAX {
                self.on_interval();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        let in_flight = self.in_flight.as_ref().map_or(0, Vec::len);
        self.waiting.len().saturating_add(in_flight)
    }

    pub(super) fn next(&self) -> Option<(BatchSeq, &[(CountKey, u64)])> {
        let entries = self.in_flight.as_ref().filter(|_| self.due)?;
        Some((self.last, entries))
    }

    pub(super) const fn on_sent(&mut self) {
        self.due = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }
}
