//! The server's spectators, and their delay.

use core::time::Duration;
use std::sync::Arc;

use wire::{Generator, Instant};

use super::MatchServer;
use crate::config::Config;
use crate::event::{CloseReason, JoinError, LeaveReason, Phase, ServerEvent};
use crate::input::Input;
use crate::repair::RepairLimits;
use crate::spectators::{
    SPECTATOR_REPORT_TICKS, ShownTicks, SpectatorKind, SpectatorSet, SpectatorSetConfig,
};
use crate::tick::{PeerId, Tick};

/// Ticks between the last tick of a delayed match and its end, in which lost ticks are repaired.
const CLOSING_TICKS: u32 = 60;

/// The part of the match that spectators may see.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpectatorView {
    /// First tick that they may not see yet.
    end: Tick,
    /// When the next tick is shown, after the end of a delayed match.
    next_at: Option<Instant>,
    /// Ticks since all were shown, up to [`CLOSING_TICKS`].
    closing_ticks: u32,
}

pub(super) fn spectator_set(
    config: &Config,
    limits: RepairLimits,
    generator: &mut Generator,
) -> SpectatorSet {
    let terms = SpectatorSetConfig {
        spectators_max: usize::try_from(config.spectators_max).unwrap_or(usize::MAX),
        ready_timeout: config.start_timeout,
        transfer: config.transfer,
        limits: RepairLimits {
            report_ticks: SPECTATOR_REPORT_TICKS.into(),
            reserved_len: 0,
            len_small: 0,
            ..limits
        },
    };
    SpectatorSet::new(terms, generator)
}

/// The ticks that spectators of a server see.
macro_rules! shown_ticks {
    ($server:ident) => {
        ShownTicks {
            chain: &$server.chain,
            begin: Tick(0),
            end: $server.spectator_view.end,
        }
    };
}

/// Calls a method of the spectator set with the shown ticks and its counters.
macro_rules! spectators {
    ($server:ident.$method:ident($now:expr, $($argument:expr),*)) => {{
        let shown_ticks = shown_ticks!($server);
        $server
            .spectators
            .$method($now, &shown_ticks, $($argument,)* &mut $server.stats.spectators)
    }};
}

