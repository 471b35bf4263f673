//! Snapshots for players that lack more than the chain holds, from the server or from a player.

use core::time::Duration;
use std::sync::Arc;

use wire::{Instant, Seat};

use super::MatchServer;
use super::close::{Player, PlayerState, SeatState, player, player_mut};
use crate::chain::{KEEP_TICKS, REACH, last_start, read_snapshot, write_snapshot};
use crate::config::SnapshotSource;
use crate::event::{CloseReason, LeaveReason, ServerEvent, SnapshotError};
use crate::input::Input;
use crate::message::{Chunk, ChunkAck, Direction, write_snapshot_ask};
use crate::tick::{PeerId, Tick};
use crate::transfer::{Incoming, Outgoing};

/// Most snapshots in a row for one player, which may claim that each is wrong.
const DELIVERIES_MAX: u8 = 4;

/// Ticks after a snapshot with matching hashes after which the count starts again: 10 s at 60 Hz.
const SOUND_TICKS: u32 = 600;

/// The current snapshot, and the source of the next.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    offered: Option<Offered>,
    request: Option<SnapshotRequest>,
    donation: Option<Donation>,
    /// Seats that gave no snapshot in time, or a wrong one, since a right one.
    failed_donors: Vec<Seat>,
    last_id: u8,
}

#[derive(Debug)]
struct Offered {
    next: Tick,
    /// It is given to others only before this tick closes.
    last: Tick,
    bytes: Arc<[u8]>,
    donor: Option<Seat>,
}

#[derive(Debug)]
pub(super) struct Delivery {
    outgoing: Box<Outgoing>,
    next: Tick,
    donor: Option<Seat>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) id: u8,
    next: Tick,
    donor: Option<Seat>,
}

impl Player {
    const fn is_waiting(&self) -> bool {
        self.waits_since.is_some()
    }

    fn stalls_at(&self) -> Option<Instant> {
        let delivery = self.delivery.as_ref()?;
        let has_nothing = self.state == PlayerState::AwaitsSnapshot;
        delivery.outgoing.stalls_at().filter(|_| has_nothing)
    }
}

impl Snapshots {
    const fn id(&mut self) -> u8 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    fn mark_donor_failed(&mut self, seat: Seat) {
        if !self.failed_donors.contains(&seat) {
            self.failed_donors.push(seat);
        }
    }

    pub(super) fn memory_len(&self) -> usize {
        let offered = self.offered.as_ref();
        offered.map_or(0, |offered| offered.bytes.len())
    }
}

