//! Game servers: registration, heartbeats, and the processes of the pool.

use core::time::Duration;

use crypto::{Provider, equal};
use wire::{ClientId, CommandId, Instant, MatchId, NodeId};

use super::Matchmaker;
use crate::output::{Command, DownReason, Event, MatchEnd, Outcome, Pending};
use crate::record::{
    Intake, Listed, RefuseReason, Register, Renewal, Reply, RunningMatch, ToMatchmaker,
};
use crate::server::{Server, ServerLink, Slot, SlotState, backoff};
use crate::table::{Participant, Phase};
use crate::ticket::{Ending, FailReason, TicketState};
use crate::timer::Timer;

impl<P: Provider> Matchmaker<P> {
    /// Handles a call of a game server, and appends the reply to `reply`.
    ///
    /// `from` is the identity authenticated by the hub or the direct link, never taken from the
    /// body. Every call has a reply, and every record may be repeated.
    pub fn handle_call(
        &mut self,
        now: Instant,
        from: ServerLink,
        body: &[u8],
        reply: &mut Vec<u8>,
    ) {
        let now = self.enter(now);
        match self.on_call(now, from, body, reply) {
            Ok(()) => {}
            Err(answer) => {
                if matches!(answer, Reply::Refused(_)) {
                    self.stats.calls_refused = self.stats.calls_refused.saturating_add(1);
                }
                answer.encode(reply);
            }
        }
        self.advance(now);
    }

