//! Receiving a bounded batch from the sockets in each turn.

use std::time::Duration;

use wire::{Instant, Machine};

use super::intake::Took;
use super::outlet::Outlet;
use super::{Application, Driver, PeerAddress, Rest};

impl<M, A> Driver<M, A>
where
    M: Machine<Peer: PeerAddress>,
    A: Application<M>,
{
    /// Receives from the sockets, up to a batch. Returns the time with which timers may run.
    ///
    /// All datagrams that arrived before that time have been handled, even if the process was
    /// paused at any point here. It is before the sockets were last found empty, or at most
    /// [`CLOSE`] after that.
    pub(super) fn receive(&mut self) -> Instant {
        let began = self.clock.now();
        let batch = self.config.datagrams_per_turn.get();
        let bound = bound(self.turned_at.replace(began), began, batch);
        let mut received = 0_usize;
        self.handover.begin();
        let until = loop {
            let as_of = self.clock.now();
            let sockets = &mut self.outlet.sockets;
            if sockets.has_opened() && sockets.look_up(&mut self.waiter).is_err() {
                // The next wait fails likewise and reports it.
                self.inbox.ledger().receive_errors.add(1);
            }
            let round = self.receive_round();
            received = received.saturating_add(round.received);
            if let Some(as_of) = round.all_as_of(as_of) {
                self.release_inbound(as_of);
                break as_of;
            }
            if received >= bound {
                self.rest = Rest::Work;
                break self.clock.now();
            }
        };
        self.handover
            .finish(until, &mut self.machine, self.inbox.ledger());
        until
    }

    /// Reads the system's drop counts periodically and reports them to the application.
    pub(super) fn read_drops(&mut self, now: Instant) {
        if now < self.drops_at {
            return;
        }
        self.drops_at = now + DROPS_INTERVAL;
        for drops in self.outlet.sockets.read_drops() {
            let (ledger, count) = (self.inbox.ledger(), u64::from(drops.count));
            if drops.is_opened {
                ledger.dropped_in_full_opened.add(count);
            } else {
                ledger.dropped_in_full.add(count);
            }
            self.application
                .on_receive_drops(now, &mut self.machine, drops.socket, count);
        }
    }

    /// Makes one receive on each socket.
    fn receive_round(&mut self) -> Round {
        let Self {
            machine,
            intake,
            handover,
            outlet,
            inbox,
            clock,
            ..
        } = self;
        let Outlet {
            sockets,
            conditioners,
            ..
        } = outlet;
        let ledger = inbox.ledger();
        let mut round = Round::default();
        for mut look in sockets.look() {
            let mut stamp = None;
            let mut bytes = 0_usize;
            let from = (look.index, look.socket);
            let received = intake.receive(from, ledger, |envelope, datagram| {
                let now = *stamp.get_or_insert_with(|| clock.now());
                bytes = bytes.saturating_add(datagram.len());
                if let Some(conditioner) = &mut conditioners.inbound
                    && conditioner.has_rule(&envelope)
                {
                    conditioner.take(now, envelope, datagram, ledger);
                    return;
                }
                handover.take((now, &envelope), datagram, machine, ledger);
            });
            ledger
                .bytes_in
                .add(u64::try_from(bytes).unwrap_or(u64::MAX));
            round.latest = stamp.or(round.latest);
            if stamp.is_some() {
                look.note_received();
            }
            match received {
                Took::Nothing => look.note_empty(),
                Took::All(received) => {
                    look.note_empty();
                    round.received = round.received.saturating_add(received.max(1));
                }
                // Errors count towards the bound, so endless errors cannot keep the loop here.
                Took::Some(received) => {
                    round.may_hold_more = true;
                    round.received = round.received.saturating_add(received.max(1));
                }
            }
        }
        round
    }

    /// Gives the machine the delayed datagrams that are due by `now`.
    fn release_inbound(&mut self, now: Instant) {
        while let Some((envelope, mut datagram)) = self
            .outlet
            .conditioners
            .inbound
            .as_mut()
            .and_then(|conditioner| conditioner.pop_due(now))
        {
            let ledger = self.inbox.ledger();
            self.handover
                .take((now, &envelope), &mut datagram, &mut self.machine, ledger);
        }
    }
}

/// Result of a receive on each socket.
#[derive(Debug, Default)]
struct Round {
    received: usize,
    /// Whether a socket may hold more datagrams.
    may_hold_more: bool,
    /// The time with which the last datagram was given to the machine.
    latest: Option<Instant>,
}

impl Round {
    /// Returns the time before which all arrivals have been handled, for a round that began at
    /// `began`; `None` if the sockets must be read again.
    ///
    /// A socket may be found empty before its last datagrams get their time stamp. Datagrams that
    /// arrive in between are not handled yet, so the two moments must be close. They are, unless
    /// the process was paused there.
    fn all_as_of(&self, began: Instant) -> Option<Instant> {
        let as_of = self.latest.unwrap_or(began);
        let is_close = as_of.saturating_since(began) <= CLOSE;
        (!self.may_hold_more && is_close).then_some(as_of)
    }
}

/// Maximum datagrams of a turn, raised if the last turn began long ago or this is the first.
fn bound(last: Option<Instant>, began: Instant, batch: usize) -> usize {
    if last.is_none_or(|last| began.saturating_since(last) > STALL) {
        batch.saturating_mul(STALL_BATCHES)
    } else {
        batch
    }
}

/// Minimum time between two reads of the drop counts. An idle driver reads none.
const DROPS_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum duration of a receive for which its end counts as its start: a tenth of the accuracy of
/// timers.
const CLOSE: Duration = Duration::from_micros(100);

/// Gap between turns that counts as a pause. `udp_proto`'s stall guard uses the same value.
const STALL: Duration = Duration::from_millis(250);

/// Batches received after a pause. With the default batch these are 16,384 datagrams. A receive
/// buffer of 4 MiB holds fewer, since the kernel charges at least 512 bytes for each.
const STALL_BATCHES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_looked_at_again_unless_all_were_seen_empty_just_now() {
        let began = Instant::from_millis(1_000);
        let round = |may_hold_more, behind| Round {
            received: 1,
            may_hold_more,
            latest: Some(began + behind),
        };
        let next = Duration::from_nanos(1);
        assert_eq!(Round::default().all_as_of(began), Some(began));
        assert_eq!(round(false, CLOSE).all_as_of(began), Some(began + CLOSE));
        assert_eq!(round(false, CLOSE + next).all_as_of(began), None);
        assert_eq!(round(true, next).all_as_of(began), None);
    }

    #[test]
    fn more_is_taken_after_a_pause_than_in_steady_work() {
        let last = Instant::from_millis(1_000);
        assert_eq!(bound(None, last, 1_024), 16_384);
        assert_eq!(bound(Some(last), last + STALL, 1_024), 1_024);
        let after = last + STALL + Duration::from_nanos(1);
        assert_eq!(bound(Some(last), after, 1_024), 16_384);
        assert_eq!(bound(None, last, usize::MAX), usize::MAX);
    }
}
