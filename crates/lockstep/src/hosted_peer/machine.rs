//! The machine interface: datagrams, timers, events.

use wire::{Arrival, Instant, Machine, Transmit};

use super::{HostedClose, HostedEvent, HostedPeer, State};
use crate::event::{ClientEvent, CloseReason, ServerEvent};
use crate::input::Input;
use crate::message::{
    DecodeError, FORWARD_HEAD_LEN, HostedMessage, Presence, Seats, bit, decode_hosted, take_lowest,
    write_hosted_ask, write_hosted_decision, write_hosted_forward_head, write_hosted_leave,
    write_hosted_statement, write_presence,
};
use crate::tick::{PeerId, Tick};

/// Rounds of due work that can follow from each other at once: a heartbeat decides, players are
/// seated, and get their welcome.
const ROUNDS: u32 = 4;

impl<I: Input> HostedPeer<I> {
    /// Handles one datagram, of another player or of an admitted guest.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let now = self.advance(now);
        if !self.is_over() {
            self.receive(now, arrival, datagram);
            self.absorb(now);
        } else if let (State::Ending { .. }, Some(server)) = (self.state, &mut self.server) {
            server.handle_datagram(now, arrival, datagram);
        }
    }

    /// Runs timers of the client, of the server while we host, and of the membership.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        if let State::Leaving { copies, at } = self.state {
            self.repeat_leave(now, copies, at);
        } else if let State::Ending { until } = self.state {
            self.serve(now);
            if until <= now {
                self.state = State::Closed;
                self.server = None;
            }
        } else if !self.is_over() {
            self.run(now);
        }
    }

    /// Appends the next datagram to `buf`; `None` if there is none. Also passes datagrams between
    /// our client and server.
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
            // Returned turns may have caused events.
            self.absorb(self.now);
        }
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
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
            | State::TakingOver { .. }
            | State::Evicted { .. } => {
                let client = self.client.poll_timeout();
                let others = client.into_iter().chain(self.server_timeout());
                others
                    .chain(self.suspect_at())
                    .chain([self.heartbeat_at])
                    .min()
            }
        }
    }

    /// Writes our client's datagram to another host, or hands it to our server. `None` if the
    /// client has nothing more; `buf` is longer then if a datagram was handed over or is void.
    fn transmit_client(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<PeerId>> {
        let start = buf.len();
        if self.state == State::Closed {
            return None;
        }
        let transmit = self.client.poll_transmit(now, buf)?;
        if Self::is_own(transmit.destination) {
            let is_paused = self.is_paused(now);
            if let Some(server) = self.server.as_mut().filter(|_| !is_paused) {
                let datagram = buf.get_mut(start..).unwrap_or_default();
                server.handle_datagram(now, Arrival::from(transmit.destination), datagram);
            }
            return None;
        }
        matches!(self.state, State::Playing | State::Leaving { .. }).then_some(transmit)
    }

    fn run(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            if self.is_over() || self.poll_timeout().is_none_or(|at| at > now) {
                return;
            }
            if self.suspect_at().is_some_and(|at| at <= now) {
                self.host_suspected = true;
                self.heartbeat_at = now;
            }
            if self.client.poll_timeout().is_some_and(|at| at <= now) {
                self.client.handle_timeout(now);
            }
            self.serve(now);
            if self.heartbeat_at <= now {
                self.heartbeat(now);
            }
            self.absorb(now);
        }
    }

    fn suspect_at(&self) -> Option<Instant> {
        if self.host_suspected || self.is_host() || self.state != State::Playing {
            return None;
        }
        let (host_timeout, first) = (self.config.host_timeout, self.config.player_timeout);
        Some(self.link(self.host.0)?.suspect_at(host_timeout, first))
    }

    fn heartbeat(&mut self, now: Instant) {
        let host_timeout = self.config.host_timeout;
        match self.state {
            State::Playing => self.check_members(now),
            State::Electing { since } => {
                let waited = now.saturating_since(since);
                if waited > self.config.player_timeout {
                    self.close(HostedClose::TooFew);
                } else if waited >= self.heartbeat_interval() {
                    let silent =
                        self.filter_seats(self.others(), |link| link.is_silent(now, host_timeout));
                    self.suspect(now, silent);
                }
            }
            State::TakingOver { .. } => self.take(now),
            State::Evicted { until } if until <= now => self.close(HostedClose::TooFew),
            State::Evicted { .. }
            | State::Leaving { .. }
            | State::Ending { .. }
            | State::Closed => {}
        }
        if self.is_over() {
            return;
        }
        if self.view.suspects == 0 {
            self.due.presence = self.others();
        } else {
            self.due.statement = self.others();
        }
        let is_calm =
            self.state == State::Playing && !self.host_suspected && self.view.suspects == 0;
        self.heartbeat_at = if is_calm {
            now + self.jittered(self.heartbeat_interval())
        } else {
            self.repeat_at(now)
        };
    }

    fn check_members(&mut self, now: Instant) {
        let host_timeout = self.config.player_timeout;
        if !self.is_host() {
            let link = self.link(self.host.0);
            if link.is_some_and(|link| link.lost_at(host_timeout) <= now) {
                self.close(HostedClose::TooFew);
            } else {
                self.start_election(now);
            }
        } else if self.is_running() {
            let lost = self.filter_seats(self.others(), |link| link.lost_at(host_timeout) <= now);
            self.suspect(now, lost);
        }
    }

    fn absorb(&mut self, now: Instant) {
        while let Some(event) = self.client.poll_event() {
            if let ClientEvent::Closed(reason) = event {
                self.on_client_closed(now, reason);
            } else if let ClientEvent::Refused(why) = event {
                self.step_down(now, HostedClose::Refused(why));
            } else {
                self.push_event(HostedEvent::Client(event));
            }
        }
        while let Some(event) = self.server.as_mut().and_then(|server| server.poll_event()) {
            let left = if let ServerEvent::Left { seat, reason, .. } = &event {
                Some((*seat, *reason))
            } else {
                None
            };
            self.push_event(HostedEvent::Server(event));
            if let Some((seat, reason)) = left {
                self.on_server_left(now, seat, reason);
            }
        }
        if let State::TakingOver { .. } = self.state {
            self.begin_if_ready(now);
        }
    }

    fn on_client_closed(&mut self, now: Instant, reason: CloseReason) {
        if self.is_over() {
            return;
        }
        if reason == CloseReason::Ended {
            self.close(HostedClose::Out(reason));
        } else {
            self.step_down(now, HostedClose::Out(reason));
        }
    }

    pub(super) fn repeat_leave(&mut self, now: Instant, copies: u8, at: Instant) {
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
    crate::event::machine!(HostedEvent);
}

