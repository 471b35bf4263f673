//! The application's side, mostly passed on to the client.

use core::time::Duration;

use wire::{Instant, MatchId, Seat};

use super::succession::LEAVE_COPIES;
use super::{HostedClose, HostedEvent, HostedPeer, State};
use crate::checksum::StateHasher;
use crate::event::{CloseReason, JoinError, LeaveReason, ReportError, SnapshotError, SubmitError};
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::step::{Step, Steps};
use crate::tick::{PeerId, Tick};
use crate::turn::Turn;

impl<I: Input> HostedPeer<I> {
    /// Takes the player's current input, and returns the tick it is for, as
    /// [`ClientPeer::submit`](crate::ClientPeer::submit). A host that takes over revokes promises
    /// for its ticks ([`HostedEvent::Migrated`]).
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. While no host closes ticks, and before the match begins, the input is kept
    /// for the first tick that the next host's clock stamps.
    pub fn submit(&mut self, now: Instant, input: &I) -> Result<Tick, SubmitError> {
        let now = self.advance(now);
        if self.is_over() {
            return Err(SubmitError::Closed);
        }
        self.client.submit(now, input)
    }

    /// Returns the next turn, as [`ClientPeer::poll_turn`](crate::ClientPeer::poll_turn).
    pub fn poll_turn(&mut self, now: Instant) -> Option<Turn<'_, I>> {
        let now = self.advance(now);
        self.client.poll_turn(now)
    }

    /// Returns when the next turn is due, if it has arrived.
    #[must_use]
    pub fn next_turn_at(&self) -> Option<Instant> {
        self.client.next_turn_at()
    }

    /// Returns the game's next step, as [`ClientPeer::next_step`](crate::ClientPeer::next_step).
    pub fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        let now = self.advance(now);
        self.client.next_step(now)
    }

    /// Takes the state hash after the turn returned last.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        self.client.report(tick, state_hash)
    }

    /// Takes the hash of the state after the turn returned last, with its sections.
    ///
    /// # Errors
    ///
    /// [`ReportError`] if it is of another tick, or was already reported.
    pub fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.client.report_state(tick, state)
    }

    /// Takes the state announced by [`ClientEvent::Snapshot`](crate::ClientEvent::Snapshot); `None`
    /// if none is waiting.
    pub const fn take_snapshot(&mut self) -> Option<Vec<u8>> {
        self.client.take_snapshot()
    }

    /// Gives the state after the turn returned last, on
    /// [`ClientEvent::SnapshotWanted`](crate::ClientEvent::SnapshotWanted).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        self.client.offer_snapshot(now, state)
    }

    /// Gives a saved final state, as [`ClientPeer::offer_save`](crate::ClientPeer::offer_save).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_save(
        &mut self,
        now: Instant,
        tick: Tick,
        state: &[u8],
    ) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        self.client.offer_save(now, tick, state)
    }

    /// While we host: seats a guest, which is none of the players, in place of a removed player, as
    /// [`MatchServer::join`](crate::MatchServer::join). The guest runs a plain
    /// [`ClientPeer`](crate::ClientPeer), takes no part in elections, and must join the next host
    /// again.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn join(&mut self, now: Instant, peer: PeerId, seat: Seat) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.join(now, peer, seat)
    }

    /// While we host: admits a spectator, as [`MatchServer::watch`](crate::MatchServer::watch). It
    /// must join the next host again.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.watch(now, peer)
    }

    /// While we host: admits a [`SpectatorRelay`](crate::SpectatorRelay), as
    /// [`MatchServer::watch_as_relay`](crate::MatchServer::watch_as_relay). It must join the next
    /// host again.
    ///
    /// # Errors
    ///
    /// [`JoinError`], with no change.
    pub fn watch_as_relay(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.watch_as_relay(now, peer)
    }

    /// While we host: removes a peer admitted by [`join`](Self::join), [`watch`](Self::watch) or
    /// [`watch_as_relay`](Self::watch_as_relay), or lost by the transport. Players, which are
    /// removed by [`remove`](Self::remove), and unknown peers are ignored.
    pub fn kick(&mut self, now: Instant, peer: PeerId) {
        let now = self.advance(now);
        if let Ok(server) = self.server_for(peer) {
            server.kick(now, peer);
            if !self.is_over() {
                self.resume_if_quorum(now);
            }
        }
    }

    /// The server, to admit `peer` as a guest. Players join by themselves, and a removed player
    /// stays out.
    fn server_for(&mut self, peer: PeerId) -> Result<&mut MatchServer<I>, JoinError> {
        let is_players = Self::is_own(peer) || self.seat_of(peer).is_some();
        let server = self.server.as_deref_mut().ok_or(JoinError::NotHost)?;
        if is_players {
            Err(JoinError::PeerTaken)
        } else {
            Ok(server)
        }
    }

    /// Leaves the match, and notifies the others a few times: they play on, and replace us at once
    /// if we host.
    pub fn leave(&mut self, now: Instant, reason: LeaveReason) {
        let now = self.advance(now);
        if self.is_over() {
            return;
        }
        self.due.clear();
        self.server = None;
        self.client.leave(now, reason);
        self.repeat_leave(now, LEAVE_COPIES, now);
    }

    /// Removes the player of `seat`, as after a silence, because the transport lost it or it is
    /// kicked. If it hosts, the others must agree. Our own seat and removed players are ignored.
    pub fn remove(&mut self, now: Instant, seat: Seat) {
        let now = self.advance(now);
        let is_playing = matches!(self.state, State::Playing | State::TakingOver { .. });
        if !is_playing {
            return;
        }
        if self.is_host() {
            self.suspect(now, crate::message::bit(seat.0));
        } else if seat == self.host && !self.host_suspected {
            self.host_suspected = true;
            self.heartbeat_at = now;
        }
    }

    /// While we host: ends the match for all. Others are notified for some time.
    pub fn finish(&mut self, now: Instant) {
        let now = self.advance(now);
        let Some(server) = self.server.as_mut() else {
            return;
        };
        if !matches!(self.state, State::Playing | State::TakingOver { .. }) {
            return;
        }
        server.close(now);
        self.is_held = false;
        self.due.clear();
        self.state = State::Ending {
            until: now + self.config.host_timeout.saturating_mul(2),
        };
        let ended = HostedClose::Out(CloseReason::Ended);
        self.events.push_back(HostedEvent::Closed(ended));
    }

    /// Returns the match.
    #[must_use]
    pub const fn match_id(&self) -> MatchId {
        self.match_id
    }

    /// Returns the first tick that has not arrived; all before it have.
    #[must_use]
    pub fn ticks_confirmed(&self) -> u32 {
        self.client.ticks_confirmed()
    }

    /// Returns the hash over all returned turns; equal logs have equal hashes on all participants.
    #[must_use]
    pub fn log_hash(&self) -> Option<u64> {
        self.client.log_hash()
    }

    pub(super) const fn is_over(&self) -> bool {
        match self.state {
            State::Leaving { .. } | State::Ending { .. } | State::Closed => true,
            State::Playing
            | State::Electing { .. }
            | State::TakingOver { .. }
            | State::Evicted { .. } => false,
        }
    }
}

impl<I: Input> Steps for HostedPeer<I> {
    type Input = I;

    fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        self.next_step(now)
    }

    fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.report_state(tick, state)
    }

    fn wants_hash(&self, tick: Tick) -> bool {
        self.client.wants_hash(tick)
    }

    fn match_id(&self) -> Option<MatchId> {
        Some(self.match_id)
    }

    fn window(&self) -> u8 {
        Steps::window(&self.client)
    }

    fn set_costs(&mut self, save: Duration, step: Duration) {
        self.client.set_costs(save, step);
    }
}