    /// Appends the reply itself if a lease is renewed, without allocation.
    fn on_call(
        &mut self,
        now: Instant,
        from: ServerLink,
        body: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<(), Reply> {
        if !self.game.fleet.contains(&from.node) && self.pool.slot_of(from.node).is_none() {
            return Err(Reply::Refused(RefuseReason::NotAllowed));
        }
        let call = ToMatchmaker::decode(body);
        let call = call.map_err(|_| Reply::Refused(RefuseReason::Malformed))?;
        if self.must_end(from) {
            return Err(Reply::Retired);
        }
        match call {
            ToMatchmaker::Register(register) => {
                self.on_register(now, from, &register)
                    .map_err(Reply::Refused)?;
                let listed = register.matches.iter().map(|entry| entry.match_id);
                self.renew(now, from, register.intake);
                self.end_finished_matches(now, from, |id| {
                    let of = |entry: &RunningMatch| entry.match_id;
                    let at = register.matches.binary_search_by_key(&id, of).ok()?;
                    register.matches.get(at).map(|entry| entry.is_entered)
                });
                self.answer_renewed(from, listed, reply);
                Ok(())
            }
            _ if self.servers.get(from).is_none() => Err(Reply::Register),
            ToMatchmaker::Heartbeat { intake, matches } => {
                self.renew(now, from, intake);
                self.end_finished_matches(now, from, |id| {
                    let of = |[listed @ .., _]: &Listed| *listed;
                    let at = matches.binary_search_by_key(&id.0, of).ok()?;
                    matches.get(at).map(|[.., flags]| *flags == 1)
                });
                let listed = matches.iter().map(|[id @ .., _]| MatchId(*id));
                self.answer_renewed(from, listed, reply);
                Ok(())
            }
            ToMatchmaker::Result { match_id, result } => {
                if self.runs(from, match_id) {
                    self.end_match(now, match_id, MatchEnd::Reported, result);
                }
                Err(Reply::Noted)
            }
            ToMatchmaker::Left {
                match_id,
                client_id,
            } => {
                self.on_left(now, from, match_id, client_id);
                Err(Reply::Noted)
            }
            ToMatchmaker::Bye => {
                self.retire_server(now, from, DownReason::Left);
                Err(Reply::Noted)
            }
        }
    }

    /// Returns whether an instance must end: it was retired, or its process is being stopped.
    fn must_end(&self, from: ServerLink) -> bool {
        let slot = self.pool.slot_of(from.node);
        let entry = slot.and_then(|slot| self.pool.get(slot));
        self.servers.is_retired(from)
            || entry.is_some_and(|entry| entry.state == SlotState::Stopping)
    }

    fn on_register(
        &mut self,
        now: Instant,
        from: ServerLink,
        register: &Register,
    ) -> Result<(), RefuseReason> {
        if register.app_id != self.game.app_id {
            return Err(RefuseReason::OtherApp);
        }
        let is_own = |key: &crypto::PublicKey| key.node_id() == from.node;
        if !register.identity_keys.as_slice().iter().any(is_own) {
            return Err(RefuseReason::OtherIdentity);
        }
        let known = self.servers.update(from, |server| {
            if !is_key_allowed(server, register) {
                return Err(RefuseReason::OldKey);
            }
            server.token_key = register.token_key.clone();
            server.identity_keys = register.identity_keys.clone();
            server.addresses = register.addresses.clone();
            server.capacity = register.capacity;
            Ok(())
        });
        if let Some(result) = known {
            return result;
        }
        let other = self.servers.of_node(from.node);
        let servers = self.servers.len().saturating_sub(other.is_some().into());
        let adopts = now < self.recovery.adopts_until;
        let is_adopted = |running: &&RunningMatch| adopts && running.is_entered;
        let adopted = register.matches.iter().filter(is_adopted);
        let matches = self.matches.len().saturating_add(adopted.clone().count());
        if servers >= self.config.servers_max || matches > self.config.matches_max {
            return Err(RefuseReason::Full);
        }
        if let Some(other) = other {
            self.retire_server(now, other, DownReason::Superseded);
        }
        let lease_until = now + self.config.lease;
        let server = Server::new(register, lease_until, now);
        self.servers.insert(from, server);
        self.timers.set(Timer::Server(from), lease_until);
        self.on_slot_serving(from.node, register.capacity);
        self.watch_unused(now, from);
        self.event(Event::ServerUp(from));
        for running in adopted {
            self.adopt(now, from, running);
        }
        Ok(())
    }

    /// Adopts a match of an earlier matchmaker. Its players are in it, and in no other: a player
    /// that has submitted a request meanwhile returns to it.
    fn adopt(&mut self, now: Instant, from: ServerLink, running: &RunningMatch) {
        let match_id = running.match_id;
        let seats = running.players.len();
        // A match with too many seats is not ours; this bounds memory.
        let is_fitting = seats <= usize::from(self.game.rule.seats());
        let has_room = self.servers.get(from).is_some_and(|server| {
            server.seats_used.saturating_add(seats) <= usize::from(server.capacity)
        });
        if self.matches.get(match_id).is_some() || !is_fitting || !has_room {
            return;
        }
        let phase = Phase::Live {
            server: from,
            since: now,
        };
        self.matches.insert(match_id, Vec::new(), phase, (now, now));
        self.servers
            .update(from, |server| server.add(match_id, seats));
        self.stats.adopted = self.stats.adopted.saturating_add(1);
        for seated in &running.players {
            // A player cannot be in two matches, or twice in one. The seat stays taken.
            let is_elsewhere = self.matches.of_client(seated.client_id).is_some();
            if let Some(entry) = self.matches.get_mut(match_id) {
                entry.participants.push(Participant {
                    has_left: is_elsewhere,
                    ..Participant::new(*seated, None, now)
                });
            }
            if !is_elsewhere {
                self.matches.enter(seated.client_id, match_id);
                self.assign_waiting_ticket(now, match_id, seated.client_id);
            }
        }
    }

    /// Assigns the waiting ticket of a player, if any, to its seat in a live match.
    fn assign_waiting_ticket(&mut self, now: Instant, match_id: MatchId, client: ClientId) {
        let id = self.tickets.of_client(client);
        let Some((id, ticket)) = id.and_then(|id| Some((id, self.tickets.get(id)?))) else {
            return;
        };
        let (state, user) = (ticket.state.clone(), ticket.user.clone());
        let issued = self.issue(now, match_id, client, &user);
        if let Ok(assignment) = issued {
            if let Some(participant) = self.matches.participant_mut(match_id, client) {
                participant.ticket = Some(id);
            }
            self.timers.clear(Timer::Ticket(id));
            self.set_ticket(now, id, TicketState::Assigned(assignment));
        } else {
            let ending = Ending::Failed(FailReason::InMatch);
            self.set_ticket(now, id, TicketState::Ended(ending));
        }
        if let TicketState::Allocating { match_id } = state {
            self.dissolve(now, match_id, None);
        }
    }

    fn renew(&mut self, now: Instant, from: ServerLink, intake: Intake) {
        let lease_until = now + self.config.lease;
        self.servers.update(from, |server| {
            // The timer is not moved: when it fires, it checks this and is set again.
            server.lease_until = lease_until;
            server.intake = intake;
            server.is_suspended = false;
        });
    }

    /// Ends live matches of an instance that its record does not list, and those that no player has
    /// entered or can still enter. `listed` returns whether a player has entered a listed match.
    fn end_finished_matches(
        &mut self,
        now: Instant,
        from: ServerLink,
        listed: impl Fn(MatchId) -> Option<bool>,
    ) {
        let grace = self.config.heartbeat;
        let end_of = |id: MatchId| {
            let entry = self.matches.get(id)?;
            let Phase::Live { since, .. } = entry.phase else {
                return None;
            };
            match listed(id) {
                // It may have gone live while the record was in flight.
                None => (since + grace <= now).then_some(MatchEnd::Unlisted),
                Some(false) => (entry.enter_until <= now).then_some(MatchEnd::NotEntered),
                Some(true) => None,
            }
        };
        let Some(server) = self.servers.get(from) else {
            return;
        };
        let over: Vec<_> = server
            .matches
            .iter()
            .filter_map(|id| Some((*id, end_of(*id)?)))
            .collect();
        for (id, end) in over {
            self.end_match(now, id, end, &[]);
        }
    }

    fn answer_renewed(
        &self,
        from: ServerLink,
        listed: impl Iterator<Item = MatchId>,
        reply: &mut Vec<u8>,
    ) {
        let renewal = Renewal {
            lease: self.config.lease,
            heartbeat: self.config.heartbeat,
        };
        let known = self.servers.get(from).map(|server| &server.matches);
        let is_unknown = |id: &MatchId| known.is_none_or(|matches| !matches.contains(id));
        renewal.encode(listed.filter(is_unknown), reply);
    }

    /// Handles a player that left a match permanently and may play elsewhere.
    fn on_left(&mut self, now: Instant, from: ServerLink, match_id: MatchId, client: ClientId) {
        if !self.runs(from, match_id) {
            return;
        }
        let participant = self.matches.participant_mut(match_id, client);
        let Some(participant) = participant.filter(|participant| !participant.has_left) else {
            return;
        };
        participant.has_left = true;
        let ticket = participant.ticket.take();
        self.matches.leave(client, match_id);
        if let Some(ticket) = ticket {
            self.set_ticket(now, ticket, TicketState::Ended(Ending::Left));
        }
    }

    fn runs(&self, from: ServerLink, match_id: MatchId) -> bool {
        let phase = self.matches.get(match_id).map(|entry| entry.phase);
        matches!(phase, Some(Phase::Live { server, .. }) if server == from)
    }

    /// Checks a lease; renewals do not move its timer.
    pub(super) fn on_lease_due(&mut self, now: Instant, link: ServerLink) {
        let Some(server) = self.servers.get(link) else {
            return;
        };
        if self.recovery.link_down_since.is_some() {
            // Checked again when the link is up.
        } else if server.lease_until > now {
            self.timers.set(Timer::Server(link), server.lease_until);
        } else {
            self.retire_server(now, link, DownReason::LeaseLost);
        }
    }

    /// Retires an instance: its live matches fail, and those being assigned are placed again.
    pub(super) fn retire_server(&mut self, now: Instant, link: ServerLink, reason: DownReason) {
        let Some(server) = self.servers.retire(link) else {
            return;
        };
        self.timers.clear(Timer::Server(link));
        self.event(Event::ServerDown {
            server: link,
            reason,
        });
        for match_id in &server.matches {
            if self.is_live(*match_id) {
                self.end_match(now, *match_id, MatchEnd::ServerLost, &[]);
            } else {
                self.unplace(now, *match_id);
            }
        }
        self.on_server_lost(now, link.node, server.since, reason);
    }
}

fn is_key_allowed(server: &Server, register: &Register) -> bool {
    let (known, new) = (&server.token_key, &register.token_key);
    new.id() > known.id() || equal(known.to_bytes().as_slice(), new.to_bytes().as_slice())
}

impl<P: Provider> Matchmaker<P> {
    /// Notifies that the process of `run` ([`Command::Spawn`]) has ended by itself or crashed. Its
    /// instance is retired at once. For a process ended by [`Command::Stop`], that command's
    /// outcome suffices.
    pub fn handle_exited(&mut self, now: Instant, run: CommandId) {
        let now = self.enter(now);
        let Some(slot) = self.pool.slot_of_run(run) else {
            return;
        };
        match self.pool.get(slot).map(|entry| (entry.state, entry.node)) {
            Some((SlotState::Starting { .. }, _)) => {
                self.outbox.forget_slot(slot);
                self.fail_slot(now, slot);
                self.empty_slot(now, slot);
            }
            Some((SlotState::Serving, node)) => {
                if let Some(link) = self.servers.of_node(node) {
                    self.retire_server(now, link, DownReason::Exited);
                }
            }
            Some((SlotState::Idle { .. } | SlotState::Stopping, _)) | None => {}
        }
        self.advance(now);
    }