impl<I: Input> HostedPeer<I> {
    pub(super) fn receive(&mut self, now: Instant, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        let Some(from) = self.seat_of(arrival.peer) else {
            let is_paused = self.is_paused(now);
            match &mut self.server {
                // A spectator, or a guest in a seat without a player.
                Some(server) if !is_paused => server.handle_datagram(now, arrival, datagram),
                Some(_) | None => self.count_unknown(),
            }
            return;
        };
        match decode_hosted(datagram, self.shape) {
            Ok(message) => {
                if self.accept_from(from) {
                    self.on_message(now, from, &message);
                }
            }
            Err(DecodeError::UnknownKind(_)) => {
                if self.accept_from(from) {
                    self.on_play(now, from, arrival, datagram);
                }
            }
            Err(_) => {
                self.stats.dropped_malformed = self.stats.dropped_malformed.saturating_add(1);
            }
        }
    }

    /// Returns whether datagrams of a player are accepted; a removed player is notified.
    fn accept_from(&mut self, from: u16) -> bool {
        if self.view.members & bit(from) == 0 {
            self.due.decision |= bit(from);
        }
        let is_so = self.others() & bit(from) != 0;
        if !is_so {
            self.count_unknown();
        }
        is_so
    }

    fn on_play(&mut self, now: Instant, from: u16, arrival: Arrival<PeerId>, datagram: &mut [u8]) {
        self.mark_alive(now, from);
        if from == self.host.0 && self.state == State::Playing {
            self.client.handle_datagram(now, arrival, datagram);
            return;
        }
        let is_ours = self.is_host() && !matches!(self.state, State::Evicted { .. });
        if is_ours && let Some(link) = self.link_mut(from) {
            link.on_followed(now);
        }
        // While paused, an input would close the tick that waits for it.
        if is_ours && self.is_paused(now) {
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
                if self.view.on_leaving(bit(from)) {
                    self.on_host_suspected(now);
                }
            }
            HostedMessage::Statement { epoch, statement } => {
                self.mark_alive(now, from);
                self.on_statement(now, from, *epoch, statement);
            }
            HostedMessage::Decision { epoch, decision } => {
                self.mark_alive(now, from);
                self.on_decision(now, from, *epoch, decision);
            }
            HostedMessage::Ask { first } => {
                self.mark_alive(now, from);
                if let Some(link) = self.link_mut(from) {
                    link.asked = Some(*first);
                    self.due.forward |= bit(from);
                }
            }
            HostedMessage::Forward { first, bundles } => {
                self.mark_alive(now, from);
                self.fetch(now, *first, bundles);
            }
        }
    }

    fn on_presence(&mut self, now: Instant, from: u16, presence: Presence) {
        // A paused host counts as silent.
        if from != self.host.0 || !presence.host_suspected {
            self.mark_alive(now, from);
        }
        let epoch = self.view.epoch;
        if presence.epoch < epoch {
            self.due.decision |= bit(from);
        } else if presence.epoch > epoch {
            // Our own is answered with what we missed.
            self.due.presence |= bit(from);
        } else if presence.members == self.view.members {
            if let Some(link) = self.link_mut(from) {
                link.set_suspicion(presence.host_suspected.then_some(now));
            }
            self.start_election(now);
        } else {
            self.stats.dropped_view = self.stats.dropped_view.saturating_add(1);
        }
    }

    fn mark_alive(&mut self, now: Instant, from: u16) {
        if let Some(link) = self.link_mut(from) {
            link.mark_alive(now);
        }
        if from == self.host.0 {
            self.host_suspected = false;
        }
    }

    /// First closed tick that we lack; frozen while the host is suspected.
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

