//! What the other players say.

use wire::{Arrival, Instant};

use super::{HostedPeer, State};
use crate::input::Input;
use crate::message::{DecodeError, HostedMessage, Presence, bit, decode_hosted};
use crate::tick::{PeerId, Tick};

impl<I: Input> HostedPeer<I> {
    pub(super) fn receive(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let Some(from) = self.seat_of(arrival.peer) else {
            let is_standing = self.is_standing(now);
            match &mut self.server {
                // Who watches, or holds a seat that no player holds.
                Some(server) if !is_standing => server.handle_datagram(now, arrival, datagram),
                Some(_) | None => self.count_unknown(),
            }
            return;
        };
        match decode_hosted(datagram, self.shape) {
            Ok(message) => {
                if self.is_listened_to(from) {
                    self.on_message(now, from, &message);
                }
            }
            Err(DecodeError::UnknownKind(_)) => {
                if self.is_listened_to(from) {
                    self.on_play(now, from, arrival, datagram);
                }
            }
            Err(_) => {
                self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
            }
        }
    }

    /// Returns whether a player is listened to; one who is out is told so.
    fn is_listened_to(&mut self, from: u16) -> bool {
        if self.view.members() & bit(from) == 0 {
            self.due.decision |= bit(from);
        }
        let is_so = self.others() & bit(from) != 0;
        if !is_so {
            self.count_unknown();
        }
        is_so
    }

    /// Takes what a server or a client says.
    fn on_play(&mut self, now: Instant, from: u16, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        self.on_heard(now, from);
        if from == self.host.0 && self.state == State::Playing {
            self.client.handle_datagram(now, arrival, datagram);
            return;
        }
        let is_ours = self.is_host() && !matches!(self.state, State::Ousted { .. });
        if is_ours && let Some(link) = self.link_mut(from) {
            link.on_followed(now);
        }
        // What comes while it stands would close the tick that waits for it.
        if is_ours && self.is_standing(now) {
            return;
        }
        self.is_held = false;
        match &mut self.server {
            Some(server) if is_ours => server.handle_datagram(now, arrival, datagram),
            Some(_) | None => {
                self.stats.dropped_stale = self.stats.dropped_stale.saturating_add(1);
            }
        }
    }

    fn on_message(&mut self, now: Instant, from: u16, message: &HostedMessage<'_>) {
        match message {
            HostedMessage::Presence(presence) => self.on_presence(now, from, *presence),
            HostedMessage::Leave => {
                if self.view.on_gone(bit(from)) {
                    self.on_suspicion(now);
                }
            }
            HostedMessage::Statement { epoch, statement } => {
                self.on_heard(now, from);
                self.on_statement(now, from, *epoch, statement);
            }
            HostedMessage::Decision { epoch, decision } => {
                self.on_heard(now, from);
                self.on_decision(now, from, *epoch, decision);
            }
            HostedMessage::Ask { first } => {
                self.on_heard(now, from);
                if let Some(link) = self.link_mut(from) {
                    link.asked = Some(*first);
                    self.due.forward |= bit(from);
                }
            }
            HostedMessage::Forward { first, bundles } => {
                self.on_heard(now, from);
                self.fetch(now, *first, bundles);
            }
        }
    }

    fn on_presence(&mut self, now: Instant, from: u16, presence: Presence) {
        // A host that stands still is as good as none.
        if from != self.host.0 || !presence.is_doubtful {
            self.on_heard(now, from);
        }
        let epoch = self.view.epoch();
        if presence.epoch < epoch {
            self.due.decision |= bit(from);
        } else if presence.epoch > epoch {
            // Ours is answered with what we missed.
            self.due.presence |= bit(from);
        } else if presence.members == self.view.members() {
            if let Some(link) = self.link_mut(from) {
                link.set_doubt(presence.is_doubtful.then_some(now));
            }
            self.elect_if_enough(now);
        } else {
            self.stats.dropped_view = self.stats.dropped_view.saturating_add(1);
        }
    }

    fn on_heard(&mut self, now: Instant, from: u16) {
        if let Some(link) = self.link_mut(from) {
            link.on_heard(now);
        }
        if from == self.host.0 {
            self.is_doubtful = false;
        }
    }

    /// Up to where we hold the closed ticks; it stands still while the host is suspected.
    pub(super) fn held_end(&self) -> Tick {
        Tick(self.client.ticks_confirmed())
    }

    pub(super) fn seat_of(&self, peer: PeerId) -> Option<u16> {
        let mut links = self.links.iter().zip(0..);
        let (_, seat) = links.find(|(link, _)| link.as_ref().is_some_and(|at| at.peer == peer))?;
        Some(seat)
    }

    const fn count_unknown(&mut self) {
        self.stats.dropped_unknown_peer = self.stats.dropped_unknown_peer.saturating_add(1);
    }
}