    /// Starts processes until all waiting matches have room, and the configured number of warm
    /// servers exists.
    pub(super) fn scale_pool(&mut self, now: Instant) {
        if !self.recovery.is_complete || self.pool.len() == 0 {
            return;
        }
        let seats = usize::from(self.game.rule.seats());
        let (starting, late) = self.pool.starting();
        let warm = usize::from(self.config.warm);
        let waiting = self.matches.waiting();
        let wanted = if let Some(capacity) = self.pool.capacity {
            let matches_each = usize::from(capacity).checked_div(seats);
            let each = matches_each.unwrap_or(1).max(1);
            waiting.div_ceil(each).saturating_add(warm)
        } else {
            // The capacity is unknown until the first one registers: start one, plus one per late
            // one.
            waiting.saturating_add(warm).min(late.saturating_add(1))
        };
        let ready = self.servers.with_room(seats, wanted);
        for _ in ready.saturating_add(starting)..wanted {
            let Some(slot) = self.pool.startable(now) else {
                return;
            };
            self.start(now, slot);
        }
    }

    fn start(&mut self, now: Instant, slot: Slot) {
        let Some(entry) = self.pool.get_mut(slot) else {
            return;
        };
        let spawn = Command::Spawn {
            slot,
            node: entry.node,
        };
        let ready_until = now + self.config.ready_timeout;
        entry.state = SlotState::Starting {
            ready_until,
            is_late: false,
        };
        entry.run = Some(self.outbox.command(Pending::Spawn(slot), spawn));
        let look_at = ready_until.min(now + LATE_AFTER);
        self.timers.set(Timer::Slot(slot), look_at);
    }

