//! Snapshots for those who lack more than the chain holds: the server's own, or a player's.

use std::sync::Arc;

use core::time::Duration;

use wire::{Instant, Seat};

use super::MatchServer;
use super::place::{Place, Standing};
use crate::chain::CHAIN_LEN;
use crate::event::{CloseReason, LeaveReason, ServerEvent, SnapshotError};
use crate::input::Input;
use crate::message::{Chunk, ChunkAck, Direction, write_snapshot_ask};
use crate::snapshot;
use crate::transfer::{Incoming, Outgoing};
use crate::{PeerId, SnapshotSource, Tick};

use super::starting::CATCH_UP_MARGIN;

/// Time between two words to a player who is asked for a snapshot.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Time for a player to give a snapshot, its transfer included; then another one is asked.
const DONATION_TIME: Duration = Duration::from_secs(10);

/// Snapshots for one player: a player may say that each was wrong.
const DELIVERIES_MAX: u8 = 4;

/// Ticks after which a snapshot is too old to begin a transfer with: 4 s at 60 Hz.
const FRESH_TICKS: u32 = 256;

/// The snapshot at hand, and where the next comes from.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    offered: Option<Offered>,
    /// Whether the application was told that one is wanted.
    is_wanted: bool,
    donation: Option<Donation>,
    /// Seats whose players gave none in time, or a wrong one.
    passed_over: Vec<Seat>,
    /// Id of the last transfer or question.
    last_id: u8,
}

#[derive(Debug)]
struct Offered {
    /// First tick that is not part of it.
    next: Tick,
    bytes: Arc<[u8]>,
    /// The player who gave it, where one did.
    donor: Option<Seat>,
}

/// A player is being asked.
#[derive(Debug)]
struct Donation {
    seat: Seat,
    id: u8,
    incoming: Box<Incoming>,
    /// When to ask again; `None` once chunks come.
    ask_at: Option<Instant>,
    until: Instant,
}

/// A snapshot on its way to a player.
#[derive(Debug)]
pub(super) struct Delivery {
    outgoing: Box<Outgoing>,
    next: Tick,
    donor: Option<Seat>,
}

/// The snapshot that a player got last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    /// Its transfer.
    pub(super) id: u8,
    /// First tick that is not part of it.
    next: Tick,
    /// The player who gave it, until it was blamed.
    donor: Option<Seat>,
}

impl Snapshots {
    const fn id(&mut self) -> u8 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let donation = self.donation.as_ref()?;
        let ack = donation.incoming.poll_timeout();
        let others = [donation.ask_at, ack].into_iter().flatten();
        others.chain([donation.until]).min()
    }

    /// Bytes that it holds, but for a snapshot that comes in.
    pub(super) fn memory_len(&self) -> usize {
        let offered = self.offered.as_ref();
        offered.map_or(0, |offered| offered.bytes.len())
    }
}

