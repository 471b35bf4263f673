//! What game servers say: registration, heartbeats, ends.

use crypto::{Provider, equal};
use wire::{ClientId, Instant, MatchId};

use super::Matchmaker;
use super::matches::chair;
use crate::event::{DownReason, Event, MatchEnd};
use crate::lease::{Server, ServerLink};
use crate::match_table::{Match, Phase};
use crate::pool::SlotState;
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