    /// Extends the registration timeout of starting processes to at least
    /// [`recovery`](crate::Config::recovery), and measures lateness from now.
    pub(super) fn prolong_starts(&mut self, now: Instant) {
        let recovered_at = now + self.config.recovery;
        for (slot, entry) in self.pool.iter_mut() {
            if let SlotState::Starting {
                ready_until,
                is_late,
            } = &mut entry.state
            {
                *ready_until = recovered_at.max(*ready_until);
                let look_at = if *is_late {
                    *ready_until
                } else {
                    (now + LATE_AFTER).min(*ready_until)
                };
                self.timers.set(Timer::Slot(slot), look_at);
            }
        }
    }

    fn stop(&mut self, now: Instant, slot: Slot) {
        self.outbox.forget_slot(slot);
        let Some(entry) = self.pool.get_mut(slot) else {
            return;
        };
        entry.state = SlotState::Stopping;
        let run = entry.run;
        self.outbox
            .command(Pending::Stop(slot), Command::Stop { slot, run });
        let again_at = now + self.config.stop_timeout;
        self.timers.set(Timer::Slot(slot), again_at);
    }

    fn fail_slot(&mut self, now: Instant, slot: Slot) {
        debug_assert!(now >= self.now);
        if let Some(entry) = self.pool.get_mut(slot) {
            entry.failures = entry.failures.saturating_add(1);
            let failures = entry.failures;
            self.event(Event::SpawnFailed { slot, failures });
        }
    }

    /// Empties a slot, with a backoff if it has failed.
    fn empty_slot(&mut self, now: Instant, slot: Slot) {
        let bounds = (self.config.backoff_min, self.config.backoff_max);
        let Some(entry) = self.pool.get_mut(slot) else {
            return;
        };
        entry.run = None;
        let retry_at = if entry.failures == 0 {
            now
        } else {
            now + backoff(bounds, entry.failures, &mut self.generator)
        };
        entry.state = SlotState::Idle { retry_at };
        if retry_at > now {
            self.timers.set(Timer::Slot(slot), retry_at);
        } else {
            self.timers.clear(Timer::Slot(slot));
        }
    }

    /// Handles the outcome of [`Command::Spawn`]; the process may have registered before.
    pub(super) fn on_spawned(&mut self, now: Instant, slot: Slot, outcome: &Outcome) {
        let state = self.pool.get(slot).map(|entry| entry.state);
        if matches!(state, Some(SlotState::Starting { .. })) && *outcome != Outcome::Started {
            self.fail_slot(now, slot);
            self.empty_slot(now, slot);
        }
    }

