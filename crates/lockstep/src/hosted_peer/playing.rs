//! What the game and its player do; the most of it is the client's.

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
    /// Takes what the player does now, and returns the tick it is for, as
    /// [`ClientPeer::submit`](crate::ClientPeer::submit) does; a host that takes over takes back what
    /// was promised for its ticks ([`HostedEvent::Migrated`]).
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. While no host closes ticks, and before the match begins, the input is kept
    /// and counts for the first tick that the next host's clock stamps.
    pub fn submit(&mut self, now: Instant, input: &I) -> Result<Tick, SubmitError> {
        let now = self.advance(now);
        if self.is_over() {
            return Err(SubmitError::Closed);
        }
        self.client.submit(now, input)
    }

    /// Returns the next turn, as [`ClientPeer::poll_turn`](crate::ClientPeer::poll_turn) does.
    pub fn poll_turn(&mut self, now: Instant) -> Option<Turn<'_, I>> {
        let now = self.advance(now);
        self.client.poll_turn(now)
    }

    /// Returns when the next turn is due, where it has arrived.
    #[must_use]
    pub fn next_turn_at(&self) -> Option<Instant> {
        self.client.next_turn_at()
    }

    /// Returns what the game does next, as [`ClientPeer::next_step`](crate::ClientPeer::next_step)
    /// does.
    pub fn next_step(&mut self, now: Instant) -> Step<'_, I> {
        let now = self.advance(now);
        self.client.next_step(now)
    }

    /// Takes the state hash after the turn returned last.
    ///
    /// # Errors
    ///
    /// [`ReportError`] where it is of another tick, or was reported.
    pub fn report(&mut self, tick: Tick, state_hash: u64) -> Result<(), ReportError> {
        self.client.report(tick, state_hash)
    }

    /// Takes the hash of the state after the turn returned last, with its sections.
    ///
    /// # Errors
    ///
    /// [`ReportError`] where it is of another tick, or was reported.
    pub fn report_state(&mut self, tick: Tick, state: &StateHasher) -> Result<(), ReportError> {
        self.client.report_state(tick, state)
    }

    /// Takes the state that came with
    /// [`ClientEvent::Snapshot`](crate::ClientEvent::Snapshot); `None` where none waits.
    pub const fn take_snapshot(&mut self) -> Option<Vec<u8>> {
        self.client.take_snapshot()
    }

    /// Gives the state after the turn returned last, as
    /// [`ClientEvent::SnapshotWanted`](crate::ClientEvent::SnapshotWanted) asks for.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]; nothing is sent then.
    pub fn offer_snapshot(&mut self, now: Instant, state: &[u8]) -> Result<(), SnapshotError> {
        let now = self.advance(now);
        self.client.offer_snapshot(now, state)
    }

    /// Gives a saved state that is final, as [`ClientPeer::offer_save`](crate::ClientPeer::offer_save)
    /// does.
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

    /// While we host: lets in somebody who is none of the players, on the seat of one who is out, as
    /// [`MatchServer::join`](crate::MatchServer::join) does; a plain
    /// [`ClientPeer`](crate::ClientPeer) plays there. It has no say in who hosts, and joins the next
    /// host anew.
    ///
    /// # Errors
    ///
    /// [`JoinError`]; nothing has changed then.
    pub fn join(&mut self, now: Instant, peer: PeerId, seat: Seat) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.join(now, peer, seat)
    }

    /// While we host: lets somebody watch, as [`MatchServer::watch`](crate::MatchServer::watch)
    /// does. It comes to the next host anew.
    ///
    /// # Errors
    ///
    /// [`JoinError`]; nothing has changed then.
    pub fn watch(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.watch(now, peer)
    }

    /// While we host: lets a [`SpectatorRelay`](crate::SpectatorRelay) watch, as
    /// [`MatchServer::watch_as_relay`](crate::MatchServer::watch_as_relay) does. It comes to the next
    /// host anew.
    ///
    /// # Errors
    ///
    /// [`JoinError`]; nothing has changed then.
    pub fn watch_as_relay(&mut self, now: Instant, peer: PeerId) -> Result<(), JoinError> {
        let now = self.advance(now);
        self.server_for(peer)?.watch_as_relay(now, peer)
    }

    /// While we host: puts out somebody whom [`join`](Self::join), [`watch`](Self::watch) or
    /// [`watch_as_relay`](Self::watch_as_relay) let in, or whom the transport has lost. Players are put
    /// out by [`remove`](Self::remove), and ignored here; so is who is unknown.
    pub fn kick(&mut self, now: Instant, peer: PeerId) {
        let now = self.advance(now);
        if let Ok(server) = self.server_for(peer) {
            server.kick(now, peer);
            if !self.is_over() {
                self.resume_if_quorum(now);
            }
        }
    }

    /// The server that lets in `peer`, who is none of the players: they come by themselves, and who
    /// is out of them stays out.
    fn server_for(&mut self, peer: PeerId) -> Result<&mut MatchServer<I>, JoinError> {
        let is_players = Self::is_own(peer) || self.seat_of(peer).is_some();
        let server = self.server.as_deref_mut().ok_or(JoinError::NotHost)?;
        if is_players {
            Err(JoinError::PeerTaken)
        } else {
            Ok(server)
        }
    }

    /// Leaves the match, and says so a few times: the others play on, and choose another host at
    /// once where we were it.
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

    /// Gives up the player of `seat`, as after a silence: the transport has lost it, or it shall be
    /// out. Where it hosts, the others have to think so too. Ourselves and who is out are ignored.
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

    /// While we host: ends the match for all. Others are told for some time.
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

    /// Returns the hash over all turns returned; equal logs have equal hashes on all participants.
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