impl<I: Input> MatchServer<I> {
    /// Gives the state after the turn that [`poll_turn`](Self::poll_turn) returned last to all who
    /// wait for one; asked for by [`ServerEvent::SnapshotWanted`].
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] where no turn was returned yet, or the last is too long ago, or `state` is
    /// longer than [`Config::snapshot_len_max`](crate::Config::snapshot_len_max).
    pub fn offer_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        let next = self.reader.next();
        if next == Tick(0) || self.end.since(next) > FRESH_TICKS {
            return Err(SnapshotError::NotCurrent);
        }
        if !self.config.takes_snapshot(state.len()) {
            return Err(SnapshotError::TooLong);
        }
        let bytes = snapshot::write(&self.reader, &self.neutral, state);
        self.offer(now, next, bytes.into(), None);
        Ok(())
    }

    /// Has the player of `seat` load a snapshot and go on from it, as one whose state went wrong;
    /// its inputs count meanwhile. Players who hold no seat, or get one already, are ignored.
    ///
    /// After a [`ServerEvent::Desync`], wait for the [`ServerEvent::Divergence`]: who has loaded
    /// another state cannot say any more where its own went wrong.
    pub fn resync(&mut self, now: Instant, seat: Seat) {
        let now = self.advance(now);
        let place = self.places.get_mut(usize::from(seat.0));
        if let Some(player) = place.and_then(Place::player_mut)
            && player.is_ready()
            && player.delivery.is_none()
        {
            self.want_for(now, seat);
        }
    }

    /// Has `seat` get a snapshot, unless it got too many.
    pub(super) fn want_for(&mut self, now: Instant, seat: Seat) {
        let place = self.places.get_mut(usize::from(seat.0));
        let Some(player) = place.and_then(Place::player_mut) else {
            return;
        };
        if player.deliveries < DELIVERIES_MAX {
            player.wants_snapshot = true;
            self.serve_snapshots(now);
        } else if player.standing == Standing::AwaitsSnapshot {
            self.remove(seat, LeaveReason::Behind, CloseReason::Behind);
        }
    }

    /// Starts the transfers that are wanted, or sees that there is something to transfer.
    pub(super) fn serve_snapshots(&mut self, now: Instant) {
        let is_wanted = |place: &Place| place.player().is_some_and(|player| player.wants_snapshot);
        if !self.places.iter().any(is_wanted) && !self.audience_wants_snapshot() {
            self.snapshots.is_wanted = false;
            self.snapshots.donation = None;
            return;
        }
        let end = self.end;
        let is_fresh = |offered: &Offered| end.since(offered.next) <= FRESH_TICKS;
        if !self.snapshots.offered.as_ref().is_some_and(is_fresh) {
            self.snapshots.offered = None;
            self.want_snapshot(now);
            return;
        }
        self.snapshots.is_wanted = false;
        self.snapshots.donation = None;
        let Some(offered) = &self.snapshots.offered else {
            return;
        };
        let (next, donor) = (offered.next, offered.donor);
        let bytes = Arc::clone(&offered.bytes);
        self.stock_audience(now, next, Arc::clone(&bytes));
        for place in &mut self.places {
            let Some(player) = place.player_mut().filter(|player| player.wants_snapshot) else {
                continue;
            };
            let (id, bytes) = (self.snapshots.id(), Arc::clone(&bytes));
            let limits = &self.config.transfer;
            let outgoing = Outgoing::new(Direction::Down, id, bytes, limits, now);
            player.wants_snapshot = false;
            player.deliveries = player.deliveries.saturating_add(1);
            player.delivery = outgoing.map(|outgoing| Delivery {
                outgoing: Box::new(outgoing),
                next,
                donor,
            });
        }
        self.transmit_from = 0;
    }

    /// Takes the answer of a client to chunks.
    pub(super) fn on_snapshot_ack(&mut self, now: Instant, seat: Seat, ack: &ChunkAck<'_>) {
        let place = self.places.get_mut(usize::from(seat.0));
        let Some(player) = place.and_then(Place::player_mut) else {
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
        if self.end.since(next) > CHAIN_LEN.saturating_sub(CATCH_UP_MARGIN) {
            // It took so long that the chain has moved on.
            self.want_for(now, seat);
            return;
        }
        if player.standing == Standing::AwaitsSnapshot {
            player.standing = Standing::CatchingUp;
            player.repair.begin_at(next);
        }
        player.loaded = Some(loaded);
        player.is_due = true;
        self.transmit_from = 0;
        // The state itself is the first that is compared.
        let interval = u32::from(self.config.hash_interval.get());
        let step = next.minus(1).0.div_ceil(interval);
        self.ledger.admit_late(seat, step);
    }

    /// Takes a piece of a snapshot that a player gives.
    pub(super) fn on_donated(&mut self, now: Instant, seat: Seat, chunk: &Chunk<'_>) {
        let Some(donation) = &mut self.snapshots.donation else {
            return;
        };
        if donation.seat != seat || donation.id != chunk.id {
            return;
        }
        donation.ask_at = None;
        donation.incoming.on_chunk(now, chunk);
        let Some(bytes) = donation.incoming.take() else {
            return;
        };
        let head = snapshot::read(&bytes, self.shape, &self.neutral);
        let next = head.map(|(head, _)| head.next);
        let is_current = |next: &Tick| *next <= self.end && self.end.since(*next) <= FRESH_TICKS;
        match next.filter(is_current) {
            Some(next) => self.offer(now, next, bytes.into(), Some(seat)),
            None => self.pass_over(now, seat),
        }
    }

    /// Whether what `seat` is said to have wrong came with a snapshot that another player gave:
    /// then that one is passed over, and `seat` gets another.
    pub(super) fn blames_donor(&mut self, now: Instant, seat: Seat, tick: Tick) -> bool {
        let interval = u32::from(self.config.hash_interval.get());
        let place = self.places.get_mut(usize::from(seat.0));
        let Some(player) = place.and_then(Place::player_mut) else {
            return false;
        };
        let Some(loaded) = &mut player.loaded else {
            return false;
        };
        if tick >= loaded.next.plus(interval) {
            return false;
        }
        let Some(donor) = loaded.donor.take() else {
            return false;
        };
        self.events
            .push_back(ServerEvent::SnapshotRefuted { donor, seat });
        self.snapshots.offered = None;
        self.snapshots.donation = None;
        self.snapshots.passed_over.push(donor);
        self.audience.forget_stock();
        self.want_for(now, seat);
        true
    }

    /// Asks again, and gives up on a player who gives nothing.
    pub(super) fn pursue_snapshots(&mut self, now: Instant) {
        let Some(donation) = &mut self.snapshots.donation else {
            return;
        };
        if donation.until <= now {
            let seat = donation.seat;
            self.pass_over(now, seat);
        } else if donation.ask_at.is_some_and(|at| at <= now) {
            donation.ask_at = Some(now);
        }
    }

    /// Takes note that the player of `seat` is out.
    pub(super) fn on_donor_gone(&mut self, seat: Seat) {
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

    pub(super) fn snapshot_timeout(&self) -> Option<Instant> {
        let deliveries = self
            .places
            .iter()
            .filter_map(|place| place.player()?.delivery.as_ref()?.outgoing.poll_timeout());
        deliveries.chain(self.snapshots.poll_timeout()).min()
    }

    /// Writes a datagram that has to do with snapshots, and returns who shall get it.
    pub(super) fn transmit_snapshots(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if let Some(donation) = &mut self.snapshots.donation
            && let Some(donor) = self.places.get(usize::from(donation.seat.0))
            && let Some(donor) = donor.player()
        {
            if donation.ask_at.is_some_and(|at| at <= now) {
                donation.ask_at = Some(now + ASK_INTERVAL);
                write_snapshot_ask(buf, donation.id);
                return Some(donor.peer);
            }
            if donation.incoming.poll_ack(now, buf) {
                return Some(donor.peer);
            }
        }
        self.places.iter_mut().find_map(|place| {
            let player = place.player_mut()?;
            let is_written = player.delivery.as_mut()?.outgoing.poll(now, buf);
            is_written.then_some(player.peer)
        })
    }

    fn offer(&mut self, now: Instant, next: Tick, bytes: Arc<[u8]>, donor: Option<Seat>) {
        self.snapshots.offered = Some(Offered { next, bytes, donor });
        self.serve_snapshots(now);
    }

    /// Asks the application, or the next player.
    fn want_snapshot(&mut self, now: Instant) {
        match self.config.snapshots {
            SnapshotSource::Server => {
                if !core::mem::replace(&mut self.snapshots.is_wanted, true) {
                    self.events.push_back(ServerEvent::SnapshotWanted);
                }
            }
            SnapshotSource::Players if self.snapshots.donation.is_none() => self.ask_player(now),
            SnapshotSource::Players => {}
        }
    }

    /// Asks the player with the fewest turns waiting; where all have been asked in vain, nobody is
    /// left who could give one.
    fn ask_player(&mut self, now: Instant) {
        let passed_over = &self.snapshots.passed_over;
        let seats = (0..=u16::MAX).map(Seat).zip(&self.places);
        let donors = seats.filter_map(|(seat, place)| {
            let player = place.player()?;
            let can_give = matches!(player.standing, Standing::Playing { .. })
                && !player.wants_snapshot
                && player.delivery.is_none()
                && self.ledger.is_sound(seat);
            (can_give && !passed_over.contains(&seat)).then_some((player.lag, seat))
        });
        let Some((_, seat)) = donors.min() else {
            self.snapshots.passed_over.clear();
            self.give_up_on_snapshots();
            return;
        };
        let id = self.snapshots.id();
        let len_max = self.config.snapshot_bytes_max(self.shape);
        self.snapshots.donation = Some(Donation {
            seat,
            id,
            incoming: Box::new(Incoming::new(Direction::Up, len_max)),
            ask_at: Some(now),
            until: now + DONATION_TIME,
        });
    }

    fn pass_over(&mut self, now: Instant, seat: Seat) {
        self.snapshots.donation = None;
        self.snapshots.passed_over.push(seat);
        self.serve_snapshots(now);
    }

    /// Nobody has a snapshot: whoever cannot do without one is put out.
    fn give_up_on_snapshots(&mut self) {
        for seat in (0..self.shape.seats).map(Seat) {
            let place = self.places.get_mut(usize::from(seat.0));
            let Some(player) = place.and_then(Place::player_mut) else {
                continue;
            };
            player.wants_snapshot = false;
            if player.standing == Standing::AwaitsSnapshot {
                self.remove(seat, LeaveReason::Behind, CloseReason::Behind);
            }
        }
        self.give_up_on_audience();
    }
}