    /// Handles the outcome of [`Command::Stop`]; after a failure it is repeated.
    pub(super) fn on_stopped(&mut self, now: Instant, slot: Slot, outcome: &Outcome) {
        if *outcome == Outcome::Stopped {
            self.empty_slot(now, slot);
        }
    }

    /// Handles the registration of a slot's node, by whomever it was started.
    pub(super) fn on_slot_serving(&mut self, node: NodeId, capacity: u16) {
        if let Some(slot) = self.pool.slot_of(node)
            && let Some(entry) = self.pool.get_mut(slot)
        {
            entry.state = SlotState::Serving;
            self.pool.capacity = Some(capacity);
            self.timers.clear(Timer::Slot(slot));
        }
    }

    pub(super) fn watch_unused(&mut self, now: Instant, link: ServerLink) {
        if let Some(slot) = self.serving_slot(link.node) {
            let due = now + self.config.unused_timeout;
            self.timers.set(Timer::Slot(slot), due);
        }
    }

    pub(super) fn on_server_lost(
        &mut self,
        now: Instant,
        node: NodeId,
        since: Instant,
        reason: DownReason,
    ) {
        let Some(slot) = self.serving_slot(node) else {
            return;
        };
        if let Some(entry) = self.pool.get_mut(slot)
            && now.saturating_since(since) >= self.config.backoff_max
        {
            entry.failures = 0;
        }
        match reason {
            // The other instance serves in its place.
            DownReason::Superseded => {}
            DownReason::Exited => {
                self.outbox.forget_slot(slot);
                self.fail_slot(now, slot);
                self.empty_slot(now, slot);
            }
            DownReason::LeaseLost => {
                self.fail_slot(now, slot);
                self.stop(now, slot);
            }
            DownReason::Left | DownReason::Unused => self.stop(now, slot),
        }
    }

    pub(super) fn on_slot_due(&mut self, now: Instant, slot: Slot) {
        let Some(entry) = self.pool.get(slot) else {
            return;
        };
        match entry.state {
            // The backoff has ended.
            SlotState::Idle { .. } => {}
            SlotState::Starting { ready_until, .. } if ready_until > now => {
                if let Some(entry) = self.pool.get_mut(slot) {
                    entry.state = SlotState::Starting {
                        ready_until,
                        is_late: true,
                    };
                }
                self.timers.set(Timer::Slot(slot), ready_until);
            }
            // It cannot register while the link is down, and gets more time afterwards.
            SlotState::Starting { .. } if self.recovery.link_down_since.is_some() => {}
            SlotState::Starting { .. } => {
                self.fail_slot(now, slot);
                self.stop(now, slot);
            }
            SlotState::Serving => self.on_unused_due(now, slot, entry.node),
            SlotState::Stopping => self.stop(now, slot),
        }
    }

    /// Stops an idle instance if enough others are warm.
    fn on_unused_due(&mut self, now: Instant, slot: Slot, node: NodeId) {
        let link = self.servers.of_node(node);
        let Some((link, server)) = link.and_then(|link| Some((link, self.servers.get(link)?)))
        else {
            return;
        };
        if !server.matches.is_empty() {
            return;
        }
        let unused_until = server.unused_since + self.config.unused_timeout;
        let warm = usize::from(self.config.warm);
        let is_unused = |(_, server): &(ServerLink, &Server)| {
            server.intake == Intake::Open && server.matches.is_empty()
        };
        let unused = self.servers.iter().filter(is_unused);
        let unused = unused.take(warm.saturating_add(1)).count();
        if unused_until > now {
            self.timers.set(Timer::Slot(slot), unused_until);
        } else if unused > warm
            && self.matches.waiting() == 0
            && self.recovery.link_down_since.is_none()
        {
            self.retire_server(now, link, DownReason::Unused);
        } else {
            self.watch_unused(now, link);
        }
    }

    /// Returns the slot of `node`, if its instance serves.
    fn serving_slot(&self, node: NodeId) -> Option<Slot> {
        let slot = self.pool.slot_of(node)?;
        let entry = self.pool.get(slot)?;
        (entry.state == SlotState::Serving).then_some(slot)
    }
}

/// A process that takes longer to register does not delay the start of others.
const LATE_AFTER: Duration = Duration::from_secs(5);