impl<I: Input> MatchServer<I> {
    /// Gives the state after the turn that [`poll_turn`](Self::poll_turn) returned last to all
    /// peers that wait for one. Call it on [`ServerEvent::SnapshotWanted`], which repeats a second
    /// after a refusal.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] if no turn was returned yet or the last one is too old; if `state` is
    /// longer than [`Config::snapshot_len_max`](crate::Config::snapshot_len_max); or if at the rate
    /// of [`Config::transfer`](crate::Config::transfer) it takes so long that the chain no longer
    /// holds the ticks after it.
    pub fn offer_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        let given = self.take_snapshot(now, state);
        if given.is_err() {
            self.on_snapshot_refused(now);
        }
        given
    }

    fn take_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        let next = self.reader.next;
        if next == Tick(0) || self.end.since(next) > KEEP_TICKS {
            return Err(SnapshotError::NotCurrent);
        }
        if !self.config.takes_snapshot(state.len()) {
            return Err(SnapshotError::TooLong);
        }
        let bytes = write_snapshot(&self.reader, &self.neutral, state);
        if self.offer(now, next, bytes.into(), None) {
            Ok(())
        } else {
            Err(SnapshotError::TooLong)
        }
    }

    /// Makes the player of `seat` load a snapshot, as after a desync; its inputs still count
    /// meanwhile. Ignored if the player has no seat, or already gets one.
    ///
    /// After a [`ServerEvent::Desync`], wait for the [`ServerEvent::Divergence`]: a player that has
    /// loaded another state can no longer answer for its own.
    pub fn resync(&mut self, now: Instant, seat: Seat) {
        let now = self.advance(now);
        if let Some(player) = player_mut(&mut self.seats, seat)
            && player.is_ready()
            && player.delivery.is_none()
        {
            self.request_for(now, seat);
        }
    }

    pub(super) fn request_for(&mut self, now: Instant, seat: Seat) {
        let Some(player) = player_mut(&mut self.seats, seat) else {
            return;
        };
        if player.deliveries < DELIVERIES_MAX {
            player.waits_since.get_or_insert(now);
            self.serve_snapshots(now);
        } else if player.state == PlayerState::AwaitsSnapshot {
            self.remove(seat, LeaveReason::Behind, CloseReason::Behind);
        }
    }

    fn is_snapshot_wanted(&self) -> bool {
        let is_wanted = |entry: &SeatState| entry.player.as_ref().is_some_and(Player::is_waiting);
        self.seats.iter().any(is_wanted) || self.spectators_want_snapshot()
    }

    pub(super) fn serve_snapshots(&mut self, now: Instant) {
        if !self.is_snapshot_wanted() {
            self.snapshots.request = None;
            self.snapshots.donation = None;
            return;
        }
        let end = self.end;
        let is_fresh = |offered: &Offered| end <= offered.last;
        if !self.snapshots.offered.as_ref().is_some_and(is_fresh) {
            self.snapshots.offered = None;
            self.find_snapshot(now);
            return;
        }
        self.snapshots.request = None;
        self.snapshots.donation = None;
        let Some(offered) = &self.snapshots.offered else {
            return;
        };
        let (next, donor) = (offered.next, offered.donor);
        let bytes = Arc::clone(&offered.bytes);
        self.offer_to_spectators(now, next, Arc::clone(&bytes));
        for entry in &mut self.seats {
            let Some(player) = entry.player.as_mut().filter(|player| player.is_waiting()) else {
                continue;
            };
            let (id, bytes) = (self.snapshots.id(), Arc::clone(&bytes));
            let limits = &self.config.transfer;
            let outgoing = Outgoing::new(Direction::Down, id, bytes, limits, now);
            player.waits_since = None;
            player.deliveries = player.deliveries.saturating_add(1);
            player.delivery = outgoing.map(|outgoing| Delivery {
                outgoing: Box::new(outgoing),
                next,
                donor,
            });
        }
        self.transmit_from = 0;
    }

    pub(super) fn on_snapshot_ack(&mut self, now: Instant, seat: Seat, ack: &ChunkAck<'_>) {
        let Some(player) = player_mut(&mut self.seats, seat) else {
            return;
        };
        let Some(delivery) = &mut player.delivery else {
            return;
        };
        delivery.outgoing.on_ack(now, ack);
        if !delivery.outgoing.is_done() {
            return;
        }
        let loaded = Loaded {
            id: delivery.outgoing.id(),
            next: delivery.next,
            donor: delivery.donor,
        };
        let next = loaded.next;
        player.delivery = None;
        if self.end.since(next) > REACH {
            // It took so long that the chain has moved on.
            self.request_for(now, seat);
            return;
        }
        if player.state == PlayerState::AwaitsSnapshot {
            player.state = PlayerState::CatchingUp;
            player.repair.begin_at(next);
        }
        player.loaded = Some(loaded);
        player.is_due = true;
        self.transmit_from = 0;
        let interval = u32::from(self.config.hash_interval.get());
        let step = next.minus(1).0.div_ceil(interval);
        self.hash_comparator.admit_late(seat, step);
    }

    /// Whether the error of `seat` came from another player's snapshot: then that donor is marked
    /// as failed, and `seat` gets another snapshot.
    pub(super) fn blames_donor(&mut self, now: Instant, seat: Seat, tick: Tick) -> bool {
        let interval = u32::from(self.config.hash_interval.get());
        let Some(player) = player_mut(&mut self.seats, seat) else {
            return false;
        };
        let Some(loaded) = &mut player.loaded else {
            return false;
        };
        // The loaded state is compared first, unless that hash was lost.
        if tick >= loaded.next.plus(interval) && self.hash_comparator.last_match(seat).is_some() {
            return false;
        }
        let Some(donor) = loaded.donor.take() else {
            return false;
        };
        self.events
            .push_back(ServerEvent::SnapshotRefuted { donor, seat });
        self.snapshots.offered = None;
        self.snapshots.donation = None;
        self.snapshots.mark_donor_failed(donor);
        self.spectators.withdraw_snapshot();
        self.request_for(now, seat);
        true
    }

    pub(super) fn review_snapshots(&mut self) {
        self.drop_late_donation();
        let interval = u32::from(self.config.hash_interval.get());
        for seat in (0..self.shape.seats).map(Seat) {
            let Some(player) = player_mut(&mut self.seats, seat) else {
                continue;
            };
            let delivery = player.delivery.as_ref();
            if delivery.is_some_and(|delivery| self.end.since(delivery.next) > REACH) {
                player.delivery = None;
                self.request_for(self.now, seat);
            } else if player.deliveries > 0
                && let Some(loaded) = player.loaded
                && let Some(step) = self.hash_comparator.last_match(seat)
                && step.saturating_mul(interval) >= loaded.next.plus(SOUND_TICKS).0
            {
                player.deliveries = 0;
                // Donors that failed before may be asked again.
                self.snapshots.failed_donors.clear();
            }
        }
    }

    fn drop_stalled(&mut self, now: Instant) {
        for seat in (0..self.shape.seats).map(Seat) {
            let player = player(&self.seats, seat);
            if player
                .and_then(Player::stalls_at)
                .is_some_and(|at| at <= now)
            {
                self.remove(seat, LeaveReason::Behind, CloseReason::Behind);
            }
        }
    }

    /// Extends the application's deadline by a pause of the process.
    pub(super) fn extend_deadline(&mut self, pause: Duration) {
        if let Some(request) = &mut self.snapshots.request {
            request.extend(pause);
        }
    }

    pub(super) fn snapshot_timeout(&self) -> Option<Instant> {
        let players = self.seats.iter().filter_map(|seat| seat.player.as_ref());
        let deliveries = players.flat_map(|player| {
            let delivery = player.delivery.as_ref();
            let piece = delivery.and_then(|delivery| delivery.outgoing.poll_timeout());
            [piece, player.stalls_at()].into_iter().flatten()
        });
        let donation = self.snapshots.donation.as_ref();
        let donation = donation.and_then(Donation::poll_timeout);
        deliveries
            .chain(donation)
            .chain(self.request_timeout())
            .min()
    }

    pub(super) fn transmit_snapshots(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if let Some(donation) = &mut self.snapshots.donation
            && let Some(donor) = self.seats.get(usize::from(donation.seat.0))
            && let Some(donor) = donor.player.as_ref()
            && donation.transmit(now, buf)
        {
            return Some(donor.peer);
        }
        self.seats.iter_mut().find_map(|entry| {
            let player = entry.player.as_mut()?;
            let is_written = player.delivery.as_mut()?.outgoing.poll(now, buf);
            is_written.then_some(player.peer)
        })
    }

    fn offer(&mut self, now: Instant, next: Tick, bytes: Arc<[u8]>, donor: Option<Seat>) -> bool {
        let last = self.last_start(next, bytes.len());
        let Some(last) = last.filter(|last| self.end <= *last) else {
            return false;
        };
        self.snapshots.offered = Some(Offered {
            next,
            last: last.min(self.end.plus(KEEP_TICKS)),
            bytes,
            donor,
        });
        self.serve_snapshots(now);
        true
    }

    /// Returns the tick before which the transfer must begin: at the latest, just before it closes.
    fn last_start(&self, next: Tick, len: usize) -> Option<Tick> {
        last_start(next, len, &self.config.transfer, self.limits.period_nanos)
    }
}