/// Recipients of due datagrams: between two drains, at most one of each kind per player.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) presence: Seats,
    pub(super) statement: Seats,
    pub(super) decision: Seats,
    pub(super) leave: Seats,
    pub(super) forward: Seats,
    pub(super) ask: Seats,
}

impl<I: Input> HostedPeer<I> {
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<PeerId> {
        let start = buf.len();
        let seat = self.write(now, buf)?;
        let len = u64::try_from(buf.len().saturating_sub(start)).unwrap_or(u64::MAX);
        self.stats.datagrams_sent = self.stats.datagrams_sent.saturating_add(1);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(len);
        Some(self.link(seat)?.peer)
    }

    fn write(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<u16> {
        let (seats, epoch) = (self.shape.seats, self.view.epoch);
        while let Some(seat) = take_lowest(&mut self.due.statement) {
            if let Some(statement) = self.view.statement(&self.held_ends()) {
                write_hosted_statement(buf, epoch, &statement, seats);
                return Some(seat);
            }
        }
        while let Some(seat) = take_lowest(&mut self.due.decision) {
            if let Some(decision) = self.view.last.as_ref() {
                write_hosted_decision(buf, epoch, decision, seats);
                return Some(seat);
            }
        }
        if let Some(seat) = take_lowest(&mut self.due.ask) {
            write_hosted_ask(buf, Tick(self.client.ticks_confirmed()));
            return Some(seat);
        }
        while let Some(seat) = take_lowest(&mut self.due.forward) {
            if self.write_forward(seat, buf) {
                return Some(seat);
            }
        }
        if let Some(seat) = take_lowest(&mut self.due.leave) {
            write_hosted_leave(buf);
            return Some(seat);
        }
        let seat = take_lowest(&mut self.due.presence)?;
        let presence = Presence {
            epoch,
            members: self.view.members,
            host_suspected: self.is_isolated(now),
        };
        write_presence(buf, presence);
        Some(seat)
    }

    /// Whether we do not receive the host or, as the host, too few others.
    fn is_isolated(&self, now: Instant) -> bool {
        if self.state != State::Playing {
            matches!(self.state, State::Evicted { .. })
        } else if self.is_host() {
            self.is_paused(now)
        } else {
            self.host_suspected
        }
    }

    fn write_forward(&mut self, to: u16, buf: &mut Vec<u8>) -> bool {
        let Some(first) = self.link_mut(to).and_then(|link| link.asked.take()) else {
            return false;
        };
        let start = buf.len();
        write_hosted_forward_head(buf, first);
        let len_max = usize::from(self.config.server.datagram_len_max);
        let len_max = len_max.saturating_sub(FORWARD_HEAD_LEN);
        if self.client.write_closed(first, len_max, buf) == 0 {
            buf.truncate(start);
            return false;
        }
        self.stats.forwards_sent = self.stats.forwards_sent.saturating_add(1);
        true
    }
}
