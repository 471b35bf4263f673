//! The matchmaker: connects queue, matches, leases, pool and tokens.

mod matches;
mod servers;

use core::fmt;
use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{NoEntropy, Provider, Ring, UserData};
use wire::{
    Arrival, ClientId, CommandId, Generator, Instant, Machine, MatchId, Transmit, UnixTime,
};

use crate::config::{Config, Duplicate, Game};
use crate::mint::{self, TokenRequest};
use crate::output::{Caller, Command, Event, Outbox, Outcome, Pending};
use crate::record::RECORD_BYTES_MAX;
use crate::server::{Pool, ServerLink, Servers};
use crate::table::{MatchTable, Phase, Ticket, TicketTable};
use crate::ticket::{
    Assignment, CancelError, Ending, Receipt, ReissueError, ResumeKey, SubmitError, TicketId,
    TicketRequest, TicketState,
};
use crate::timer::{Timer, Timers};

/// Matches players, keeps leases of server instances, and issues connect tokens.
///
/// Players' requests arrive by [`submit`](Self::submit) and [`cancel`](Self::cancel), servers'
/// calls by [`handle_call`](Self::handle_call). Processes to start and calls to servers leave as
/// [`Command`]s. One turn of a driver, with `app` as the front end:
///
/// ```text
/// for request in hub.requests() {                      // hub calls first, then timers
///     machine.handle_call(now, request.link, &request.body, &mut reply);
///     hub.answer(request, &reply);
/// }
/// app.apply_requests(&mut machine, now);               // submit, cancel, reissue
/// if machine.poll_timeout().is_some_and(|at| at <= now) { machine.handle_timeout(now); }
/// while let Some((id, command)) = machine.poll_command() { app.on_command(id, command); }
/// while let Some(event) = machine.poll_event() { app.on_event(event); }
/// ```
pub struct Matchmaker<P: Provider = Ring> {
    config: Config,
    game: Game,
    provider: P,
    /// Randomness that is not secret: ids and backoff jitter.
    generator: Generator,
    now: Instant,
    /// The last wall-clock reading, and when it was taken.
    wall: Option<(Instant, UnixTime)>,
    recovery: Recovery,
    tickets: TicketTable,
    matches: MatchTable,
    servers: Servers,
    pool: Pool,
    timers: Timers,
    outbox: Outbox,
    stats: Stats,
}

/// What waits for servers to return, after a start or while their link is down.
struct Recovery {
    /// Set while the link to the servers is down; leases do not expire then.
    link_down_since: Option<Instant>,
    /// Whether instances of an earlier matchmaker had time to register.
    is_complete: bool,
    /// Until then an instance may bring matches of an earlier matchmaker. Later no such lease can
    /// exist, so players that an instance claims were never assigned to it.
    adopts_until: Instant,
}

impl<P: Provider> Matchmaker<P> {
    /// Creates a matchmaker without tickets and servers.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider's source of randomness fails.
    pub fn new(
        config: Config,
        game: Game,
        mut provider: P,
        now: Instant,
    ) -> Result<Self, NoEntropy> {
        let generator = provider.random_seed()?.generator(0);
        let mut timers = Timers::default();
        timers.set(Timer::Recovered, now + config.recovery);
        Ok(Self {
            pool: Pool::new(&game.slots, now),
            game,
            provider,
            generator,
            now,
            wall: None,
            recovery: Recovery {
                link_down_since: None,
                is_complete: false,
                adopts_until: now + config.lease,
            },
            config,
            tickets: TicketTable::default(),
            matches: MatchTable::default(),
            servers: Servers::default(),
            timers,
            outbox: Outbox::default(),
            stats: Stats::default(),
        })
    }

