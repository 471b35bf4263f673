//! What game servers say: registration, heartbeats, ends.

use core::time::Duration;

use crypto::{Provider, equal};
use wire::{ClientId, CommandId, Instant, MatchId, NodeId};

use super::Matchmaker;
use super::matches::chair;
use crate::command::{Command, Outcome};
use crate::event::{DownReason, Event, MatchEnd};
use crate::lease::{Server, ServerLink};
use crate::match_table::{Match, Phase};
use crate::outbox::Pending;
use crate::pool::{Slot, SlotState, backoff};
use crate::record::{
    Intake, Listed, RefuseReason, Register, Renewal, Reply, RunningMatch, ToMatchmaker,
};
use crate::ticket::{Ending, FailReason, TicketState};
use crate::timer::Timer;

impl<P: Provider> Matchmaker<P> {
    /// Takes a call of a game server and appends the reply to `reply`, which is empty or holds what
    /// the driver put before it.
    ///
    /// `from` is what the hub stamped, or the direct link proved, never what the body says. Each
    /// call has a reply. A reply to a call sent again is the same but for what changed meanwhile:
    /// every record may be repeated.
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

    /// Replies by itself where a lease is renewed, which allocates nothing.
    fn on_call(
        &mut self,
        now: Instant,
        from: ServerLink,
        body: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<(), Reply> {
        let is_ours =
            self.game.fleet.contains(&from.node) || self.pool.slot_of(from.node).is_some();
        if !is_ours {
            return Err(Reply::Refused(RefuseReason::NotAllowed));
        }
        let call = ToMatchmaker::decode(body);
        let call = call.map_err(|_| Reply::Refused(RefuseReason::Malformed))?;
        if self.is_given_up(from) {
            return Err(Reply::Retired);
        }
        match call {
            ToMatchmaker::Register(register) => {
                self.on_register(now, from, &register)
                    .map_err(Reply::Refused)?;
                let listed = register.matches.iter().map(|entry| entry.match_id);
                self.renew(now, from, register.intake);
                self.end_over(now, from, |id| {
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
                self.end_over(now, from, |id| {
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
                self.lose(now, from, DownReason::Left);
                Err(Reply::Noted)
            }
        }
    }

    /// Whether an instance shall end: it was given up, or its process is told to end.
    fn is_given_up(&self, from: ServerLink) -> bool {
        let place = self
            .pool
            .slot_of(from.node)
            .and_then(|slot| self.pool.get(slot));
        self.servers.is_retired(from)
            || place.is_some_and(|place| place.state == SlotState::Stopping)
    }

    /// Takes an instance on, or its new key.
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
        if let Some(server) = self.servers.get_mut(from) {
            if !is_key_allowed(server, register) {
                return Err(RefuseReason::OldKey);
            }
            server.token_key = register.token_key.clone();
            server.identity_keys = register.identity_keys.clone();
            server.addresses = register.addresses.clone();
            server.capacity = register.capacity;
            return Ok(());
        }
        let other = self.servers.of_node(from.node);
        let servers = self.servers.len().saturating_sub(other.is_some().into());
        let brought = if now < self.adopts_until {
            let is_entered = |running: &&RunningMatch| running.is_entered;
            register.matches.iter().filter(is_entered).count()
        } else {
            0
        };
        let matches = self.matches.len().saturating_add(brought);
        if servers >= self.config.servers_max || matches > self.config.matches_max {
            return Err(RefuseReason::Full);
        }
        if let Some(other) = other {
            self.lose(now, other, DownReason::Superseded);
        }
        let lease_until = now + self.config.lease;
        let server = Server::new(register, lease_until, now);
        self.servers.insert(from, server);
        self.timers.set(Timer::Server(from), lease_until);
        self.on_slot_serving(from.node, register.capacity);
        self.watch_unused(now, from);
        self.event(Event::ServerUp(from));
        if now < self.adopts_until {
            for running in register.matches.iter().filter(|running| running.is_entered) {
                self.adopt(now, from, running);
            }
        }
        Ok(())
    }

    /// Takes on a match that an earlier matchmaker made. Its players are in it, and in no other:
    /// whoever asked anew meanwhile gets back to it.
    fn adopt(&mut self, now: Instant, from: ServerLink, running: &RunningMatch) {
        let match_id = running.match_id;
        let seats = running.players.len();
        // More seats than a match has make it none of ours; so memory is bounded.
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
        let order = self.matches.next_order();
        let entry = Match {
            chairs: Vec::new(),
            phase,
            order,
            allocate_until: now,
            enter_until: now,
        };
        self.matches.insert(match_id, entry);
        if let Some(server) = self.servers.get_mut(from) {
            server.add(match_id, seats);
        }
        self.stats.adopted = self.stats.adopted.saturating_add(1);
        for seated in &running.players {
            // In two matches at once, or twice in one, is nobody. The seat stays taken.
            let is_elsewhere = self.matches.of_client(seated.client_id).is_some();
            if let Some(entry) = self.matches.get_mut(match_id) {
                let mut chair = chair(*seated, None, now);
                chair.has_left = is_elsewhere;
                entry.chairs.push(chair);
            }
            if !is_elsewhere {
                self.matches.enter(seated.client_id, match_id);
                self.bring_back(now, match_id, seated.client_id);
            }
        }
    }

    /// Gives the waiting ticket of a player, if there is one, its seat in a live match.
    fn bring_back(&mut self, now: Instant, match_id: MatchId, client: ClientId) {
        let Some(id) = self.tickets.of_client(client) else {
            return;
        };
        let Some(ticket) = self.tickets.get(id) else {
            return;
        };
        let (state, user) = (ticket.state.clone(), ticket.user.clone());
        let issued = self.issue(now, match_id, client, &user);
        if let Ok(assignment) = issued {
            if let Some(entry) = self.matches.get_mut(match_id)
                && let Some(chair) = entry.chair_mut(client)
            {
                chair.ticket = Some(id);
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
        if let Some(server) = self.servers.get_mut(from) {
            // The timer stays where it is: when it runs, it looks at this and is set anew.
            server.lease_until = lease_until;
            server.intake = intake;
            server.is_held = false;
        }
    }

    /// Ends live matches of an instance that its record does not name, and those that nobody has
    /// entered and nobody can enter any more. `listed` says of a match that the record names whether
    /// a player has entered it.
    ///
    /// Only the server's word ends a match that nobody entered, said later than the last token was
    /// good: so no player is in it who could be placed elsewhere.
    fn end_over(
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
                // One that has just gone live may have done so while the record was on its way.
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

    /// Tells an instance its lease, and which of the `listed` matches to forget.
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

    /// A player left a match for good: it may play elsewhere.
    fn on_left(&mut self, now: Instant, from: ServerLink, match_id: MatchId, client: ClientId) {
        if !self.runs(from, match_id) {
            return;
        }
        let chair = self
            .matches
            .get_mut(match_id)
            .and_then(|entry| entry.chair_mut(client));
        let Some(chair) = chair.filter(|chair| !chair.has_left) else {
            return;
        };
        chair.has_left = true;
        let ticket = chair.ticket.take();
        self.matches.leave(client, match_id);
        if let Some(ticket) = ticket {
            self.set_ticket(now, ticket, TicketState::Ended(Ending::Left));
        }
    }

    /// Whether the match is live on this instance.
    fn runs(&self, from: ServerLink, match_id: MatchId) -> bool {
        let entry = self.matches.get(match_id);
        entry.is_some_and(
            |entry| matches!(entry.phase, Phase::Live { server, .. } if server == from),
        )
    }

    /// A lease may have ended; renewals do not move its timer.
    pub(super) fn on_lease_due(&mut self, now: Instant, link: ServerLink) {
        let Some(server) = self.servers.get(link) else {
            return;
        };
        if self.cut_since.is_some() {
            // Looked at again when the link is up.
        } else if server.lease_until > now {
            self.timers.set(Timer::Server(link), server.lease_until);
        } else {
            self.lose(now, link, DownReason::LeaseLost);
        }
    }

    /// Gives an instance up for ever: its live matches fail, those on their way go elsewhere.
    pub(super) fn lose(&mut self, now: Instant, link: ServerLink, reason: DownReason) {
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

/// A key that is newer, or the one that is known.
fn is_key_allowed(server: &Server, register: &Register) -> bool {
    let (known, new) = (&server.token_key, &register.token_key);
    new.id() > known.id() || equal(known.to_bytes().as_slice(), new.to_bytes().as_slice())
}

impl<P: Provider> Matchmaker<P> {
    /// Takes word that the process which the command `run` ([`Command::Spawn`]) started has ended,
    /// by itself or by a crash. Its instance is given up at once, before its lease ends. Of a
    /// process that has ended after [`Command::Stop`] the outcome of that command says so.
    pub fn handle_exited(&mut self, now: Instant, run: CommandId) {
        let now = self.enter(now);
        let Some(slot) = self.pool.slot_of_run(run) else {
            return;
        };
        match self.pool.get(slot).map(|place| (place.state, place.node)) {
            Some((SlotState::Starting { .. }, _)) => {
                self.outbox.forget_slot(slot);
                self.fail_slot(now, slot);
                self.rest(now, slot);
            }
            Some((SlotState::Serving, node)) => {
                if let Some(link) = self.servers.of_node(node) {
                    self.lose(now, link, DownReason::Exited);
                }
            }
            Some((SlotState::Idle { .. } | SlotState::Stopping, _)) | None => {}
        }
        self.advance(now);
    }

    /// Starts processes until all matches that wait have room, and as many servers as are kept warm
    /// have too.
    pub(super) fn staff(&mut self, now: Instant) {
        if !self.is_recovered || self.pool.len() == 0 {
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
            // Nobody knows yet how many matches one takes: the first tells, unless it is late.
            waiting.saturating_add(warm).min(late.saturating_add(1))
        };
        let there = self.servers.with_room(seats, wanted);
        let there = there.saturating_add(starting);
        for _ in there..wanted {
            let Some(slot) = self.pool.startable(now) else {
                return;
            };
            self.start(now, slot);
        }
    }

    fn start(&mut self, now: Instant, slot: Slot) {
        let Some(place) = self.pool.get_mut(slot) else {
            return;
        };
        let spawn = Command::Spawn {
            slot,
            node: place.node,
        };
        let ready_until = now + self.config.ready_timeout;
        place.state = SlotState::Starting {
            ready_until,
            is_late: false,
        };
        place.run = Some(self.outbox.command(Pending::Spawn(slot), spawn));
        let look_at = ready_until.min(now + LATE_AFTER);
        self.timers.set(Timer::Slot(slot), look_at);
    }

    /// Processes that were started can register again: each has [`recovery`](crate::Config::recovery)
    /// for it at the least. How late one is counts from now on.
    pub(super) fn prolong_starts(&mut self, now: Instant) {
        let recovered_at = now + self.config.recovery;
        for (slot, place) in self.pool.iter_mut() {
            if let SlotState::Starting {
                ready_until,
                is_late,
            } = &mut place.state
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

    /// Tells the process of a slot to end.
    fn stop(&mut self, now: Instant, slot: Slot) {
        self.outbox.forget_slot(slot);
        let Some(place) = self.pool.get_mut(slot) else {
            return;
        };
        place.state = SlotState::Stopping;
        let run = place.run;
        self.outbox
            .command(Pending::Stop(slot), Command::Stop { slot, run });
        let again_at = now + self.config.stop_timeout;
        self.timers.set(Timer::Slot(slot), again_at);
    }

    /// Counts that no lasting server came of a slot.
    fn fail_slot(&mut self, now: Instant, slot: Slot) {
        debug_assert!(now >= self.now);
        if let Some(place) = self.pool.get_mut(slot) {
            place.failures = place.failures.saturating_add(1);
            let failures = place.failures;
            self.event(Event::SpawnFailed { slot, failures });
        }
    }

    /// Leaves a slot empty, until it has rested where it failed.
    fn rest(&mut self, now: Instant, slot: Slot) {
        let bounds = (self.config.backoff_min, self.config.backoff_max);
        let Some(place) = self.pool.get_mut(slot) else {
            return;
        };
        place.run = None;
        let retry_at = if place.failures == 0 {
            now
        } else {
            now + backoff(bounds, place.failures, &mut self.generator)
        };
        place.state = SlotState::Idle { retry_at };
        if retry_at > now {
            self.timers.set(Timer::Slot(slot), retry_at);
        } else {
            self.timers.clear(Timer::Slot(slot));
        }
    }

    /// Takes the outcome of [`Command::Spawn`]; the process may have registered before.
    pub(super) fn on_spawned(&mut self, now: Instant, slot: Slot, outcome: &Outcome) {
        let is_starting = self
            .pool
            .get(slot)
            .is_some_and(|place| matches!(place.state, SlotState::Starting { .. }));
        if is_starting && *outcome != Outcome::Started {
            self.fail_slot(now, slot);
            self.rest(now, slot);
        }
    }

    /// Takes the outcome of [`Command::Stop`]; where it failed, it is told again in time.
    pub(super) fn on_stopped(&mut self, now: Instant, slot: Slot, outcome: &Outcome) {
        if *outcome == Outcome::Stopped {
            self.rest(now, slot);
        }
    }

    /// The node of a slot has registered, whoever started it, and serves so many seats.
    pub(super) fn on_slot_serving(&mut self, node: NodeId, capacity: u16) {
        if let Some(slot) = self.pool.slot_of(node)
            && let Some(place) = self.pool.get_mut(slot)
        {
            place.state = SlotState::Serving;
            self.pool.capacity = Some(capacity);
            self.timers.clear(Timer::Slot(slot));
        }
    }

    /// Looks later whether an instance of the pool still stands unused.
    pub(super) fn watch_unused(&mut self, now: Instant, link: ServerLink) {
        if let Some(slot) = self.serving_slot(link.node) {
            let due = now + self.config.unused_timeout;
            self.timers.set(Timer::Slot(slot), due);
        }
    }

    /// The instance of `node` is gone.
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
        if let Some(place) = self.pool.get_mut(slot)
            && now.saturating_since(since) >= self.config.backoff_max
        {
            place.failures = 0;
        }
        match reason {
            // The other instance serves in its place.
            DownReason::Superseded => {}
            DownReason::Exited => {
                self.outbox.forget_slot(slot);
                self.fail_slot(now, slot);
                self.rest(now, slot);
            }
            DownReason::LeaseLost => {
                self.fail_slot(now, slot);
                self.stop(now, slot);
            }
            DownReason::Left | DownReason::Unused => self.stop(now, slot),
        }
    }

    /// A slot has waited for what its state says.
    pub(super) fn on_slot_due(&mut self, now: Instant, slot: Slot) {
        let Some(place) = self.pool.get(slot) else {
            return;
        };
        match place.state {
            // Rested: `staff` may start it.
            SlotState::Idle { .. } => {}
            SlotState::Starting { ready_until, .. } if ready_until > now => {
                if let Some(place) = self.pool.get_mut(slot) {
                    place.state = SlotState::Starting {
                        ready_until,
                        is_late: true,
                    };
                }
                self.timers.set(Timer::Slot(slot), ready_until);
            }
            // It cannot register, and gets time once it can.
            SlotState::Starting { .. } if self.cut_since.is_some() => {}
            SlotState::Starting { .. } => {
                self.fail_slot(now, slot);
                self.stop(now, slot);
            }
            SlotState::Serving => self.on_unused_due(now, slot, place.node),
            SlotState::Stopping => self.stop(now, slot),
        }
    }

    /// Stops an instance that has stood unused, where enough others are warm.
    fn on_unused_due(&mut self, now: Instant, slot: Slot, node: NodeId) {
        let Some(link) = self.servers.of_node(node) else {
            return;
        };
        let Some(server) = self.servers.get(link) else {
            return;
        };
        if !server.matches.is_empty() {
            return;
        }
        let unused_until = server.unused_since + self.config.unused_timeout;
        let warm = usize::from(self.config.warm);
        let unused = self
            .servers
            .iter()
            .filter(|(_, server)| server.intake == Intake::Open && server.matches.is_empty())
            .take(warm.saturating_add(1))
            .count();
        if unused_until > now {
            self.timers.set(Timer::Slot(slot), unused_until);
        } else if unused > warm && self.matches.waiting() == 0 && self.cut_since.is_none() {
            self.lose(now, link, DownReason::Unused);
        } else {
            self.watch_unused(now, link);
        }
    }

    /// The slot of `node`, where its instance serves.
    fn serving_slot(&self, node: NodeId) -> Option<Slot> {
        let slot = self.pool.slot_of(node)?;
        let place = self.pool.get(slot)?;
        (place.state == SlotState::Serving).then_some(slot)
    }
}

/// A process that takes longer to register is not waited for before others are started.
const LATE_AFTER: Duration = Duration::from_secs(5);