const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Time for a donor to begin; then the next one is asked.
const DONOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time between chunks; then the next donor is asked.
const PIECE_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Donation {
    seat: Seat,
    id: u8,
    incoming: Box<Incoming>,
    asked: Tick,
    /// Its snapshot is useful only before this tick closes; set once the length is known: the
    /// transfer to the recipient takes time too.
    last: Option<Tick>,
    ask_at: Option<Instant>,
    until: Instant,
}

impl Donation {
    fn poll_timeout(&self) -> Option<Instant> {
        let ack = self.incoming.poll_timeout();
        let others = [self.ask_at, ack].into_iter().flatten();
        others.chain([self.until]).min()
    }

    fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = Some(now + ASK_INTERVAL);
            write_snapshot_ask(buf, self.id);
            return true;
        }
        self.incoming.poll_ack(now, buf)
    }
}

impl<I: Input> MatchServer<I> {
    pub(super) fn on_donated(&mut self, now: Instant, seat: Seat, chunk: &Chunk<'_>) {
        let len_max = self.config.snapshot_bytes_max(self.shape);
        let Some(donation) = &self.snapshots.donation else {
            return;
        };
        if donation.seat != seat || donation.id != chunk.id {
            return;
        }
        let asked = donation.asked;
        let total = usize::try_from(chunk.total).unwrap_or(usize::MAX);
        let last = donation.last.or_else(|| self.last_start(asked, total));
        let end = self.end;
        let Some(last) = last.filter(|last| chunk.total <= len_max && end <= *last) else {
            self.mark_donor_failed(now, seat);
            return;
        };
        let Some(donation) = &mut self.snapshots.donation else {
            return;
        };
        donation.last = Some(last);
        donation.ask_at = None;
        donation.until = now + PIECE_TIME;
        donation.incoming.on_chunk(now, chunk);
        let Some(bytes) = donation.incoming.take() else {
            return;
        };
        let head = read_snapshot(&bytes, self.shape, &self.neutral);
        let next = head.map(|(head, _)| head.next);
        let is_taken = next
            .filter(|next| *next <= end)
            .is_some_and(|next| self.offer(now, next, bytes.into(), Some(seat)));
        if !is_taken {
            self.mark_donor_failed(now, seat);
        }
    }

