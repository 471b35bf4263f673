//! What the edge asks for: tickets.

use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{Provider, UserData};
use wire::{ClientId, Instant, MatchId};

use super::Matchmaker;
use crate::config::Duplicate;
use crate::error::{CancelError, ReissueError, SubmitError};
use crate::event::Event;
use crate::match_table::Phase;
use crate::mint::{self, Order};
use crate::ticket::{Assignment, Ending, Receipt, ResumeKey, TicketId, TicketRequest, TicketState};
use crate::ticket_table::Ticket;
use crate::timer::Timer;

impl<P: Provider> Matchmaker<P> {
    /// Takes a player's wish to play.
    ///
    /// - The same wish again (same player and idempotency key) gives the same receipt, as long as
    ///   its ticket is known: one that has ended is not queued anew by a request that comes late.
    /// - A player in a live match gets back to it: its ticket has a fresh token for its seat.
    /// - Another waiting ticket of the player ends, or the request is refused: [`Duplicate`].
    ///
    /// # Errors
    ///
    /// [`SubmitError`] says why there is no ticket; nothing has changed then.
    pub fn submit(
        &mut self,
        now: Instant,
        request: &TicketRequest,
    ) -> Result<Receipt, SubmitError> {
        let now = self.enter(now);
        let client = request.client_id;
        let before = self.tickets.of_client(client);
        if let Some(receipt) = self.same_wish(request) {
            self.keep_ticket(now, receipt.ticket);
            return Ok(receipt);
        }
        let live = self.matches.of_client(client);
        if live.is_none() {
            self.check_admission(before)?;
        }
        // All that can fail comes first.
        let resume_key = ResumeKey::random(&mut self.provider)?;
        let seat = live
            .map(|match_id| self.issue(now, match_id, client, &request.user))
            .transpose()?;
        if let Some(id) = before {
            self.withdraw(now, id, Ending::Replaced);
        }
        let ticket = self.admit(now, request, resume_key.clone(), seat);
        self.advance(now);
        Ok(Receipt { ticket, resume_key })
    }

    /// Ends a waiting ticket. If its match waits for a server, the other players go back to where
    /// they were in the queue.
    ///
    /// # Errors
    ///
    /// [`CancelError`] where the ticket does not wait.
    pub fn cancel(&mut self, now: Instant, ticket: TicketId) -> Result<(), CancelError> {
        let now = self.enter(now);
        match self.ticket(ticket) {
            None => Err(CancelError::Unknown),
            Some(TicketState::Assigned(_)) => Err(CancelError::Assigned),
            Some(TicketState::Ended(_)) => Err(CancelError::Ended),
            Some(TicketState::Queued | TicketState::Allocating { .. }) => {
                self.withdraw(now, ticket, Ending::Cancelled);
                self.advance(now);
                Ok(())
            }
        }
    }

    /// Notes that the holder of a ticket still asks for it. One that waits ends where nobody has for
    /// [`Config::ask_timeout`](crate::Config::ask_timeout); to others it means nothing.
    pub fn keep_ticket(&mut self, now: Instant, ticket: TicketId) {
        let now = self.enter(now);
        if let Some(entry) = self.tickets.get(ticket)
            && entry.state.is_waiting()
        {
            let due = entry.expires_at.min(now + self.config.ask_timeout);
            self.timers.set(Timer::Ticket(ticket), due);
        }
    }

    /// A ticket has waited as long as it may, or its holder has gone.
    pub(super) fn on_ticket_due(&mut self, now: Instant, id: TicketId) {
        let expires_at = self.tickets.get(id).map(|ticket| ticket.expires_at);
        let ending = if expires_at.is_some_and(|at| at <= now) {
            Ending::Expired
        } else {
            Ending::Abandoned
        };
        self.withdraw(now, id, ending);
    }

    /// Makes another token for the seat of a ticket, with a pre-shared key of its own: the last one
    /// was used by a connection that is gone, has expired, or was lost. The server takes the newer.
    ///
    /// # Errors
    ///
    /// [`ReissueError`] says why there is none; the ticket is as before then.
    pub fn reissue(&mut self, now: Instant, ticket: TicketId) -> Result<(), ReissueError> {
        let now = self.enter(now);
        let entry = self.tickets.get(ticket).ok_or(ReissueError::Unknown)?;
        let TicketState::Assigned(assignment) = &entry.state else {
            return Err(ReissueError::NotAssigned);
        };
        let (match_id, client, user) = (assignment.match_id, entry.client_id, entry.user.clone());
        let assignment = self.issue(now, match_id, client, &user)?;
        self.set_ticket(now, ticket, TicketState::Assigned(assignment));
        Ok(())
    }

    /// Returns what has become of a ticket; asking again gives the same grant. `None` where it is
    /// unknown, or has ended long ago.
    pub fn ticket(&self, ticket: TicketId) -> Option<&TicketState> {
        self.tickets.get(ticket).map(|ticket| &ticket.state)
    }

    /// Returns whether `key` is the one that the ticket's receipt holds; false for an unknown
    /// ticket. The edge asks before it tells, cancels or reissues anything.
    pub fn is_holder(&self, ticket: TicketId, key: &ResumeKey) -> bool {
        self.tickets
            .get(ticket)
            .is_some_and(|ticket| ticket.resume_key == *key)
    }

    /// Returns the ticket of a player that waits or has a seat.
    pub fn ticket_of(&self, client: ClientId) -> Option<TicketId> {
        self.tickets.of_client(client)
    }

