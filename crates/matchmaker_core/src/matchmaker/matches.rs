//! From proposal to live match, and to its end.

use crypto::Provider;
use wire::{Instant, MatchId};

use super::Matchmaker;
use crate::command::{Command, Outcome};
use crate::event::{Event, MatchEnd};
use crate::lease::ServerLink;
use crate::match_table::{Chair, Match, Phase};
use crate::match_table::{Seated, plan_seats};
use crate::outbox::Pending;
use crate::record::{Assign, Verdict};
use crate::ticket::{Ending, FailReason, TicketId, TicketState};
use crate::timer::Timer;

impl<P: Provider> Matchmaker<P> {
    /// Makes matches of queued tickets, as many as can be.
    pub(super) fn form(&mut self, now: Instant) {
        if !self.is_recovered || self.wall.is_none() {
            return;
        }
        while self.matches.len() < self.config.matches_max {
            let Some(tickets) = self.game.rule.propose(&self.tickets.queue) else {
                break;
            };
            let id = self.new_match_id();
            let players = tickets
                .iter()
                .filter_map(|ticket| self.tickets.get(*ticket))
                .map(|ticket| ticket.client_id);
            let seats = plan_seats(players, self.game.rule.teams());
            let chairs = seats
                .zip(&tickets)
                .map(|(seated, ticket)| chair(seated, Some(*ticket), now))
                .collect();
            let allocate_until = now + self.config.allocate_timeout;
            let entry = Match {
                chairs,
                phase: Phase::Waiting,
                order: self.matches.next_order(),
                allocate_until,
                enter_until: now,
            };
            self.matches.insert(id, entry);
            self.timers.set(Timer::Match(id), allocate_until);
            for ticket in tickets {
                self.set_ticket(now, ticket, TicketState::Allocating { match_id: id });
            }
        }
    }

    /// Asks servers to take the matches that wait, oldest first.
    pub(super) fn place(&mut self, now: Instant) {
        while let Some(match_id) = self.matches.first_waiting() {
            let Some(entry) = self.matches.get(match_id) else {
                return;
            };
            let seats = entry.chairs.len();
            let Some(link) = self.servers.choose(seats) else {
                return;
            };
            let mut body = Vec::new();
            Assign {
                instance: link.instance,
                match_id,
                players: entry.seats(),
            }
            .encode(&mut body);
            let until = now + self.config.call_timeout;
            let due = until.min(entry.allocate_until);
            if let Some(server) = self.servers.get_mut(link) {
                server.add(match_id, seats);
            }
            let call = Command::Call {
                to: link,
                body,
                timeout: self.config.call_timeout,
            };
            let command = self.outbox.command(Pending::Call(match_id), call);
            let phase = Phase::Calling {
                server: link,
                command,
                until,
            };
            self.matches.set_phase(match_id, phase);
            self.timers.set(Timer::Match(match_id), due);
        }
    }

    /// Takes a server's answer to a match.
    pub(super) fn on_called(&mut self, now: Instant, match_id: MatchId, outcome: Outcome) {
        let Some(entry) = self.matches.get(match_id) else {
            return;
        };
        let Phase::Calling { server, .. } = entry.phase else {
            return;
        };
        if let Outcome::Answered(answer) = outcome
            && Verdict::decode(&answer) == Ok(Verdict::Taken)
        {
            self.go_live(now, match_id, server);
        } else {
            self.refuse(now, match_id, server);
        }
    }

    /// The server took the match: makes its tokens.
    fn go_live(&mut self, now: Instant, match_id: MatchId, server: ServerLink) {
        let Some(entry) = self.matches.get(match_id) else {
            return;
        };
        let seats: Vec<_> = entry
            .chairs
            .iter()
            .filter_map(|chair| chair.ticket.map(|ticket| (ticket, chair.seated.client_id)))
            .collect();
        let mut assignments = Vec::with_capacity(seats.len());
        for (ticket, client) in &seats {
            let user = self.tickets.get(*ticket).map(|ticket| ticket.user.clone());
            let issued = self.issue(now, match_id, *client, &user.unwrap_or_default());
            let Ok(assignment) = issued else {
                // Tokens made so far reach nobody. The server is told to forget the match when its
                // heartbeat names it.
                self.dissolve(now, match_id, Some(FailReason::NoEntropy));
                return;
            };
            assignments.push(assignment);
        }
        self.timers.clear(Timer::Match(match_id));
        self.matches
            .set_phase(match_id, Phase::Live { server, since: now });
        self.stats.matches = self.stats.matches.saturating_add(1);
        for ((ticket, client), assignment) in seats.into_iter().zip(assignments) {
            self.matches.enter(client, match_id);
            self.timers.clear(Timer::Ticket(ticket));
            self.set_ticket(now, ticket, TicketState::Assigned(assignment));
        }
        self.event(Event::MatchLive { match_id, server });
    }

