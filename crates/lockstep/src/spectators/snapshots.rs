//! Snapshots for spectators that lack more than the chain holds.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use wire::Instant;

use super::{ShownTicks, SpectatorSet, SpectatorState};
use crate::chain::{KEEP_TICKS, REACH, last_start};
use crate::event::{CloseReason, LeaveReason};
use crate::message::{ChunkAck, Direction};
use crate::stats::SpectatorStats;
use crate::tick::{PeerId, Tick};
use crate::transfer::Outgoing;

/// Concurrent transfers; each takes 60 kB. Further spectators queue.
const DELIVERIES_AT_ONCE: usize = 8;

/// Most snapshots in a row for a spectator that never succeeds with them.
const DELIVERIES_MAX: u8 = 4;

/// Time between two snapshots for a relay that already watches and requests them for others.
const REQUEST_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct SnapshotTransfers {
    offer_snapshot: Option<OfferedSnapshot>,
    deliveries: Vec<Delivery>,
    /// Queue, longest wait first; each peer once.
    waiting: VecDeque<Waiting>,
    last_id: u8,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    peer: PeerId,
    since: Instant,
}

#[derive(Debug)]
struct OfferedSnapshot {
    next: Tick,
    /// It is given out only before this tick is displayed; `None` until it is itself displayed.
    last: Option<Tick>,
    bytes: Arc<[u8]>,
}

#[derive(Debug)]
struct Delivery {
    peer: PeerId,
    next: Tick,
    outgoing: Box<Outgoing>,
}

impl SnapshotTransfers {
    pub(super) fn queue(&mut self, now: Instant, peer: PeerId) {
        self.waiting.push_back(Waiting { peer, since: now });
    }

    pub(super) fn forget(&mut self, peer: PeerId) {
        self.waiting.retain(|waiting| waiting.peer != peer);
        self.deliveries.retain(|delivery| delivery.peer != peer);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let deliveries = self.deliveries.iter();
        let pieces = deliveries
            .clone()
            .filter_map(|delivery| delivery.outgoing.poll_timeout());
        let stalls = deliveries.filter_map(|delivery| delivery.outgoing.stalls_at());
        pieces.chain(stalls).min()
    }

    fn take_where(&mut self, is_over: impl Fn(&Delivery) -> bool) -> Option<PeerId> {
        let index = self.deliveries.iter().position(is_over)?;
        Some(self.deliveries.swap_remove(index).peer)
    }

    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        self.deliveries.iter_mut().find_map(|delivery| {
            let is_written = delivery.outgoing.poll(now, buf);
            is_written.then_some(delivery.peer)
        })
    }

    pub(super) fn memory_len(&self) -> usize {
        let waiting = self.waiting.capacity().saturating_mul(size_of::<Waiting>());
        let offer_snapshot = self
            .offer_snapshot
            .as_ref()
            .map_or(0, |offer_snapshot| offer_snapshot.bytes.len());
        waiting.saturating_add(offer_snapshot)
    }
}

impl SpectatorSet {
    pub(crate) fn wants_snapshot(&self, shown_ticks: &ShownTicks<'_>) -> bool {
        !self.transfers.waiting.is_empty()
            && self
                .transfers
                .offer_snapshot
                .as_ref()
                .is_none_or(|offer_snapshot| {
                    offer_snapshot
                        .last
                        .is_some_and(|last| last < shown_ticks.end)
                })
    }

    /// Takes a snapshot for current and later spectators; it is used once all ticks before `next`
    /// are shown.
    pub(crate) fn offer_snapshot(&mut self, next: Tick, bytes: Arc<[u8]>) {
        self.transfers.offer_snapshot = Some(OfferedSnapshot {
            next,
            last: None,
            bytes,
        });
    }

    pub(crate) fn withdraw_snapshot(&mut self) {
        self.transfers.offer_snapshot = None;
    }

    pub(crate) fn waits_since(&self) -> Option<Instant> {
        Some(self.transfers.waiting.front()?.since)
    }

    pub(crate) fn give_up_on_waiting(&mut self, now: Instant, waited: Duration) {
        while let Some(Waiting { peer, since }) = self.transfers.waiting.front().copied()
            && now.saturating_since(since) >= waited
        {
            self.transfers.waiting.pop_front();
            let Some(spectator) = self.member_mut(peer) else {
                continue;
            };
            spectator.wants_snapshot = false;
            if spectator.state == SpectatorState::AwaitsSnapshot {
                self.remove(peer, LeaveReason::Behind, CloseReason::Behind);
            }
        }
    }

