//! What clients are told.

use wire::{Instant, Seat};

use super::MatchServer;
use crate::config::ClosePolicy;
use crate::event::Phase;
use crate::input::Input;
use crate::message::{Mode, Welcome, write_bye, write_stretch, write_turns_head, write_welcome};
use crate::repair::Closed;
use crate::tick::{PeerId, Tick};

impl<I: Input> MatchServer<I> {
    /// Writes the next datagram and returns who shall get it.
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        if let Some(peer) = self.transmit_question(now, buf) {
            return Some(peer);
        }
        while self.transmit_from < self.places.len() {
            let index = self.transmit_from;
            self.transmit_from = index.saturating_add(1);
            let seat = Seat(u16::try_from(index).unwrap_or(u16::MAX));
            if let Some(peer) = self.transmit_to(now, seat, buf) {
                return Some(peer);
            }
        }
        if let Some(peer) = self.transmit_to_audience(now, buf) {
            return Some(peer);
        }
        if self.phase == Phase::Running
            && let Some(peer) = self.transmit_snapshots(now, buf)
        {
            return Some(peer);
        }
        let (peer, (reason, is_due)) = self.departed.iter_mut().find(|(_, (_, is_due))| *is_due)?;
        *is_due = false;
        write_bye(buf, *reason);
        Some(*peer)
    }

    fn transmit_to(&mut self, now: Instant, seat: Seat, buf: &mut Vec<u8>) -> Option<PeerId> {
        let next_at = {
            let player = self.places.get(usize::from(seat.0))?.player()?;
            self.closed_at(player.repair.next())
        };
        let place = self.places.get_mut(usize::from(seat.0))?;
        let next_input_low = place.log.next().low();
        let player = place.player_mut()?;
        if !player.is_due {
            return None;
        }
        player.is_due = false;
        if !player.is_ready() {
            let peer = player.peer;
            write_welcome(buf, &self.welcome(Some(seat)));
            return Some(peer);
        }
        if self.phase != Phase::Running || !player.has_turns() {
            return None;
        }
        let closed = Closed {
            chain: &self.chain,
            end: self.end,
            next_at,
        };
        let body = &mut self.body;
        let slice = player
            .repair
            .slice_by(now, &closed, &self.limits, |wanted| {
                body.newest(&closed, wanted, &self.limits)
            });
        if player.repair.is_newest_due() {
            player.is_due = true;
            self.transmit_from = usize::from(seat.0);
        }
        let wait = player.repair.answer_nanos(&self.limits);
        let wanted = self.ledger.ask(now, seat, wait);
        write_stretch(buf, self.stretch.per_mille);
        let start = buf.len();
        self.forwarding.put(buf);
        write_turns_head(
            buf,
            next_input_low,
            player.slack,
            Tick(slice.ticks.start).low(),
            wanted.map(|step| Tick(step).low()),
        );
        buf.extend_from_slice(body.lay_out(&self.chain, &slice.ticks));
        self.forwarding.take_back_if_long(buf, start);
        let count = u64::try_from(slice.ticks.len()).unwrap_or(u64::MAX);
        self.stats.bundles_sent = self.stats.bundles_sent.saturating_add(count);
        let catch_up = u64::from(slice.is_catch_up);
        self.stats.catch_up_datagrams = self.stats.catch_up_datagrams.saturating_add(catch_up);
        Some(player.peer)
    }

    pub(crate) fn welcome(&self, seat: Option<Seat>) -> Welcome {
        Welcome {
            mode: match self.config.close {
                ClosePolicy::Clock { .. } => Mode::Clock,
                ClosePolicy::WaitAll { .. } => Mode::WaitAll,
                ClosePolicy::Quorum { .. } => Mode::Quorum,
            },
            shape: self.shape,
            seat,
            period_nanos: self.config.tick_rate.period_nanos(),
            input_delay: self.config.input_delay,
            repair: self.config.repair.get(),
            hash_interval: self.config.hash_interval,
            match_id: self.match_id,
        }
    }
}