    pub(super) fn poll_donation(&mut self, now: Instant) {
        self.drop_stalled(now);
        self.poll_request(now);
        let Some(donation) = &mut self.snapshots.donation else {
            return;
        };
        if donation.until <= now {
            let seat = donation.seat;
            self.mark_donor_failed(now, seat);
        } else if donation.ask_at.is_some_and(|at| at <= now) {
            donation.ask_at = Some(now);
        }
    }

    /// After each tick: gives up on a donor whose snapshot would be too late.
    fn drop_late_donation(&mut self) {
        if let Some(donation) = &self.snapshots.donation
            && donation.last.is_some_and(|last| last < self.end)
        {
            let seat = donation.seat;
            self.mark_donor_failed(self.now, seat);
        }
    }

    pub(super) fn on_donor_left(&mut self, seat: Seat) {
        // The seat's next player starts with a clean record.
        self.snapshots.failed_donors.retain(|other| *other != seat);
        if self
            .snapshots
            .donation
            .as_ref()
            .is_some_and(|donation| donation.seat == seat)
        {
            self.snapshots.donation = None;
            self.serve_snapshots(self.now);
        }
    }

    fn find_snapshot(&mut self, now: Instant) {
        match self.config.snapshots {
            SnapshotSource::Server => self.ask_application(now),
            SnapshotSource::Players if self.snapshots.donation.is_none() => self.ask_player(now),
            SnapshotSource::Players => {}
        }
    }