    pub(crate) fn serve(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        stats: &mut SpectatorStats,
    ) {
        let set_config = &self.set_config;
        let transfers = &mut self.transfers;
        if let Some(offer_snapshot) = &mut transfers.offer_snapshot
            && offer_snapshot.last.is_none()
            && offer_snapshot.next <= shown_ticks.end
        {
            let (transfer, period) = (&set_config.transfer, set_config.limits.period_nanos);
            let last = last_start(
                offer_snapshot.next,
                offer_snapshot.bytes.len(),
                transfer,
                period,
            );
            // Before any tick if it takes too long for all.
            let last = last.unwrap_or(Tick(0));
            offer_snapshot.last = Some(last.min(shown_ticks.end.plus(KEEP_TICKS)));
        }
        if transfers.waiting.is_empty() {
            return;
        }
        let is_fresh = |offer_snapshot: &&OfferedSnapshot| {
            offer_snapshot
                .last
                .is_some_and(|last| shown_ticks.end <= last)
        };
        let Some(offer_snapshot) = transfers.offer_snapshot.as_ref().filter(is_fresh) else {
            return;
        };
        while transfers.deliveries.len() < DELIVERIES_AT_ONCE {
            let Some(Waiting { peer, .. }) = transfers.waiting.pop_front() else {
                return;
            };
            let Some(spectator) = self
                .indices
                .get(&peer)
                .and_then(|index| self.members.get_mut(*index))
            else {
                continue;
            };
            spectator.wants_snapshot = false;
            spectator.deliveries = spectator.deliveries.saturating_add(1);
            spectator.snapshot_from = now + REQUEST_INTERVAL;
            transfers.last_id = transfers.last_id.wrapping_add(1);
            let bytes = Arc::clone(&offer_snapshot.bytes);
            let id = transfers.last_id;
            let transfer = &set_config.transfer;
            if let Some(outgoing) = Outgoing::new(Direction::Down, id, bytes, transfer, now) {
                stats.snapshots_begun = stats.snapshots_begun.saturating_add(1);
                transfers.deliveries.push(Delivery {
                    peer,
                    next: offer_snapshot.next,
                    outgoing: Box::new(outgoing),
                });
            }
        }
    }

    /// A stalled spectator is removed; a relay only loses the snapshot.
    pub(super) fn drop_stalled(&mut self, now: Instant) {
        while let Some(peer) = self.transfers.take_where(|delivery| {
            let stalls_at = delivery.outgoing.stalls_at();
            stalls_at.is_some_and(|at| at <= now)
        }) {
            if self.state(peer) == Some(SpectatorState::AwaitsSnapshot) {
                self.remove(peer, LeaveReason::Behind, CloseReason::Behind);
            }
        }
    }

    pub(super) fn drop_late(&mut self, now: Instant, shown_ticks: &ShownTicks<'_>) {
        while let Some(peer) = self.transfers.take_where(|delivery| {
            let next = delivery.next;
            next < shown_ticks.begin || shown_ticks.end.since(next) > REACH
        }) {
            if self.state(peer) == Some(SpectatorState::AwaitsSnapshot) {
                self.request_for(now, peer);
            }
        }
    }

    pub(super) fn request_for(&mut self, now: Instant, peer: PeerId) {
        let Some(spectator) = self.member_mut(peer) else {
            return;
        };
        if spectator.wants_snapshot {
            return;
        }
        if spectator.deliveries < DELIVERIES_MAX {
            spectator.wants_snapshot = true;
            self.transfers.queue(now, peer);
        } else if spectator.state == SpectatorState::AwaitsSnapshot {
            self.remove(peer, LeaveReason::Behind, CloseReason::Behind);
        }
    }

    pub(super) fn on_snapshot_ack(
        &mut self,
        now: Instant,
        shown_ticks: &ShownTicks<'_>,
        peer: PeerId,
        ack: &ChunkAck<'_>,
    ) {
        let deliveries = &mut self.transfers.deliveries;
        let Some(index) = deliveries.iter().position(|delivery| delivery.peer == peer) else {
            return;
        };
        let Some(delivery) = deliveries.get_mut(index) else {
            return;
        };
        delivery.outgoing.on_ack(now, ack);
        if !delivery.outgoing.is_done() {
            return;
        }
        let next = delivery.next;
        deliveries.swap_remove(index);
        let Some(spectator) = self.member_mut(peer) else {
            return;
        };
        if spectator.state != SpectatorState::AwaitsSnapshot {
            // It was for the relay's children.
            spectator.deliveries = 0;
        } else if next < shown_ticks.begin || shown_ticks.end.since(next) > REACH {
            // It took so long that the chain has moved on.
            self.request_for(now, peer);
        } else {
            spectator.begin_at(next);
        }
    }

    fn state(&self, peer: PeerId) -> Option<SpectatorState> {
        let index = self.indices.get(&peer)?;
        Some(self.members.get(*index)?.state)
    }

    pub(super) fn is_served(&self, peer: PeerId) -> bool {
        self.transfers
            .deliveries
            .iter()
            .any(|delivery| delivery.peer == peer)
    }
}
