//! The verbs of a machine: datagrams, timers, events.

use core::convert::Infallible;

use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use super::{HostedClose, HostedEvent, HostedPeer, State};
use crate::event::{ClientEvent, CloseReason, Phase, ServerEvent};
use crate::input::Input;
use crate::tick::PeerId;

/// Times that what is due may make more due, at once: a beat that decides, which seats players, who
/// are welcomed.
const ROUNDS: u32 = 4;

impl<I: Input> HostedPeer<I> {
    /// Takes one datagram, of another player or of somebody who was let in beside them.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        match self.state {
            State::Closed | State::Leaving { .. } => return,
            State::Ending { .. } => {
                if let Some(server) = &mut self.server {
                    server.handle_datagram(now, arrival, datagram);
                }
                return;
            }
            State::Playing
            | State::Electing { .. }
            | State::Taking { .. }
            | State::Ousted { .. } => self.receive(now, arrival, datagram),
        }
        self.absorb(now);
    }

    /// Runs what is due: of the client, of the server while we host, and looks who is there.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            State::Closed => {}
            State::Leaving { copies, at } => self.say_leave(now, copies, at),
            State::Ending { until } => {
                self.serve(now);
                if until <= now {
                    self.state = State::Closed;
                    self.server = None;
                }
            }
            State::Playing
            | State::Electing { .. }
            | State::Taking { .. }
            | State::Ousted { .. } => self.run(now),
        }
    }

    /// Appends the next datagram to `buf`; `None` when there is none. What our client and server
    /// have for each other goes its way meanwhile.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        let now = self.advance(now);
        let start = buf.len();
        loop {
            if let Some(peer) = self.transmit(now, buf) {
                return Some(Transmit::to(peer));
            }
            if let Some(server) = self.server.as_mut().filter(|_| !self.is_held)
                && let Some(transmit) = server.poll_transmit(now, buf)
            {
                if !Self::is_own(transmit.destination) {
                    return Some(transmit);
                }
                let arrival = Arrival::from(transmit.destination);
                let datagram = buf.get_mut(start..).unwrap_or_default();
                self.client.handle_datagram(now, arrival, datagram);
            } else if let Some(transmit) = self.transmit_client(now, buf) {
                return Some(transmit);
            } else if buf.len() == start {
                return None;
            }
            buf.truncate(start);
            self.absorb(now);
            if !self.is_over() {
                self.run(now);
            }
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<HostedEvent> {
        if self.events.is_empty() {
            // Turns that were returned may have brought news.
            self.absorb(self.now);
        }
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Closed => None,
            State::Leaving { at, .. } => {
                let client = self.client.poll_timeout().filter(|_| !self.is_host());
                client.into_iter().chain([at]).min()
            }
            State::Ending { until } => self.server_timeout().into_iter().chain([until]).min(),
            State::Playing
            | State::Electing { .. }
            | State::Taking { .. }
            | State::Ousted { .. } => {
                let client = self.client.poll_timeout();
                let others = client.into_iter().chain(self.server_timeout());
                others.chain(self.doubt_at()).chain([self.beat_at]).min()
            }
        }
    }

    /// Writes what our client says to another host; hands it over where we host. `None` where it
    /// says nothing more; `buf` is longer then if a datagram was handed over or is of no use.
    fn transmit_client(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        let start = buf.len();
        if self.state == State::Closed {
            return None;
        }
        let transmit = self.client.poll_transmit(now, buf)?;
        if Self::is_own(transmit.destination) {
            let is_standing = self.is_standing(now);
            if let Some(server) = self.server.as_mut().filter(|_| !is_standing) {
                let datagram = buf.get_mut(start..).unwrap_or_default();
                server.handle_datagram(now, Arrival::from(transmit.destination), datagram);
            }
            return None;
        }
        let is_heard = match self.state {
            State::Playing | State::Leaving { .. } => true,
            State::Electing { .. }
            | State::Taking { .. }
            | State::Ousted { .. }
            | State::Ending { .. }
            | State::Closed => false,
        };
        is_heard.then_some(transmit)
    }

    /// Runs what is due while the match goes on.
    fn run(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            if self.is_over() || self.poll_timeout().is_none_or(|at| at > now) {
                return;
            }
            if self.doubt_at().is_some_and(|at| at <= now) {
                self.is_doubtful = true;
                self.beat_at = now;
            }
            if self.client.poll_timeout().is_some_and(|at| at <= now) {
                self.client.handle_timeout(now);
            }
            self.serve(now);
            if self.beat_at <= now {
                self.beat(now);
            }
            self.absorb(now);
        }
    }

    /// When the host is silent for too long, if it was not by now.
    fn doubt_at(&self) -> Option<Instant> {
        if self.is_doubtful || self.is_host() || self.state != State::Playing {
            return None;
        }
        let (patience, first) = (self.config.patience, self.config.player_patience);
        Some(self.link(self.host.0)?.doubt_at(patience, first))
    }

    /// Looks who is there, and says that we are.
    fn beat(&mut self, now: Instant) {
        let patience = self.config.patience;
        match self.state {
            State::Playing => self.look(now),
            State::Electing { since } => {
                let waited = now.saturating_since(since);
                if waited > self.config.player_patience {
                    self.close(HostedClose::TooFew);
                } else if waited >= self.recent() {
                    let silent = self.those(self.others(), |link| link.is_silent(now, patience));
                    self.suspect(now, silent);
                }
            }
            State::Taking { .. } => self.take(now),
            State::Ousted { until } if until <= now => self.close(HostedClose::TooFew),
            State::Ousted { .. } | State::Leaving { .. } | State::Ending { .. } | State::Closed => {
            }
        }
        if matches!(
            self.state,
            State::Closed | State::Leaving { .. } | State::Ending { .. }
        ) {
            return;
        }
        if self.view.suspects() == 0 {
            self.due.presence = self.others();
        } else {
            self.due.statement = self.others();
        }
        let is_calm =
            self.state == State::Playing && !self.is_doubtful && self.view.suspects() == 0;
        self.beat_at = if is_calm {
            now + self.spread(self.recent())
        } else {
            self.repeat_at(now)
        };
    }

    /// While all is well: whether somebody is gone for good.
    fn look(&mut self, now: Instant) {
        let patience = self.config.player_patience;
        if !self.is_host() {
            let lost_at = self.link(self.host.0).map(|link| link.lost_at(patience));
            if lost_at.is_some_and(|at| at <= now) {
                self.close(HostedClose::TooFew);
            } else {
                self.elect_if_enough(now);
            }
        } else if self
            .server()
            .is_some_and(|server| server.phase() == Phase::Running)
        {
            let lost = self.those(self.others(), |link| link.lost_at(patience) <= now);
            self.suspect(now, lost);
        }
    }

    /// Takes note of what happened to our client and server, and tells it.
    fn absorb(&mut self, now: Instant) {
        while let Some(event) = self.client.poll_event() {
            if let ClientEvent::Closed(reason) = event {
                self.on_client_closed(now, reason);
            } else if let ClientEvent::Refused(why) = event {
                self.resign(now, HostedClose::Refused(why));
            } else {
                self.tell(HostedEvent::Client(event));
            }
        }
        while let Some(event) = self.server.as_mut().and_then(|server| server.poll_event()) {
            let left = if let ServerEvent::Left { seat, reason, .. } = &event {
                Some((*seat, *reason))
            } else {
                None
            };
            self.tell(HostedEvent::Server(event));
            if let Some((seat, reason)) = left {
                self.on_server_left(now, seat, reason);
            }
        }
        if let State::Taking { .. } = self.state {
            // Somebody may be ready who was not.
            self.begin_if_ready(now);
        }
    }

    fn on_client_closed(&mut self, now: Instant, reason: CloseReason) {
        match self.state {
            State::Playing
            | State::Electing { .. }
            | State::Taking { .. }
            | State::Ousted { .. } => {}
            State::Leaving { .. } | State::Ending { .. } | State::Closed => return,
        }
        if reason == CloseReason::Ended {
            self.close(HostedClose::Out(reason));
        } else {
            self.resign(now, HostedClose::Out(reason));
        }
    }

    /// Says again that we go, and is over in the end.
    pub(super) fn say_leave(&mut self, now: Instant, copies: u8, at: Instant) {
        if !self.is_host() {
            self.client.handle_timeout(now);
        }
        if at > now {
            return;
        }
        if copies == 0 {
            self.state = State::Closed;
            self.server = None;
            return;
        }
        self.due.leave = self.others();
        self.state = State::Leaving {
            copies: copies.saturating_sub(1),
            at: self.repeat_at(now),
        };
    }
}

impl<I: Input> Machine for HostedPeer<I> {
    type Peer = PeerId;
    type Event = HostedEvent;
    type Command = Infallible;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        self.handle_datagram(now, arrival, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        self.poll_transmit(now, buf)
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<HostedEvent> {
        self.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}