    /// Asks the player with the fewest pending turns. If all have failed, no snapshot is available.
    fn ask_player(&mut self, now: Instant) {
        let failed_donors = &self.snapshots.failed_donors;
        let seats = (0..=u16::MAX).map(Seat).zip(&self.seats);
        let donors = seats.filter_map(|(seat, entry)| {
            let player = entry.player.as_ref()?;
            let can_give = matches!(player.state, PlayerState::Playing { .. })
                && player.waits_since.is_none()
                && player.delivery.is_none()
                && self.hash_comparator.is_compared(seat);
            (can_give && !failed_donors.contains(&seat)).then_some((player.lag, seat))
        });
        let Some((_, seat)) = donors.min() else {
            self.snapshots.failed_donors.clear();
            self.give_up_on_snapshots(now, Duration::ZERO);
            return;
        };
        let id = self.snapshots.id();
        let len_max = self.config.snapshot_bytes_max(self.shape);
        self.snapshots.donation = Some(Donation {
            seat,
            id,
            incoming: Box::new(Incoming::new(Direction::Up, len_max)),
            asked: self.end,
            last: None,
            ask_at: Some(now),
            until: now + DONOR_TIMEOUT,
        });
    }

    fn mark_donor_failed(&mut self, now: Instant, seat: Seat) {
        self.snapshots.donation = None;
        self.snapshots.mark_donor_failed(seat);
        self.serve_snapshots(now);
    }

    /// No snapshot is available: removes players that need one and have waited this long.
    fn give_up_on_snapshots(&mut self, now: Instant, waited: Duration) {
        for seat in (0..self.shape.seats).map(Seat) {
            let Some(player) = player_mut(&mut self.seats, seat) else {
                continue;
            };
            if player
                .waits_since
                .is_none_or(|since| now.saturating_since(since) < waited)
            {
                continue;
            }
            player.waits_since = None;
            if player.state == PlayerState::AwaitsSnapshot {
                self.remove(seat, LeaveReason::Behind, CloseReason::Behind);
            }
        }
        self.give_up_on_spectators(now, waited);
    }
}

/// How long the application has to give a snapshot, per waiting peer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct SnapshotRequest {
    /// When to repeat it; `None` unless its snapshot was refused.
    again_at: Option<Instant>,
    /// Time of the first request since a peer was last served.
    begun: Instant,
}

impl SnapshotRequest {
    fn extend(&mut self, pause: Duration) {
        self.begun += pause;
    }
}

impl<I: Input> MatchServer<I> {
    fn ask_application(&mut self, now: Instant) {
        if self.snapshots.request.is_none() {
            self.snapshots.request = Some(SnapshotRequest {
                again_at: None,
                begun: now,
            });
            self.events.push_back(ServerEvent::SnapshotWanted);
        }
    }

    fn on_snapshot_refused(&mut self, now: Instant) {
        if let Some(request) = &mut self.snapshots.request {
            request.again_at.get_or_insert(now + ASK_AGAIN);
        }
    }

    fn poll_request(&mut self, now: Instant) {
        if self.snapshots.request.is_some() && !self.is_snapshot_wanted() {
            self.snapshots.request = None;
        }
        let is_expired = self.expires_at().is_some_and(|at| at <= now);
        if is_expired {
            self.give_up_on_snapshots(now, REQUEST_TIMEOUT);
        }
        let is_wanted = self.is_snapshot_wanted();
        let Some(request) = &mut self.snapshots.request else {
            return;
        };
        if !is_wanted {
            self.snapshots.request = None;
        } else if is_expired || request.again_at.is_some_and(|at| at <= now) {
            request.again_at = None;
            self.events.push_back(ServerEvent::SnapshotWanted);
        }
    }

    fn request_timeout(&self) -> Option<Instant> {
        let again_at = self.snapshots.request?.again_at;
        again_at.into_iter().chain(self.expires_at()).min()
    }

    fn expires_at(&self) -> Option<Instant> {
        let request = self.snapshots.request?;
        let players = self.seats.iter().filter_map(|seat| seat.player.as_ref());
        let players = players.filter_map(|player| player.waits_since);
        let since = players.chain(self.spectators_wait_since()).min()?;
        Some(since.max(request.begun) + REQUEST_TIMEOUT)
    }
}
