//! Matches: from proposal to end.

use crypto::Provider;
use wire::{Instant, MatchId};

use super::Matchmaker;
use crate::output::{Command, Event, MatchEnd, Outcome, Pending};
use crate::record::{Assign, Verdict};
use crate::server::ServerLink;
use crate::table::{Participant, Phase, plan_seats};
use crate::ticket::{Ending, FailReason, TicketState};
use crate::timer::Timer;

impl<P: Provider> Matchmaker<P> {
    pub(super) fn form_matches(&mut self, now: Instant) {
        if !self.recovery.is_complete || self.wall.is_none() {
            return;
        }
        while self.matches.len() < self.config.matches_max {
            let Some(tickets) = self.game.rule.propose(&self.tickets.queue) else {
                break;
            };
            let id = self.new_match_id();
            let known = tickets
                .iter()
                .filter_map(|ticket| self.tickets.get(*ticket));
            let players = known.map(|ticket| ticket.client_id);
            let seats = plan_seats(players, self.game.rule.teams());
            let participants = seats
                .zip(&tickets)
                .map(|(seated, ticket)| Participant::new(seated, Some(*ticket), now))
                .collect();
            let allocate_until = now + self.config.allocate_timeout;
            let until = (allocate_until, now);
            self.matches.insert(id, participants, Phase::Waiting, until);
            self.timers.set(Timer::Match(id), allocate_until);
            for ticket in tickets {
                self.set_ticket(now, ticket, TicketState::Allocating { match_id: id });
            }
        }
    }

    pub(super) fn place(&mut self, now: Instant) {
        while let Some(match_id) = self.matches.first_waiting() {
            let Some(entry) = self.matches.get(match_id) else {
                return;
            };
            let seats = entry.participants.len();
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
            self.servers
                .update(link, |server| server.add(match_id, seats));
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

    /// Handles a server's answer to a match.
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

    /// Issues the tokens of a match that the server has accepted.
    fn go_live(&mut self, now: Instant, match_id: MatchId, server: ServerLink) {
        let Some(entry) = self.matches.get(match_id) else {
            return;
        };
        let participants = entry.participants.iter();
        let seats: Vec<_> = participants
            .filter_map(|participant| Some((participant.ticket?, participant.seated.client_id)))
            .collect();
        let mut assignments = Vec::with_capacity(seats.len());
        for (ticket, client) in &seats {
            let user = self.tickets.get(*ticket).map(|ticket| ticket.user.clone());
            let issued = self.issue(now, match_id, *client, &user.unwrap_or_default());
            let Ok(assignment) = issued else {
                // Tokens issued so far are discarded. The reply to the heartbeat that lists the
                // match asks the server to release it.
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

    /// The server rejected the match; another may accept it.
    fn refuse(&mut self, now: Instant, match_id: MatchId, link: ServerLink) {
        self.servers
            .update(link, |server| server.is_suspended = true);
        self.unplace(now, match_id);
    }

    /// Removes a match from the server that was asked; it waits for another.
    pub(super) fn unplace(&mut self, now: Instant, match_id: MatchId) {
        let Some(entry) = self.matches.get(match_id) else {
            return;
        };
        let (allocate_until, seats) = (entry.allocate_until, entry.participants.len());
        if let Phase::Calling {
            server, command, ..
        } = entry.phase
        {
            self.outbox.forget(command);
            self.release_seats(now, server, match_id, seats);
        }
        self.matches.set_phase(match_id, Phase::Waiting);
        self.timers.set(Timer::Match(match_id), allocate_until);
    }

    /// Handles a match that has waited too long, for a server or for its answer.
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

    /// Dissolves a match that is not live. Its tickets return to their positions in the queue, or
    /// end if `failed` and the attempts are used up.
    pub(super) fn dissolve(&mut self, now: Instant, match_id: MatchId, failed: Option<FailReason>) {
        debug_assert!(!self.is_live(match_id));
        self.unplace(now, match_id);
        self.timers.clear(Timer::Match(match_id));
        let Some(entry) = self.matches.remove(match_id) else {
            return;
        };
        self.stats.dissolved = self.stats.dissolved.saturating_add(1);
        let tickets = entry.participants.iter();
        for id in tickets.filter_map(|participant| participant.ticket) {
            let Some(ticket) = self.tickets.get_mut(id) else {
                continue;
            };
            if ticket.state != (TicketState::Allocating { match_id }) {
                continue;
            }
            let mut state = TicketState::Queued;
            if let Some(reason) = failed {
                ticket.attempts = ticket.attempts.saturating_add(1);
                if ticket.attempts >= self.config.attempts_max.get() {
                    state = TicketState::Ended(Ending::Failed(reason));
                }
            }
            self.set_ticket(now, id, state);
        }
    }

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
            self.release_seats(now, link, match_id, entry.participants.len());
        }
        let ending = match end {
            MatchEnd::Reported | MatchEnd::Unlisted => Ending::Finished,
            MatchEnd::ServerLost => Ending::Failed(FailReason::ServerLost),
            MatchEnd::NotEntered => Ending::NotEntered,
        };
        for participant in entry.participants {
            if let (Some(ticket), false) = (participant.ticket, participant.has_left) {
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

    fn release_seats(&mut self, now: Instant, link: ServerLink, match_id: MatchId, seats: usize) {
        let is_unused = self.servers.update(link, |server| {
            server.remove(match_id, seats, now);
            server.matches.is_empty()
        });
        if is_unused == Some(true) {
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
