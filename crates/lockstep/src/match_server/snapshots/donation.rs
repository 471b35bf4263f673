//! A snapshot that a player gives.

use core::time::Duration;

use wire::{Instant, Seat};

use crate::config::SnapshotSource;
use crate::event::{CloseReason, LeaveReason};
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::match_server::place::{Place, Standing};
use crate::message::{Chunk, Direction, write_snapshot_ask};
use crate::snapshot;
use crate::tick::Tick;
use crate::transfer::Incoming;

/// Time between two words to a player who is asked for a snapshot.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Time for a player to begin to give a snapshot; then another one is asked.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Time from one piece to the next; then another player is asked.
const PIECE_TIME: Duration = Duration::from_secs(5);

/// A player is being asked.
#[derive(Debug)]
pub(super) struct Donation {
    seat: Seat,
    id: u8,
    incoming: Box<Incoming>,
    /// First tick that was not closed when it was asked.
    asked: Tick,
    /// Last tick up to whose close what it gives is of use, once its length is known: the transfer
    /// to whoever needs it takes its time too.
    last: Option<Tick>,
    /// When to ask again; `None` once pieces come.
    ask_at: Option<Instant>,
    /// When to ask another one.
    until: Instant,
}

impl Donation {
    pub(super) const fn seat(&self) -> Seat {
        self.seat
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ack = self.incoming.poll_timeout();
        let others = [self.ask_at, ack].into_iter().flatten();
        others.chain([self.until]).min()
    }

    /// Writes what is due to the donor.
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = Some(now + ASK_INTERVAL);
            write_snapshot_ask(buf, self.id);
            return true;
        }
        self.incoming.poll_ack(now, buf)
    }
}

impl<I: Input> MatchServer<I> {
    /// Takes a piece of a snapshot that a player gives.
    pub(in crate::match_server) fn on_donated(
        &mut self,
        now: Instant,
        seat: Seat,
        chunk: &Chunk<'_>,
    ) {
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
            self.pass_over(now, seat);
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
        let head = snapshot::read(&bytes, self.shape, &self.neutral);
        let next = head.map(|(head, _)| head.next);
        let is_taken = next
            .filter(|next| *next <= end)
            .is_some_and(|next| self.offer(now, next, bytes.into(), Some(seat)));
        if !is_taken {
            self.pass_over(now, seat);
        }
    }

    /// Asks again, and gives up on players who give nothing, or take nothing.
    pub(in crate::match_server) fn pursue_snapshots(&mut self, now: Instant) {
        self.drop_stalled(now);
        self.pursue_wish(now);
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

    /// Gives up on a player whose snapshot would come too late, a tick having been closed.
    pub(super) fn drop_late_donation(&mut self) {
        if let Some(donation) = &self.snapshots.donation
            && donation.last.is_some_and(|last| last < self.end)
        {
            let seat = donation.seat;
            self.pass_over(self.now, seat);
        }
    }

    /// Takes note that the player of `seat` is out.
    pub(in crate::match_server) fn on_donor_gone(&mut self, seat: Seat) {
        // Whoever gets the seat is another one.
        self.snapshots.passed_over.retain(|other| *other != seat);
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

    /// Asks the application, or the next player.
    pub(super) fn want_snapshot(&mut self, now: Instant) {
        match self.config.snapshots {
            SnapshotSource::Server => self.ask_application(now),
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
                && player.waits_since.is_none()
                && player.delivery.is_none()
                && self.ledger.is_sound(seat);
            (can_give && !passed_over.contains(&seat)).then_some((player.lag, seat))
        });
        let Some((_, seat)) = donors.min() else {
            self.snapshots.passed_over.clear();
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
            until: now + ANSWER_TIME,
        });
    }

    fn pass_over(&mut self, now: Instant, seat: Seat) {
        self.snapshots.donation = None;
        self.snapshots.pass_over(seat);
        self.serve_snapshots(now);
    }

    /// There is no snapshot for those who have waited for so long: whoever of them cannot do without
    /// one is put out.
    pub(super) fn give_up_on_snapshots(&mut self, now: Instant, waited: Duration) {
        for seat in (0..self.shape.seats).map(Seat) {
            let place = self.places.get_mut(usize::from(seat.0));
            let Some(player) = place.and_then(Place::player_mut) else {
                continue;
            };
            if player
                .waits_since
                .is_none_or(|since| now.saturating_since(since) < waited)
            {
                continue;
            }
            player.waits_since = None;
            if player.standing == Standing::AwaitsSnapshot {
                self.remove(seat, LeaveReason::Behind, CloseReason::Behind);
            }
        }
        self.give_up_on_audience(now, waited);
    }
}