    /// The server did not take the match: another one may.
    fn refuse(&mut self, now: Instant, match_id: MatchId, link: ServerLink) {
        if let Some(server) = self.servers.get_mut(link) {
            server.is_held = true;
        }
        self.unplace(now, match_id);
    }

    /// Takes a match off the server that was asked; it waits for another.
    pub(super) fn unplace(&mut self, now: Instant, match_id: MatchId) {
        let Some(entry) = self.matches.get(match_id) else {
            return;
        };
        let (allocate_until, seats) = (entry.allocate_until, entry.chairs.len());
        if let Phase::Calling {
            server, command, ..
        } = entry.phase
        {
            self.outbox.forget(command);
            self.vacate(now, server, match_id, seats);
        }
        self.matches.set_phase(match_id, Phase::Waiting);
        self.timers.set(Timer::Match(match_id), allocate_until);
    }

    /// A match has waited too long, for a server or for its answer.
    pub(super) fn on_match_due(&mut self, now: Instant, match_id: MatchId) {
        let Some(entry) = self.matches.get(match_id) else {
            return;
        };
        match entry.phase {
            Phase::Live { .. } => {}
            Phase::Calling { server, until, .. } if until <= now && entry.allocate_until > now => {
                self.refuse(now, match_id, server);
            }
            Phase::Waiting | Phase::Calling { .. } => {
                self.dissolve(now, match_id, Some(FailReason::NoServer));
            }
        }
    }

    /// Takes a match apart that is not live. Its tickets go back to where they were in the queue;
    /// where it has `failed` as often as is tried, they end.
    pub(super) fn dissolve(&mut self, now: Instant, match_id: MatchId, failed: Option<FailReason>) {
        debug_assert!(!self.is_live(match_id));
        self.unplace(now, match_id);
        self.timers.clear(Timer::Match(match_id));
        let Some(entry) = self.matches.remove(match_id) else {
            return;
        };
        self.stats.dissolved = self.stats.dissolved.saturating_add(1);
        for id in entry.chairs.iter().filter_map(|chair| chair.ticket) {
            let Some(ticket) = self.tickets.get_mut(id) else {
                continue;
            };
            if ticket.state != (TicketState::Allocating { match_id }) {
                continue;
            }
            let state = match failed {
                Some(reason) => {
                    ticket.attempts = ticket.attempts.saturating_add(1);
                    if ticket.attempts < self.config.attempts_max.get() {
                        TicketState::Queued
                    } else {
                        TicketState::Ended(Ending::Failed(reason))
                    }
                }
                None => TicketState::Queued,
            };
            self.set_ticket(now, id, state);
        }
    }

    /// Ends a live match.
    pub(super) fn end_match(
        &mut self,
        now: Instant,
        match_id: MatchId,
        end: MatchEnd,
        result: &[u8],
    ) {
        let Some(entry) = self.matches.remove(match_id) else {
            return;
        };
        if let Some(link) = entry.server() {
            self.vacate(now, link, match_id, entry.chairs.len());
        }
        let ending = match end {
            MatchEnd::Reported | MatchEnd::Unlisted => Ending::Finished,
            MatchEnd::ServerLost => Ending::Failed(FailReason::ServerLost),
            MatchEnd::NotEntered => Ending::NotEntered,
        };
        for chair in entry.chairs.iter().filter(|chair| !chair.has_left) {
            if let Some(ticket) = chair.ticket {
                self.set_ticket(now, ticket, TicketState::Ended(ending));
            }
        }
        let result = result.to_vec();
        self.event(Event::MatchEnded {
            match_id,
            end,
            result,
        });
    }

    /// Gives the seats of a match back to its server.
    fn vacate(&mut self, now: Instant, link: ServerLink, match_id: MatchId, seats: usize) {
        let Some(server) = self.servers.get_mut(link) else {
            return;
        };
        server.remove(match_id, seats, now);
        if server.matches.is_empty() {
            self.watch_unused(now, link);
        }
    }

    fn new_match_id(&mut self) -> MatchId {
        loop {
            let mut id = [0; 16];
            self.generator.fill(&mut id);
            if self.matches.get(MatchId(id)).is_none() {
                return MatchId(id);
            }
        }
    }
}

pub(super) const fn chair(seated: Seated, ticket: Option<TicketId>, now: Instant) -> Chair {
    Chair {
        seated,
        ticket,
        issued_at: None,
        next_token_at: now,
        has_left: false,
    }
}