    /// What was answered to the same wish before.
    fn same_wish(&self, request: &TicketRequest) -> Option<Receipt> {
        let id = self
            .tickets
            .of_wish(request.client_id, request.idempotency?)?;
        let ticket = self.tickets.get(id)?;
        Some(Receipt {
            ticket: id,
            resume_key: ticket.resume_key.clone(),
        })
    }

    /// Whether one more ticket may wait, in place of `before` or beside all others.
    const fn check_admission(&self, before: Option<TicketId>) -> Result<(), SubmitError> {
        match (before, self.config.duplicate) {
            (Some(id), Duplicate::Refuse) => Err(SubmitError::Duplicate(id)),
            (None, _) if self.tickets.waiting() >= self.config.tickets_max => {
                Err(SubmitError::Full)
            }
            (Some(_), Duplicate::Replace) | (None, _) => Ok(()),
        }
    }

    /// Adds a ticket, queued or with its seat.
    fn admit(
        &mut self,
        now: Instant,
        request: &TicketRequest,
        resume_key: ResumeKey,
        seat: Option<Assignment>,
    ) -> TicketId {
        let id = loop {
            let id = TicketId(self.generator.next_u64());
            if self.tickets.get(id).is_none() {
                break id;
            }
        };
        let live = seat.as_ref().map(|seat| seat.match_id);
        let ticket = Ticket {
            client_id: request.client_id,
            user: request.user.clone(),
            idempotency: request.idempotency,
            resume_key,
            expires_at: now + self.config.ticket_ttl,
            arrival: self.tickets.queue.arrive(),
            attempts: 0,
            state: seat.map_or(TicketState::Queued, TicketState::Assigned),
        };
        self.tickets.insert(id, ticket);
        self.stats.tickets = self.stats.tickets.saturating_add(1);
        match live.and_then(|match_id| self.matches.get_mut(match_id)) {
            Some(entry) => {
                if let Some(chair) = entry.chair_mut(request.client_id) {
                    chair.ticket = Some(id);
                }
            }
            None => self.keep_ticket(now, id),
        }
        self.event(Event::Ticket(id));
        id
    }

    /// Ends a ticket that waits, or has a seat that another ticket takes over.
    pub(super) fn withdraw(&mut self, now: Instant, id: TicketId, ending: Ending) {
        let Some(state) = self.ticket(id) else {
            return;
        };
        if let TicketState::Allocating { match_id } = *state {
            self.set_ticket(now, id, TicketState::Ended(ending));
            self.dissolve(now, match_id, None);
        } else if !state.is_ended() {
            self.set_ticket(now, id, TicketState::Ended(ending));
        }
    }

    /// Makes a token for the seat of `client` in a live match.
    pub(super) fn issue(
        &mut self,
        now: Instant,
        match_id: MatchId,
        client: ClientId,
        user: &UserData,
    ) -> Result<Assignment, ReissueError> {
        let unix = self.unix_time(now).ok_or(ReissueError::NoClock)?;
        let entry = self.matches.get_mut(match_id);
        let entry = entry.ok_or(ReissueError::NotAssigned)?;
        let Some(link) = entry.server() else {
            return Err(ReissueError::NotAssigned);
        };
        let server = self.servers.get(link).ok_or(ReissueError::NotAssigned)?;
        let chair = entry.chair_mut(client).ok_or(ReissueError::NotAssigned)?;
        if chair.next_token_at > now {
            let wait = chair.next_token_at.saturating_since(now);
            return Err(ReissueError::TooSoon(wait));
        }
        let order = Order {
            app_id: self.game.app_id,
            link,
            server,
            match_id,
            seated: chair.seated,
            user,
            issued_at: mint::issue_time(unix, chair.issued_at),
            lifetime: self.config.token_lifetime.get(),
        };
        let assignment =
            mint::mint(&mut self.provider, &order).map_err(|_| ReissueError::NoEntropy)?;
        chair.issued_at = Some(order.issued_at);
        chair.next_token_at = now + self.config.reissue_interval;
        // What a server says a call later was said when the token had lapsed.
        let lapses_at = now + order.lifetime + LAPSE_SLACK + self.config.call_timeout;
        if let Some(entry) = self.matches.get_mut(match_id) {
            entry.enter_until = entry.enter_until.max(lapses_at);
        }
        self.stats.tokens = self.stats.tokens.saturating_add(1);
        Ok(assignment)
    }

    /// Whether the match is live: its players may have tokens.
    pub(super) fn is_live(&self, match_id: MatchId) -> bool {
        let entry = self.matches.get(match_id);
        entry.is_some_and(|entry| matches!(entry.phase, Phase::Live { .. }))
    }
}

/// How much longer than its lifetime a token may be good, by clocks that differ: it may say that it
/// was issued in the future ([`mint::issue_time`]), and its server's clock may lag behind.
const LAPSE_SLACK: Duration = CLOCK_SKEW.saturating_mul(2);

impl From<ReissueError> for SubmitError {
    fn from(error: ReissueError) -> Self {
        match error {
            ReissueError::TooSoon(wait) => Self::TooSoon(wait),
            ReissueError::NoClock => Self::NoClock,
            // A live match has a server and a chair for each player in it.
            ReissueError::Unknown | ReissueError::NotAssigned | ReissueError::NoEntropy => {
                Self::NoEntropy
            }
        }
    }
}