    /// Sets the wall clock, which only token expiry uses. No match is made before the first call.
    /// Call it at the start and every few seconds; in between, the monotonic clock advances it.
    pub fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        let now = self.enter(now);
        self.wall = Some((now, unix));
        self.advance(now);
    }

    /// Notifies that the matchmaker's link to the servers is down. Until it is up, no lease
    /// expires, no match is made or placed, and no process is started.
    ///
    /// A new matchmaker assumes that its link is up; if not, call this first.
    pub fn handle_link_down(&mut self, now: Instant) {
        let now = self.enter(now);
        self.recovery.link_down_since.get_or_insert(now);
        self.timers.clear(Timer::Recovered);
    }

    /// Notifies that the link is up again. Leases continue with their remaining time, at least
    /// [`Config::recovery`]. The times to adopt matches of an earlier matchmaker and for processes
    /// to register are extended likewise.
    pub fn handle_link_up(&mut self, now: Instant) {
        let now = self.enter(now);
        let Some(since) = self.recovery.link_down_since.take() else {
            return;
        };
        let recovery = self.config.recovery;
        self.recovery.adopts_until += now.saturating_since(since);
        if !self.recovery.is_complete {
            self.timers.set(Timer::Recovered, now + recovery);
        }
        for (link, lease_until) in self.servers.leases_mut() {
            let left = lease_until.saturating_since(since);
            *lease_until = now + left.max(recovery);
            self.timers.set(Timer::Server(link), *lease_until);
        }
        self.prolong_starts(now);
        self.advance(now);
    }

    /// Runs every timer due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.enter(now);
        if self.timers.next().is_none_or(|at| at > now) {
            return;
        }
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Server(link) => self.on_lease_due(now, link),
                Timer::Match(id) => self.on_match_due(now, id),
                Timer::Slot(slot) => self.on_slot_due(now, slot),
                Timer::Ticket(id) => self.on_ticket_due(now, id),
                Timer::Ended => self.remove_ended(now),
                Timer::Recovered => self.recovery.is_complete = true,
            }
        }
        self.advance(now);
    }

    /// Handles the outcome of a command; an unknown or repeated id is counted and ignored.
    pub fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        let now = self.enter(now);
        match self.outbox.complete(id) {
            Some(Pending::Call(match_id)) => self.on_called(now, match_id, outcome),
            Some(Pending::Spawn(slot)) => self.on_spawned(now, slot, &outcome),
            Some(Pending::Stop(slot)) => self.on_stopped(now, slot, &outcome),
            None => {
                self.stats.completions_stray = self.stats.completions_stray.saturating_add(1);
                return;
            }
        }
        self.advance(now);
    }

    /// Returns the next command for the driver.
    pub fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        self.outbox.poll_command()
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.poll_event()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns how many tickets, matches, players and servers there are.
    pub fn load(&self) -> Load {
        Load {
            tickets_queued: self.tickets.queue.len(),
            tickets_waiting: self.tickets.waiting(),
            tickets_known: self.tickets.len(),
            matches: self.matches.len(),
            matches_waiting: self.matches.waiting(),
            players: self.matches.players(),
            servers: self.servers.len(),
        }
    }

    /// Returns the instances with a lease, ordered by id.
    pub fn servers(&self) -> impl Iterator<Item = ServerLink> {
        self.servers.iter().map(|(link, _)| link)
    }

    /// Returns about how many bytes it holds, without fixed parts and spare capacity. It is an
    /// upper bound of what players and servers can occupy: entries count with their largest size.
    pub fn memory_bytes(&self) -> usize {
        const TICKET_BYTES: usize = size_of::<Ticket>() + TICKET_HEAP_BYTES;
        let of = |count: usize, bytes: usize| count.saturating_mul(bytes);
        [
            of(self.tickets.len(), TICKET_BYTES),
            of(self.matches.len(), MATCH_BYTES),
            of(self.matches.players(), PARTICIPANT_BYTES),
            of(self.servers.len(), SERVER_BYTES),
            of(self.timers.len(), TIMER_BYTES),
            of(self.outbox.len(), OUTBOX_BYTES),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Advances the clock; an earlier time is a driver bug, and is ignored.
    fn enter(&mut self, now: Instant) -> Instant {
        debug_assert!(now >= self.now, "time decreases");
        self.now = self.now.max(now);
        self.now
    }

    /// Makes matches, places them and starts processes, as far as possible now.
    fn advance(&mut self, now: Instant) {
        if self.recovery.link_down_since.is_some() {
            return;
        }
        self.form_matches(now);
        self.place(now);
        self.scale_pool(now);
    }

    fn unix_time(&self, now: Instant) -> Option<UnixTime> {
        self.wall.map(|(at, unix)| unix + now.saturating_since(at))
    }

    fn set_ticket(&mut self, now: Instant, id: TicketId, state: TicketState) {
        if state.is_ended() {
            self.timers.clear(Timer::Ticket(id));
            self.tickets.set(id, state);
            self.tickets
                .schedule_removal(now + self.config.ended_kept, id);
            self.remove_ended(now);
        } else {
            self.tickets.set(id, state);
        }
        self.event(Event::Ticket(id));
    }

    fn remove_ended(&mut self, now: Instant) {
        self.tickets.remove_ended(now, self.config.ended_max);
        match self.tickets.removal_at() {
            Some(at) => self.timers.set(Timer::Ended, at),
            None => self.timers.clear(Timer::Ended),
        }
    }

    fn event(&mut self, event: Event) {
        let lost = self.outbox.event(event, self.config.events_max);
        self.stats.events_missed = self.stats.events_missed.saturating_add(lost);
    }
}

impl<P: Provider> fmt::Debug for Matchmaker<P> {
    /// Counts only, since it holds keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matchmaker")
            .field("load", &self.load())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Load of a matchmaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Tickets that wait for players.
    pub tickets_queued: usize,
    /// Tickets that wait for players or for a server.
    pub tickets_waiting: usize,
    /// Tickets that can be queried, including ended ones.
    pub tickets_known: usize,
    /// Matches, live or waiting for a server.
    pub matches: usize,
    /// Matches that no server has room for.
    pub matches_waiting: usize,
    /// Players with a seat in a live match.
    pub players: usize,
    /// Instances with a lease.
    pub servers: usize,
}

/// User data (at most 512 B), a grant (at most 1,679 B), and the entry by idempotency key.
const TICKET_HEAP_BYTES: usize = 512 + 1_679 + 64;

const MATCH_BYTES: usize = 256;

/// A player of a match, with its entry by client.
const PARTICIPANT_BYTES: usize = 256;

/// Keys, addresses and the ids of 256 matches.
const SERVER_BYTES: usize = 8 * 1_024;

const TIMER_BYTES: usize = 192;

/// A command to assign a match of 256 players, or a reply.
const OUTBOX_BYTES: usize = 4 * 1_024;

// A result is the longest part of an event.
const _: () = assert!(OUTBOX_BYTES < RECORD_BYTES_MAX);

/// A datagram is the body of a server's call; what is sent to a [`Caller`] is the reply. Drivers
/// that know the caller use [`handle_call`](Matchmaker::handle_call) instead.
impl<P: Provider> Machine for Matchmaker<P> {
    type Peer = Caller;
    type Event = Event;
    type Command = Command;

    fn handle_datagram(&mut self, now: Instant, arrival: Arrival<Caller>, datagram: &mut [u8]) {
        let mut reply = Vec::new();
        self.handle_call(now, arrival.peer.link, datagram, &mut reply);
        let max = self.config.replies_max;
        if !self.outbox.reply(arrival.peer, reply, max) {
            self.stats.replies_dropped = self.stats.replies_dropped.saturating_add(1);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn handle_completed(&mut self, now: Instant, id: CommandId, outcome: Outcome) {
        Self::handle_completed(self, now, id, outcome);
    }

    fn set_unix_time(&mut self, now: Instant, unix: UnixTime) {
        Self::set_unix_time(self, now, unix);
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Caller>> {
        let (caller, reply) = self.outbox.poll_reply()?;
        buf.extend_from_slice(&reply);
        Some(Transmit::to(caller))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Command)> {
        Self::poll_command(self)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }
}

impl<P: Provider> Matchmaker<P> {
    /// Submits a player's request for a match.
    ///
    /// - A repeated request (same player and idempotency key) returns the same receipt while its
    ///   ticket is known, also after it has ended.
    /// - A player in a live match returns to it: the ticket has a new token for its seat.
    /// - If the player has another waiting ticket, that ends, or the request fails: [`Duplicate`].
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; then nothing has changed.
    pub fn submit(
        &mut self,
        now: Instant,
        request: &TicketRequest,
    ) -> Result<Receipt, SubmitError> {
        let now = self.enter(now);
        let client = request.client_id;
        let before = self.tickets.of_client(client);
        if let Some(receipt) = self.earlier_receipt(request) {
            self.keep_ticket(now, receipt.ticket);
            return Ok(receipt);
        }
        let live = self.matches.of_client(client);
        if live.is_none() {
            self.check_admission(before)?;
        }
        // Everything that can fail is done first.
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

    /// Cancels a waiting ticket. If its match waits for a server, the other players return to their
    /// positions in the queue.
    ///
    /// # Errors
    ///
    /// [`CancelError`] if the ticket is not waiting.
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

    /// Notes a poll by the ticket's holder. A waiting ticket ends if it is not polled for
    /// [`Config::ask_timeout`](crate::Config::ask_timeout); other tickets are not affected.
    pub fn keep_ticket(&mut self, now: Instant, ticket: TicketId) {
        let now = self.enter(now);
        if let Some(entry) = self.tickets.get(ticket)
            && entry.state.is_waiting()
        {
            let due = entry.expires_at.min(now + self.config.ask_timeout);
            self.timers.set(Timer::Ticket(ticket), due);
        }
    }

    /// Handles a ticket that has waited too long, or was not polled.
    fn on_ticket_due(&mut self, now: Instant, id: TicketId) {
        let expires_at = self.tickets.get(id).map(|ticket| ticket.expires_at);
        let ending = if expires_at.is_some_and(|at| at <= now) {
            Ending::Expired
        } else {
            Ending::Abandoned
        };
        self.withdraw(now, id, ending);
    }

    /// Issues another token for the ticket's seat, with its own pre-shared key, after the last one
    /// was used, expired or lost. The server accepts the newer one.
    ///
    /// # Errors
    ///
    /// [`ReissueError`]; then the ticket has not changed.
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

    /// Returns the state of a ticket; repeated calls return the same grant. `None` if it is
    /// unknown, or ended too long ago.
    pub fn ticket(&self, ticket: TicketId) -> Option<&TicketState> {
        self.tickets.get(ticket).map(|ticket| &ticket.state)
    }

    /// Returns whether `key` is in the ticket's receipt; false for an unknown ticket. Check this
    /// before any request for the ticket.
    pub fn is_holder(&self, ticket: TicketId, key: &ResumeKey) -> bool {
        let ticket = self.tickets.get(ticket);
        ticket.is_some_and(|ticket| ticket.resume_key == *key)
    }

    /// Returns the ticket of a player that waits or has a seat.
    pub fn ticket_of(&self, client: ClientId) -> Option<TicketId> {
        self.tickets.of_client(client)
    }

    fn earlier_receipt(&self, request: &TicketRequest) -> Option<Receipt> {
        let (client, key) = (request.client_id, request.idempotency?);
        let id = self.tickets.by_idempotency_key(client, key)?;
        let ticket = self.tickets.get(id)?;
        Some(Receipt {
            ticket: id,
            resume_key: ticket.resume_key.clone(),
        })
    }

    /// Checks whether another ticket may wait, possibly in place of `before`.
    const fn check_admission(&self, before: Option<TicketId>) -> Result<(), SubmitError> {
        match (before, self.config.duplicate) {
            (Some(id), Duplicate::Refuse) => Err(SubmitError::Duplicate(id)),
            (None, _) if self.tickets.waiting() >= self.config.tickets_max => {
                Err(SubmitError::Full)
            }
            (Some(_), Duplicate::Replace) | (None, _) => Ok(()),
        }
    }

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
            arrival: self.tickets.queue.next_arrival(),
            attempts: 0,
            state: seat.map_or(TicketState::Queued, TicketState::Assigned),
        };
        self.tickets.insert(id, ticket);
        self.stats.tickets = self.stats.tickets.saturating_add(1);
        if let Some(match_id) = live {
            if let Some(participant) = self.matches.participant_mut(match_id, request.client_id) {
                participant.ticket = Some(id);
            }
        } else {
            self.keep_ticket(now, id);
        }
        self.event(Event::Ticket(id));
        id
    }

    /// Ends a ticket that waits, or whose seat another ticket takes over.
    fn withdraw(&mut self, now: Instant, id: TicketId, ending: Ending) {
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

    /// Issues a token for the seat of `client` in a live match.
    fn issue(
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
        let participant = entry
            .participant_mut(client)
            .ok_or(ReissueError::NotAssigned)?;
        if participant.next_token_at > now {
            let wait = participant.next_token_at.saturating_since(now);
            return Err(ReissueError::TooSoon(wait));
        }
        let request = TokenRequest {
            app_id: self.game.app_id,
            link,
            server,
            match_id,
            seated: participant.seated,
            user,
            issued_at: mint::issue_time(unix, participant.issued_at),
            lifetime: self.config.token_lifetime.get(),
        };
        let assignment =
            mint::mint(&mut self.provider, &request).map_err(|_| ReissueError::NoEntropy)?;
        participant.issued_at = Some(request.issued_at);
        participant.next_token_at = now + self.config.reissue_interval;
        // A record from the server this much later was sent after the token had expired.
        let expires_at = now + request.lifetime + EXPIRY_SLACK + self.config.call_timeout;
        if let Some(entry) = self.matches.get_mut(match_id) {
            entry.enter_until = entry.enter_until.max(expires_at);
        }
        self.stats.tokens = self.stats.tokens.saturating_add(1);
        Ok(assignment)
    }

    /// Returns whether the match is live, so that its players may have tokens.
    fn is_live(&self, match_id: MatchId) -> bool {
        let phase = self.matches.get(match_id).map(|entry| entry.phase);
        matches!(phase, Some(Phase::Live { .. }))
    }
}

/// How much longer than its lifetime a token may be valid if clocks differ: its issue time may be
/// in the future ([`mint::issue_time`]), and the server's clock may be behind.
const EXPIRY_SLACK: Duration = CLOCK_SKEW.saturating_mul(2);

impl From<ReissueError> for SubmitError {
    fn from(error: ReissueError) -> Self {
        match error {
            ReissueError::TooSoon(wait) => Self::TooSoon(wait),
            ReissueError::NoClock => Self::NoClock,
            // A live match has a server and a seat for each of its players.
            ReissueError::Unknown | ReissueError::NotAssigned | ReissueError::NoEntropy => {
                Self::NoEntropy
            }
        }
    }
}

/// Counters of a matchmaker since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tickets accepted.
    pub tickets: u64,
    /// Matches that became live.
    pub matches: u64,
    /// Matches adopted from the record of an instance of an earlier matchmaker.
    pub adopted: u64,
    /// Tokens issued.
    pub tokens: u64,
    /// Matches dissolved before they were live; their tickets returned to the queue.
    pub dissolved: u64,
    /// Calls that were malformed, rejected, or from servers of another game.
    pub calls_refused: u64,
    /// Completions of unknown commands.
    pub completions_stray: u64,
    /// Events dropped because the queue was full.
    pub events_missed: u64,
    /// Replies dropped because the queue was full.
    pub replies_dropped: u64,
}