impl<I: Input> MatchServer<I> {
    /// Admits a spectator, which the driver knows as `peer`, before or after ticks begin. It
    /// catches up as a late player does, and then gets turns [`Config::spectator_delay`] ticks
    /// after the players.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        self.admit_spectator(now, peer, SpectatorKind::Spectator)
    }

    /// Admits a [`SpectatorRelay`](crate::SpectatorRelay): as [`watch`](Self::watch), but it may
    /// also request snapshots that it does not need itself, for its children.
    ///
    /// A request may cost the application a snapshot, or a player its upload, at most every 5 s.
    /// Use it only for relays that the driver trusts.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch_as_relay(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        self.admit_spectator(now, peer, SpectatorKind::Relay)
    }

    fn admit_spectator(
        &mut self,
        now: Instant,
        peer: PeerId,
        kind: SpectatorKind,
    ) -> Result<(), JoinError> {
        let now = self.advance(now);
        if self.phase == Phase::Closed {
            return Err(JoinError::Closed);
        }
        if self.peers.contains_key(&peer) {
            return Err(JoinError::PeerTaken);
        }
        self.spectators.admit(now, peer, kind)?;
        self.departed.remove(&peer);
        Ok(())
    }

    /// Returns the number of spectators.
    pub const fn spectator_count(&self) -> usize {
        self.spectators.len()
    }

    pub(super) fn remove_spectator(&mut self, peer: PeerId) {
        self.spectators
            .remove(peer, LeaveReason::Removed, CloseReason::Removed);
        self.report_departures();
    }

    /// Handles a datagram of a peer without a seat; false if it is not, and was not, a spectator.
    pub(super) fn on_spectators_datagram(
        &mut self,
        now: Instant,
        peer: PeerId,
        datagram: &[u8],
    ) -> bool {
        let is_known = spectators!(self.on_datagram(now, (peer, datagram)));
        if is_known {
            self.report_departures();
            self.serve_spectators(now);
        }
        is_known
    }

    pub(super) fn transmit_to_spectators(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<PeerId> {
        spectators!(self.transmit(now, buf))
    }

    pub(super) fn show_closed_tick(&mut self, now: Instant) {
        let end = self.end.minus(self.config.spectator_delay.into());
        self.show_until(now, end);
    }

    /// Marks all ticks that are old enough as shown.
    pub(super) fn skip_shown(&mut self) {
        self.spectator_view.end = self.end.minus(self.config.spectator_delay.into());
    }

    /// After the end: shows the remaining ticks to delayed spectators, at the usual pace.
    pub(super) fn poll_spectator_delay(&mut self, now: Instant) {
        self.spectators.on_timeout(now, &mut self.generator);
        self.report_departures();
        if self.spectator_view.next_at.is_none_or(|at| at > now) {
            return;
        }
        let period = Duration::from_nanos(self.limits.period_nanos);
        self.spectator_view.next_at = Some(now + period);
        if self.spectator_view.end < self.end {
            self.show_until(now, self.spectator_view.end.plus(1));
        } else if self.spectator_view.closing_ticks < CLOSING_TICKS && self.spectators.len() > 0 {
            self.spectator_view.closing_ticks = self.spectator_view.closing_ticks.saturating_add(1);
            self.spectators.mark_due(&shown_ticks!(self));
        } else {
            self.spectator_view.next_at = None;
            self.close_spectators();
        }
    }

    pub(super) fn end_for_spectators(&mut self) {
        if self.config.spectator_delay > 0 && self.spectators.len() > 0 {
            self.spectator_view.next_at = Some(self.now);
        } else {
            self.close_spectators();
        }
    }

    pub(super) fn spectator_timeout(&self) -> Option<Instant> {
        let spectators = self.spectators.poll_timeout();
        spectators
            .into_iter()
            .chain(self.spectator_view.next_at)
            .min()
    }

    pub(super) fn spectators_want_snapshot(&self) -> bool {
        self.phase == Phase::Running && self.spectators.wants_snapshot(&shown_ticks!(self))
    }

    pub(super) fn offer_to_spectators(&mut self, now: Instant, next: Tick, bytes: Arc<[u8]>) {
        if self.spectators_want_snapshot() {
            self.spectators.offer_snapshot(next, bytes);
            spectators!(self.serve(now,));
        }
    }

    /// Start of the longest wait for a snapshot, if none is available.
    pub(super) fn spectators_wait_since(&self) -> Option<Instant> {
        let waits_since = self.spectators.waits_since();
        waits_since.filter(|_| self.spectators_want_snapshot())
    }

    pub(super) fn give_up_on_spectators(&mut self, now: Instant, waited: Duration) {
        self.spectators.give_up_on_waiting(now, waited);
        self.report_departures();
    }

    fn serve_spectators(&mut self, now: Instant) {
        if self.spectators_want_snapshot() {
            self.serve_snapshots(now);
        }
    }

    fn show_until(&mut self, now: Instant, end: Tick) {
        let shown = core::mem::replace(&mut self.spectator_view.end, end);
        spectators!(self.on_shown(now, shown));
        self.report_departures();
        self.serve_spectators(now);
    }

    fn close_spectators(&mut self) {
        self.spectators
            .remove_all(LeaveReason::Finished, CloseReason::Ended);
        self.report_departures();
    }

    fn report_departures(&mut self) {
        while let Some(departures) = self.spectators.poll_departure() {
            self.events.push_back(ServerEvent::SpectatorLeft {
                peer: departures.peer,
                reason: departures.reason,
            });
        }
    }
}
